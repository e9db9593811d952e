//! Replays `request_admission` traces.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tidegate_core::lease::LeaseId;
use tidegate_core::request::event::RequestInterest;
use tidegate_core::request::{
    AcquireResult, Completion, CooldownRule, CutRule, DenialReason, Domain, LimitConfig, Outcome, ProviderModelId,
    Request, RequestAdmission, RequestConfig, RequestEffect, RequestLease, ResourceId, ResourceSnapshot,
};
use tidegate_core::time::{Duration, Instant};

use super::{Step, Subject, release_diagnostics, release_result, text};

pub(super) struct Requests {
    machine: RequestAdmission,
    now: Instant,
    config: Value,
    models: BTreeMap<String, ProviderModelId>,
    resources: BTreeMap<String, ResourceId>,
    leases: BTreeMap<String, LeaseId>,
    waiters: BTreeMap<u64, String>,
    waiting: BTreeMap<String, tidegate_core::request::WaiterId>,
    grants: Vec<Value>,
    refusals: Vec<Value>,
    /// The recorded system forgot a lease that tidegate still tells apart.
    has_forgotten: bool,
}

impl Requests {
    pub(super) fn new(config: &Value) -> Result<Self> {
        let seconds = |key: &str| config[key].as_f64().and_then(Duration::try_from_secs_f64);
        let count = |key: &str| config[key].as_u64().and_then(|value| u32::try_from(value).ok());
        let limit = LimitConfig {
            decrease_factor: config["multiplicative_decrease_factor"].as_f64().unwrap_or(0.75),
            increase_step: count("additive_increase_step").unwrap_or(1),
            successes_until_increase: count("successes_until_increase").unwrap_or(25),
            cooldown: seconds("cooldown_seconds").context("cooldown_seconds")?,
            ramp: seconds("startup_ramp_seconds").unwrap_or(Duration::ZERO),
            cut_rule: CutRule::AdmittedLimit,
            cooldown_rule: CooldownRule::Latest,
            max_cooldown: Duration::MAX,
            ..LimitConfig::default()
        };
        let default_timeout = seconds("default_queue_wait_timeout_seconds");
        let mut machine = RequestAdmission::new(RequestConfig {
            limit,
            health: None,
            default_timeout,
            controller: 1,
            rate_limit_headers: true,
            compatibility: true,
        })?;
        machine.set_interest(Instant::ZERO, RequestInterest::ALL);
        Ok(Self {
            machine,
            now: Instant::ZERO,
            config: config.clone(),
            models: BTreeMap::new(),
            resources: BTreeMap::new(),
            leases: BTreeMap::new(),
            waiters: BTreeMap::new(),
            waiting: BTreeMap::new(),
            grants: Vec::new(),
            refusals: Vec::new(),
            has_forgotten: false,
        })
    }

    fn resource(&mut self, key: &Value) -> Result<ResourceId> {
        let parts: Vec<&str> = key.as_array().context("resource")?.iter().filter_map(Value::as_str).collect();
        let [provider, model, domain] = parts[..] else { bail!("a resource is provider, model, domain") };
        let name = parts.join("/");
        if let Some(known) = self.resources.get(&name) {
            return Ok(*known);
        }
        let Some(owner) = self.models.get(&format!("{provider}/{model}")) else {
            return Ok(ResourceId::new(0, u32::MAX));
        };
        let resource = self.machine.resource(*owner, Domain::from(domain))?;
        let number = |map: &str| self.config[map][&name].as_u64().and_then(|value| u32::try_from(value).ok());
        let (initial_limit, max_limit) = (number("initial_limits"), number("max_limit_clamps"));
        if initial_limit.is_some() || max_limit.is_some() {
            let settings = self.machine.settings(resource).context("the resource is unknown")?;
            let settings = LimitConfig { initial_limit, max_limit, ..settings.clone() };
            self.machine.configure(self.now, resource, settings)?;
        }
        self.resources.insert(name, resource);
        Ok(resource)
    }

    fn request(&mut self, args: &Value) -> Result<Request> {
        let resource = self.resource(&args["resource"])?;
        let mut request = Request::new(resource);
        request.timeout = args["timeout"].as_f64().and_then(Duration::try_from_secs_f64);
        if let Some(weight) = args["group"]["weight"].as_f64() {
            // The recorded system reads a weight below 1 as 1.
            let weight = weight.max(1.0);
            match args["group"]["key"].as_str() {
                Some(key) => request.group = Some(self.machine.group(key, weight)?),
                None => self.machine.set_resource_weight(resource, weight)?,
            }
        }
        Ok(request)
    }

