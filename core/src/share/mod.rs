//! Many machines, one provider: several processes that share one limit.
//!
//! Each process drives a [`Member`]. One of them also drives a [`Coordinator`], the leader. They exchange
//! messages through a *store*, which every process can reach. The leader owns the one limit and divides it
//! into *shares*. A member starts calls within its share and needs no round trip for a call, except for an
//! amount of a [budget](#budgets) that it does not have yet.
//!
//! ```text
//!   Member ---- MemberReport: seq, version, calls, demand --------> Store ----> Coordinator
//!   Member <--- Decision: version, limit, share, seen seq -------- Store <---- Coordinator
//!   Member ---- TakeLead: if the decisions stop -----------------> Store
//! ```
//!
//! # Terms
//!
//! - The *limit* is the number of calls that all members together may have in flight at the provider. A
//!   *slot* is one of them, and a *share* is the number of slots of one member.
//! - A *group* is a tenant: a fairness group of request admission, by a name that all processes know. Its
//!   *demand* at a member is the number of its calls in flight or waiting there.
//! - A decision *acknowledges* a report if it contains the number of the report as `seen_seq`.
//! - A *pause* of the limit is a time in which no member may start a call: a
//!   [cooldown](crate::request#terms), or the time until a learned rate allows the next call.
//! - A *cut* is a fall of the limit because of a refusal (429).
//!
//! # The cycle
//!
//! Each *beat* (100 ms), a member writes its report and reads the newest decision, and the leader reads the
//! reports and writes a decision. The member in the process of the leader gets that decision without a read.
//! While shares move, the beat is 20 ms:
//!
//! | whose beat | when | for how long |
//! | --- | --- | --- |
//! | all | a pause begins, or the limit moves by more than one | a second |
//! | all | the limit moves by one, as in a probe | 0.2 s, at most once in a second |
//! | all | calls wait for more than one slot that other members still hold | a second at most |
//! | that of a member | calls wait where slots were idle, or the other way round | 0.2 s, at most once in a second |
//!
//! These and the following times are the defaults of [`ShareConfig`].
//!
//! Every message can be lost, delayed, repeated or reordered. A [`MemberReport`] is cumulative: it
//! repeats the ends of calls until a decision acknowledges them, and counts them, so that none is processed
//! twice. The store therefore keeps only the newest report of each member. A [`Decision`] is complete, and
//! each has a *version* higher than all before. A member adopts only a decision with a higher version than
//! the one it has.
//!
//! A call costs a member O(log(calls in flight)) and no message. A report contains at most 33 groups and the
//! ends of 1024 calls. A decision contains a share for each member, and costs the leader O(d log d) for d
//! pairs of member and group, plus O(1) for each call that ended.
//!
//! # Leases without a common clock
//!
//! A share is leased (C. Gray, D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed
//! File Cache Consistency", 1989). The lease runs for the time to live (TTL, 5 s) from the moment at which
//! the member sent the report that the decision acknowledges, by the clock of the member. The leader reclaims
//! the share TTL x 1.01 after it received that report, by its own clock. The member always stops first if the
//! rates of the two clocks differ by less than one percent. The clock must count the time in which a machine
//! is suspended: a [`Member`] adds it to the clock of the host. The host
//! [reports](crate::time::Clock::suspended) it, and a gate passes it to
//! [`set_suspended`](crate::request::RequestAdmission::set_suspended). A [gate](crate::gate) checks
//! [`may_send`](crate::limit::LimitAlgorithm::may_send) before it returns a permit. A host checks it again if
//! something else is awaited before the first byte of the call.
//!
//! A member whose lease has lapsed starts no call. If it has adopted no decision for a TTL either, [`OnLoss`]
//! decides what it does from its next beat on. A member whose beat is overdue by a TTL was suspended: it
//! waits for a TTL more, because its next share may arrive. When the leader reclaims the share, the idle
//! slots are free at once. The slots of the calls that the member reported last are reserved for longer:
//! `min(call timeout, max(TTL, 2 x p95))`, where p95 is the 95th percentile of the latest latencies of all
//! members.
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
//! and is 0 if there is no room. So the calls in flight do not exceed the limit, whichever decisions arrive,
//! apart from the exemptions below. Calls that started before the limit fell can exceed the new one. They
//! occupy room until they end.
//!
//! Within that bound, the limit is divided by weighted max-min fairness: each gets its demand if that is
//! low, and the others divide the rest by weight. This is done first between the groups of all members,
//! then, for each group, between its members. What no member needs is divided equally, so that a burst finds
//! free slots. Slots that cannot be divided evenly go to other members each second.
//!
//! # Refusals
//!
//! The leader gives the ends of calls to one [limit algorithm](crate::limit), in the same controller that a
//! single process uses. If the algorithm cuts the limit, other calls that were in flight at that time are
//! often refused as well. They belong to the same *cascade*, and must not cut the limit again. The leader
//! cannot see from the order of the reports which calls these are, because members report starts late. It
//! sees it from the version under which a call started: calls of the cascade have a lower version than the
//! first decision after the cut.
//!
//! That is why every decision has a new version, and a member adopts it also if its share is unchanged.
//! Otherwise all later refusals of such a member would count as part of the old cascade, and the limit would
//! never come down.
//!
//! A slot whose call was refused is *frozen* at its member, which starts no call in it until a decision
//! acknowledges a report of the refusal.
//!
//! The end of a call has the number of the call, and the number of calls that had started by then. So the
//! leader gives the starts and ends of a member to the algorithm in the order in which they happened. The
//! report also has the age of the end. The leader adds it to the latency of a refusal, as a beat and a half
//! at least and four beats at most, because an algorithm learns from these latencies how long it takes until
//! a refusal arrives, and at a leader it waits for two beats: that of the report, and that at which it is
//! read.
//!
//! The order of the calls of two members is unknown. So a refused call counts with the most calls that the
//! others had in flight since their last reports, as far as the newest show it, within the limit. With fewer,
//! the algorithm would cut the limit too far, see later that as many calls are accepted, and take this for a
//! limit of the rate. At a learned pace, the number in flight is not what calls are refused for.
//!
//! The leader learns the ends of many calls at once. If each answer among them raised the limit, many calls
//! would start before the leader learns that the first of them is refused. So it passes the ends of one beat
//! to the algorithm as a [batch](crate::limit::LimitAlgorithm::begin_batch), for which a limit rises by a
//! step.
//!
//! A start that is reported after a cut, by a member that had not yet adopted a decision with the cut,
//! belongs to the cascade as well. It counts as a call in flight, and the algorithm does not learn from it.
//!
//! # Pace
//!
//! For a provider that limits the rate, an algorithm learns the
//! [interval](crate::limit::LimitAlgorithm::interval) between two calls. A decision divides this rate between
//! the members:
//!
//! ```text
//!   sum over the members of 1 / pace_ns <= 1 / interval
//! ```
//!
//! Members with waiting calls divide it as they divide slots. The others have next to nothing of it, until
//! the next decision after a call of theirs waits. Each member spaces its own calls by its pace. When its
//! pace changes, the part of its interval that is left stays the same, so that it gets no credit for the time
//! in which others had the rate. Members that adopt a decision at different times can exceed the rate for
//! that time, at most a TTL, and each by one call more. After a refusal, a pause lasts until the provider
//! accepts the next call, and the members then start one after the other.
//!
//! An algorithm can doubt its pace. It then tries whether the provider accepts calls at an eighth of the
//! interval. Members use this interval until the next decision, so more calls than the algorithm allows
//! can start at it.
//!
//! A member without a lease spaces its calls as its own limit does. The schedule of its pace then begins at
//! the last of them.
//!
//! # Budgets
//!
//! The configured rate [budgets](crate::budget) are one set over all members. The leader owns the bucket of
//! each. It grants amounts, and a member has those that it has not spent in a *wallet*:
//!
//! ```text
//!   granted          the sum of all grants to a member, in each decision
//!   spent            the sum of all that its calls took, less what they returned, in each report
//!   left             the amount in its wallet, in each report
//!   new grants    <= amount in the bucket - sum over the members of (left + grants on their way)
//! ```
//!
//! The bucket pays when an amount is spent. If it paid for a grant, it would refill while the member keeps
//! the amount, and more than the burst could be spent at once. An amount that a call returns goes to the
//! bucket, too. So in each interval, the members spend at most the burst and the refill, as in one process.
//! An amount that is spent is granted again only after its report, a decision and the way of both, which is
//! about 0.3 s. So a burst of less than the refill of that time allows about one burst in each 0.3 s.
//!
//! A budget has the same [key](crate::budget::BudgetKey) in all processes: what it counts, and its window.
//! The rate and the burst are those of the leader. A member gets grants of the budgets that it has reported.
//! Of a budget that the leader does not have, nothing is granted, and
//! [`CallWait::SharedBudget`](crate::request::CallWait::SharedBudget) says so. A budget that is added to
//! those of a leader, or that the snapshot does not contain, begins empty. Budgets do not refill while there
//! is no leader.
//!
//! The leader grants the next call of each member first, by weight, with all its budgets at once. What is
//! left is divided by weighted max-min fairness. A report asks for what can start soon: the calls that wait
//! and have a slot, and what was taken in the last 0.2 to 0.4 s. A call that was denied because its budget
//! was spent, and so does not wait, counts for one second, with the weight of an average member whose calls
//! wait. While no member waits, each has a reserve for its next call: of a quarter of the burst its equal
//! part, and at least 1 if the burst is 1 or more for each member. A larger call waits for a grant, about 0.1
//! to 0.3 s, also if the bucket is full. As soon as one waits, the others hand back what they do not use, and
//! a member whose next call does not fit hands back all of its wallet: two members with a part of what each
//! needs would wait for ever.
//!
//! A wallet is leased like a share. When the lease lapses, the member hands it back, and when the leader
//! reclaims the lease, it counts the wallet as spent, also if the member returns: as much may have refilled
//! since then, and both at once could be more than the burst. A grant that is still on its way at this time
//! is taken out of the decisions. With the snapshot, the next leader gets the amount in each bucket, and what
//! is outstanding at each member. Without a snapshot its buckets are full, and empty once a report shows that
//! there were other decisions. With a damaged one they begin empty.
//!
//! A report with impossible amounts is ignored. Others that are damaged can overdraw a bucket by what refills
//! in an hour, or in its window if that is longer.
//!
//! A remaining amount that a provider states lowers the wallet of the process that reads it. A lower limit
//! that it states has no effect on a shared budget.
//!
//! # Leadership
//!
//! A leadership is a [`Term`]. A member that sees no new decision for 1.5 s plus a random time, by its own
//! clock, takes the lead: it replaces the term in the store if it is still the one that the member knows. The
//! store accepts decisions of the present term only, so those of an old leader have no effect.
//!
//! With each decision, the store keeps a [`LeaderSnapshot`] for the next leader, which keeps the learned
//! limit, the learned rate and every share. The snapshot contains no instants, because no other process can
//! read them: the new leader assumes that it has just received a report of every member. It raises no share
//! until every member has adopted a decision of it, or until TTL x 1.01 has passed and all older leases have
//! lapsed. If the snapshot cannot be read, it starts anew, and always waits for that time. The reason is that
//! the store may have lost the last decisions, and the new leader does not know their shares. If a report
//! shows that this has happened, no share rises for TTL x 1.01 from then on.
//!
//! A leader that stops in order reads the reports once more and writes a last decision, which marks its end.
//! A member that reads it takes the lead at once.
//!
//! # Faults
//!
//! | fault | effect |
//! | --- | --- |
//! | member killed | its idle slots are free after TTL x 1.01, those of its calls after the reservation |
//! | leader killed | shares stay valid, and the limit stays until another member takes the lead |
//! | store unreachable for less than the TTL | none, except that no amounts of budgets are granted |
//! | store unreachable for longer | [`OnLoss`] |
//! | store flushed, or its last writes lost | the leader writes its state again; no amounts until then |
//! | process suspended for longer than the TTL | no call starts on the lapsed lease, nor for a TTL after it |
//!
//! Once all faults are over, each member starts calls again within the time of a takeover, three TTLs and
//! the reservation, and then when it is its turn: with fewer slots than groups it waits for those before it,
//! and with a spent budget for its refill. With a rate, some member does.
//!
//! # When more calls than the limit are in flight
//!
//! There are five exemptions, each with a bound on the calls beyond the limit. The tests check that there is
//! no other.
//!
//! | exemption | what exceeds the limit | bound |
//! | --- | --- | --- |
//! | E1 | calls started under [`OnLoss::Alone`] | the member's own limit |
//! | E2 | calls started under [`OnLoss::Share`] | the member's equal part of the last limit |
//! | E3 | calls under decisions that the store has lost together with their leader | the limit once more |
//! | E4 | calls that an unreachable member has not reported, or that outlast the reservation | their number |
//! | E5 | calls of processes whose messages have another [format](redis::FORMAT) | a limit of their own |
//!
//! For a budget, E1 is the whole refill of it, and E2 the equal part of the refill, both from an empty bucket
//! at the loss on. E3 is its burst once more, with the refill of the time that was lost. E4 does not
//! apply: a budget pays for a call before it starts. With E5, each format has budgets of its own. As in one
//! process, a call that uses more than its estimate, or whose estimate is larger than the bucket, overdraws a
//! budget.
//!
//! # What a host does
//!
//! Both machines are driven as all others: give one command, drain `poll_effect`, arm one timer for
//! `poll_timeout`. A failed store call is ignored: the next beat tries again. A call that takes long is ended
//! as failed, after a second or so: a member without a beat for a TTL counts as suspended.
//!
//! The member is the [limit algorithm](crate::limit::LimitAlgorithm) of the shared resource in its process,
//! through a [`MemberHandle`]: request admission calls it for each call. Before each beat, the host also
//! passes [`RequestAdmission::demand`](crate::request::RequestAdmission::demand) to [`Member::set_demand`].
//!
//! | effect | what the host does |
//! | --- | --- |
//! | [`MemberEffect::Report`] | [`MemoryStore::report`] |
//! | [`MemberEffect::ReadDecision`] | [`MemoryStore::decisions_since`], then [`Member::on_decision`] |
//! | [`MemberEffect::TakeLead`] | [`MemoryStore::take_lead`], then [`Member::on_lead`], which may be `true` |
//! | [`CoordinatorEffect::ReadReports`] | [`MemoryStore::reports_since`], then [`Coordinator::on_reports`] |
//! | [`CoordinatorEffect::Decide`] | [`MemoryStore::decide`], then [`Coordinator::on_decided`] |
//!
//! If [`Member::on_lead`] returns `true`, the host creates a [`Coordinator`] with [`Coordinator::take_over`].
//! If [`Coordinator::on_decided`] returns `false`, it drops the coordinator. To stop, it calls
//! [`Coordinator::leave`], and carries out the effects until that of the last decision.
//!
//! Before each beat, the host passes what
//! [`RequestAdmission::report_budgets`](crate::request::RequestAdmission::report_budgets) returns to
//! [`Member::set_wallets`]. Before that, and with each decision, it passes [`Member::wallet_lease`] to
//! [`RequestAdmission::lease_budgets`](crate::request::RequestAdmission::lease_budgets). It gives the budgets
//! to a new leader, and again at each beat: [`Coordinator::set_budgets`].
//!
//! A [`Session`] does all of this for one process, and [`gate::SharedLimit`](crate::gate::SharedLimit) also
//! connects it to a gate: the host only carries out each [`StoreStep`] at its store.
//!
//! Rates that a provider states in its headers, and its health, are not shared: each process has its own. The
//! cause of failed calls is often the process, such as its network or its key, and then the others must go
//! on. The price is that each process finds an outage by its own calls, and sends a probe of its own.
//!
//! The [log](crate::replay#shared-limits) of a recorded gate contains the commands of its members and
//! leaders, so that each process can be replayed alone.
//!
//! | types | purpose |
//! | --- | --- |
//! | [`ShareConfig`], [`OnLoss`] | the settings |
//! | [`MemberReport`], [`Decision`], [`TakeLead`], [`LeaderSnapshot`] | messages, and what the store keeps |
//! | [`MemoryStore`] | the store: what each of its five steps does |
//! | [`Member`], [`Coordinator`] | the two machines |
//! | [`MemberHandle`] | a member under a lock |
//! | [`Session`] | the order of the steps of one process at the store |
//! | [`CostLease`], [`CostStore`] | one [cost limit](cost) of processes that fill one dataset |
//! | [`CostSession`] | the order of the steps of one of these processes |
//!
//! With the feature `redis`, the module `redis` has the commands of a store on Redis.

mod budgets;
mod config;
mod coordinator;
pub mod cost;
mod cost_session;
mod fairness;
mod handle;
mod hurry;
mod member;
mod member_record;
mod message;
#[cfg(feature = "redis")]
pub mod redis;
mod session;
mod steps;
mod store;
#[cfg(all(test, feature = "sim"))]
mod tests;

pub use crate::limit::MemberState;
pub use config::{OnLoss, SessionSettings, ShareConfig};
pub use coordinator::{Coordinator, CoordinatorEffect, LeaderCommand};
pub use cost::{COST_STEPS, CostGrant, CostLease, CostRequest, CostStore, EARLIER_RUNS, MAX_COST, grant_cost};
pub use cost_session::{CostChange, CostError, CostReply, CostSession, CostStep};
pub use handle::MemberHandle;
pub use member::{Member, MemberCommand, MemberEffect};
pub use message::{
    Decide, Decided, Decision, EndedCall, GroupDemand, KnownMember, KnownWallet, Lead, LeaderSnapshot, MemberId,
    MemberReport, MemberShare, TakeLead, Term,
};
pub use session::Session;
pub(crate) use session::SessionCommand;
pub use steps::{Role, StoreReply, StoreStep};
pub use store::{MemoryStore, Reports};
