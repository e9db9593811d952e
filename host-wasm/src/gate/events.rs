//! A gate's events as numbers: kind, sequence, time, subject, task, and the details of the kind.
//!
//! The kind is its index in [`RequestEventKind::ALL`]. The subject is -1 for the whole gate, the number of a
//! resource, or -2 minus the number of a model. A task is its run, row group, column, row and attempt. Times
//! and durations are in milliseconds; NaN is "none". A waiting call or a lease is one number.
//!
//! Events are numbers and not objects because they are on the path of each call: a call that is listened to has
//! six of them. To read the JSON of one takes 0.9 us in JavaScript alone, and a call without listeners takes 3 us.

use tidegate_core::event::EventKind;
use tidegate_core::lease::LeaseId;
use tidegate_core::request::WaiterId;
use tidegate_core::request::event::{EventScope, RequestEvent, RequestEventKind, RequestEventPayload, RequestInterest};
use tidegate_core::time::{Duration, Instant};

use super::answer::dimension_number;
use super::{millis, optional, outcome_number};

/// Returns the kinds whose bit is set.
pub(super) fn interest(bits: u32) -> RequestInterest {
    let wanted = RequestEventKind::ALL.iter().filter(|kind| bits & (1 << kind.index()) != 0);
    wanted.fold(RequestInterest::NONE, |all, kind| all.union(RequestInterest::of(&[*kind])))
}

pub(super) fn of(event: &RequestEvent) -> Vec<f64> {
    let scope = match event.scope {
        EventScope::Controller => -1.0,
        EventScope::Model(model) => -2.0 - model.index() as f64,
        EventScope::Resource(resource) => resource.index() as f64,
    };
    let mut numbers =
        vec![f64::from(event.payload.kind().index()), event.sequence as f64, millis(event.at - Instant::ZERO), scope];
    numbers.extend(task_of(event));
    numbers.extend(details(&event.payload));
    numbers
}

/// Returns the pipeline task that makes the call.
fn task_of(event: &RequestEvent) -> [f64; 5] {
    let Some(about) = event.correlation else { return [f64::NAN; 5] };
    let column = about.column.map(|column| column.index() as u32);
    [Some(about.run), about.row_group, column, about.row, about.attempt].map(|part| part.map_or(f64::NAN, f64::from))
}

/// Returns the details of the kind, in the order of its fields.
fn details(payload: &RequestEventPayload) -> [f64; 4] {
    const NONE: f64 = f64::NAN;
    let span = |span: Duration| millis(span);
    match *payload {
        RequestEventPayload::ResourceRegistered { cap } => [cap.into(), NONE, NONE, NONE],
        RequestEventPayload::EffectiveCapChanged { from, to } => [from.map_or(NONE, f64::from), to.into(), NONE, NONE],
        RequestEventPayload::WaitStarted { waiter } => [waiter_number(waiter), NONE, NONE, NONE],
        RequestEventPayload::WaitCompleted { waiter, waited } | RequestEventPayload::WaitTimeout { waiter, waited } => {
            [waiter_number(waiter), span(waited), NONE, NONE]
        }
        RequestEventPayload::WaitCancelled { waiter, waited, reason } => {
            [waiter_number(Some(waiter)), span(waited), f64::from(reason as u32), NONE]
        }
        RequestEventPayload::AcquireDenied { reason, changes_at } => {
            [f64::from(reason as u32), optional(changes_at.map(|at| at - Instant::ZERO)), NONE, NONE]
        }
        RequestEventPayload::LeaseAcquired { lease, limit, in_flight } => {
            [lease_number(lease), limit.into(), in_flight.into(), NONE]
        }
        RequestEventPayload::CallStarted { lease } | RequestEventPayload::ProviderProbed { lease } => {
            [lease_number(lease), NONE, NONE, NONE]
        }
        RequestEventPayload::CallCompleted { lease, outcome, took } => {
            [lease_number(lease), outcome_number(outcome), span(took), NONE]
        }
        RequestEventPayload::LeaseReleased { lease, outcome, held, in_flight } => {
            [lease_number(lease), outcome_number(outcome), span(held), in_flight.into()]
        }
        RequestEventPayload::ReleaseDiagnostic { lease, result } => {
            [lease_number(lease), f64::from(result as u32), NONE, NONE]
        }
        RequestEventPayload::RateLimited { blocked_until, consecutive } => {
            [optional(blocked_until.map(|end| end - Instant::ZERO)), consecutive.into(), NONE, NONE]
        }
        RequestEventPayload::CooldownCapped { requested, applied } => [span(requested), span(applied), NONE, NONE],
        RequestEventPayload::LimitDecreased { from, to }
        | RequestEventPayload::LimitIncreased { from, to }
        | RequestEventPayload::RampStep { from, to } => [from.into(), to.into(), NONE, NONE],
        RequestEventPayload::SoftCeilingRecovered { limit }
        | RequestEventPayload::FullyRecovered { limit }
        | RequestEventPayload::RampAborted { limit } => [limit.into(), NONE, NONE, NONE],
        RequestEventPayload::BudgetCorrected { dimension, before, after } => {
            [dimension_number(dimension), before as f64, after as f64, NONE]
        }
        RequestEventPayload::RateLearned { rate } => {
            [dimension_number(rate.dimension), rate.limit as f64, span(rate.window), NONE]
        }
        RequestEventPayload::ProviderDown { since, probe_at } => {
            [span(since - Instant::ZERO), span(probe_at - Instant::ZERO), NONE, NONE]
        }
        RequestEventPayload::ProviderRecovered { since, full_at } => {
            [span(since - Instant::ZERO), span(full_at - Instant::ZERO), NONE, NONE]
        }
        RequestEventPayload::ProviderUnavailable { cause, probe_at } => {
            [f64::from(cause as u32), optional(probe_at.map(|at| at - Instant::ZERO)), NONE, NONE]
        }
        _ => [NONE; 4],
    }
}

fn waiter_number(waiter: Option<WaiterId>) -> f64 {
    waiter.map_or(f64::NAN, |waiter| exact(waiter.to_bits()))
}

fn lease_number(lease: LeaseId) -> f64 {
    exact(lease.key.to_bits())
}

/// Keeps as many bits as a double holds. The bits cut off change only after two million uses of one slot.
fn exact(bits: u64) -> f64 {
    (bits & ((1 << 53) - 1)) as f64
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// An event of each kind, and its numbers with `null` for NaN. `test/gate-events.test.mjs` of the package
    /// reads the numbers back.
    const EVENTS: &str = include_str!("../../tests/data/gate_events.jsonl");

    #[derive(Deserialize)]
    struct Line {
        event: RequestEvent,
        numbers: Vec<Option<f64>>,
    }

    #[test]
    fn each_kind_of_event_has_the_numbers_that_the_package_reads() {
        let mut kinds = Vec::new();
        for line in EVENTS.lines() {
            let Line { event, numbers } = serde_json::from_str(line).expect("a valid line");
            let written: Vec<_> = of(&event).into_iter().map(|number| (!number.is_nan()).then_some(number)).collect();
            assert_eq!(written, numbers, "{line}");
            kinds.push(event.payload.kind());
        }
        assert_eq!(kinds, RequestEventKind::ALL);
    }
}
