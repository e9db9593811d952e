//! Makes the attempts of one request, until one of them has a result for the client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use reqwest::Url;
use tidegate_core::backoff::Backoff;
use tidegate_core::budget::Usage;
use tidegate_core::gate::OwnedPermit;
use tidegate_core::request::{
    AfterCall, Completion, Denial, DenialReason, HealthState, Outcome, Retry, UnavailableCause,
};
use tidegate_core::time::Clock as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::super::Shared;
use super::super::counters::CountGuard;
use super::super::error::ProxyError;
use super::super::recorder::AttemptRecorder;
use super::super::tenant::{Group, Tenant};
use super::super::upstream::{Resource, Upstream};
use super::RequestContext;
use super::response::{ClientResult, ResponseFilter, UpstreamResponse};
use crate::gate::CallPermit;
use crate::host::TokioHost;
use crate::http::peeked_body::PeekedBody;
use crate::http::{InFlightCall, ResponseInfo, read_error_body, read_head, transport_error_outcome};

/// The request to the provider. It is copied for each attempt.
pub(super) struct UpstreamRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A request whose provider, resource and tenant are known. [`RoutedRequest::run`] makes its attempts.
pub(super) struct RoutedRequest<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) upstream: &'a Upstream,
    pub(super) resource: Arc<Resource>,
    pub(super) tenant: Arc<Tenant>,
    pub(super) deadline: Instant,
    pub(super) estimate: Usage,
    pub(super) responses: ResponseFilter<'a>,
    /// Backoff for failed connections, and for 5xx responses.
    pub(super) connection_errors: Backoff,
    pub(super) server_errors: Backoff,
}

/// An attempt in flight.
struct Attempt {
    in_flight: InFlightCall,
    recorder: AttemptRecorder,
}

/// The result of one attempt.
enum AttemptResult {
    /// The request is finished.
    Done(ClientResult),
    /// The call was rate-limited and waits for admission again.
    RateLimited,
    /// The call failed and may be retried.
    Failed(Failure),
}

/// A failed attempt that may be retried.
struct Failure {
    /// The result for the client if there is no retry.
    reply: ClientResult,
    kind: FailureKind,
    /// The retry during what may be an outage. `None` once the failure is known to be no outage.
    retry: Option<Retry>,
}

impl Failure {
    /// Returns the result of an attempt that failed: a failure to retry, or the final result.
    fn after(reply: ClientResult, kind: FailureKind, after: AfterCall) -> AttemptResult {
        match after {
            AfterCall::Retry(retry) => AttemptResult::Failed(Self { reply, kind, retry: Some(retry) }),
            _ => AttemptResult::Done(reply),
        }
    }
}

#[derive(Clone, Copy)]
enum FailureKind {
    Connection,
    Server,
}

/// The reason why an attempt is not admitted.
enum AdmitError {
    QueueFull { waiting: u32 },
    Denied(Denial),
}

