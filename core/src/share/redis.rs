//! The store of a shared limit on Redis or Valkey: the commands, and how their replies are read.
//!
//! This module sends nothing. A host has a client, sends the [`Command`] of each step, and passes the reply
//! on as a [`Reply`]. So all hosts use the same keys and messages.
//!
//! A shared limit has two keys, both hashes. [`FORMAT`] is the version of the messages: processes whose
//! messages differ use different keys, so that none misreads those of another.
//!
//! ```text
//! tgFORMAT:{NAME:provider/model/domain}:state    term, version, decision, snapshot
//! tgFORMAT:{NAME:provider/model/domain}:reports  position, and for each member: "POSITION SEQ REPORT"
//! tgFORMAT:{NAME}:check                          written at the start of a process
//! ```
//!
//! Whatever a value contains, a leader arises: a damaged term counts as none, a damaged number as 0, and a
//! leader that cannot read the snapshot starts anew.
//!
//! Reports and decisions are complete, so only the newest is kept: a stream of them would be read to its end
//! and trimmed to one entry for each member. Scripts make the steps atomic. Each is sent whole, which costs a
//! few hundred bytes, so that a server that was restarted needs no second round trip. The keys expire a day
//! after the last write.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;

use super::message::{Decided, Lead, MAX_NUMBER, Term};
use super::steps::{StoreReply, StoreStep};
use super::store::Reports;

/// The version of the messages. It changes with every change of them that an older process cannot read.
pub const FORMAT: u32 = 2;

/// How long the keys are kept after the last write, in seconds: a day. A limit that was not used for longer
/// is learned again.
pub const KEPT_SECS: u64 = 24 * 60 * 60;

/// The most bytes of a name under which processes share limits.
const MAX_NAME_BYTES: usize = 64;

/// The field of the reports that counts them.
const POSITION: &str = "position";

/// A command: its name and its arguments.
pub type Command = Vec<Cow<'static, str>>;

/// A reply as its texts. A reply that is one value is a list of one, numbers are in decimal digits, a map is
/// its keys and values in turn, and `None` is nil.
pub type Reply = Vec<Option<String>>;

/// KEYS: check. Fails on a server that cannot be written to.
const CHECK: &str = "return redis.call('SET', KEYS[1], '', 'EX', 60)";

/// KEYS: reports. ARGV: member, seq, report, seconds to keep.
const REPORT: &str = "
local old = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if (tonumber(string.match(old, '^%d+ (%d+) ')) or 0) < tonumber(ARGV[2]) then
  local last = redis.call('HGET', KEYS[1], 'position') or ''
  if not string.match(last, '^%d+$') or #last > 15 then last = 0 end
  local position = string.format('%.0f', last + 1)
  redis.call('HSET', KEYS[1], 'position', position)
  redis.call('HSET', KEYS[1], ARGV[1], position .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[4])
end";

/// Returns the code that reads the present term, or else the first argument. A number of 2^53 or more is
/// damaged.
macro_rules! read_term {
    () => {
        "
local term = redis.call('HGET', KEYS[1], 'term') or ''
local epoch, nonce = string.match(term, '^(%d+) (%d+)$')
if not epoch or tonumber(epoch) >= 2^53 or tonumber(nonce) >= 2^53 then term = ARGV[1] end
"
    };
}

/// KEYS: state, reports. ARGV: term, version, decision, snapshot, position read, seconds to keep, members.
/// Returns the present term, and the version of the newest decision.
const DECIDE: &str = concat!(
    read_term!(),
    "
redis.call('HSET', KEYS[1], 'term', term)
local version = redis.call('HGET', KEYS[1], 'version') or ''
if not string.match(version, '^%d+$') or tonumber(version) > 2^53 - 2^39 then version = '0' end
if term ~= ARGV[1] or tonumber(version) >= tonumber(ARGV[2]) then return {term, version} end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'decision', ARGV[3], 'snapshot', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[6])
local known = {position = true}
for i = 7, #ARGV do known[ARGV[i]] = true end
for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
  local at = not known[id] and string.match(redis.call('HGET', KEYS[2], id), '^%d+')
  if at and tonumber(at) <= tonumber(ARGV[5]) then redis.call('HDEL', KEYS[2], id) end
