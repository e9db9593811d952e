//! A provider that is down is left alone, and one that fails is taken down.
//!
//! Five counted failures in a row and no success for a second take a provider and model down, and nothing
//! less does. While it is down, nothing goes out but one probe at a time, and none before its pause is over.
//! An answer to the probe brings it back. After five failures in a row, before the second is over, calls go
//! out a tenth of it apart. Nothing goes out any more once it is unavailable.
//!
//! A call that was out before the latest of these changes counts for nothing, but its success makes the next
//! probe due.
//!
//! No task pays for an outage: a try ends as failed only with a failure that was the call's own. That is one
//! in a streak of less than five which an answer has ended, be it while the call was out again, or of a task
//! that has failed three probes or short streaks like that.
//!
//! A column that names several models calls each only while all before it are down, unavailable, or have
//! answered nothing but rate limits for half a minute.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::joined::{Execution, execution};
use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, hold};
use crate::call::Outcome;
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{ColumnId, RetryKind, TaskOutcome};
use crate::request::event::{EventPlace, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::{Duration, Instant};

/// Failures in a row that take a provider down.
const FAILURES: u32 = 5;
/// For so long nothing must have succeeded, too.
const QUIET: Duration = Duration::from_secs(1);
/// So far calls are apart until then.
const APART: Duration = Duration::from_millis(100);
/// A task that has failed so many probes or short streaks pays for its failures.
const CHARGED_PROBES: u32 = 3;
/// So long rate limits are borne where there is a fallback.
const FALLBACK_AFTER: Duration = Duration::from_secs(30);

/// All providers and models that were named.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages {
    owners: Map<ResourceId, ProviderModelId>,
    models: BTreeMap<ProviderModelId, ModelOutages>,
    /// What the columns call, in order, that name several models.
    fallbacks: BTreeMap<ColumnId, Vec<ResourceId>>,
    /// The model that must be said to be down next.
    due: Option<ProviderModelId>,
    /// How the calls of each execution of a task failed.
    failed: BTreeMap<Execution, Failed>,
    /// What was noted of whose call ended last with a failure, before that.
    recorded: Option<(ProviderModelId, Execution, Option<Failed>)>,
}

/// The failures of one execution of a task.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// Whom the latest call went to, in which epoch, and in which streak it failed.
    model: ProviderModelId,
    epoch: u32,
    streak: u32,
    /// How many of them were probes, or in a streak of five that an answer ended before the model was down.
    probes: u32,
}

#[derive(Clone, Debug, Default)]
struct ModelOutages {
    state: Availability,
    /// Changes of the state.
    epoch: u32,
    /// Streaks of less than five failures that an answer has ended.
    streaks: u32,
    /// The calls that are out, each with the epoch of its grant.
    out: BTreeMap<SlotKey, u32>,
    failures: u32,
    first_failure: Option<Instant>,
    /// The latest failure, or the latest call that went out after five.
    last_failure: Instant,
    last_success: Option<Instant>,
    /// The first rate limit since the last other answer.
    limited_since: Option<Instant>,
    /// The lease that was said to be a probe.
    probe: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Availability {
    #[default]
    Up,
    Down {
        probe_at: Instant,
    },
    /// Unavailable, and tried again then.
    Closed {
        probe_at: Option<Instant>,
    },
}

impl ModelOutages {
    fn change(&mut self, state: Availability) {
        self.state = state;
        self.epoch += 1;
        (self.failures, self.first_failure, self.probe) = (0, None, None);
    }

