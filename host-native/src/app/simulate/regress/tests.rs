use super::*;

fn outcome(sweep: &str) -> Outcome {
    let cases = idle::cases().into_iter().filter(|case| case.sweep == sweep).collect();
    run(cases, Screen::Off).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_table_has_a_line_for_each_case_and_says_what_was_missed() {
    let mut outcome = outcome("adaptive-row-groups");
    let text = outcome.to_string();
    assert_eq!(text.lines().filter(|line| line.contains("adaptive-row-groups/")).count(), 3);
    assert!(text.contains("3 cases") && text.contains(" 0 missed"), "{text}");
    outcome.figures[2].resources.iter_mut().for_each(|resource| resource.frontier_slot_ns = u64::MAX / 2);
    outcome.checks = idle::judge(&outcome.cases, &outcome.figures);
    assert_eq!(outcome.missed(), 2);
    assert!(outcome.to_string().contains("missed: adaptive-row-groups/adaptive: `model` is used at least 95.00 %"));
}

#[test]
fn a_baseline_finds_every_figure_that_is_different_and_nothing_else() {
    let figures = outcome("request-pressure").figures;
    let baseline = Baseline::parse(&Baseline::of(&figures).to_json().unwrap()).unwrap();
    assert_eq!(baseline.compare(&figures, true), []);
    let mut other = figures[1..].to_vec();
    other[0].wall_ns += 820_000;
    other[0].resources[0].busy_slot_ns = 0;
    other.push(CaseFigures { name: "later".to_string(), ..CaseFigures::default() });
    let differences = baseline.compare(&other, true);
    let named: Vec<(&str, &str)> = differences.iter().map(|it| (it.case.as_str(), it.figure.as_str())).collect();
    let advisory = "request-pressure/advisory";
    assert_eq!(
        named,
        [
            (advisory, "resources.`submission`.busy_slot_ns"),
            (advisory, "wall_ns"),
            ("later", ""),
            ("request-pressure/control", "")
        ]
    );
    let text = baseline::in_words(&differences);
    assert!(text.contains("wall_ns: 82000000 -> 82820000  (+1.00 %)"), "{text}");
    assert!(text.contains("is new") && text.contains("is gone"), "{text}");
    assert_eq!(baseline.compare(&other, false).len(), 3, "what was not run is not gone");
}

#[test]
fn a_baseline_of_another_schema_is_refused() {
    assert!(Baseline::parse("{\"schema\": 2, \"cases\": []}").unwrap_err().contains("schema 2"));
    assert!(Baseline::parse("{").is_err());
}

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
fn the_page_is_well_formed_needs_nothing_from_anywhere_and_escapes_what_it_shows() {
    let mut outcome = outcome("request-pressure");
    let evil = "<script>alert(\"1\") & 'more'</script>";
    outcome.figures[0].name = evil.to_string();
    outcome.checks[0] =
        TargetCheck { case: evil.to_string(), what: evil.to_string(), found: evil.to_string(), holds: false };
    let html = page(&outcome);
    assert_eq!(open_elements(&html), Ok(Vec::new()));
    for foreign in FOREIGN {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("&lt;script&gt;alert(&quot;1&quot;) &amp; 'more'&lt;/script&gt;"));
    assert!(html.contains("class=\"frontier\"") && html.contains("<svg"), "the charts are there");
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
