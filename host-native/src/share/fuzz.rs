//! Fuzzing of what a server for shared limits may contain. The means are those of [`crate::app::fuzz`].

use std::collections::HashMap;

use tidegate_core::share::redis::{RedisLimit, Reply};
use tidegate_core::share::{Decision, Lead, Reports, StoreReply, StoreStep, TakeLead, Term};

use crate::app::fuzz::{fuzz_text, json_tokens};

/// What reports and decisions are made of.
const NAMES: &[&str] =
    &["0", "18446744073709551615", "position", "\"member\":", "\"seq\":", "\"ends\":", "\"shares\":", "\"budgets\":"];

const REPORT: &str = r#"{"member":7,"seq":1,"version":0,"share":0,"started":0,"ended":0,"ends":[],"groups":[{"group":1,"weight":1,"wanted":2}],"leaves":false,"budgets":{"5":{"granted":3,"left":1,"spent":2,"call":0,"need":4}}}"#;

/// Returns the fields of a hash: the first word of each line, and the rest.
fn fields(text: &str) -> HashMap<String, String> {
    let fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Reads the reply to a step. Returns `None` for a damaged one.
fn read(step: &StoreStep, reply: Reply) -> Option<StoreReply> {
    let limit = RedisLimit::new("prod", "acme/m/chat");
    limit.read_reply(step, reply).ok()
}

fn read_reports(fields: HashMap<String, String>, since: u64) -> Reports {
    let reply = fields.into_iter().flat_map(|(name, value)| [Some(name), Some(value)]).collect();
    match read(&StoreStep::ReportsSince(since), reply) {
        Some(StoreReply::Reports(reports)) => reports,
        other => panic!("{other:?}"),
    }
}

fn read_term(text: &str) -> Option<Term> {
    let request = TakeLead { expected: Term::default(), term: Term::default() };
    match read(&StoreStep::TakeLead(request), vec![Some(text.to_string()), None])? {
        StoreReply::Lead(Lead { term, .. }) => Some(term),
        other => panic!("{other:?}"),
    }
}

/// Returns a term as a process writes it.
fn term_text(term: Term) -> String {
    let request = TakeLead { expected: term, term: Term::default() };
    let command = RedisLimit::new("prod", "acme/m/chat").command(&StoreStep::TakeLead(request));
    // After the name of the command, the code, the number of keys and the key.
    command[4].to_string()
}

#[test]
fn a_damaged_report_hides_no_other() {
    let corpus = format!("position 3\n7 1 1 {REPORT}\n8 3 1 {}\n", REPORT.replace(":7,", ":8,"));
    assert_eq!(read_reports(fields(&corpus), 0).reports.len(), 2, "the corpus is read");
    fuzz_text(&[&corpus], &json_tokens(NAMES), |text| {
        let all = fields(text);
        let position = all.get("position").cloned();
        for since in [0, 1, u64::MAX] {
            let Reports { reports, next } = read_reports(all.clone(), since);
            assert_eq!(next, position.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0), "{text:?}");
            let alone = |(name, value): (&String, &String)| {
                let one =
                    [("position".to_string(), position.clone().unwrap_or_default()), (name.clone(), value.clone())];
                read_reports(one.into(), since).reports
            };
            let apart: Vec<_> = all.iter().filter(|(name, _)| *name != "position").flat_map(alone).collect();
            assert_eq!(reports.len(), apart.len(), "{text:?}");
            assert!(apart.iter().all(|report| reports.contains(report)), "{text:?}");
        }
    });
}

#[test]
fn a_decision_or_term_is_refused_or_read_as_it_was_written() {
    let decision = r#"{"term":{"epoch":1,"nonce":2},"version":3,"limit":4,"pause_ms":0,"beat_ms":250,"shares":{}}"#;
    assert!(serde_json::from_str::<Decision>(decision).is_ok(), "the corpus is read");
    let corpus = ["1 2", "9007199254740991 0", decision];
    fuzz_text(&corpus, &json_tokens(NAMES), |text| {
        if let Some(term) = read_term(text) {
            assert_eq!(read_term(&term_text(term)), Some(term), "{text:?}");
            assert!(term.epoch < 1 << 53 && term.nonce < 1 << 53, "{text:?}");
        }
        if let Ok(read) = serde_json::from_str::<Decision>(text) {
            let written = serde_json::to_string(&read).expect("it can be written");
            assert_eq!(serde_json::from_str::<Decision>(&written).ok(), Some(read), "{text:?}");
        }
    });
}