    fn acquired(&mut self, at: Instant, lease: LeaseId) -> CheckResult {
        match self.state {
            Availability::Closed { probe_at: None } => {
                return Err(format!("{lease:?} goes out though its provider is unavailable"));
            }
            Availability::Down { probe_at } | Availability::Closed { probe_at: Some(probe_at) } => {
                hold(self.probe == Some(lease), || {
                    format!("{lease:?} goes out to a provider that is down, as no probe")
                })?;
                hold(probe_at <= at, || format!("the probe {lease:?} goes out before {probe_at}"))?;
                let probes = self.out.values().filter(|epoch| **epoch == self.epoch).count();
                hold(probes == 0, || format!("the probe {lease:?} goes out beside another"))?;
            }
            Availability::Up if self.failures >= FAILURES => {
                let next = self.last_failure + APART;
                hold(next <= at, || {
                    format!("{lease:?} goes out before {next}, after {} failures in a row", self.failures)
                })?;
                self.last_failure = at;
            }
            Availability::Up => {}
        }
        self.out.insert(lease.key, self.epoch);
        Ok(())
    }

    /// Takes the end of a call in; answers whether the provider must be down now.
    fn completed(&mut self, at: Instant, lease: LeaseId, outcome: Outcome) -> bool {
        let is_current = self.out.remove(&lease.key) == Some(self.epoch);
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
            Availability::Closed { .. } => {
                if is_current {
                    self.probe = None;
                    if is_local {
                        self.state = Availability::Down { probe_at: at };
                    }
                }
                is_current && is_failure
            }
            Availability::Down { .. } => {
                let is_news = if is_current { is_local } else { outcome == Outcome::Success && self.probe.is_none() };
                if is_news {
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

    /// Whether columns with fallbacks call it at this instant.
    fn is_usable(&self, at: Instant) -> bool {
        self.state == Availability::Up && self.limited_since.is_none_or(|since| at < since + FALLBACK_AFTER)
    }

    /// Whether a failure was the call's own.
    fn stands(&self, failed: &Failed) -> bool {
        let is_over = self.failures == 0 || failed.streak != self.streaks;
        self.state == Availability::Up && failed.epoch == self.epoch && is_over
    }

    /// Whether it may be said to be down at this instant.
    fn may_be_down(&self, at: Instant) -> bool {
        self.failures >= FAILURES && self.last_success.is_none_or(|success| at - success >= QUIET)
    }
}

impl Outages {
    pub(super) fn owned_by(&mut self, resource: ResourceId, model: ProviderModelId) {
        self.owners.insert(resource, model);
        self.models.entry(model).or_default();
    }

    pub(super) fn falls_back(&mut self, column: ColumnId, resources: Vec<ResourceId>) {
        self.fallbacks.insert(column, resources);
    }

    /// Refuses a call to a model that comes after one which is of use.
    fn is_in_order(&self, event: &RequestEvent, resource: ResourceId) -> CheckResult {
        let column = event.correlation.and_then(|about| about.column);
        let Some(list) = column.and_then(|column| self.fallbacks.get(&column)) else { return Ok(()) };
        let before = list.iter().take_while(|other| **other != resource);
        let mut models = before.filter_map(|other| self.models.get(self.owners.get(other)?));
        hold(!models.any(|model| model.is_usable(event.at)), || {
            format!("a call goes out to {resource:?}, and a model that comes first is of use")
        })
    }

    fn on_model(&mut self, at: Instant, id: ProviderModelId, payload: RequestEventPayload) -> CheckResult {
        let Some(model) = self.models.get_mut(&id) else { return Ok(()) };
        match payload {
            RequestEventPayload::ProviderDown { probe_at, .. } => {
                let is_due = self.due.take() == Some(id) || model.may_be_down(at);
                hold(is_due, || format!("it is down after {} failures in a row", model.failures))?;
                model.change(Availability::Down { probe_at });
            }
            RequestEventPayload::ProviderProbed { lease } => {
                let is_probed =
                    matches!(model.state, Availability::Down { .. } | Availability::Closed { probe_at: Some(_) });
                hold(is_probed, || "a probe of a provider that is up".into())?;
                model.probe = Some(lease);
            }
            RequestEventPayload::ProviderRecovered { .. } => model.change(Availability::Up),
            RequestEventPayload::ProviderUnavailable { probe_at, .. } => {
                (self.due, model.limited_since) = (None, None);
                model.change(Availability::Closed { probe_at });
                if let Some((_, who, before)) = self.recorded.take_if(|(recorded, ..)| *recorded == id) {
                    // It was this call that closed it, and it is asked for again as if it had not been made.
                    match before {
                        Some(before) => drop(self.failed.insert(who, before)),
                        None => drop(self.failed.remove(&who)),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Outages {
    /// Notes how a task's call ended, before the model takes it in.
    fn record_end(&mut self, event: &RequestEvent, id: ProviderModelId, lease: LeaseId, outcome: Outcome) {
        let (Some(about), Some(model)) = (event.correlation, self.models.get(&id)) else { return };
        let who = execution(&about);
        let Some(epoch) = model.out.get(&lease.key).copied() else { return };
        let is_fatal = matches!(outcome, Outcome::KeyRefused | Outcome::QuotaExhausted | Outcome::ModelNotFound);
        let is_refused = is_counted_failure(outcome) || outcome == Outcome::RateLimited;
        if is_fatal || is_refused && matches!(model.state, Availability::Closed { .. }) && epoch != model.epoch {
            // It is asked for again as if it had not been made.
            return;
        }
        if !is_counted_failure(outcome) {
            self.recorded = Some((id, who, self.failed.remove(&who)));
            return;
        }
        let was_probe = epoch == model.epoch && model.state != Availability::Up;
        let before = self.failed.get(&who).copied();
        if before.is_some_and(|failed| failed.model == id && model.stands(&failed)) {
            // An answer came while it was out again.
            return;
        }
        let probes = before.map_or(0, |failed| failed.probes) + u32::from(was_probe);
        let failed = Failed { model: id, epoch, streak: model.streaks, probes };
        self.recorded = Some((id, who, self.failed.insert(who, failed)));
    }

    /// Refuses the end of a try with a failure that was the provider's.
    fn is_own(&self, event: &SchedulerEvent) -> CheckResult {
        let failed = self.failed.get(&execution(&event.correlation));
        let model = failed.and_then(|failed| self.models.get(&failed.model));
        let (Some(failed), Some(model)) = (failed, model) else { return Ok(()) };
        let is_own = failed.probes >= CHARGED_PROBES || model.stands(failed);
        hold(is_own, || format!("a try failed for what happened in an outage, or is not decided: {failed:?}"))
    }
}

impl Check for Outages {
    const LAW: Law = Law::Outages;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        let SchedulerEventPayload::TaskCompleted { outcome, .. } = event.payload else { return Ok(()) };
        let verdict = match outcome {
            Some(TaskOutcome::Retryable {
                kind: RetryKind::Timeout | RetryKind::ServerError | RetryKind::Connection,
                ..
            }) => self.is_own(event),
            _ => Ok(()),
        };
        self.failed.remove(&execution(&event.correlation));
        verdict
    }

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        let resource = match event.place {
            EventPlace::Model(id) => return self.on_model(event.at, id, event.payload),
            EventPlace::Resource(resource) => resource,
            EventPlace::Controller => return Ok(()),
        };
        hold(self.due.is_none(), || format!("{:?} comes before it is said that its provider is down", event.payload))?;
        let Some(id) = self.owners.get(&resource).copied() else { return Ok(()) };
        if matches!(event.payload, RequestEventPayload::LeaseAcquired { .. }) {
            self.is_in_order(event, resource)?;
        }
        if let RequestEventPayload::CallCompleted { lease, outcome, .. } = event.payload {
            self.record_end(event, id, lease, outcome);
        }
        let Some(model) = self.models.get_mut(&id) else { return Ok(()) };
        match event.payload {
            RequestEventPayload::LeaseAcquired { lease, .. } => {
                self.recorded = None;
                model.acquired(event.at, lease)
            }
            RequestEventPayload::CallCompleted { lease, outcome, .. } => {
                let before = model.epoch;
                if model.completed(event.at, lease, outcome) {
                    self.due = Some(id);
                }
                if model.epoch != before {
                    let in_it = self.failed.values_mut().filter(|failed| failed.model == id && failed.epoch == before);
                    in_it.for_each(|failed| failed.probes += 1);
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
