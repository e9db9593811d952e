//! The peers' runs on the examples: the program embeds them as a file, and the file is what their code gives.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidegate_core::sim::suite::control::{Example, Oracle, trace};
use tidegate_native::app::simulate::regress::control::PeerRecord;

use super::peers;

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-native/src/app/simulate/regress/control/peers.jsonl")
}

/// All runs of the peers on an example, a line each.
fn lines_of(Example { case, seed, .. }: &Example) -> String {
    let oracle = Oracle::of(case, *seed).expect("a valid case");
    let line = |peer| {
        let trace = trace(case, &peer, &oracle).expect("valid settings");
        let recorded = PeerRecord { case: case.name.clone(), oracle_answered: oracle.answered(), trace };
        serde_json::to_string(&recorded).expect("it has no maps") + "\n"
    };
    peers::all().into_iter().map(line).collect()
}

fn examples() -> Vec<Example> {
    Example::named().into_iter().chain(Example::drawn()).collect()
}

#[test]
fn the_recorded_runs_of_the_peers_are_what_their_code_gives_where_they_are_not_refused_without_end() {
    if std::env::var_os("CONTROL_WRITE").is_none() {
        let file = fs::read_to_string(path()).expect("it is there");
        for example in examples().iter().filter(|example| ["knee", "outage"].contains(&example.case.kind())) {
            assert!(file.contains(&lines_of(example)), "{}: see the head of this test", example.case.name);
        }
    }
}

#[test]
#[ignore = "the peers' storms of refusals take minutes"]
fn all_recorded_runs_of_the_peers_are_what_their_code_gives() {
    let (examples, next) = (examples(), AtomicUsize::new(0));
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let done = numbers.map_while(|nth| Some((nth, lines_of(examples.get(nth)?))));
        done.collect::<Vec<_>>()
    };
    let mut lines = thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut lines = work();
        lines.extend(other.join().expect("it does not panic"));
        lines
    });
    lines.sort();
    let expected: String = lines.into_iter().map(|(_, lines)| lines).collect();
    if std::env::var_os("CONTROL_WRITE").is_some() {
        fs::write(path(), expected).expect("it can be written");
    } else {
        assert!(fs::read_to_string(path()).expect("it is there") == expected, "see the head of this test");
    }
}