end
return {term, ARGV[2]}"
);

/// KEYS: state. ARGV: expected term, new term, seconds to keep.
const TAKE_LEAD: &str = concat!(
    read_term!(),
    "
if term == ARGV[1] then term = ARGV[2] end
redis.call('HSET', KEYS[1], 'term', term)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {term, redis.call('HGET', KEYS[1], 'snapshot')}"
);

/// Returns the name of a resource's limit, which is the same in all processes.
#[must_use]
pub fn limit_name(provider: &str, model: &str, domain: &str) -> String {
    format!("{provider}/{model}/{domain}")
}

/// Returns whether processes can share limits under `name`: 1 to 64 letters, digits and the characters `-`,
/// `_` and `.`.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_allowed)
}

/// Returns the command that runs a script on these keys. Arguments are added to it.
#[must_use]
pub fn script(code: &'static str, keys: &[&str]) -> Command {
    let keys_and_count = [keys.len().to_string()].into_iter().chain(keys.iter().map(ToString::to_string));
    [Cow::from("EVAL"), Cow::from(code)].into_iter().chain(keys_and_count.map(Cow::from)).collect()
}

/// Returns the command that a process sends at its start. It fails on a server that runs no scripts or that
/// cannot be written to.
#[must_use]
pub fn check(name: &str) -> Command {
    script(CHECK, &[&format!("tg{FORMAT}:{{{name}}}:check")])
}

/// Returns the command whose reply [`is_cluster`] reads.
#[must_use]
pub fn cluster_info() -> Command {
    vec!["INFO".into(), "cluster".into()]
}

/// Returns whether the server is a node of a cluster, which has some of the keys only.
#[must_use]
pub fn is_cluster(reply: &Reply) -> bool {
    reply.iter().flatten().any(|text| text.contains("cluster_enabled:1"))
}

/// Returns a pattern of the keys of all decisions of the processes called `name`, of any [`FORMAT`].
#[must_use]
pub fn state_pattern(name: &str) -> String {
    format!("tg*:{{{name}:*}}:state")
}

/// Returns the [`FORMAT`] and the limit of a key that fits [`state_pattern`].
#[must_use]
pub fn read_state_key<'a>(name: &str, key: &'a str) -> Option<(u32, &'a str)> {
    let (format, rest) = key.strip_prefix("tg")?.split_once(":{")?;
    let limit = rest.strip_prefix(name)?.strip_prefix(':')?.strip_suffix("}:state")?;
    Some((format.parse().ok()?, limit))
}

fn limit_key(name: &str, limit: &str, part: &str) -> String {
    format!("tg{FORMAT}:{{{name}:{limit}}}:{part}")
}

/// A value in the store that is not one that this version of tidegate wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has a damaged value at `{key}`, field `{field}`")]
pub struct DamagedValue {
    key: String,
    field: &'static str,
}

/// The keys of one shared limit.
#[derive(Clone, Debug)]
pub struct RedisLimit {
    state: String,
    reports: String,
}

impl RedisLimit {
    /// Returns the limit `limit` (`provider/model/domain`) that the processes called `name` share.
    #[must_use]
    pub fn new(name: &str, limit: &str) -> Self {
        Self { state: limit_key(name, limit, "state"), reports: limit_key(name, limit, "reports") }
    }

    /// Returns the key of the decisions.
    #[must_use]
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Returns the key of the reports.
    #[must_use]
    pub fn reports(&self) -> &str {
        &self.reports
    }

