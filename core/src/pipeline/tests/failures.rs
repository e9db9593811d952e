//! Retryable failures by call target: how they are counted, when a provider is degraded, and when they block
//! the admission of row groups.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::pipeline::event::{SchedulerEventKind, SchedulerEventPayload};
use crate::pipeline::tests::harness::*;
use crate::request::ResourceId;
use crate::task::{GroupKind, TaskGroup};
use crate::time::Duration;

const CHAT: ResourceId = ResourceId::new(0, 0);
const EMBEDDING: ResourceId = ResourceId::new(0, 1);
const JUDGE: ResourceId = ResourceId::new(0, 2);

/// The task resources with their request resources. `chat` and `embedding` are two domains of one model.
const CALLS: &[(&str, ResourceId)] = &[("chat", CHAT), ("embedding", EMBEDDING), ("judge", JUDGE)];

/// Returns a column whose tasks hold one unit of `resource`, in the fairness group of `model`.
fn calling(name: &str, model: &str, resource: &str) -> Column {
    let group = TaskGroup { admitted_limit: None, ..TaskGroup::model("provider", model, 1.0) };
    Column::new(name, Strategy::Cell).with_group(group).with_demand(resource, 1)
}

fn config(row_count: u64, size: u32) -> PipelineConfig {
    let resources = CALLS.iter().map(|(name, _)| (name.to_string(), 8));
    PipelineConfig { resources: resources.collect(), ..rows(row_count, size) }
}

/// Starts a run with row groups of one row, a control loop, and enough slots for all row groups.
fn adaptive(columns: impl IntoIterator<Item = Column>) -> Rig {
    let config = PipelineConfig { row_groups: 9, adaptive: Some(AdaptiveRowGroups::default()), ..config(9, 1) };
    Rig::start_calling(columns, config, CALLS)
}

fn is_blocked_by_deferral(rig: &Rig) -> bool {
    rig.pipeline.progress().row_group_block == Some(RowGroupBlock::DeferredTasks)
}

fn failed(kind: RetryKind, status: u16) -> TaskOutcome {
    TaskOutcome::Retryable { kind, status: Some(status), retry_after: None }
}

const PAUSE: Duration = Duration::from_secs(5);

#[test]
fn columns_of_two_groups_that_call_one_resource_are_judged_together() {
    let columns = [calling("draft", "a", "chat"), calling("title", "b", "chat")];
    let mut rig = Rig::start_calling(columns, PipelineConfig { degraded_window: 2, ..config(2, 2) }, CALLS);
    rig.end("draft:0.0", failed(RetryKind::ServerError, 503));
    assert_eq!(rig.warnings, []);
    rig.end("title:0.0", failed(RetryKind::RateLimited, 429));
    assert_eq!(
        rig.warnings[0].to_string(),
        "`chat` is degraded: 2 of its last 2 answers were failures that may pass: 1 rate limited (HTTP 429), \
         1 server error (HTTP 503)"
    );
}

#[test]
fn two_domains_of_one_model_are_judged_separately() {
    let columns = [calling("draft", "a", "chat"), calling("vector", "a", "embedding")];
    let mut rig = Rig::start_calling(columns, PipelineConfig { degraded_window: 2, ..config(2, 2) }, CALLS);
    rig.end("draft:0.0", failed(RetryKind::ServerError, 503));
    rig.end("vector:0.0", failed(RetryKind::ServerError, 503));
    assert_eq!(rig.warnings, [], "each domain has one response");
    rig.end("vector:0.1", failed(RetryKind::ServerError, 503));
    assert_eq!(rig.warnings[0].resource.as_deref(), Some("embedding"));
    let is_it = |payload: &SchedulerEventPayload| payload.kind() == SchedulerEventKind::ProviderDegraded;
    let emitted = rig.events().iter().map(|event| event.payload).find(is_it);
    let embedding = SchedulerEventPayload::ProviderDegraded { resource: Some(2), retryable: 2, window: 2 };
    assert_eq!(emitted, Some(embedding), "numbered after `submission` and `chat`");
}

#[test]
fn failures_are_counted_by_kind_and_status_in_snapshots_and_in_the_report() {
    let columns = [calling("draft", "a", "chat"), calling("grade", "b", "judge")];
    let mut rig = Rig::start_calling(columns, PipelineConfig { degraded_window: 2, ..config(3, 3) }, CALLS);
    for label in ["draft:0.0", "draft:0.1", "draft:0.2"] {
        rig.end(label, failed(RetryKind::ServerError, 500));
    }
    rig.end("grade:0.0", retry(RetryKind::AdmissionTimeout));
    rig.events();
    rig.run_well();
    let count = |kind, status, recent, total| RetryableCount { kind, status, recent, total };
    let counts = [count(RetryKind::ServerError, Some(500), 0, 3), count(RetryKind::AdmissionTimeout, None, 0, 1)];
    assert_eq!(rig.report().retryable, counts);
    let events = rig.events();
    let saved =
        events.iter().position(|event| event.payload.kind() == SchedulerEventKind::RowGroupCheckpointed).unwrap();
    let after: Vec<SchedulerEventPayload> = events[saved + 1..].iter().map(|event| event.payload).collect();
    assert_eq!(after[0].kind(), SchedulerEventKind::HealthSnapshot);
    let payloads = counts.map(|count| SchedulerEventPayload::retryable_failures(None, &count));
    assert_eq!(after[1..3], payloads, "a snapshot is followed by its failures");
}

