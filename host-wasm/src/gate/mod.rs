//! Request admission for real calls, on the JavaScript event loop.
//!
//! A [`RequestGate`] is the core's gate over [`JsHost`]. Settings and states are objects; calls and events are
//! numbers. Programs use it through the TypeScript package beside this crate, which adds names and
//! promises.
//!
//! A permit request gets a *ticket*, a small number that is reused after its call has ended.
//! [`RequestGate::acquire`] returns at once: the ticket, if the permit is granted; its complement, if the
//! call waits; [`DENIED`], if it is denied. Decisions about waiting calls are queued as
//! [completions], which [`next_completion`](tickets::next_completion) reads. A command that releases
//! something returns how many completions there are. For other sources of completions, such as the gate's
//! timer, the callback of [`set_notify`](completions::set_notify) is called, which schedules a microtask to
//! read them.

pub mod answer;
pub mod call_context;
pub mod completions;
mod events;
mod figures;
mod settings;
pub mod share;
pub mod tickets;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use js_sys::RangeError;
use tidegate_core::backoff::Backoff;
use tidegate_core::budget::Usage;
use tidegate_core::gate::Gate;
use tidegate_core::limit::{LimitChoice, LimitConfig};
use tidegate_core::request::event::RequestInterest;
use tidegate_core::request::{
    AfterCall, Completion, Denial, Domain, GroupId, HealthConfig, Outcome, Request, RequestAdmission, RequestConfig,
    ResourceId, ResourceStats,
};
use tidegate_core::time::{Clock, Duration};
use wasm_bindgen::prelude::*;

use crate::host::JsHost;
use crate::json::to_js;
use figures::{CallWait, ResourceSnapshot};
use settings::{Adaptive, GateOptions, Limits};
use share::Shared;
use tickets::DENIED;

/// Decides when a call may start, and adapts its limits to how calls end.
#[wasm_bindgen]
pub struct RequestGate {
    gate: Gate<JsHost>,
    /// Of its resources.
    defaults: Adaptive,
    /// Its resources, by the names of their limits.
    registered: RefCell<BTreeMap<String, Registered>>,
    listens: RefCell<Option<completions::Listening>>,
}

/// A resource, with the settings that its limit would be shared with.
struct Registered {
    resource: ResourceId,
    algorithm: LimitChoice,
    limit_config: LimitConfig,
    /// Set if the limit is shared.
    shared: Option<Rc<Shared>>,
}