    fn drain(&mut self) {
        let at = self.now.as_nanos() as f64 / 1e9;
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                RequestEffect::Granted { waiter, lease } => {
                    let Some(name) = self.waiters.remove(&waiter.to_bits()) else { continue };
                    self.leases.insert(name.clone(), lease.id());
                    self.grants.push(json!({"waiter": name, "at": at}));
                }
                RequestEffect::Denied { waiter, denial } => {
                    let Some(name) = self.waiters.remove(&waiter.to_bits()) else { continue };
                    self.refusals.push(json!({"waiter": name, "outcome": reason(denial.reason), "at": at}));
                }
                other => unreachable!("the recorded system has no such effect: {other:?}"),
            }
        }
    }

    fn acquire(&mut self, args: &Value) -> Result<()> {
        let request = self.request(args)?;
        let name = text(args, "waiter")?.to_owned();
        let at = self.now.as_nanos() as f64 / 1e9;
        match self.machine.acquire(self.now, &request) {
            AcquireResult::Granted(lease) => {
                self.drain();
                self.leases.insert(name.clone(), lease.id());
                self.grants.push(json!({"waiter": name, "at": at}));
            }
            AcquireResult::Waiting(waiter) => {
                self.waiters.insert(waiter.to_bits(), name.clone());
                self.waiting.insert(name, waiter);
            }
            AcquireResult::Denied(denial) => {
                self.refusals.push(json!({"waiter": name, "outcome": reason(denial.reason), "at": at}));
            }
        }
        Ok(())
    }

    fn try_acquire(&mut self, resource: ResourceId, lease_name: &str) -> Value {
        match self.machine.try_acquire(self.now, &Request::new(resource)) {
            Ok(lease) => {
                self.leases.insert(lease_name.to_owned(), lease.id());
                let state = self.machine.snapshot(self.now, resource);
                let (limit, max) = state.map_or((0, 0), |state| (state.current_limit, state.effective_max));
                json!({"granted": true, "current_adaptive_limit": limit, "effective_max": max})
            }
            Err(denial) => json!({"granted": false, "reason": reason(denial.reason)}),
        }
    }

    fn release(&mut self, id: LeaseId, args: &Value) -> Result<Value> {
        let outcome: Outcome = serde_json::from_value(rename_outcome(&args["outcome"]))?;
        let retry_after = args["retry_after"].as_f64().and_then(Duration::try_from_secs_f64);
        let done = Completion { retry_after, ..Completion::new(outcome) };
        let answer = self.machine.release(self.now, RequestLease::from_id(id), &done);
        Ok(release_result(answer))
    }

    fn forge(&self, args: &Value) -> Result<LeaseId> {
        let real = self.leases.get(text(args, "of")?).copied();
        let real = real.unwrap_or(LeaseId { controller: 1, ..unknown_lease() });
        Ok(match text(args, "kind")? {
            "wrong_generation" | "wrong_controller_generation" => LeaseId { controller: 2, ..real },
            "stale" | "stale_item" | "stale_lease" => LeaseId { item: real.item + 1_000, ..real },
            _ => unknown_lease(),
        })
    }

    fn advance(&mut self, span: Duration) {
        let target = self.now + span;
        self.settle();
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= target) {
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = target;
        self.settle();
    }

    fn settle(&mut self) {
        self.machine.handle_timeout(self.now);
        self.drain();
    }

    fn register(&mut self, args: &Value) -> Result<()> {
        let (provider, model) = (text(args, "provider")?, text(args, "model")?);
        let cap = args["max_parallel_requests"].as_u64().context("max_parallel_requests")?;
        let id = self.machine.register(self.now, provider, model, text(args, "alias")?, u32::try_from(cap)?)?;
        self.models.insert(format!("{provider}/{model}"), id);
        self.resource(&json!([provider, model, "chat"])).map(|_| ())
    }

    fn state(&self) -> Value {
        let snapshot =
            |id: &ResourceId| self.machine.snapshot(self.now, *id).map_or(Value::Null, |state| resource_state(&state));
        let resources: Map<String, Value> =
            self.resources.iter().map(|(name, id)| (name.clone(), snapshot(id))).collect();
        let models: Map<String, Value> = self
            .models
            .iter()
            .filter_map(|(name, id)| {
                let state = self.machine.provider_model(self.now, *id)?;
                let aliases: Vec<_> = state.aliases.iter().map(|(alias, _)| alias).collect();
                let value = json!({"static_cap": state.static_cap, "in_flight": state.in_flight, "aliases": aliases});
                Some((name.clone(), value))
            })
            .collect();
        json!({"resources": resources, "provider_models": models,
               "release_diagnostics": release_diagnostics(self.machine.release_diagnostics())})
    }
}

