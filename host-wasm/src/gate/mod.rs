//! Request admission for real calls, on the JavaScript event loop.
//!
//! A [`RequestGate`] is the core's gate over [`JsHost`]. Register a provider's model, await a [`Permit`] before each call, and
//! finish it with what became of the call. A permit that is dropped, freed or collected unfinished gives its slot back as
//! cancelled, so a forgotten one costs time but never the slot.

mod options;

use std::cell::Cell;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use js_sys::{Error, Promise, Reflect};
use tidegate_core::gate::{Gate, OwnedPermit};
use tidegate_core::request::{Completion, Denial, Domain, Outcome, Request, RequestAdmission, ResourceId};
use tidegate_core::time::Clock;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use crate::convert::{duration, to_js, whole};
use crate::host::JsHost;
use crate::pipeline::tie;

/// Types that describe the plain objects which cross the boundary.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &'static str = include_str!("types.d.ts");

thread_local! {
    static GATES_MADE: Cell<u32> = const { Cell::new(0) };
}

/// Decides when a call may go out, and learns from what became of it.
#[wasm_bindgen]
pub struct RequestGate {
    gate: Gate<JsHost>,
    /// Tells the resources of this gate from those of another.
    number: u32,
}

/// A provider's model that calls go to. Belongs to the gate that registered it.
#[wasm_bindgen]
pub struct Resource {
    id: ResourceId,
    gate: u32,
}

/// The right to make one call.
#[wasm_bindgen]
pub struct Permit {
    permit: Option<OwnedPermit<JsHost>>,
}

#[wasm_bindgen]
impl RequestGate {
    /// A gate with no resources yet. Throws for an unknown setting or one out of its range.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_optional_param_type = "GateOptions")] options: &JsValue,
    ) -> Result<RequestGate, JsError> {
        let machine = RequestAdmission::new(options::parse(options)?)?;
        let number = GATES_MADE.get();
        GATES_MADE.set(number.wrapping_add(1));
        Ok(Self { gate: Gate::new(JsHost, machine), number })
    }

    /// Makes a provider's model known. At most `maxParallel` calls are ever out to it at once; registering it again
    /// with a lower number lowers that bound.
    pub fn register(
        &self,
        provider: &str,
        model: &str,
        #[wasm_bindgen(js_name = maxParallel, param_description = "a whole number from 1 up")] max_parallel: f64,
    ) -> Result<Resource, JsError> {
        let max_parallel = whole("maxParallel", max_parallel, f64::from(u32::MAX))? as u32;
        let id = self.gate.with(|machine, now| {
            let pair = machine.register(now, provider, model, model, max_parallel)?;
            Ok::<_, JsError>(machine.resource(pair, Domain::Chat))
        })?;
        Ok(Resource { id, gate: self.number })
    }

    /// Resolves with a permit as soon as a call may go out, in the order of asking. Rejects with a `DeniedError` when it
    /// may not within `timeoutMs`, or after `shutdown()`.
    #[wasm_bindgen(unchecked_return_type = "Promise<Permit>")]
    pub fn acquire(
        &self,
        resource: &Resource,
        #[wasm_bindgen(js_name = timeoutMs, param_description = "the longest wait; 0 means now or not at all")]
        timeout_ms: Option<f64>,
    ) -> Result<Promise, JsError> {
        let mut request = Request::new(self.own(resource)?);
        request.timeout = timeout_ms.map(|span| duration("timeoutMs", span)).transpose()?;
        let mut acquired = Box::pin(self.gate.acquire_owned(request).tied(tie::take()));
        // Asked now and not in a later turn: whoever asks after this line comes after this caller.
        match acquired.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(permit)) => Ok(Promise::resolve(&js_permit(permit))),
            Poll::Ready(Err(denial)) => Ok(Promise::reject(&denied(&denial))),
            Poll::Pending => {
                Ok(future_to_promise(async move { acquired.await.map(js_permit).map_err(|denial| denied(&denial)) }))
            }
        }
    }

    /// A permit at once, or a thrown `DeniedError`. Never overtakes a waiting caller.
    #[wasm_bindgen(js_name = tryAcquire)]
    pub fn try_acquire(&self, resource: &Resource) -> Result<Permit, JsValue> {
        let request = Request::new(self.own(resource)?);
        match self.gate.try_acquire_owned(request) {
            Ok(permit) => Ok(Permit { permit: Some(permit) }),
            Err(denial) => Err(denied(&denial)),
        }
    }

    /// The state of one resource. Reading it changes nothing.
    #[wasm_bindgen(unchecked_return_type = "ResourceSnapshot")]
    pub fn snapshot(&self, resource: &Resource) -> Result<JsValue, JsError> {
        let snapshot = self.gate.snapshot(self.own(resource)?);
        to_js(&snapshot.ok_or_else(|| JsError::new("this gate has no such resource"))?)
    }

    /// Turns away everyone who waits, and everyone who asks from now on. Permits that are out stay valid.
    pub fn shutdown(&self) {
        self.gate.shutdown();
    }
}