#[wasm_bindgen]
impl RequestGate {
    /// Creates a gate without resources. Throws for a setting that is not valid.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_param_type = "GateOptions")] options: &JsValue,
    ) -> Result<RequestGate, JsValue> {
        let (GateOptions { default_timeout_ms, health, rate_limit_headers, .. }, defaults) =
            GateOptions::read(options)?;
        // Random seeds keep pages that met the same outage from retrying together.
        let seed = random_number().into();
        let health = health.then(|| HealthConfig { seed, ..HealthConfig::default() });
        let config = RequestConfig {
            default_timeout: default_timeout_ms,
            health,
            rate_limit_headers,
            ..RequestConfig::default()
        };
        let machine = RequestAdmission::new(config).map_err(|error| settings::config_error(&error))?;
        Ok(Self {
            gate: Gate::new(JsHost, machine),
            defaults,
            registered: RefCell::default(),
            listens: RefCell::default(),
        })
    }

    /// Registers a provider's model for one kind of call, or changes its limits. A changed limit starts
    /// afresh. Returns its number. Throws for a limit that is not valid, and for another algorithm of a limit that is
    /// shared; nothing has changed then.
    pub fn register(
        &self,
        provider: &str,
        model: &str,
        domain: &str,
        #[wasm_bindgen(unchecked_param_type = "Limits")] limits: &JsValue,
    ) -> Result<u32, JsValue> {
        let limits = Limits::read(limits, &self.defaults)?;
        let name = tidegate_core::share::redis::limit_name(provider, model, domain);
        let mut registered = self.registered.borrow_mut();
        let shared = registered.get(&name).and_then(|known| known.shared.clone()).filter(|shared| !shared.has_ended());
        if shared.as_ref().is_some_and(|shared| !shared.is_shared_with(limits.algorithm, &limits.limit_config)) {
            let message = "the limit is shared; expected the algorithm and the settings that it is shared with";
            return Err(RangeError::new(message).into());
        }
        let (algorithm, limit_config) = (limits.algorithm, limits.limit_config.clone());
        let domain = Domain::from(domain);
        let is_shared = shared.is_some();
        let resource = self.gate.with(|machine, now| limits.apply(machine, now, provider, model, domain, is_shared));
        completions::announce();
        let resource = resource.map_err(|error| settings::config_error(&error))?;
        registered.insert(name, Registered { resource, algorithm, limit_config, shared });
        Ok(resource.index() as u32)
    }

    /// Sets how many calls of a provider's model may be in flight at once, over all domains, and keeps what
    /// its limits have learned. Throws as `register` does.
    #[wasm_bindgen(js_name = setMaxParallel)]
    pub fn set_max_parallel(&self, provider: &str, model: &str, max_parallel: u32) -> Result<(), JsValue> {
        let changed = self.gate.with(|machine, now| machine.register(now, provider, model, "default", max_parallel));
        completions::announce();
        changed.map(drop).map_err(|error| settings::config_error(&error))
    }

    /// Pauses the provider's model of a resource, or resumes it. Returns whether anything changed.
    #[wasm_bindgen(js_name = setPaused)]
    pub fn set_paused(&self, resource: u32, is_paused: bool) -> bool {
        let has_changed = self.gate.with(|machine, now| {
            let model = machine.owner(ResourceId::new(0, resource));
            model.is_some_and(|model| machine.set_paused(now, model, is_paused))
        });
        completions::announce();
        has_changed
    }

    /// Sets the weight of the fairness group with this name. Returns its number. Throws as `register` does.
    pub fn group(&self, name: &str, weight: f64) -> Result<u32, JsValue> {
        let made = self.gate.with(|machine, _| machine.group(name, weight));
        let group = made.map_err(|error| settings::config_error(&error))?;
        completions::announce();
        Ok(group.index() as u32)
    }

    /// Returns the number of a tenant's group, which is created at its first use; its complement, if the
    /// tenant shares the overflow group because there are too many.
    #[wasm_bindgen(js_name = groupOfTenant)]
    pub fn group_of_tenant(&self, name: &str) -> Result<i32, JsValue> {
        self.gate.with(|machine, _| {
            let group = machine.group_of_tenant(name).map_err(|error| settings::config_error(&error))?;
            let number = (group.index() as u32).cast_signed();
            Ok(if machine.is_shared_group(group) { !number } else { number })
        })
    }

    /// Requests a permit: see the module. `group` below 0 is the resource's own; `timeout_ms` NaN is the
    /// gate's default.
    pub fn acquire(&self, resource: u32, group: i32, timeout_ms: f64, input: u32, output: u32) -> i32 {
        let request = request(resource, group, timeout_ms, input, output);
        tickets::request(self.gate.acquire_owned(request).for_task(call_context::take()))
    }

    /// Requests a permit for the next attempt of the call that ended last, if [`finish_call`] has returned 1.
    /// Call it in the same turn, with no other command in between.
    #[wasm_bindgen(js_name = acquireAgain)]
    pub fn acquire_again(&self, resource: u32, group: i32, timeout_ms: f64, input: u32, output: u32) -> i32 {
        let request = request(resource, group, timeout_ms, input, output);
        tickets::request(
            self.gate.acquire_owned(request).with_retry(call_context::take_retry()).for_task(call_context::take()),
        )
    }

    /// Returns the ticket of a permit if one can be granted now, or [`DENIED`]. Never overtakes a waiting
    /// call.
    #[wasm_bindgen(js_name = tryAcquire)]
    pub fn try_acquire(&self, resource: u32, group: i32, input: u32, output: u32) -> i32 {
        let request = request(resource, group, f64::NAN, input, output);
        let answer = match self.gate.try_acquire_owned(request) {
            Ok(permit) => tickets::keep(permit),
            Err(denial) => {
                tickets::put_denial(denial);
                DENIED
            }
        };
        completions::announce();
        answer
    }

    /// Applies the rates that the response to the call of a ticket states: the numbers of `answer` after the
    /// outcome and the wait.
    #[wasm_bindgen(js_name = rateLimitFeedback)]
    pub fn rate_limit_feedback(&self, ticket: u32, notes: &[f64]) {
        let Some(lease) = tickets::lease(ticket) else { return };
        let stated = answer::stated(notes);
        self.gate.with(|machine, now| machine.rate_limit_feedback(now, lease, &stated));
        completions::announce();
    }

    /// Returns the state of a resource; undefined for an unknown one.
    #[wasm_bindgen(unchecked_return_type = "ResourceSnapshot | undefined")]
    pub fn snapshot(&self, resource: u32) -> Result<JsValue, JsError> {
        let state = self.gate.snapshot(ResourceId::new(0, resource));
        state.map_or(Ok(JsValue::UNDEFINED), |state| to_js(&ResourceSnapshot::of(state)))
    }

    /// Returns how many calls of a resource wait; 0 for an unknown one.
    #[must_use]
    pub fn waiters(&self, resource: u32) -> u32 {
        self.stats(resource).map_or(0, |stats| stats.waiters)
    }

    /// Returns how many calls of a resource are in flight; 0 for an unknown one.
    #[must_use]
    #[wasm_bindgen(js_name = inFlight)]
    pub fn in_flight(&self, resource: u32) -> u32 {
        self.stats(resource).map_or(0, |stats| stats.in_flight)
    }

    /// Returns why the next call of a resource would wait; undefined if it could start now.
    #[wasm_bindgen(unchecked_return_type = "CallWait | undefined")]
    pub fn why(&self, resource: u32) -> Result<JsValue, JsError> {
        let wait = self.gate.with(|machine, now| {
            machine.why_next(now, ResourceId::new(0, resource)).map(|wait| CallWait::of(&wait, now))
        });
        wait.map_or(Ok(JsValue::UNDEFINED), |wait| to_js(&wait))
    }

    /// Records events of these kinds only, given as one bit for each.
    pub fn listen(&self, kinds: u32) {
        let interest = events::interest(kinds);
        self.listens.replace((interest != RequestInterest::NONE).then(completions::Listening::new));
        self.gate.with(|machine, now| machine.set_interest(now, interest));
    }

    /// Returns the next event as numbers, in the order of `events`.
    #[wasm_bindgen(js_name = nextEvent)]
    pub fn next_event(&self) -> Option<Vec<f64>> {
        self.gate.with(|machine, _| machine.poll_event()).map(|event| events::of(&event))
    }

    /// Rejects all waiting and all later calls. Permits in use stay valid. Returns how many completions there
    /// are.
    pub fn shutdown(&self) -> u32 {
        self.gate.shutdown();
        completions::count()
    }
}

