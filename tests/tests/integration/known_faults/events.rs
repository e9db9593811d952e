//! Faults of what is told about a run.

use serde::Serialize;
use serde_json::Value;
use tidegate_core::budget::{Dimension, StatedRate};
use tidegate_core::id::SlotKey;
use tidegate_core::lease::{LeaseId, ReleaseResult};
use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PipelineEffect, PlanBuilder, RunReport, Strategy};
use tidegate_core::request::event::{
    EventScope, MAX_PENDING, RequestEvent, RequestEventKind, RequestEventPayload, RequestInterest,
};
use tidegate_core::request::{AcquireResult, DenialReason, LimitConfig, Outcome, Request, UnavailableCause, WaiterId};
use tidegate_core::time::Instant;

use super::{at, machine_of, ms, take};

/// A waiter of some machine.
fn waiter() -> WaiterId {
    let (mut machine, resource) = machine_of(1, LimitConfig::default());
    let _held = take(&mut machine, at(0), resource);
    let AcquireResult::Waiting(waiter) = machine.acquire(at(0), &Request::new(resource)) else { panic!("it is taken") };
    waiter
}

/// One fact of each kind.
fn facts() -> Vec<RequestEventPayload> {
    use RequestEventPayload::*;
    let lease = LeaseId { controller: 1, key: SlotKey::from_bits(2), item: 3 };
    let (waiter, span) = (waiter(), ms(4));
    let (queued, reason) = (Some(waiter), DenialReason::QueuedWaitersAhead);
    vec![
        ResourceRegistered { cap: 4 },
        EffectiveCapChanged { from: None, to: 4 },
        QueueFormed,
        QueueDrained,
        WaitStarted { waiter: queued },
        WaitCompleted { waiter: queued, waited: span },
        WaitTimeout { waiter: None, waited: span },
        WaitCancelled { waiter, waited: span, reason },
        AcquireDenied { reason: DenialReason::Paced, changes_at: Some(at(9)) },
        LeaseAcquired { lease, limit: 4, in_flight: 1 },
        CallStarted { lease },
        CallCompleted { lease, outcome: Outcome::LocalCancelled, took: span },
        LeaseReleased { lease, outcome: Outcome::LocalCancelled, held: span, in_flight: 0 },
        ReleaseDiagnostic { lease, result: ReleaseResult::WrongController },
        RateLimited { blocked_until: Some(at(9)), consecutive: 2 },
        CooldownCapped { requested: ms(9), applied: ms(8) },
        LimitDecreased { from: 4, to: 3 },
        LimitIncreased { from: 3, to: 4 },
        SoftCeilingRecovered { limit: 4 },
        FullyRecovered { limit: 4 },
        RampStep { from: 1, to: 2 },
        RampAborted { limit: 2 },
        BudgetCorrected { dimension: Dimension::InputTokens, before: -1, after: 9 },
        RateLearned { rate: StatedRate { dimension: Dimension::Requests, limit: 300, window: ms(60_000) } },
        ProviderDown { since: at(1), probe_at: at(2) },
        ProviderProbed { lease },
        ProviderRecovered { since: at(1), full_at: at(2) },
        ProviderUnavailable { cause: UnavailableCause::KeyRejected, probe_at: None },
    ]
}

/// The kinds as they are written, for whoever reads them elsewhere: none is ever renamed.
const KINDS: [&str; 28] = [
    "resource_registered",
    "effective_cap_changed",
    "queue_formed",
    "queue_drained",
    "wait_started",
    "wait_completed",
    "wait_timeout",
    "wait_cancelled",
    "acquire_denied",
    "lease_acquired",
    "call_started",
    "call_completed",
    "lease_released",
    "release_diagnostic",
    "rate_limited",
    "cooldown_capped",
    "limit_decreased",
    "limit_increased",
    "soft_ceiling_recovered",
    "fully_recovered",
    "ramp_step",
    "ramp_aborted",
    "budget_corrected",
    "rate_learned",
    "provider_down",
    "provider_probed",
    "provider_recovered",
    "provider_unavailable",
];

