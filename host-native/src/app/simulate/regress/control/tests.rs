use std::collections::BTreeSet;

use super::*;
use crate::app::simulate::regress::tests::{EXTERNAL, open_elements};

/// A survey of three providers, with the traces of three named cases and a drawn provider.
fn outcome() -> ControlOutcome {
    let recorded = PeerRecord::load_all().unwrap();
    let [named, drawn] = [Example::named(), Example::drawn()];
    let fast = |example: &&Example| ["outage", "knee", "few requests per minute"].contains(&example.case.kind());
    let named: Vec<_> = named.iter().filter(fast).collect();
    let mut traces: Vec<_> = named.iter().map(|it| CaseTraces::of(it, false, &recorded).unwrap()).collect();
    let is_tokens = |example: &&Example| example.case.kind() == "tokens";
    traces.extend(drawn.iter().filter(is_tokens).map(|it| CaseTraces::of(it, true, &recorded).unwrap()));
    let providers = parallel_map(3, |nth| ProviderScores::measure(nth, &Contender::all()), |_, _| {}).unwrap();
    ControlOutcome {
        named: named.iter().map(|it| (it.case.name.clone(), scores(it).unwrap())).collect(),
        survey: Survey::new(&Contender::all(), providers),
        traces,
    }
}

#[test]
fn every_example_has_a_current_record_of_each_peer() {
    let recorded = PeerRecord::load_all().unwrap();
    let mut examples = Example::named();
    examples.extend(Example::drawn());
    let peers: BTreeSet<&str> = recorded.iter().map(|it| it.trace.contender.as_str()).collect();
    assert_eq!((peers.len(), recorded.len()), (5, 5 * examples.len()));
    for Example { case, seed, .. } in &examples {
        let oracle = Oracle::of(case, *seed).unwrap();
        let of_case = recorded.iter().filter(|it| it.matches_case(case, &oracle));
        let is_as_long = |it: &&PeerRecord| it.trace.series.answered.len() == oracle.trace(case).series.answered.len();
        assert_eq!(of_case.filter(is_as_long).count(), 5, "{}: record the peers again, see `peers.rs`", case.name);
    }
}

#[test]
fn a_record_of_an_earlier_version_of_a_case_is_left_out() {
    let mut recorded = PeerRecord::load_all().unwrap();
    let knee = Example::named().into_iter().find(|it| it.case.kind() == "knee").unwrap();
    assert_eq!(CaseTraces::of(&knee, false, &recorded).unwrap().traces.len(), 8);
    for it in &mut recorded {
        it.oracle_answered += 1;
    }
    let case = CaseTraces::of(&knee, false, &recorded).unwrap();
    assert_eq!(case.traces.len(), 3);
    let page = page(&ControlOutcome { traces: [case].into(), ..outcome() });
    assert!(page.contains("are left out"));
}

#[test]
fn the_page_shows_every_contender_of_each_case_is_well_formed_and_loads_nothing() {
    let mut outcome = outcome();
    let page = page(&outcome);
    assert_eq!(open_elements(&page), Ok(Vec::new()));
    for external in EXTERNAL {
        assert!(!page.contains(external), "{external}");
    }
    assert_eq!(page.matches("<figure>").count(), outcome.traces.len());
    assert_eq!(
        page.matches("role=\"img\" aria-label=").count(),
        2 * outcome.traces.len(),
        "each chart has a text alternative"
    );
    for contender in ["tide", "aimd", "fixed", "tower-acc Gradient2", "throttle-net Vegas"] {
        let rows = page.matches(&format!("</span>{contender}</th>")).count();
        assert_eq!(rows, outcome.traces.len(), "{contender}");
    }
    assert!(
        page.contains("From 40 s on it fails for 5 s, then is silent for 5 s, then recovers for 10 s."),
        "the caption describes the provider"
    );
    assert!(!page.contains("are left out"));
    outcome.traces[0].name = "<b>\"evil\" & co</b>".to_string();
    let page = super::page(&outcome);
    assert!(page.contains("&lt;b&gt;&quot;evil&quot; &amp; co&lt;/b&gt;") && !page.contains("<b>\"evil\""));
}

#[test]
fn the_tables_have_a_row_for_each_named_case_and_a_row_for_each_contender() {
    let outcome = outcome();
    let text = outcome.to_string();
    assert!(text.lines().any(|line| line.trim_start().starts_with("few requests per minute  100.0 / ")), "{text}");
    assert!(text.contains("on 3 providers drawn from seeds"), "{text}");
    for spread in outcome.survey.spreads() {
        let line = spread_cells(&spread);
        assert!(text.lines().any(|found| line.iter().all(|cell| found.contains(cell.as_str()))), "{line:?}: {text}");
    }
}

#[test]
fn parallel_results_are_returned_in_order_and_progress_is_counted() {
    let mut counts = Vec::new();
    let squares = parallel_map(100, |nth| Ok(nth * nth), |done, of| counts.push((done, of))).unwrap();
    assert_eq!(squares, (0..100).map(|nth| nth * nth).collect::<Vec<u64>>());
    assert_eq!(counts, (1..=100).map(|done| (done, 100)).collect::<Vec<_>>());
}
