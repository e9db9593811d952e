use std::collections::BTreeSet;

use super::*;
use crate::app::simulate::regress::tests::{FOREIGN, open_elements};

/// A survey of three providers, and the pictures of two named cases and a drawn one.
fn outcome() -> ControlOutcome {
    let recorded = Recorded::all().unwrap();
    let [named, drawn] = [Example::named(), Example::drawn()];
    let fast = |example: &&Example| ["outage", "knee", "few requests per minute"].contains(&example.case.kind());
    let named: Vec<_> = named.iter().filter(fast).collect();
    let mut pictures: Vec<_> = named.iter().map(|it| Picture::of(it, false, &recorded).unwrap()).collect();
    let is_tokens = |example: &&Example| example.case.kind() == "tokens";
    pictures.extend(drawn.iter().filter(is_tokens).map(|it| Picture::of(it, true, &recorded).unwrap()));
    let providers = in_parallel(3, |nth| Surveyed::measure(nth, &Contender::all()), |_, _| {}).unwrap();
    ControlOutcome {
        named: named.iter().map(|it| (it.case.name.clone(), scores(it).unwrap())).collect(),
        survey: Survey::new(&Contender::all(), providers),
        pictures,
    }
}

#[test]
fn every_example_has_a_record_of_each_peer_that_is_of_the_case_as_it_is_now() {
    let recorded = Recorded::all().unwrap();
    let mut examples = Example::named();
    examples.extend(Example::drawn());
    let peers: BTreeSet<&str> = recorded.iter().map(|it| it.trace.contender.as_str()).collect();
    assert_eq!((peers.len(), recorded.len()), (5, 5 * examples.len()));
    for Example { case, seed, .. } in &examples {
        let oracle = Oracle::of(case, *seed).unwrap();
        let of_case = recorded.iter().filter(|it| it.is_of(case, &oracle));
        let is_as_long = |it: &&Recorded| it.trace.series.answered.len() == oracle.trace(case).series.answered.len();
        assert_eq!(of_case.filter(is_as_long).count(), 5, "{}: record them anew, see `peers.rs`", case.name);
    }
}

#[test]
fn a_record_of_another_version_of_a_case_is_not_shown() {
    let mut recorded = Recorded::all().unwrap();
    let knee = Example::named().into_iter().find(|it| it.case.kind() == "knee").unwrap();
    assert_eq!(Picture::of(&knee, false, &recorded).unwrap().traces.len(), 8);
    for it in &mut recorded {
        it.oracle_answered += 1;
    }
    let picture = Picture::of(&knee, false, &recorded).unwrap();
    assert_eq!(picture.traces.len(), 3);
    let page = page(&ControlOutcome { pictures: [picture].into(), ..outcome() });
    assert!(page.contains("are left out"));
}

#[test]
fn the_page_has_a_picture_of_each_case_with_every_contender_is_well_formed_and_needs_nothing_from_anywhere() {
    let mut outcome = outcome();
    let page = page(&outcome);
    assert_eq!(open_elements(&page), Ok(Vec::new()));
    for foreign in FOREIGN {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<figure>").count(), outcome.pictures.len());
    assert_eq!(
        page.matches("role=\"img\" aria-label=").count(),
        2 * outcome.pictures.len(),
        "each chart is told in words"
    );
    for contender in ["tide", "aimd", "fixed", "tower-acc Gradient2", "throttle-net Vegas"] {
        let rows = page.matches(&format!("</span>{contender}</th>")).count();
        assert_eq!(rows, outcome.pictures.len(), "{contender}");
    }
    assert!(
        page.contains("From 40 s on it fails for 5 s, then is silent for 5 s, then recovers for 10 s."),
        "the caption says what it does"
    );
    assert!(!page.contains("are left out"));
    outcome.pictures[0].name = "<b>\"evil\" & co</b>".to_string();
    let page = super::page(&outcome);
    assert!(page.contains("&lt;b&gt;&quot;evil&quot; &amp; co&lt;/b&gt;") && !page.contains("<b>\"evil\""));
}

#[test]
fn the_table_has_a_line_for_each_named_case_and_for_each_contender_over_the_drawn_ones() {
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
fn work_done_by_many_threads_comes_back_in_order_and_is_counted() {
    let mut counts = Vec::new();
    let squares = in_parallel(100, |nth| Ok(nth * nth), |done, of| counts.push((done, of))).unwrap();
    assert_eq!(squares, (0..100).map(|nth| nth * nth).collect::<Vec<u64>>());
    assert_eq!(counts, (1..=100).map(|done| (done, 100)).collect::<Vec<_>>());
}