#[test]
fn a_deferred_generator_blocks_row_groups_for_each_column_that_it_fills() {
    // The generator of `draft` also fills `notes`, so `grade` waits for the same deferred task.
    let draft = calling("draft", "a", "chat").with_also_fills("notes");
    let grade = calling("grade", "b", "judge").with_upstream("notes");
    let mut rig = adaptive([draft, grade]);
    rig.end("draft:0.0", rate_limited(PAUSE));
    assert!(is_blocked_by_deferral(&rig));
    rig.advance(PAUSE);
    assert!(!is_blocked_by_deferral(&rig), "the task is queued again, so nothing waits for a retry");
}

#[test]
fn a_deferred_resource_blocks_row_groups_only_if_all_first_work_depends_on_it() {
    // The judge is idle, but a new row group would call it only after the draft.
    let behind = [calling("draft", "a", "chat"), calling("grade", "b", "judge").with_upstream("draft")];
    let mut rig = adaptive(behind);
    rig.end("draft:0.0", rate_limited(PAUSE));
    assert!(is_blocked_by_deferral(&rig));
    let mut rig = adaptive([calling("draft", "a", "chat"), calling("grade", "b", "judge")]);
    rig.end("draft:0.0", rate_limited(PAUSE));
    assert!(!is_blocked_by_deferral(&rig), "a new row group can start with the judge");
    rig.end("grade:0.0", rate_limited(PAUSE));
    assert!(is_blocked_by_deferral(&rig), "all first work of a new row group is deferred");
}

#[test]
fn a_deferred_resource_affects_all_columns_that_call_it_and_no_other_domain() {
    // One fairness group, two domains: embeddings wait, chats do not.
    let mut rig = adaptive([calling("draft", "a", "chat"), calling("vector", "a", "embedding")]);
    rig.end("vector:0.0", rate_limited(PAUSE));
    assert!(!is_blocked_by_deferral(&rig));
    // Two fairness groups, one resource: a retry of a later column blocks row groups that start with an
    // earlier one.
    let later = calling("title", "b", "chat").with_upstream("draft");
    let mut rig = adaptive([calling("draft", "a", "chat"), later]);
    rig.succeed("draft:0.0");
    rig.end("title:0.0", rate_limited(PAUSE));
    assert!(is_blocked_by_deferral(&rig));
}

#[test]
fn a_local_column_neither_causes_nor_blocks_admission_while_the_model_waits() {
    // Local work alone does not admit a row group: while its model waits, the row group would only use
    // memory.
    let mut rig = adaptive([calling("draft", "a", "chat"), cell("hash", &[])]);
    rig.end("draft:0.0", rate_limited(PAUSE));
    assert!(is_blocked_by_deferral(&rig));
    rig.succeed("hash:0.0");
    assert!(is_blocked_by_deferral(&rig), "the local column continues in the active row groups");
    let mut rig = adaptive([calling("draft", "a", "chat"), cell("hash", &[])]);
    rig.end("hash:0.0", retry(RetryKind::Timeout));
    assert!(!is_blocked_by_deferral(&rig), "a local failure does not affect the model");
}

#[test]
fn a_deferred_custom_model_blocks_row_groups_like_a_model() {
    let custom = |name: &str, upstreams: &[&str]| {
        let group = TaskGroup { kind: GroupKind::CustomModel, ..TaskGroup::local("own") };
        cell(name, upstreams).with_group(group)
    };
    let mut rig = adaptive([custom("draft", &[]), calling("grade", "b", "judge").with_upstream("draft")]);
    rig.end("draft:0.0", retry(RetryKind::Timeout));
    assert!(is_blocked_by_deferral(&rig), "it is the first call, although it is not a request resource");
    let mut rig = adaptive([calling("draft", "a", "chat"), custom("grade", &["draft"])]);
    rig.succeed("draft:0.0");
    rig.end("grade:0.0", retry(RetryKind::Timeout));
    assert!(!is_blocked_by_deferral(&rig), "a new row group starts with the model");
}

#[test]
fn rate_limited_rows_are_unmade_after_an_early_shutdown_caused_by_another_provider() {
    let config = PipelineConfig { shutdown_window: 2, ..config(6, 6) };
    let columns = [calling("draft", "a", "chat"), calling("grade", "b", "judge")];
    let mut rig = Rig::start_calling(columns, config, CALLS);
    for label in ["draft:0.0", "draft:0.1"] {
        rig.end(label, rate_limited(PAUSE));
    }
    rig.succeed("draft:0.5");
    rig.succeed("grade:0.5");
    for label in ["grade:0.2", "grade:0.3"] {
        rig.end(label, FAILED);
    }
    assert_eq!(rig.pipeline.poll_timeout(), None, "a stopping run retries nothing");
    for label in rig.running_names() {
        rig.end(&label, rate_limited(PAUSE));
    }
    rig.saved(0);
    assert!(matches!(rig.report().stop, StopReason::EarlyShutdown { failures: 1, window: 2 }));
    assert_eq!((rig.report().rows_out, rig.report().columns[0].tasks.failed), (1, 0));
    let failed = DropReason::Failed(FailureKind::Request);
    let grade = "grade".to_string();
    assert_eq!(rig.dropped(), [(grade, failed, 2)]);
    assert_eq!(rig.report().rows_unmade, 3, "a rate limit drops no row: a resumed run computes the unmade rows");
}