fn is_snake_case(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_plain)
}

/// Fails for a key, or a text that stands for a variant, that is not in snake case.
fn assert_snake_case(value: &Value) {
    match value {
        Value::String(text) => assert!(is_snake_case(text), "{text:?}"),
        Value::Array(items) => items.iter().for_each(assert_snake_case),
        Value::Object(fields) => {
            for (key, value) in fields {
                assert!(is_snake_case(key), "{key:?}");
                assert_snake_case(value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("it serialises")
}

/// An event held a live object, which no log could write.
#[test]
fn no_event_holds_an_object_that_does_not_serialise() {
    let facts = facts();
    let kinds: Vec<RequestEventKind> = facts.iter().map(RequestEventPayload::kind).collect();
    assert_eq!(kinds, RequestEventKind::ALL, "one sample of each kind");
    let resource = machine_of(1, LimitConfig::default()).1;
    for (payload, kind) in facts.into_iter().zip(KINDS) {
        assert_eq!(json(&payload.kind()), kind);
        let event =
            RequestEvent { sequence: 7, at: at(1), scope: EventScope::Resource(resource), correlation: None, payload };
        let written = json(&event);
        assert_snake_case(&written);
        assert_eq!(
            (&written["kind"], &written["sequence"], &written["at"]),
            (&kind.into(), &7.into(), &1_000_000.into())
        );
        // Everything the fact knows is there: its fields, and no other.
        let fields = json(&payload).as_object().map_or(0, serde_json::Map::len);
        assert_eq!(written.as_object().map_or(0, serde_json::Map::len), fields + 3, "{written}");
    }
}

/// The same for the report of a run: the cause of its end was a live object of the host.
#[test]
fn no_report_holds_an_object_that_does_not_serialise() {
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().expect("a valid plan");
    let config = PipelineConfig { rows: 2, ..PipelineConfig::default() };
    let mut pipeline = Pipeline::new(plan, config).expect("valid settings");
    pipeline.start(Instant::ZERO);
    while let Some(effect) = pipeline.poll_effect() {
        match effect {
            PipelineEffect::Spawn(task) => drop(pipeline.task_panicked(at(1), task.worker, "a bug".into())),
            PipelineEffect::Abort(_) | PipelineEffect::Finished => {}
            other => panic!("{other:?}"),
        }
    }
    let report = pipeline.report().expect("it has ended");
    let written = serde_json::to_string(report).expect("it serialises");
    assert!(
        written.contains("\"stop\":{\"reason\":\"fatal\",\"column\":0,\"row_group\":0,\"cause\":\"a bug\"}"),
        "{written}"
    );
    assert_eq!(&serde_json::from_str::<RunReport>(&written).expect("it can be read"), report);
    assert_snake_case(&json(&pipeline.progress().columns[0]));
}

/// A sink that did not keep up lost events, and nobody could tell.
#[test]
fn no_event_is_dropped_without_being_counted() {
    let (mut machine, resource) = machine_of(1, LimitConfig::default());
    machine
        .set_interest(at(0), RequestInterest::of(&[RequestEventKind::LeaseAcquired, RequestEventKind::LeaseReleased]));
    let mut made = 0;
    while made < MAX_PENDING + 10 {
        let lease = take(&mut machine, at(0), resource);
        let _ = machine.release(at(0), lease, &Outcome::Success.into());
        made += 2;
    }
    let told = std::iter::from_fn(|| machine.poll_event()).last().expect("there are many").sequence;
    assert_eq!((told + 1, machine.dropped_events()), (MAX_PENDING as u64, (made - MAX_PENDING) as u64));
    let _lease = take(&mut machine, at(0), resource);
    let next = machine.poll_event().expect("there is room again");
    assert_eq!(next.sequence, made as u64, "the gap in the numbers is what was dropped");
}
