//! Records the outcome and token usage of one attempt while its response is streamed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::HeaderMap;
use tidegate_core::budget::Usage;
use tidegate_core::request::{Completion, Outcome};

use super::Shared;
use super::tenant::{Level, Tenant};
use super::upstream::{Resource, Upstream};
use super::usage::{ResponseKind, UsageReader};
use crate::http::{BodyObserver, ResponseInfo};

/// Counts one attempt: in flight as long as this value lives, then by its outcome.
pub(super) struct AttemptRecorder {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
    tenant: Arc<Tenant>,
    level: Level,
    estimate: Usage,
    /// What is charged if the usage stays unknown.
    unknown: Usage,
    /// Whether the call uses the key of the client, so that a rejected key concerns that client only.
    has_own_key: bool,
    /// Set once a successful response has begun.
    usage: Option<UsageReader>,
    has_ended: bool,
}

impl AttemptRecorder {
    /// Starts recording an attempt that is about to be sent.
    pub(super) fn new(
        shared: &Arc<Shared>,
        resource: &Arc<Resource>,
        tenant: &Arc<Tenant>,
        level: Level,
        estimate: Usage,
        unknown: Usage,
        upstream: &Upstream,
    ) -> Self {
        tenant.group(level).in_flight.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            resource: Arc::clone(resource),
            tenant: Arc::clone(tenant),
            level,
            estimate,
            unknown,
            has_own_key: upstream.config.forwards_client_key,
            usage: None,
            has_ended: false,
        }
    }

    /// Records the response head.
    pub(super) fn record_head(&mut self, head: &ResponseInfo, headers: &HeaderMap) {
        if head.completion.outcome == Outcome::Success {
            self.usage = Some(UsageReader::new(ResponseKind::of(headers)));
        }
    }

    /// Records the outcome. Further calls are no-ops.
    pub(super) fn record_end(&mut self, outcome: Outcome) {
        if !self.has_ended {
            self.has_ended = true;
            self.resource.meters.record_attempt(outcome);
            self.shared.completion_rate.record_completion();
        }
    }

    /// Returns what is charged for a call of which `used` is known.
    fn charged(&self, used: Option<Usage>) -> Usage {
        match used {
            Some(used) => {
                self.resource.meters.record_usage(used);
                used
            }
            None => self.unknown,
        }
    }
}

impl BodyObserver<Bytes> for AttemptRecorder {
    fn on_data(&mut self, data: &Bytes) {
        if let Some(usage) = &mut self.usage {
            usage.push(data);
        }
    }

    fn on_end(&mut self, mut completion: Completion) -> Completion {
        if self.has_own_key {
            // Trailers may change the outcome after the head was classified.
            completion.outcome = completion.outcome.of_own_key();
        }
        self.record_end(completion.outcome);
        // Also of a response that breaks off: the provider charges what it has sent.
        match self.usage.as_mut().map(|usage| usage.finish(self.estimate)) {
            Some(used) => completion.used(self.charged(used)),
            None => completion,
        }
    }

    /// A disconnected client aborts the call, but the provider still charges it.
    fn on_cancel(&mut self) -> Option<Usage> {
        let used = self.usage.as_mut()?.finish(self.estimate);
        Some(self.charged(used))
    }
}

impl Drop for AttemptRecorder {
    fn drop(&mut self) {
        self.record_end(Outcome::LocalCancelled);
        self.tenant.group(self.level).in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
