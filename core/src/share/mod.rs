//! Many machines, one provider: several processes that share one limit.
//!
//! Each process drives a [`Member`]. One of them also drives a [`Coordinator`], the leader. They exchange
//! messages through a [`Store`], which every process can reach. The leader owns the one limit and divides it
//! into *shares*. A member starts calls within its share and needs no round trip for a call.
//!
//! ```text
//!   Member ---- Report: seq, adopted version, calls, demand -----> Store ----> Coordinator
//!   Member <--- Decision: version, limit, share, seen seq -------- Store <---- Coordinator
//!   Member ---- TakeLead: if the decisions stop -----------------> Store
//! ```
//!
//! # The cycle
//!
//! Each *beat* (100 ms), a member writes its report and reads the newest decision, and the leader reads the
//! reports and writes a decision. For one second after a pause, or after the limit moves by more than one,
//! the beat is 20 ms.
//!
//! Every message can be lost, delayed, repeated or reordered. A [`Report`] is cumulative: it repeats the ends
//! of calls until a decision acknowledges them, and counts them, so that none is processed twice. The store
//! therefore keeps only the newest report of each member. A [`Decision`] is complete, and each has a
//! *version* higher than all before. A member adopts only a decision with a higher version than the one it
//! has.
//!
//! # Leases without a common clock
//!
//! A share is leased. The lease runs for the time to live (TTL, 5 s) from the moment at which the member sent
//! the report that the decision acknowledges, by the clock of the member. The leader reclaims the share
//! TTL x 1.01 after it received that report, by its own clock. The member always stops first if the rates of
//! the two clocks differ by less than one percent. The clock must count the time in which a machine is
//! suspended. A host checks [`Member::may_send`] just before the first byte of a call.
//!
//! After a lease has lapsed, [`OnLoss`] decides what the member does. The leader returns its idle slots at
//! once. It reserves its last reported calls for longer: `min(call timeout, max(TTL, 2 x p95 latency))`.
//!
//! # Shares
//!
//! A member *occupies* the highest of its reported calls in flight, the share that it reports, and the shares
//! in later decisions that it may still adopt. A share in a new decision obeys
//!
//! ```text
//!   share of m + sum of max(occupied, share) of the other members <= limit
//! ```
//!
//! So the calls in flight exceed no limit, whichever decisions arrive. Calls above a lowered share occupy
//! room until they end. Within that bound, the limit is divided by weighted max-min fairness: first between
//! the groups (tenants) of all members, then, for each group, between its members. What no member needs is
//! divided equally, so that a burst finds free slots. Slots that cannot be divided rotate each second.
//!
//! # Refusals
//!
//! The leader gives the ends of calls to one [limit algorithm](crate::limit), in the same controller that a
//! single process uses. Calls are compared with a cut by the version under which they started. A version is
//! new for every member, also for one whose share is unchanged: otherwise refusals of such a member would
//! count as part of an old cascade, and the limit would never come down.
//!
//! A slot whose call was refused is *frozen* at its member until a decision acknowledges the refusal.
//!
//! # Leadership
//!
//! A member that sees no new decision for 1.5 s plus a random time, by its own clock, takes the lead: it
//! replaces the [`Term`] in the store if it is still the one that the member knows. The store accepts
//! decisions of the present term only, so an old leader is fenced off. With each decision, the store keeps a
//! [`Snapshot`], which contains ages, never instants, and here they are all zero: a successor assumes that
//! every member was just heard. It keeps the learned limit and every share. It raises no share until every
//! member of the snapshot has adopted a decision of it, or for TTL x 1.01, because the store may have lost
//! its last writes.
//!
//! # Faults
//!
//! | fault | effect |
//! | --- | --- |
//! | member killed | its idle slots return after TTL x 1.01, its calls after the time above |
//! | leader killed | shares stay valid, and the limit stays until another member takes the lead |
//! | store gone for less than the TTL | none |
//! | store gone for longer | [`OnLoss`] |
//! | store flushed, or its last writes lost | the leader writes its state again with the next decision |
//! | process paused for longer than the TTL | no call starts on the lapsed lease |
//!
//! # When more calls than the limit are in flight
//!
//! | exemption | what exceeds the limit | bound |
//! | --- | --- | --- |
//! | E1 | calls started under [`OnLoss::Alone`] | the member's own limit |
//! | E2 | calls started under [`OnLoss::Share`] | the member's part of the last limit |
//! | E3 | the store lost decisions, and the leader that made them | the limit once more |
//! | E4 | calls at a cut-off member: not in its last report, or longer than the reservation | their number |
//!
//! # What a host does
//!
//! Both machines are driven as all others: give one command, drain `poll_effect`, arm one timer for
//! `poll_timeout`. No call needs an answer: after a lost one, the next beat tries again.
//!
//! | effect | what the host does |
//! | --- | --- |
//! | [`MemberEffect::Report`] | [`Store::report`] |
//! | [`MemberEffect::ReadDecision`] | [`Store::decisions_since`], then [`Member::on_decision`] |
//! | [`MemberEffect::TakeLead`] | [`Store::take_lead`], then [`Member::on_lead`], which may return `true` |
//! | [`CoordinatorEffect::ReadReports`] | [`Store::reports_since`], then [`Coordinator::on_reports`] |
//! | [`CoordinatorEffect::Decide`] | [`Store::decide`], then [`Coordinator::on_decided`] |
//!
//! If [`Member::on_lead`] returns `true`, the host creates a [`Coordinator`]. If [`Coordinator::on_decided`]
//! returns `false`, it drops the coordinator.
//!
//! Rate budgets, pace and health are not shared: each process has its own.

mod config;
mod coordinator;
mod fairness;
mod member;
mod message;
mod store;
#[cfg(all(test, feature = "sim"))]
mod tests;

pub use config::{OnLoss, ShareConfig};
pub use coordinator::{Coordinator, CoordinatorEffect};
pub use member::{Member, MemberEffect};
pub use message::{
    Decide, Decided, Decision, EndedCall, Group, KnownMember, Lead, MemberId, MemberShare, Report, Snapshot, TakeLead,
    Term,
};
pub use store::{MemoryStore, Reports, Store};