impl Subject for Requests {
    fn lasting_quirk(&self) -> Option<&'static str> {
        self.has_forgotten.then_some("history_bound_8192")
    }

    fn step(&mut self, step: &Step) -> Result<Value> {
        let args = &step.args;
        let mut result = Value::Null;
        match step.op.as_str() {
            "register" => self.register(args)?,
            "try_acquire" => {
                let resource = self.request(args)?.resource;
                result = self.try_acquire(resource, text(args, "lease")?);
            }
            "acquire_async" => self.acquire(args)?,
            "cancel" => {
                let name = text(args, "waiter")?;
                let waiter = self.waiting.get(name).copied().context("the waiter is unknown")?;
                if self.machine.cancel(self.now, waiter) {
                    self.waiters.remove(&waiter.to_bits());
                    let at = self.now.as_nanos() as f64 / 1e9;
                    self.refusals.push(json!({"waiter": name, "outcome": "cancelled", "at": at}));
                }
            }
            "release" => {
                let id = self.leases.get(text(args, "lease")?).copied().unwrap_or_else(unknown_lease);
                result = self.release(id, args)?;
            }
            "release_forged" => {
                let id = self.forge(args)?;
                result = self.release(id, args)?;
            }
            "cycle" => {
                let resource = self.resource(&args["resource"])?;
                let mut granted = 0;
                for turn in 0..args["n"].as_u64().context("n")? {
                    let name = format!("{}{turn}", text(args, "prefix")?);
                    granted += u64::from(self.try_acquire(resource, &name)["granted"] == json!(true));
                    let id = self.leases.get(&name).copied().unwrap_or_else(unknown_lease);
                    self.release(id, args)?;
                }
                result = json!({"granted": granted});
            }
            "advance" => self.advance(seconds(args)?),
            "stall" => self.now += seconds(args)?,
            "snapshot" => {}
            other => bail!("the operation `{other}` is unknown"),
        }
        if !matches!(step.op.as_str(), "stall" | "snapshot") && args["settle"] != json!(false) {
            self.settle();
        }
        self.has_forgotten |= step.quirk.iter().any(|quirk| quirk == "history_bound_8192");
        let mut came = json!({"now": self.now.as_nanos() as f64 / 1e9, "result": result, "state": self.state()});
        came["grants"] = std::mem::take(&mut self.grants).into();
        came["refusals"] = std::mem::take(&mut self.refusals).into();
        let mut events = Vec::new();
        while let Some(event) = self.machine.poll_event() {
            events.push(format!("request_{}", text(&json!({"kind": event.payload.kind()}), "kind")?).into());
        }
        came["events"] = Value::Array(events);
        Ok(came)
    }
}

fn seconds(args: &Value) -> Result<Duration> {
    args["dt"].as_f64().and_then(Duration::try_from_secs_f64).context("dt")
}

fn unknown_lease() -> LeaseId {
    let key = tidegate_core::id::SlotKey { slot: u32::MAX - 1, generation: 0 };
    LeaseId { controller: 1, key, item: 0 }
}

fn reason(reason: DenialReason) -> &'static str {
    match reason {
        DenialReason::NoCapacity => "no_capacity",
        DenialReason::Cooldown => "cooldown",
        DenialReason::QueuedWaitersAhead => "queued_waiters_ahead",
        DenialReason::QueueTimeout => "queue_timeout",
        DenialReason::Cancelled => "cancelled",
        DenialReason::Shutdown => "shutdown",
        DenialReason::Unregistered => "hard_policy_denial",
        _ => "other",
    }
}

fn rename_outcome(recorded: &Value) -> Value {
    if recorded == "unexpected_exception" { json!("unexpected") } else { recorded.clone() }
}

fn resource_state(state: &ResourceSnapshot) -> Value {
    let last = state.last_outcome.map(|outcome| match outcome {
        Outcome::Unexpected => json!("unexpected_exception"),
        other => json!(other),
    });
    json!({
        "effective_max": state.effective_max,
        "current_limit": state.current_limit,
        "in_flight": state.in_flight,
        "waiters": state.waiters,
        "blocked_until": state.blocked_until.map(|at| at.as_nanos() as f64 / 1e9),
        "cooldown_remaining": state.cooldown_remaining.as_secs_f64(),
        "rate_limit_ceiling": state.rate_limit_ceiling,
        "consecutive_rate_limits": state.consecutive_rate_limits,
        "success_streak": state.success_streak,
        "last_outcome": last,
        "startup_ramp_active": state.ramp.is_some(),
    })
}
