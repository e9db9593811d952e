//! Fuzzing of what a server for shared limits may contain. The means are those of [`crate::app::fuzz`].

use std::collections::HashMap;

use tidegate_core::share::redis::{RedisLimit, Reply};
use tidegate_core::share::{CostGrant, Decision, Lead, Reports, StoreReply, StoreStep, TakeLead, Term};

use super::cost_leases::read_grant;
use super::row_groups::{Claimed, id, read_claimed};
use super::server::Server;
use super::{ShareError, ShareSettings};
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

/// Reads the reply to a process that takes the lead: the term, and the snapshot of the last leader.
fn read_lead(term: &str, snapshot: Option<&str>) -> Option<Lead> {
    let request = TakeLead { expected: Term::default(), term: Term::default() };
    let reply = vec![Some(term.to_string()), snapshot.map(str::to_string)];
    match read(&StoreStep::TakeLead(request), reply)? {
        StoreReply::Lead(lead) => Some(lead),
        other => panic!("{other:?}"),
    }
}

fn read_term(text: &str) -> Option<Term> {
    read_lead(text, None).map(|lead| lead.term)
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

#[test]
fn a_snapshot_of_a_leader_is_damaged_or_read_as_it_was_written() {
    let snapshot = r#"{"version":11,"limit":12,"interval_ns":1000000,"cut_version":8,"members":{"1":{"seq":2,"ended":7,"in_flight":1,"occupied":4,"budgets":{"5":{"granted":10,"outstanding":0,"spent":6}}}},"budgets":{"5":-590}}"#;
    assert!(read_lead("1 2", Some(snapshot)).is_some_and(|lead| lead.snapshot.is_some()), "the corpus is read");
    let names = ["\"members\":", "\"in_flight\":", "\"interval_ns\":", "\"outstanding\":"];
    fuzz_text(&[snapshot], &json_tokens(&[NAMES, &names].concat()), |text| {
        let Lead { term, snapshot, is_damaged } = read_lead("1 2", Some(text)).expect("the term is valid");
        assert_eq!(term, Term { epoch: 1, nonce: 2 });
        assert_eq!(is_damaged, snapshot.is_none(), "{text:?}");
        if let Some(snapshot) = snapshot {
            let written = serde_json::to_string(&snapshot).expect("it can be written");
            let again = read_lead("1 2", Some(&written)).and_then(|lead| lead.snapshot);
            assert_eq!(again, Some(snapshot), "{text:?}");
        }
    });
}

#[test]
fn an_answer_about_row_groups_or_costs_is_refused_or_read_as_it_was_written() {
    let corpus = ["1-0", "4294967295-0", "held", "empty", "600\n37\n100\n0", "9007199254740991\n0\n0\n1"];
    assert_eq!(read_claimed(corpus[1]), Some(Claimed::RowGroup(u32::MAX - 1)), "the corpus is read");
    let tokens = ["0", "1", "-", "-0", "4294967296", "18446744073709551616", "+", "\n", "1e3", "held", "nan", " "];
    fuzz_text(&corpus, &tokens, |text| {
        if let Some(Claimed::RowGroup(row_group)) = read_claimed(text) {
            assert_eq!(read_claimed(&id(row_group)), Some(Claimed::RowGroup(row_group)), "{text:?}");
        }
        let answer: Vec<String> = text.lines().map(str::to_string).collect();
        if let Ok(grant) = read_grant(&answer) {
            assert_eq!(grant.is_some(), answer.len() == 4, "{text:?}");
            let written = grant.map_or_else(Vec::new, |CostGrant { lease, step, others, is_refused }| {
                [lease, step, others, u64::from(is_refused)].map(|number| number.to_string()).to_vec()
            });
            assert_eq!(read_grant(&written), Ok(grant), "{text:?}");
        }
    });
}

#[test]
fn the_address_of_a_store_is_refused_or_shown_without_its_credentials() {
    let corpus = [
        "redis://user:pass@host:6379/2",
        "rediss://:pass@[::1]:6380",
        "redis+sentinel://user:a+b@one,two:9,[::1]/main/2?sentinel_username=me&sentinel_password=c+d%2Fe",
        "rediss+sentinel://one:26379/main",
        "unix:///run/redis.sock?db=1&pass=x",
    ];
    let tokens = [
        "@",
        ":",
        "/",
        ",",
        "?",
        "&",
        "=",
        "%",
        "%2F",
        "+",
        "[",
        "]",
        "::1",
        "#",
        "redis",
        "rediss",
        "+sentinel://",
        "sentinel_password=",
        "sentinel_username=",
        "primary",
        "65536",
        "-1",
        " ",
        "\u{e9}",
        "\0",
        ".",
        "\\",
    ];
    let server = |url: &str| Server::new(&ShareSettings::new(url, "test")).map(|(_, address)| address);
    for url in corpus {
        server(url).expect("the corpus is read");
    }
    fuzz_text(&corpus, &tokens, |url| match server(url) {
        Ok(address) if url.contains("+sentinel://") => {
            assert!(!address.contains(['@', '?']), "{address:?}: {url:?}");
            assert_eq!(server(&address), Ok(address), "{url:?}");
        }
        Ok(address) => assert!(!address.is_empty()),
        Err(error) => assert_eq!(error, ShareError::Url, "{url:?}"),
    });
}