impl RoutedRequest<'_> {
    pub(super) async fn run(mut self, sent: UpstreamRequest, context: &mut RequestContext) -> ClientResult {
        // The last attempt, if it failed.
        let mut last: Option<Failure> = None;
        loop {
            let retry = last.as_ref().and_then(|failed| failed.retry);
            let slot = match (self.admit(retry, context).await, last.take()) {
                (Ok(slot), _) => slot,
                (Err(AdmitError::Denied(Denial { reason: DenialReason::RequestAtFault, .. })), Some(failed)) => {
                    if !self.back_off(failed.kind, context).await {
                        return failed.reply;
                    }
                    last = Some(Failure { retry: None, ..failed });
                    continue;
                }
                (Err(error), failed) => {
                    // The result of the last attempt says more than a passed deadline.
                    return match (self.error_for(&error, context), failed) {
                        (ProxyError::Deadline { .. }, Some(failed)) => failed.reply,
                        (error, _) => Err(error),
                    };
                }
            };
            context.attempts += 1;
            let mut request = reqwest::Request::new(sent.method.clone(), sent.url.clone());
            *request.headers_mut() = sent.headers.clone();
            if !sent.body.is_empty() {
                *request.body_mut() = Some(sent.body.clone().into());
            }
            match self.attempt(request, slot, context).await {
                AttemptResult::Done(reply) => return reply,
                AttemptResult::RateLimited => {}
                AttemptResult::Failed(failed) => last = Some(failed),
            }
        }
    }

    /// Waits for admission. `retry` describes the failure if the last attempt failed in what may be an
    /// outage.
    async fn admit(&self, retry: Option<Retry>, context: &mut RequestContext) -> Result<CallPermit, AdmitError> {
        let request = tidegate_core::request::Request {
            group: self.shared.tenants.group(&self.tenant, context.level),
            timeout: Some(self.deadline.saturating_duration_since(Instant::now()).into()),
            estimate: self.estimate,
            ..tidegate_core::request::Request::new(self.resource.id)
        };
        let gate = self.shared.gate.core();
        let at_once = if retry.is_none() { gate.try_acquire_owned(request).ok() } else { None };
        let permit = match at_once {
            Some(permit) => permit,
            None => self.wait(request, retry, context).await?,
        };
        self.group(context).admitted.fetch_add(1, Ordering::Relaxed);
        Ok(permit)
    }

    async fn wait(
        &self,
        request: tidegate_core::request::Request,
        retry: Option<Retry>,
        context: &mut RequestContext,
    ) -> Result<OwnedPermit<TokioHost>, AdmitError> {
        // A request that was admitted once is not rejected by the bound of the queue.
        let most = if context.attempts == 0 { self.shared.queue.max_waiting } else { u32::MAX };
        let full = |waiting| AdmitError::QueueFull { waiting };
        let _all = CountGuard::try_new(&self.shared.waiting, most).map_err(full)?;
        let _group = CountGuard::new(&self.group(context).waiting);
        let since = Instant::now();
        let end = self.shared.gate.core().acquire_owned(request).with_retry(retry).await;
        let waited = since.elapsed();
        context.waited += waited;
        if end.is_ok() {
            self.resource.meters.record_wait(waited);
        }
        end.map_err(AdmitError::Denied)
    }

    fn group(&self, context: &RequestContext) -> &Group {
        self.tenant.group(context.level)
    }

    /// Returns the error for a request that was not admitted.
    fn error_for(&self, error: &AdmitError, context: &RequestContext) -> ProxyError {
        let denial = match *error {
            AdmitError::QueueFull { waiting } => {
                return ProxyError::QueueFull {
                    waiting,
                    retry_after: self.shared.completion_rate.estimate_wait(waiting),
                };
            }
            AdmitError::Denied(denial) if denial.reason == DenialReason::Shutdown => return ProxyError::ShuttingDown,
            AdmitError::Denied(denial) if denial.reason == DenialReason::RequestAtFault => {
                return ProxyError::Unreachable { provider: self.upstream.config.name.clone() };
            }
            AdmitError::Denied(denial) => denial,
        };
        let gate = self.shared.gate.core();
        let provider = || self.upstream.config.name.clone();
        let retry_after = denial.changes_at.map(|at| (at - gate.host().now()).into());
        let waited = context.waited;
        let why = || self.shared.why(&self.resource).unwrap_or_else(|| "other requests went first".to_string());
        match gate.stats(self.resource.id).map(|stats| stats.health) {
            Some(HealthState::Unavailable { cause, .. }) if denial.reason == DenialReason::Unavailable => {
                ProxyError::Unavailable { provider: provider(), cause, retry_after }
            }
            Some(HealthState::Down { .. } | HealthState::Probing { .. }) => {
                ProxyError::Outage { provider: provider(), waited, retry_after }
            }
            _ => ProxyError::Deadline { waited, why: why(), attempts: context.attempts },
        }
    }

    /// Returns the time until one call tests the model that is unavailable.
    fn time_to_probe(&self) -> Option<Duration> {
        let gate = self.shared.gate.core();
        match gate.stats(self.resource.id)?.health {
            HealthState::Unavailable { probe_at, .. } => Some((probe_at? - gate.host().now()).into()),
            _ => None,
        }
    }

    /// Sends the request and classifies the result.
    async fn attempt(&self, request: reqwest::Request, slot: CallPermit, context: &RequestContext) -> AttemptResult {
        let (tenant, level) = (&self.tenant, context.level);
        // What is read, such as a response that ran in the background, may be read any number of times.
        let is_new_output = request.method() == Method::POST;
        let unknown = if is_new_output { self.resource.unknown_usage(self.estimate) } else { self.estimate };
        let recorder =
            AttemptRecorder::new(self.shared, &self.resource, tenant, level, self.estimate, unknown, self.upstream);
        let mut attempt = Attempt { in_flight: InFlightCall::new(slot), recorder };
        attempt.in_flight.record_sent(unknown);
        match self.upstream.http.execute(request).await {
            Ok(response) => {
                let head = read_head(response.status(), response.headers(), SystemTime::now());
                if is_new_output {
                    attempt.recorder.record_head(&head, response.headers());
                }
                self.classify(response.into(), self.upstream.with_client_key_outcome(head), attempt, context).await
            }
            Err(error) => {
                let outcome = transport_error_outcome(&error);
                attempt.recorder.record_end(outcome);
                let provider = self.upstream.config.name.clone();
                if outcome == Outcome::TlsFailed {
                    attempt.in_flight.finish_with(outcome);
                    let retry_after = self.time_to_probe();
                    let cause = UnavailableCause::TlsFailed;
                    return AttemptResult::Done(Err(ProxyError::Unavailable { provider, cause, retry_after }));
                }
                let reply = Err(if error.is_timeout() {
                    ProxyError::ProviderTimeout { provider }
                } else {
                    ProxyError::Unreachable { provider }
                });
                // After any other error the provider may have processed the request.
                if error.is_connect() && self.shared.retry.connection_errors > 0 && self.may_repeat(context) {
                    return Failure::after(reply, FailureKind::Connection, attempt.in_flight.finish_call(outcome));
                }
                let done = Completion::from(outcome);
                attempt.in_flight.finish_with(if error.is_connect() { done } else { done.used(unknown) });
                AttemptResult::Done(reply)
            }
        }
    }

    async fn classify(
        &self,
        response: UpstreamResponse,
        head: ResponseInfo,
        mut attempt: Attempt,
        context: &RequestContext,
    ) -> AttemptResult {
        let status = response.status();
        attempt.in_flight.record_info(&head);
        if status.is_client_error() || head.is_rate_limited() {
            return self.classify_error(response, head, attempt, context).await;
        }
        if status.is_server_error() && self.shared.retry.server_errors > 0 && self.may_repeat(context) {
            attempt.recorder.record_end(head.completion.outcome);
            let after = attempt.in_flight.finish_call(head.completion);
            let reply = self.responses.buffered(response).await;
            return Failure::after(reply, FailureKind::Server, after);
        }
        AttemptResult::Done(self.responses.streamed(response, attempt.in_flight, attempt.recorder))
    }

    /// Returns whether a rate-limited call waits for another attempt.
    fn should_wait(&self, head: &ResponseInfo, context: &RequestContext) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let is_too_long = head.completion.retry_after.is_some_and(|asked| Duration::from(asked) > left);
        !is_too_long && self.may_repeat(context)
    }

    /// Classifies a 4xx or rate-limited response. The call ends as soon as the beginning of its body has been
    /// read. A rate-limited call is retried, unless its account has no quota left or the wait exceeds the
    /// deadline.
    async fn classify_error(
        &self,
        response: UpstreamResponse,
        mut head: ResponseInfo,
        mut attempt: Attempt,
        context: &RequestContext,
    ) -> AttemptResult {
        let (parts, body) = response.into_parts();
        let body = PeekedBody::peek(body).await;
        if let Some(whole) = body.complete() {
            read_error_body(whole, &parts.headers, SystemTime::now()).refine(&mut head);
        }
        let head = self.upstream.with_client_key_outcome(head);
        attempt.recorder.record_end(head.completion.outcome);
        attempt.in_flight.finish_with(head.completion);
        if head.is_rate_limited() && self.should_wait(&head, context) {
            return AttemptResult::RateLimited;
        }
        match self.responses.replacement_error(parts.status, head.completion.outcome) {
            Some(error) => AttemptResult::Done(Err(error)),
            None => AttemptResult::Done(self.responses.streamed(
                Response::from_parts(parts, reqwest::Body::wrap(body)),
                attempt.in_flight,
                attempt.recorder,
            )),
        }
    }

    fn may_repeat(&self, context: &RequestContext) -> bool {
        let most = self.shared.retry.max_attempts;
        most.is_none_or(|most| context.attempts < most.get()) && Instant::now() < self.deadline
    }

    /// Waits for the backoff after a failure. Returns whether to try again.
    async fn back_off(&mut self, kind: FailureKind, context: &RequestContext) -> bool {
        let backoff = match kind {
            FailureKind::Connection => &mut self.connection_errors,
            FailureKind::Server => &mut self.server_errors,
        };
        let now = self.shared.gate.core().host().now();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let pause = backoff.after_failure(now).map(|at| Duration::from(at - now)).filter(|pause| *pause < left);
        match pause.filter(|_| self.may_repeat(context)) {
            Some(pause) => sleep_unless_stopped(pause, self.shared.stop.subscribe()).await,
            None => false,
        }
    }
}

/// Sleeps for `pause`. Returns false if the proxy stopped meanwhile.
async fn sleep_unless_stopped(pause: Duration, mut stop: watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = sleep(pause) => true,
        _ = stop.wait_for(|stops| *stops) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shutdown_interrupts_the_backoff_before_a_retry() {
        let (stop, stopped) = watch::channel(false);
        let since = Instant::now();
        assert!(sleep_unless_stopped(Duration::from_secs(4), stopped.clone()).await);
        assert_eq!(since.elapsed(), Duration::from_secs(4));
        let waits = tokio::spawn(sleep_unless_stopped(Duration::from_mins(1), stopped.clone()));
        sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        assert!(!waits.await.unwrap() && !sleep_unless_stopped(Duration::from_mins(1), stopped).await);
        assert_eq!(since.elapsed(), Duration::from_secs(5));
    }
}