    /// Returns the command of a step.
    #[must_use]
    pub fn command(&self, step: &StoreStep) -> Command {
        let kept = || KEPT_SECS.to_string();
        let (command, arguments) = match step {
            StoreStep::Report(report) => {
                let arguments = vec![report.member.to_string(), report.seq.to_string(), json(report), kept()];
                (script(REPORT, &[&self.reports]), arguments)
            }
            StoreStep::DecisionsSince { .. } => {
                let arguments = vec![self.state.clone(), "decision".to_string()];
                (vec!["HGET".into()], arguments)
            }
            StoreStep::TakeLead(request) => {
                let arguments = vec![term_text(request.expected), term_text(request.term), kept()];
                (script(TAKE_LEAD, &[&self.state]), arguments)
            }
            StoreStep::ReportsSince(_) => (vec!["HGETALL".into()], vec![self.reports.clone()]),
            StoreStep::Decide { decide, read } => {
                let (decision, snapshot) = (&decide.decision, &decide.snapshot);
                let (term, version) = (term_text(decision.term), decision.version.to_string());
                let mut arguments = vec![term, version, json(decision), json(snapshot), read.to_string(), kept()];
                arguments.extend(snapshot.members.keys().map(ToString::to_string));
                (script(DECIDE, &[&self.state, &self.reports]), arguments)
            }
        };
        command.into_iter().chain(arguments.into_iter().map(Cow::from)).collect()
    }

    /// Reads the reply to a step.
    ///
    /// # Errors
    ///
    /// A value that the step needs cannot be read.
    pub fn read_reply(&self, step: &StoreStep, reply: Reply) -> Result<StoreReply, DamagedValue> {
        let damaged = |field| DamagedValue { key: self.state.clone(), field };
        let term = |text: Option<&str>| text.and_then(read_term).ok_or_else(|| damaged("term"));
        Ok(match step {
            StoreStep::Report(_) => StoreReply::Reported,
            StoreStep::DecisionsSince { term, version } => {
                let text = reply.into_iter().next().flatten();
                let newest = text.map(|text| serde_json::from_str(&text)).transpose();
                let newest = newest.map_err(|_| damaged("decision"))?;
                StoreReply::Decision(
                    newest.filter(|newest: &super::Decision| (newest.term, newest.version) != (*term, *version)),
                )
            }
            StoreStep::TakeLead(_) => {
                let mut texts = reply.into_iter();
                let term = term(texts.next().flatten().as_deref())?;
                let text = texts.next().flatten();
                let snapshot = text.as_ref().and_then(|text| serde_json::from_str(text).ok());
                StoreReply::Lead(Lead { term, is_damaged: text.is_some() && snapshot.is_none(), snapshot })
            }
            StoreStep::ReportsSince(position) => StoreReply::Reports(read_reports(&reply, *position)),
            StoreStep::Decide { .. } => {
                let mut texts = reply.iter().map(Option::as_deref);
                let term = term(texts.next().flatten())?;
                let version = texts.next().flatten().and_then(|text| text.parse().ok());
                StoreReply::Decided(Decided { term, version: version.ok_or_else(|| damaged("version"))? })
            }
        })
    }
}

fn json(value: &impl Serialize) -> String {
    // A message is made of numbers, lists and maps with numbers as keys, which all have JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn term_text(term: Term) -> String {
    format!("{} {}", term.epoch, term.nonce)
}

/// Reads a term. Returns `None` for a damaged one: a number of 2^53 or more is, too.
fn read_term(text: &str) -> Option<Term> {
    let number = |text: &str| text.parse().ok().filter(|number| *number < MAX_NUMBER);
    let (epoch, nonce) = text.split_once(' ')?;
    Some(Term { epoch: number(epoch)?, nonce: number(nonce)? })
}

