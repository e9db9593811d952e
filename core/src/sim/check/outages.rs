//! Checks that a provider that is down gets no calls except probes, and that a provider that fails goes
//! down.
//!
//! The rules are those of the health of a provider and model, stated again without its code. Settings are the
//! defaults of [`HealthConfig`](crate::request::HealthConfig). A *counted failure* is a failed connection, a
//! 5xx status, an unusable response or a timeout of the provider. Any other response is an *answer*. A call
//! that ends on the caller's side is neither. A *streak* is a series of counted failures without an answer in
//! between. An *epoch* ends at each change to down, up or unavailable, and when an answer ends a streak of at
//! least five. A call belongs to the epoch in which it was granted.
//!
//! # Calls
//!
//! - A model goes down after a streak of five if no call succeeded for a second, and not before.
//! - While it is down, it gets one probe at a time, and none before its pause is over. An answer to the probe
//!   ends the outage.
//! - After a streak of five and before the second is over, calls start at least a tenth of a second apart.
//! - While it is unavailable, no call starts, except a probe once the recheck is due.
//! - The end of a call of an older epoch changes none of this, except that a success makes the next probe
//!   due.
//! - A column that names several models calls each one only while every model before it is down, is
//!   unavailable, or has answered only with rate limits for half a minute.
//!
//! # Tasks
//!
//! No task fails because of an outage. An attempt may end as failed only if its latest failure was the call's
//! own:
//!
//! - An answer has ended the streak of the failure, and the streak was shorter than five. This is so even if
//!   the call was in flight again when the answer arrived.
//! - Or three failures of the attempt were *excused*: each was that of a probe, or was in a streak of at
//!   least five that an answer ended before the model went down. Such a request probably fails whenever it is
//!   made.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::joined::{Execution, execution};
use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, ensure};
use crate::call::Outcome;
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{ColumnId, RetryKind, TaskOutcome};
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::{Duration, Instant};

/// The number of failures in a row after which a provider goes down.
const FAILURES: u32 = 5;
/// The time without a success that is also required.
const QUIET: Duration = Duration::from_secs(1);
/// The least time between two calls until then.
const APART: Duration = Duration::from_millis(100);
/// The number of excused failures of an attempt at which its failure counts as its own. See
/// [`Failed::excused`].
const MAX_EXCUSED: u32 = 3;
/// The time of answers that are only rate limits after which a model is not usable for columns with
/// fallbacks.
const FALLBACK_AFTER: Duration = Duration::from_secs(30);

/// The state of all known providers and models.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages {
    owners: Map<ResourceId, ProviderModelId>,
    models: BTreeMap<ProviderModelId, ModelOutages>,
    /// By column with several models: the resources that it calls, in order.
    fallbacks: BTreeMap<ColumnId, Vec<ResourceId>>,
    /// The model whose latest call requires that the next event of request admission is `ProviderDown`.
    due: Option<ProviderModelId>,
    /// The counted failures of each execution whose latest call failed.
    failed: BTreeMap<Execution, Failed>,
    /// The model and execution of the latest call that ended, and the execution's failures before it.
    latest_end: Option<(ProviderModelId, Execution, Option<Failed>)>,
}

/// The counted failures of one execution of a task.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// The model of the latest failed call, the epoch in which the call was granted, and the number of
    /// streaks before the one in which it failed.
    model: ProviderModelId,
    epoch: u32,
    streak: u32,
    /// How many of the failures were excused: see the module documentation.
    excused: u32,
}

#[derive(Clone, Debug, Default)]
struct ModelOutages {
    state: Availability,
    /// The number of epochs that have ended.
    epoch: u32,
    /// The number of streaks of less than five failures that an answer has ended.
    streaks: u32,
    /// The calls in flight, each with the epoch in which it was granted.
    in_flight: BTreeMap<SlotKey, u32>,
    /// The counted failures of the present streak.
    failures: u32,
    first_failure: Option<Instant>,
    /// The latest failure, or the start of the latest call after five failures.
    last_failure: Instant,
    last_success: Option<Instant>,
    /// The first rate limit since the latest answer that was none.
    limited_since: Option<Instant>,
    /// The lease of the probe that was announced and has not ended.
    probe: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Availability {
    #[default]
    Up,
    Down {
        probe_at: Instant,
    },
    /// Unavailable. It is probed at `probe_at`, if there is one.
    Unavailable {
        probe_at: Option<Instant>,
    },
}

impl ModelOutages {
    /// Starts a new epoch in another state.
    fn change(&mut self, state: Availability) {
        self.state = state;
        self.epoch += 1;
        (self.failures, self.first_failure, self.probe) = (0, None, None);
    }