impl RequestGate {
    pub(crate) fn core(&self) -> &Gate<JsHost> {
        &self.gate
    }

    pub(crate) fn own(&self, resource: &Resource) -> Result<ResourceId, JsError> {
        if resource.gate == self.number {
            Ok(resource.id)
        } else {
            Err(JsError::new("this resource was registered with another gate"))
        }
    }
}

#[wasm_bindgen]
impl Permit {
    /// Gives the slot back with what became of the call. Returns false, and does nothing, if that was done before.
    /// `retryAfterMs` is what the provider asked for together with a 429.
    pub fn finish(
        &mut self,
        #[wasm_bindgen(unchecked_param_type = "Outcome")] outcome: &str,
        #[wasm_bindgen(js_name = retryAfterMs)] retry_after_ms: Option<f64>,
    ) -> Result<bool, JsError> {
        let outcome = parse_outcome(outcome)?;
        let retry_after = retry_after_ms.map(|span| duration("retryAfterMs", span)).transpose()?;
        let Some(permit) = self.permit.take() else { return Ok(false) };
        permit.finish(Completion { retry_after, ..Completion::new(outcome) });
        Ok(true)
    }
}

/// The outcomes by their names in JavaScript.
const OUTCOMES: [(&str, Outcome); 7] = [
    ("success", Outcome::Success),
    ("rate_limited", Outcome::RateLimited),
    ("provider_failure", Outcome::ProviderFailure),
    ("provider_timeout", Outcome::ProviderTimeout),
    ("local_cancelled", Outcome::LocalCancelled),
    ("local_timeout", Outcome::LocalTimeout),
    ("unexpected", Outcome::Unexpected),
];

fn parse_outcome(name: &str) -> Result<Outcome, JsError> {
    OUTCOMES.iter().find(|(known, _)| *known == name).map(|(_, outcome)| *outcome).ok_or_else(|| {
        let names = OUTCOMES.map(|(known, _)| known).join(", ");
        JsError::new(&format!("no outcome is called `{name}`; there are {names}"))
    })
}

fn js_permit(permit: OwnedPermit<JsHost>) -> JsValue {
    Permit { permit: Some(permit) }.into()
}

/// The `DeniedError` of `types.d.ts`.
fn denied(denial: &Denial) -> JsValue {
    let error = Error::new(&denial.to_string());
    error.set_name("DeniedError");
    let wait = denial.changes_at.map(|at| (at - JsHost.now()).as_secs_f64() * 1e3);
    let fields = [("reason", to_js(&denial.reason).unwrap_or(JsValue::UNDEFINED)), ("changesInMs", wait.into())];
    for (key, value) in fields {
        // An error object made here is extensible: setting a property on it cannot fail.
        let _ = Reflect::set(&error, &key.into(), &value);
    }
    error.into()
}
