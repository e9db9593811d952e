use super::*;

/// What a page may not have that needs nothing from anywhere.
pub(super) const FOREIGN: [&str; 7] = ["http://", "https://", "<script", "src=", "url(", "@import", "<link"];

/// Elements that have no end.
const VOID: [&str; 3] = ["br", "input", "meta"];

/// The names of elements that are open at the end, of text in which every other one is closed in its order.
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
            if !VOID.contains(&name) {
                open.push(name.to_string());
            }
        }
    }
    Ok(open)
}

#[test]
fn a_flag_of_one_suite_is_refused_with_the_other() {
    let refused = |args: RegressArgs| match regress(&args) {
        Err(Error::Setting(why)) => why,
        other => panic!("{other:?}"),
    };
    let idle = RegressArgs { drawn: Some(3), ..RegressArgs::default() };
    assert!(refused(idle).contains("add `--suite control`"));
    let control = RegressArgs { suite: SuiteName::Control, quick: true, ..RegressArgs::default() };
    assert_eq!(refused(control), "`--quick` is of the idle suite");
}