impl RequestGate {
    /// The core's gate, for runs that call through it.
    #[must_use]
    pub fn core(&self) -> &Gate<JsHost> {
        &self.gate
    }

    fn stats(&self, resource: u32) -> Option<ResourceStats> {
        self.gate.stats(ResourceId::new(0, resource))
    }
}

fn request(resource: u32, group: i32, timeout_ms: f64, input: u32, output: u32) -> Request {
    Request {
        group: u32::try_from(group).ok().map(|index| GroupId::new(0, index)),
        timeout: span(timeout_ms),
        estimate: Usage::tokens(input, output),
        ..Request::new(ResourceId::new(0, resource))
    }
}

/// Ends the call of a ticket. `outcome` is a number; `retry_after_ms` is NaN for none; `input` below 0: the
/// usage is not known. Returns how many completions there are.
#[wasm_bindgen]
#[must_use]
pub fn finish(ticket: u32, outcome: u32, retry_after_ms: f64, input: f64, output: f64) -> u32 {
    if let Some(permit) = tickets::take(ticket) {
        permit.finish(completion(outcome, retry_after_ms, input, output));
    }
    completions::count()
}

/// Ends a call that is made again if it failed in an outage. Returns 0 if its end is final; 1 if its next
/// attempt is [to be requested](RequestGate::acquire_again); 2 if its provider or model is unavailable. There
/// may be completions.
#[wasm_bindgen(js_name = finishCall)]
#[must_use]
pub fn finish_call(ticket: u32, outcome: u32, retry_after_ms: f64, input: f64, output: f64) -> u32 {
    let Some(permit) = tickets::take(ticket) else { return 0 };
    let after = permit.finish_call(completion(outcome, retry_after_ms, input, output));
    let (number, retry) = match after {
        AfterCall::Final => (0, None),
        AfterCall::Retry(retry) => (1, Some(retry)),
        AfterCall::Unavailable => (2, None),
    };
    call_context::keep_retry(retry);
    number
}