    /// Checks that a call may start, and records it.
    fn acquired(&mut self, at: Instant, lease: LeaseId) -> CheckResult {
        match self.state {
            Availability::Unavailable { probe_at: None } => {
                return Err(format!("{lease:?} starts although its provider is unavailable"));
            }
            Availability::Down { probe_at } | Availability::Unavailable { probe_at: Some(probe_at) } => {
                ensure(self.probe == Some(lease), || {
                    format!("{lease:?} starts although its provider is down, and it is not the probe")
                })?;
                ensure(probe_at <= at, || format!("the probe {lease:?} starts before {probe_at}"))?;
                let probes = self.in_flight.values().filter(|epoch| **epoch == self.epoch).count();
                ensure(probes == 0, || format!("the probe {lease:?} starts beside another probe"))?;
            }
            Availability::Up if self.failures >= FAILURES => {
                let next = self.last_failure + APART;
                ensure(next <= at, || {
                    format!("{lease:?} starts before {next}, after {} failures in a row", self.failures)
                })?;
                self.last_failure = at;
            }
            Availability::Up => {}
        }
        self.in_flight.insert(lease.key, self.epoch);
        Ok(())
    }

    /// Records the end of a call. Returns whether the provider must go down now.
    fn completed(&mut self, at: Instant, lease: LeaseId, outcome: Outcome) -> bool {
        let is_current = self.in_flight.remove(&lease.key) == Some(self.epoch);
        let is_failure = is_counted_failure(outcome);
        let is_local = matches!(outcome, Outcome::LocalCancelled | Outcome::LocalTimeout | Outcome::Unexpected);
        if is_current && outcome == Outcome::RateLimited {
            self.limited_since.get_or_insert(at);
        } else if is_current && !is_local && !is_failure {
            self.limited_since = None;
        }
        if is_current && outcome == Outcome::Success {
            self.last_success = Some(at);
        }
        match self.state {
            Availability::Unavailable { .. } => {
                if is_current {
                    self.probe = None;
                    if is_local {
                        self.state = Availability::Down { probe_at: at };
                    }
                }
                is_current && is_failure
            }
            Availability::Down { .. } => {
                let makes_probe_due =
                    if is_current { is_local } else { outcome == Outcome::Success && self.probe.is_none() };
                if makes_probe_due {
                    self.state = Availability::Down { probe_at: at };
                }
                if is_current {
                    self.probe = None;
                }
                is_current && is_failure
            }
            Availability::Up if !is_current || is_local => false,
            Availability::Up if is_failure => {
                self.failures += 1;
                self.last_failure = at;
                let first = *self.first_failure.get_or_insert(at);
                self.failures >= FAILURES && (self.last_success.is_none() || at - first >= QUIET)
            }
            Availability::Up => {
                match self.failures {
                    0 => {}
                    FAILURES.. => self.epoch += 1,
                    _ => self.streaks += 1,
                }
                (self.failures, self.first_failure) = (0, None);
                false
            }
        }
    }

    /// Returns whether a column with fallbacks must call this model rather than a later one.
    fn is_usable(&self, at: Instant) -> bool {
        self.state == Availability::Up && self.limited_since.is_none_or(|since| at < since + FALLBACK_AFTER)
    }

    /// Returns whether a failure was the call's own: an answer has ended its streak, which was shorter than
    /// five, and the model has been up since.
    fn is_own_failure(&self, failed: &Failed) -> bool {
        let is_over = self.failures == 0 || failed.streak != self.streaks;
        self.state == Availability::Up && failed.epoch == self.epoch && is_over
    }

    /// Returns whether the provider may go down at this instant.
    fn may_be_down(&self, at: Instant) -> bool {
        self.failures >= FAILURES && self.last_success.is_none_or(|success| at - success >= QUIET)
    }
}

impl Outages {
    pub(super) fn set_model(&mut self, resource: ResourceId, model: ProviderModelId) {
        self.owners.insert(resource, model);
        self.models.entry(model).or_default();
    }

    pub(super) fn set_fallbacks(&mut self, column: ColumnId, resources: Vec<ResourceId>) {
        self.fallbacks.insert(column, resources);
    }

    /// Fails if the call goes to a model although an earlier model of its column is usable.
    fn check_order(&self, event: &RequestEvent, resource: ResourceId) -> CheckResult {
        let column = event.correlation.and_then(|correlation| correlation.column);
        let Some(list) = column.and_then(|column| self.fallbacks.get(&column)) else { return Ok(()) };
        let before = list.iter().take_while(|other| **other != resource);
        let mut models = before.filter_map(|other| self.models.get(self.owners.get(other)?));
        ensure(!models.any(|model| model.is_usable(event.at)), || {
            format!("a call of {resource:?} starts although an earlier model is usable")
        })
    }