/// Reads the reports that were written after the position `since`.
fn read_reports(fields: &Reply, since: u64) -> Reports {
    let fields = fields.chunks_exact(2).filter_map(|field| Some((field[0].as_deref()?, field[1].as_deref()?)));
    // A position that cannot be read is 0, as in the script: the next report sets it.
    let position = fields.clone().find(|(name, _)| *name == POSITION);
    let next = position.and_then(|(_, text)| text.parse().ok()).unwrap_or(0);
    let since = if since > next { 0 } else { since };
    // A report that cannot be read, for example of a later version of tidegate, is left out: the others
    // must not stop. Its member gets no share.
    let read = |(_, text): (_, &str)| {
        let (position, rest) = text.split_once(' ')?;
        let (_, report) = rest.split_once(' ')?;
        (position.parse::<u64>().ok()? > since).then(|| serde_json::from_str(report).ok())?
    };
    Reports { reports: fields.filter(|(name, _)| *name != POSITION).filter_map(read).collect(), next }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::budget::{BudgetConfig, BudgetKey, Dimension, WalletReport};
    use crate::call::Outcome;
    use crate::share::{
        Decide, Decision, EndedCall, GroupDemand, KnownMember, KnownWallet, LeaderSnapshot, MemberId, MemberReport,
        MemberShare,
    };

    /// The messages of format 2. Processes of different versions read those of each other.
    const MESSAGES: [&str; 3] = [
        r#"{"member":1,"seq":2,"version":3,"share":4,"started":8,"ended":7,"ends":[{"call":6,"started":7,"outcome":"rate_limited","latency_ms":12,"age_ms":3,"version":8,"retry_after_ms":500}],"groups":[{"group":5,"weight":6,"wanted":7}],"leaves":false,"budgets":{"3974686689672838":{"granted":10,"left":4,"spent":6,"call":1,"need":2}}}"#,
        r#"{"term":{"epoch":9,"nonce":10},"version":11,"limit":12,"pause_ms":0,"beat_ms":1000,"is_scarce":true,"shares":{"1":{"share":4,"pace_ns":0,"seen_seq":2,"granted":{"3974686689672838":10}}}}"#,
        r#"{"version":11,"limit":12,"interval_ns":1000000,"cut_version":8,"members":{"1":{"seq":2,"ended":7,"in_flight":1,"occupied":4,"budgets":{"3974686689672838":{"granted":10,"outstanding":0,"spent":6}}}},"budgets":{"3974686689672838":590}}"#,
    ];

    #[test]
    fn the_messages_of_a_format_are_as_recorded() {
        assert_eq!(FORMAT, 2, "a new format has new messages: record them here");
        let key = BudgetKey::of_each(&[BudgetConfig::per_minute(Dimension::Requests, 600)]).next().unwrap();
        let ended = EndedCall {
            call: 6,
            started: 7,
            outcome: Outcome::RateLimited,
            latency_ms: 12,
            age_ms: 3,
            version: 8,
            retry_after_ms: Some(500),
        };
        let wallet = WalletReport { granted: 10, left: 4, spent: 6, call: 1, need: 2 };
        let report = MemberReport {
            member: MemberId(1),
            seq: 2,
            version: 3,
            share: 4,
            started: 8,
            ended: 7,
            ends: vec![ended],
            groups: vec![GroupDemand { group: 5, weight: 6, demand: 7 }],
            leaves: false,
            budgets: BTreeMap::from([(key, wallet)]),
        };
        let term = Term { epoch: 9, nonce: 10 };
        let share = MemberShare { share: 4, pace_ns: 0, seen_seq: 2, granted: BTreeMap::from([(key, 10)]) };
        let decision = Decision {
            term,
            version: 11,
            limit: 12,
            pause_ms: 0,
            beat_ms: 1_000,
            leader_leaves: false,
            is_scarce: true,
            shares: BTreeMap::from([(MemberId(1), share)]),
        };
        let known = KnownWallet { granted: 10, outstanding: 0, spent: 6 };
        let member =
            KnownMember { seq: 2, ended: 7, in_flight: 1, occupied: 4, budgets: BTreeMap::from([(key, known)]) };
        let snapshot = LeaderSnapshot {
            version: 11,
            limit: 12,
            interval_ns: Some(1_000_000),
            cut_version: 8,
            members: BTreeMap::from([(MemberId(1), member)]),
            budgets: BTreeMap::from([(key, 590)]),
        };
        let limit = RedisLimit::new("test", "acme/large/chat");
        let written = [
            limit.command(&StoreStep::Report(report)),
            limit.command(&StoreStep::Decide { decide: Decide { decision, snapshot }, read: 0 }),
        ];
        let messages: Vec<&str> =
            written.iter().flatten().map(AsRef::as_ref).filter(|text: &&str| text.starts_with('{')).collect();
        assert_eq!(messages, MESSAGES);
    }
}