/// The core's backoff for one call that was rate limited or failed.
#[wasm_bindgen]
pub struct CallRetries(Backoff);

#[wasm_bindgen]
impl CallRetries {
    /// Creates the backoff of a call with up to `retries` retries after failures.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new(retries: u32) -> Self {
        // Random seeds keep calls that failed together from being retried together.
        Self(Backoff::new(retries, random_number().into()))
    }

    /// Returns the milliseconds until the next attempt; NaN if the end is final.
    #[wasm_bindgen(js_name = afterCall)]
    pub fn after_call(&mut self, outcome: u32, retry_after_ms: f64) -> f64 {
        let now = JsHost.now();
        let again = self.0.after_call(now, &completion(outcome, retry_after_ms, -1.0, 0.0));
        again.map_or(f64::NAN, |at| millis(at - now))
    }
}

fn completion(outcome: u32, retry_after_ms: f64, input: f64, output: f64) -> Completion {
    let usage = (input >= 0.0).then_some(Usage::tokens(input as u32, output as u32));
    Completion { outcome: outcome_of(outcome), retry_after: span(retry_after_ms), usage }
}

/// Cancels a ticket: removes a waiting call from the queue, or releases a permit with the outcome
/// `local_cancelled`. Returns how many completions there are.
#[wasm_bindgen]
#[must_use]
pub fn cancel(ticket: u32) -> u32 {
    tickets::forget(ticket);
    completions::count()
}

pub(crate) fn outcome_of(number: u32) -> Outcome {
    Outcome::ALL.get(number as usize).copied().unwrap_or(Outcome::Unexpected)
}

fn outcome_number(outcome: Outcome) -> f64 {
    f64::from(outcome as u32)
}

/// Differs from page to page, and from process to process.
pub(crate) fn random_number() -> u32 {
    (js_sys::Math::random() * f64::from(u32::MAX)) as u32
}

/// Returns a duration from milliseconds; `None` for NaN. Values out of range are clamped, because TypeScript
/// has checked them.
fn span(millis: f64) -> Option<Duration> {
    (!millis.is_nan()).then(|| Duration::from_nanos((millis * 1e6 + 0.5) as u64))
}

fn millis(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

/// Returns the milliseconds of a span; NaN for none.
fn optional(span: Option<Duration>) -> f64 {
    span.map_or(f64::NAN, millis)
}

/// Returns the milliseconds until capacity changes, according to a denial.
fn changes_in(denial: &Denial) -> f64 {
    optional(denial.changes_at.map(|at| at - JsHost.now()))
}