    fn on_model(&mut self, at: Instant, id: ProviderModelId, payload: RequestEventPayload) -> CheckResult {
        let Some(model) = self.models.get_mut(&id) else { return Ok(()) };
        match payload {
            RequestEventPayload::ProviderDown { probe_at, .. } => {
                let is_due = self.due.take() == Some(id) || model.may_be_down(at);
                ensure(is_due, || format!("it goes down after {} failures in a row", model.failures))?;
                model.change(Availability::Down { probe_at });
            }
            RequestEventPayload::ProviderProbed { lease } => {
                let is_probed =
                    matches!(model.state, Availability::Down { .. } | Availability::Unavailable { probe_at: Some(_) });
                ensure(is_probed, || "a probe of a provider that is not down".into())?;
                model.probe = Some(lease);
            }
            RequestEventPayload::ProviderRecovered { .. } => model.change(Availability::Up),
            RequestEventPayload::ProviderUnavailable { probe_at, .. } => {
                (self.due, model.limited_since) = (None, None);
                model.change(Availability::Unavailable { probe_at });
                if let Some((_, ended, before)) = self.latest_end.take_if(|(latest_end, ..)| *latest_end == id) {
                    // This call made the model unavailable. It will be requested again as if it had not been
                    // made.
                    match before {
                        Some(before) => drop(self.failed.insert(ended, before)),
                        None => drop(self.failed.remove(&ended)),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Outages {
    /// Records how a task's call ended, before the model's state changes.
    fn record_end(&mut self, event: &RequestEvent, id: ProviderModelId, lease: LeaseId, outcome: Outcome) {
        let (Some(correlation), Some(model)) = (event.correlation, self.models.get(&id)) else { return };
        let ended = execution(&correlation);
        let Some(epoch) = model.in_flight.get(&lease.key).copied() else { return };
        let is_fatal = matches!(
            outcome,
            Outcome::KeyRejected | Outcome::QuotaExhausted | Outcome::ModelNotFound | Outcome::TlsFailed
        );
        let is_refused = is_counted_failure(outcome) || outcome == Outcome::RateLimited;
        if is_fatal || is_refused && matches!(model.state, Availability::Unavailable { .. }) && epoch != model.epoch {
            // The call will be requested again as if it had not been made.
            return;
        }
        if !is_counted_failure(outcome) {
            self.latest_end = Some((id, ended, self.failed.remove(&ended)));
            return;
        }
        let was_probe = epoch == model.epoch && model.state != Availability::Up;
        let before = self.failed.get(&ended).copied();
        if before.is_some_and(|failed| failed.model == id && model.is_own_failure(&failed)) {
            // An answer ended the streak while the call was in flight again, so the first failure counts.
            return;
        }
        let excused = before.map_or(0, |failed| failed.excused) + u32::from(was_probe);
        let failed = Failed { model: id, epoch, streak: model.streaks, excused };
        self.latest_end = Some((id, ended, self.failed.insert(ended, failed)));
    }

    /// Fails if an attempt ended with a failure that was the provider's.
    fn check_own_failure(&self, event: &SchedulerEvent) -> CheckResult {
        let failed = self.failed.get(&execution(&event.correlation));
        let model = failed.and_then(|failed| self.models.get(&failed.model));
        let (Some(failed), Some(model)) = (failed, model) else { return Ok(()) };
        let is_own = failed.excused >= MAX_EXCUSED || model.is_own_failure(failed);
        ensure(is_own, || {
            format!("an attempt failed, but the failure is not its own, or this is not decided yet: {failed:?}")
        })
    }
}

impl Check for Outages {
    const LAW: Law = Law::Outages;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        let SchedulerEventPayload::TaskCompleted { outcome, .. } = event.payload else { return Ok(()) };
        let result = match outcome {
            Some(TaskOutcome::Retryable {
                kind: RetryKind::Timeout | RetryKind::ServerError | RetryKind::Connection,
                ..
            }) => self.check_own_failure(event),
            _ => Ok(()),
        };
        self.failed.remove(&execution(&event.correlation));
        result
    }

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        let resource = match event.scope {
            EventScope::Model(id) => return self.on_model(event.at, id, event.payload),
            EventScope::Resource(resource) => resource,
            EventScope::Controller => return Ok(()),
        };
        ensure(self.due.is_none(), || format!("{:?} comes before the event that its provider is down", event.payload))?;
        let Some(id) = self.owners.get(&resource).copied() else { return Ok(()) };
        if matches!(event.payload, RequestEventPayload::LeaseAcquired { .. }) {
            self.check_order(event, resource)?;
        }
        if let RequestEventPayload::CallCompleted { lease, outcome, .. } = event.payload {
            self.record_end(event, id, lease, outcome);
        }
        let Some(model) = self.models.get_mut(&id) else { return Ok(()) };
        match event.payload {
            RequestEventPayload::LeaseAcquired { lease, .. } => {
                self.latest_end = None;
                model.acquired(event.at, lease)
            }
            RequestEventPayload::CallCompleted { lease, outcome, .. } => {
                let before = model.epoch;
                if model.completed(event.at, lease, outcome) {
                    self.due = Some(id);
                }
                if model.epoch != before {
                    let affected =
                        self.failed.values_mut().filter(|failed| failed.model == id && failed.epoch == before);
                    affected.for_each(|failed| failed.excused += 1);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn is_counted_failure(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::ConnectionFailed | Outcome::ProviderFailure | Outcome::ProviderTimeout)
}
