//! The dashboard of `tidegate run --tui`, on a terminal that `script` makes.

use crate::support::{Scratch, mock_pipeline};

const MOCK: &str = "capacity = { shape = \"constant\", slots = 4 }, latency = { law = \"constant\", latency_ms = 20 }";

/// Runs a shell line on a terminal of 120 x 30 characters and returns what the terminal got.
fn on_a_terminal(scratch: &Scratch, line: &str) -> String {
    let quoted = format!("stty cols 120 rows 30; {line}");
    let program = env!("CARGO_BIN_EXE_tidegate");
    scratch.shell(&format!("program={program}; export program; script -qec '{quoted}' typescript")).stdout
}

#[test]
fn the_dashboard_shows_the_run_and_the_terminal_is_as_before_when_it_ends() {
    let scratch = Scratch::new(12);
    scratch.write("p.toml", &mock_pipeline(4, "", MOCK));
    let line = "stty -g > before; \"$program\" run p.toml --out out --tui; echo \"exit $?\"; stty -g > after";
    let output = on_a_terminal(&scratch, line);
    let (screen, rest) = output.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{output}"));
    // Blank cells are skipped, so the words of a line are apart.
    let parts = ["\u{1b}[?1049h", "providers", "mock/m", "columns", "title", "/12", "idle", "messages"];
    for part in parts {
        assert!(screen.contains(part), "{part:?} is missing: {output}");
    }
    // The messages and the summary follow on the ordinary screen.
    assert!(rest.contains("p.toml: 12 rows, 2 columns to fill") && rest.contains("rows out"), "{output}");
    assert!(rest.contains("exit 0") && !rest.contains("\u{1b}[?1049h"), "{output}");
    let settings = |name| std::fs::read_to_string(scratch.path(name)).unwrap();
    assert_eq!(settings("before"), settings("after"));
}

#[test]
fn the_terminal_is_restored_when_the_run_is_terminated() {
    let scratch = Scratch::new(100_000);
    scratch.write("p.toml", &mock_pipeline(4, "", MOCK));
    // The first row group is written while the dashboard is shown.
    let line = "stty -g > before; \"$program\" run p.toml --out out --tui & \
                until [ -e out/rows/000000.jsonl ]; do sleep 0.05; done; kill -TERM $!; wait $!; \
                echo \"exit $?\"; stty -g > after";
    let output = on_a_terminal(&scratch, line);
    let (_, rest) = output.rsplit_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{output}"));
    assert!(rest.contains("terminated: awaiting outstanding calls") && rest.contains("exit 130"), "{output}");
    let settings = |name| std::fs::read_to_string(scratch.path(name)).unwrap();
    assert_eq!(settings("before"), settings("after"));
}

#[test]
fn a_dashboard_without_a_terminal_is_an_error_and_starts_nothing() {
    let scratch = Scratch::new(3);
    scratch.write("p.toml", &mock_pipeline(4, "", MOCK));
    scratch.run(&["run", "p.toml", "--out", "out", "--tui"]).assert(2, &["--tui: standard error is not a terminal"]);
    assert!(!scratch.path("out").exists());
}
