//! What is noted of a call while its answer goes by.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tidegate_core::budget::Usage;
use tidegate_core::request::{Completion, Outcome};

use super::Shared;
use super::route::{Resource, Upstream};
use super::tenant::{Level, Tenant};
use super::usage::UsageReader;
use crate::http::{BodyObserver, ResponseInfo};

/// Counts one call of a provider: in flight for as long as it lives, and then by how it ended.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
    tenant: Arc<Tenant>,
    level: Level,
    estimate: Usage,
    /// Whether it is made with the client's own key: what its end says of the key is about that client.
    has_own_key: bool,
    /// There once an answer has begun.
    usage: Option<UsageReader>,
    has_ended: bool,
}

impl Watcher {
    /// A call goes out.
    pub(super) fn new(
        shared: &Arc<Shared>,
        resource: &Arc<Resource>,
        tenant: &Arc<Tenant>,
        level: Level,
        estimate: Usage,
        upstream: &Upstream,
    ) -> Self {
        tenant.group(level).in_flight.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            resource: Arc::clone(resource),
            tenant: Arc::clone(tenant),
            level,
            estimate,
            has_own_key: upstream.authorization.is_none(),
            usage: None,
            has_ended: false,
        }
    }

    /// The head of the answer is there.
    pub(super) fn head(&mut self, head: &ResponseInfo, headers: &HeaderMap) {
        if head.completion.outcome == Outcome::Success {
            let kind = headers.get(CONTENT_TYPE).map_or(&[][..], http::HeaderValue::as_bytes);
            self.usage = Some(UsageReader::new(kind.starts_with(b"text/event-stream")));
        }
    }

    /// The call has ended so.
    pub(super) fn ended(&mut self, outcome: Outcome) {
        if !self.has_ended {
            self.has_ended = true;
            self.resource.meters.attempt(outcome);
            self.shared.pace.one_more();
        }
    }
}

impl BodyObserver<Bytes> for Watcher {
    fn on_data(&mut self, data: &Bytes) {
        if let Some(usage) = &mut self.usage {
            usage.pass(data);
        }
    }

    fn on_end(&mut self, mut completion: Completion) -> Completion {
        if self.has_own_key {
            // The trailers of an answer have their say only here.
            completion.outcome = completion.outcome.of_own_key();
        }
        self.ended(completion.outcome);
        let used = self.usage.as_ref().and_then(|usage| usage.read(self.estimate));
        match used {
            Some(used) if completion.outcome == Outcome::Success => {
                self.resource.meters.used(used);
                completion.used(used)
            }
            _ => completion,
        }
    }

    /// A client that leaves has its call cut, which does not unsay what the provider has counted: what went by until then,
    /// or else all that was reserved.
    fn on_cancel(&mut self) -> Option<Usage> {
        let used = self.usage.as_ref()?.read(self.estimate).unwrap_or(self.estimate);
        self.resource.meters.used(used);
        Some(used)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ended(Outcome::LocalCancelled);
        self.tenant.group(self.level).in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
