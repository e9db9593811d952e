use super::*;
use crate::app::simulate::regress::tests::{EXTERNAL, open_elements};

fn outcome(sweep: &str) -> IdleOutcome {
    let cases = idle::cases().into_iter().filter(|case| case.sweep == sweep).collect();
    run(cases, Screen::Off).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_table_has_a_row_for_each_case_and_lists_missed_checks() {
    let mut outcome = outcome("adaptive-row-groups");
    let text = outcome.to_string();
    assert_eq!(text.lines().filter(|line| line.contains("adaptive-row-groups/")).count(), 3);
    assert!(text.contains("3 cases") && text.contains(" 0 missed"), "{text}");
    outcome.figures[2].resources.iter_mut().for_each(|resource| resource.frontier_slot_ns = u64::MAX / 2);
    outcome.checks = idle::judge(&outcome.cases, &outcome.figures);
    assert_eq!(outcome.missed_checks(), 2);
    assert!(outcome.to_string().contains("missed: adaptive-row-groups/adaptive: `model` is used at least 95.00 %"));
}

#[test]
fn a_baseline_reports_exactly_the_figures_that_differ() {
    let figures = outcome("request-pressure").figures;
    let baseline = Baseline::parse(&Baseline::new(&figures).to_json().unwrap()).unwrap();
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
    let text = describe_differences(&differences);
    assert!(text.contains("wall_ns: 82000000 -> 82820000  (+1.00 %)"), "{text}");
    assert!(text.contains("added") && text.contains("removed"), "{text}");
    assert_eq!(baseline.compare(&other, false).len(), 3, "cases that were not run are not reported as removed");
}

#[test]
fn a_baseline_with_another_schema_version_is_rejected() {
    assert!(Baseline::parse("{\"schema\": 2, \"cases\": []}").unwrap_err().contains("schema 2"));
    assert!(Baseline::parse("{").is_err());
}

#[test]
fn the_page_is_well_formed_loads_nothing_and_escapes_text() {
    let mut outcome = outcome("request-pressure");
    let evil = "<script>alert(\"1\") & 'more'</script>";
    outcome.figures[0].name = evil.to_string();
    outcome.checks[0] =
        TargetCheck { case: evil.to_string(), what: evil.to_string(), found: evil.to_string(), holds: false };
    let html = page(&outcome);
    assert_eq!(open_elements(&html), Ok(Vec::new()));
    for external in EXTERNAL {
        assert!(!html.contains(external), "{external}");
    }
    assert!(html.contains("&lt;script&gt;alert(&quot;1&quot;) &amp; 'more'&lt;/script&gt;"));
    assert!(html.contains("class=\"frontier\"") && html.contains("<svg"), "the charts are there");
}
