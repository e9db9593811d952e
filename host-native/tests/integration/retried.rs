//! Tests of transient failures: how a run counts and reports them, and the settings that limit them.

use serde_json::{Value, json};

use crate::support::provider::provider;
use crate::support::{Scratch, mock_pipeline, remote_pipeline};

/// Runs eight rows at a provider that rejects the first three calls, with `settings` in `[run]`.
fn run_with_three_rejections(settings: &str) -> crate::support::Ended {
    let scratch = Scratch::new(8);
    let settings = format!("degraded_window = 2\n{settings}");
    // With one call at a time, the rejections come first.
    let text = remote_pipeline(&provider().0, "model = \"refuses-3\"", &settings)
        .replace("max_parallel = 4", "max_parallel = 1");
    scratch.write("p.toml", &text);
    scratch.run(&["p.toml", "--out", "out", "--json"])
}

#[test]
fn retried_failures_are_counted_by_kind_and_status_in_the_summary_and_the_warning() {
    let ended = run_with_three_rejections("");
    let warning = "`remote/refuses-3` is degraded: 2 of its last 2 answers were failures that may pass: 2 rate limited (HTTP 429)";
    ended.assert(0, &[warning]);
    let summary: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let count = &summary["retryable"][0];
    assert_eq!((&count["kind"], &count["status"], &count["total"]), (&json!("rate_limited"), &json!(429), &json!(3)));
}

#[test]
fn the_warning_about_a_degraded_provider_can_be_disabled() {
    let ended = run_with_three_rejections("degraded_rate = \"never\"");
    ended.assert(0, &["\"total\":3"]);
    assert!(!ended.all().contains("is degraded"), "{}", ended.all());
}

#[test]
fn early_shutdown_can_be_disabled_and_the_plan_shows_it() {
    let scratch = Scratch::new(30);
    // Every row fails permanently, in a template that reads an answer.
    let column = "[[columns]]\nname = \"v\"\nkind = \"expression\"\ntemplate = \"{{ title // 0 }}\"\n";
    scratch.write("p.toml", &(mock_pipeline(8, "", "seed = 5") + "shutdown_rate = \"never\"\n" + column));
    let ended = scratch.run(&["p.toml", "--out", "out", "--plan"]);
    ended.assert(2, &["shutdown_rate_permille            unbounded  file", "no row could be finished"]);
    assert!(ended.all().contains("degraded_rate_permille                  500  default"), "{}", ended.all());
    assert!(
        ended.all().contains("a provider is down after                  5  failures in a row and 1.000s without"),
        "{}",
        ended.all()
    );
    assert_eq!(scratch.dropped("out").len(), 30, "every row was attempted");
}
