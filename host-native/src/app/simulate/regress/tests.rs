use super::*;

/// Text that a page must not contain, because it loads or links something else.
pub(super) const EXTERNAL: [&str; 7] = ["http://", "https://", "<script", "src=", "url(", "@import", "<link"];

/// Elements without an end tag.
const VOID_ELEMENTS: [&str; 3] = ["br", "input", "meta"];

/// Returns the names of elements that are still open at the end. Fails if an end tag does not match its start
/// tag.
pub(super) fn open_elements(html: &str) -> Result<Vec<String>, String> {
    let mut open: Vec<String> = Vec::new();
    for tag in html.split('<').skip(1) {
        let (tag, rest) = tag.split_once('>').ok_or_else(|| format!("<{tag} has no end"))?;
        if rest.contains('>') {
            return Err(format!("a stray > after <{tag}>"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
        } else if !tag.ends_with('/') && !tag.starts_with('!') {
            if tag.matches('"').count() % 2 == 1 {
                return Err(format!("<{tag}> has an open attribute"));
            }
            let name = tag.split(' ').next().unwrap_or_default();
            if !VOID_ELEMENTS.contains(&name) {
                open.push(name.to_string());
            }
        }
    }
    Ok(open)
}

#[test]
fn a_flag_of_one_suite_is_rejected_with_the_other() {
    let error = |args: RegressArgs| match regress(&args) {
        Err(Error::Setting(why)) => why,
        other => panic!("{other:?}"),
    };
    let idle = RegressArgs { drawn: Some(3), ..RegressArgs::default() };
    assert!(error(idle).contains("add `--suite control`"));
    let control = RegressArgs { suite: SuiteName::Control, quick: true, ..RegressArgs::default() };
    assert_eq!(error(control), "`--quick` belongs to the idle suite");
}
