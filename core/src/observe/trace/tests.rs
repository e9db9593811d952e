//! The traces of whole runs follow the rules of the Trace Event Format.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::sim::scenario::{Scenario, builtin};
use crate::sim::world::World;

/// Returns the trace of a built-in scenario, and the world at its end.
fn trace_of(scenario: &Scenario, cancelled_at: Option<u64>) -> (Vec<TraceEvent>, World) {
    let mut world = World::with_events(scenario, 5, |_| ()).unwrap();
    let mut trace = Trace::new(&scenario.plan().unwrap(), &world.resources().collect::<Vec<_>>());
    match cancelled_at {
        None => world.run_feeding(&mut trace).unwrap(),
        Some(steps) => {
            for _ in 1..steps {
                world.feed(&mut trace).unwrap();
                world.step();
            }
            world.feed(&mut trace).unwrap();
        }
    }
    trace.finish(world.now());
    (trace.take(), world)
}

type Tracks = BTreeMap<Track, Vec<(f64, f64)>>;

fn slices(events: &[TraceEvent]) -> Tracks {
    let mut tracks = Tracks::new();
    for event in events.iter().filter(|event| event.ph == 'X') {
        let end = event.ts + event.dur.expect("a slice has a duration");
        tracks.entry((event.pid, event.tid)).or_default().push((event.ts, end));
    }
    tracks
}

/// Checks every rule of the format that a viewer relies on.
fn check(events: &[TraceEvent]) {
    let named = |kind: &str| -> BTreeSet<Track> {
        let names = events.iter().filter(|event| event.ph == 'M' && event.name == kind);
        names.map(|event| (event.pid, event.tid)).collect()
    };
    let (processes, tracks) = (named("process_name"), named("thread_name"));
    for (track, mut slices) in slices(events) {
        assert!(tracks.contains(&track) && processes.contains(&(track.0, 0)), "{track:?} has no name");
        // Two slices of one track either do not overlap or are nested.
        slices.sort_by(|a, b| (a.0, -a.1).partial_cmp(&(b.0, -b.1)).expect("numbers"));
        let mut open: Vec<f64> = Vec::new();
        for (start, end) in slices {
            while open.last().is_some_and(|last| *last <= start + 1e-6) {
                open.pop();
            }
            assert!(start <= end && open.last().is_none_or(|last| end <= last + 1e-6), "{track:?}: {start} to {end}");
            open.push(end);
        }
    }
    let mut waits: BTreeMap<(u32, String), (u32, f64)> = BTreeMap::new();
    let mut counters: BTreeMap<(u32, String), f64> = BTreeMap::new();
    for event in events {
        assert!(processes.contains(&(event.pid, 0)), "{event:?} of a process without a name");
        match event.ph {
            'b' | 'e' => {
                let wait = waits.entry((event.pid, event.id.clone().expect("a wait has an id"))).or_default();
                assert_eq!(wait.0.is_multiple_of(2), event.ph == 'b', "{event:?} is the wrong end");
                assert!(wait.1 <= event.ts, "{event:?} ends before it begins");
                *wait = (wait.0 + 1, event.ts);
            }
            'C' => {
                assert!(event.args.value.is_some(), "{event:?} has no value");
                let last = counters.insert((event.pid, event.name.clone()), event.ts);
                assert!(last.is_none_or(|last| last <= event.ts), "{event:?} goes back in time");
            }
            'X' | 'M' => {}
            other => panic!("phase {other}"),
        }
    }
    assert!(waits.values().all(|(ends, _)| ends.is_multiple_of(2)), "a wait has no end");
}

#[test]
fn every_slice_is_closed_every_track_named_and_every_counter_monotone_in_time() {
    for scenario in builtin() {
        check(&trace_of(&scenario, None).0);
    }
}

#[test]
fn a_run_that_stops_early_leaves_nothing_open() {
    for steps in [1, 10, 300, 2_000] {
        for scenario in builtin() {
            check(&trace_of(&scenario, Some(steps)).0);
        }
    }
}

#[test]
fn there_is_a_slice_for_every_task_every_call_and_every_row_group() {
    let scenario = &builtin()[0];
    let (events, world) = trace_of(scenario, None);
    let of = |cat: &str| events.iter().filter(|event| event.ph == 'X' && event.cat == cat).count() as u64;
    let report = world.finished().unwrap();
    let spawned: u64 = report.columns.iter().map(|column| column.tasks.spawned).sum();
    assert_eq!((of("task"), of("row group")), (spawned, u64::from(report.row_groups)));
    let sample = world.sample();
    assert_eq!(of("call"), sample.providers[0].accepted + sample.providers[0].refused);
    assert!(of("cooldown") > 0 && of("wait") > 0);
}

#[test]
fn a_task_slice_has_the_column_the_row_and_the_outcome() {
    let (events, _) = trace_of(&builtin()[0], None);
    let refused = events.iter().find(|event| event.args.outcome.as_deref() == Some("rate limited")).unwrap();
    assert!(refused.name.ends_with("_draft") || refused.name.ends_with("_judge"), "{refused:?}");
    assert!(refused.args.row_group.is_some() && refused.args.row.is_some() && refused.args.attempt == Some(1));
}

#[test]
fn the_track_of_an_outage_shows_when_the_provider_was_down_probed_and_recovering() {
    let scenario = builtin().into_iter().find(|scenario| scenario.name == "outage").unwrap();
    let (events, _) = trace_of(&scenario, None);
    let named =
        |ph: char, name: &str| events.iter().any(|event| event.ph == ph && event.args.name.as_deref() == Some(name));
    assert!(named('M', "outages") && named('M', "shaky"));
    let mut slices: Vec<&TraceEvent> = events.iter().filter(|event| event.cat == "outage").collect();
    slices.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let phases: Vec<&str> = slices.iter().map(|slice| slice.name.as_str()).collect();
    assert_eq!((phases[0], phases[1], *phases.last().unwrap()), ("down", "probing", "recovering"), "{phases:?}");
    for pair in slices.windows(2).filter(|pair| pair[0].name != "recovering") {
        let end = pair[0].ts + pair[0].dur.unwrap();
        assert!((end - pair[1].ts).abs() < 1e-6, "{phases:?}: a phase begins where the one before ends");
    }
    let healthy = trace_of(&builtin()[0], None).0;
    assert!(healthy.iter().all(|event| event.pid != OUTAGES), "without an outage there is no track of it");
}
