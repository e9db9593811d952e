//! Replays `task_admission` traces, together with the queue.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use tidegate_core::error::ConfigError;
use tidegate_core::id::SlotKey;
use tidegate_core::lease::LeaseId;
use tidegate_core::task::{
    BorrowCeiling, BoundedBorrow, BoundedBorrowConfig, DemandId, Dispatcher, GroupKind, PolicyDenial, PolicyGrant,
    PolicyView, ShareRounding, StrictFair, TaskConfig, TaskDenial, TaskDenialReason, TaskGroup, TaskGroupId, TaskLease,
    TaskPolicy, TaskResourceId,
};

use super::{Step, Subject, release_diagnostics, release_result, text};

/// The policy that a trace names.
#[derive(Debug)]
enum Policy {
    Strict(StrictFair),
    Bounded(Box<BoundedBorrow>),
}

impl Policy {
    fn new(config: &Value) -> Result<Self> {
        match text(config, "policy")? {
            "strict_fair" => Ok(Self::Strict(StrictFair)),
            "bounded_borrow" => Ok(Self::Bounded(Box::new(BoundedBorrow::new(bounded_borrow(config)?)?))),
            other => bail!("the policy `{other}` is unknown; expected strict_fair or bounded_borrow"),
        }
    }
}

impl TaskPolicy for Policy {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        match self {
            Self::Strict(policy) => policy.evaluate(view),
            Self::Bounded(policy) => policy.evaluate(view),
        }
    }

    fn repaid(&self, resource: TaskResourceId, amount: u32) -> u32 {
        match self {
            Self::Strict(policy) => policy.repaid(resource, amount),
            Self::Bounded(policy) => policy.repaid(resource, amount),
        }
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        match self {
            Self::Strict(policy) => policy.group_registered(id, group, find),
            Self::Bounded(policy) => policy.group_registered(id, group, find),
        }
    }
}

/// The settings under `bounded_borrow`; what is not said is as recorded by default, which is the default here.
fn bounded_borrow(config: &Value) -> Result<BoundedBorrowConfig> {
    let mut settings = BoundedBorrowConfig::default();
    let Some(given) = config["bounded_borrow"].as_object() else { return Ok(settings) };
    for (key, value) in given {
        match key.as_str() {
            "borrow_ceiling_by_group_resource" => settings.ceilings = ceilings(value, &config["groups"])?,
            "default_borrow_ceiling" if value.is_null() => settings.default_ceiling = None,
            "default_borrow_ceiling" => settings.default_ceiling = Some(number(value).context("a ceiling")?),
            "dynamic_borrow_reserve_fraction" => settings.reserve_fraction = value.as_f64().context("a fraction")?,
            "dynamic_borrow_max_reserved_slots" => settings.max_reserved = number(value).context("a number")?,
            "strict_share_rounding" if value == "floor" => settings.share_rounding = ShareRounding::Down,
            "strict_share_rounding" if value == "ceil" => settings.share_rounding = ShareRounding::Up,
            "repay_on_withheld_peer_pressure" => settings.repays_on_release = value.as_bool().context("yes or no")?,
            other => bail!("the setting `bounded_borrow.{other}` = {value} is unknown"),
        }
    }
    Ok(settings)
}

/// Ceilings as `{"group|resource": n}`, as `{"group": {"resource": n}}`, as lists of three or as lists of objects.
fn ceilings(value: &Value, groups: &Value) -> Result<Vec<BorrowCeiling>> {
    let ceiling = |group: &Value, resource: &Value, ceiling: &Value| {
        let group = group.as_str().context("a group")?;
        Ok(BorrowCeiling {
            kind: kind(&groups[group]),
            identity: vec![group.to_owned()],
            resource: resource.as_str().context("a resource")?.to_owned(),
            ceiling: number(ceiling).context("a ceiling")?,
        })
    };
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match (key.split_once('|'), value) {
                (Some((group, resource)), _) => vec![ceiling(&json!(group), &json!(resource), value)],
                (None, Value::Object(list)) => {
                    list.iter().map(|(name, value)| ceiling(&json!(key), &json!(name), value)).collect()
                }
                (None, _) => vec![Err(anyhow!("`{key}` names no group and resource"))],
            })
            .collect(),
        Value::Array(list) => list
            .iter()
            .map(|entry| match entry {
                Value::Array(entry) if entry.len() == 3 => ceiling(&entry[0], &entry[1], &entry[2]),
                _ => ceiling(&entry["group"], &entry["resource"], &entry["ceiling"]),
            })
            .collect(),
        _ => bail!("{value} is no list of ceilings"),
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|value| u32::try_from(value).ok())
}

fn kind(spec: &Value) -> GroupKind {
    match spec["kind"].as_str() {
        Some("local") => GroupKind::Local,
        Some("custom_model") => GroupKind::CustomModel,
        _ => GroupKind::Model,
    }
}

struct Group {
    id: TaskGroupId,
    demand: DemandId,
    amounts: BTreeMap<String, u32>,
}

pub(super) struct Admission {
    dispatcher: Dispatcher<Policy>,
    groups: BTreeMap<String, Group>,
    /// By task number: its name and group.
    tasks: Vec<(String, String)>,
    numbers: BTreeMap<String, u64>,
    leases: BTreeMap<String, LeaseId>,
    discarded: BTreeSet<u64>,
    has_revived: bool,
}

impl Admission {
    pub(super) fn new(config: &Value) -> Result<Self> {
        let limits = config["resource_limits"].as_object().context("resource_limits")?;
        let resources = limits.iter().map(|(name, limit)| Ok((name.clone(), number(limit).context("a limit")?)));
        let submission_limit = number(&config["submission_capacity"]).context("submission_capacity")?;
        let resources = resources.collect::<Result<Vec<_>>>()?;
        let limits = TaskConfig { submission_limit, resources, compatibility: true };
        let mut dispatcher = Dispatcher::with_policy(limits, Policy::new(config)?)?;
        let mut groups = BTreeMap::new();
        for (name, spec) in config["groups"].as_object().context("groups")? {
            let spec_of_group = TaskGroup {
                kind: kind(spec),
                identity: vec![name.clone()],
                // The recorded system reads a weight below 1 as 1.
                weight: spec["weight"].as_f64().unwrap_or(1.0).max(1.0),
                admitted_limit: number(&spec["admitted_limit"]),
            };
            let asked = spec["resources"].as_object().context("resources")?;
            let amounts: BTreeMap<String, u32> =
                asked.iter().filter_map(|(name, amount)| Some((name.clone(), number(amount)?))).collect();
            let vector: Vec<_> = amounts.iter().map(|(name, amount)| (name.as_str(), *amount)).collect();
            let demand = dispatcher.demand_unchecked(&vector)?;
            groups.insert(name.clone(), Group { id: dispatcher.group(&spec_of_group)?, demand, amounts });
        }
        Ok(Self {
            dispatcher,
            groups,
            tasks: Vec::new(),
            numbers: BTreeMap::new(),
            leases: BTreeMap::new(),
            discarded: BTreeSet::new(),
            has_revived: false,
        })
    }

    fn enqueue(&mut self, tasks: &[Value]) -> Result<Vec<String>> {
        let mut accepted = Vec::new();
        for task in tasks {
            let (name, group) = (text(task, "id")?, text(task, "group")?);
            let number = *self.numbers.entry(name.to_owned()).or_insert_with(|| {
                self.tasks.push((name.to_owned(), group.to_owned()));
                self.tasks.len() as u64 - 1
            });
            let group = self.groups.get(group).context("an unknown group")?;
            if self.dispatcher.enqueue(number, group.id, group.demand) {
                self.has_revived |= self.discarded.contains(&number);
                accepted.push(name.to_owned());
            }
        }
        Ok(accepted)
    }

    fn dispatch(&mut self, most: u64) -> Vec<String> {
        let mut order = Vec::new();
        while (order.len() as u64) < most
            && let Some(started) = self.dispatcher.dispatch()
        {
            let name = self.tasks[started.task as usize].0.clone();
            self.leases.insert(name.clone(), started.lease.id());
            order.push(name);
        }
        order
    }

    fn release(&mut self, id: LeaseId) -> Value {
        release_result(self.dispatcher.release(TaskLease::from_id(id)))
    }

    fn forge(&self, args: &Value) -> Result<LeaseId> {
        let real = self.leases.get(text(args, "of")?).copied();
        let real = real.unwrap_or(LeaseId { item: 0, ..never_made() });
        Ok(match text(args, "kind")? {
            "wrong_generation" | "wrong_controller_generation" => LeaseId { controller: 0, ..real },
            "stale" | "stale_item" | "stale_lease" => LeaseId { item: real.item ^ 1, ..real },
            _ => never_made(),
        })
    }

    /// `n` times: a task of a group queues, starts and ends.
    fn cycle(&mut self, args: &Value) -> Result<Value> {
        let mut granted = 0;
        for turn in 0..args["n"].as_u64().context("n")? {
            let name = format!("{}{turn}", args["prefix"].as_str().unwrap_or("cycle"));
            self.enqueue(&[json!({"id": name, "group": text(args, "group")?})])?;
            for started in self.dispatch(1) {
                granted += 1;
                let id = self.leases.get(&started).copied().unwrap_or_else(never_made);
                self.release(id);
            }
        }
        Ok(json!({"granted": granted}))
    }

    fn state(&self) -> Value {
        let mut leased = Map::new();
        let mut available = Map::new();
        for (name, held, limit) in self.dispatcher.usage() {
            available.insert(name.to_owned(), json!(limit - held));
            if held > 0 {
                leased.insert(name.to_owned(), json!(held));
            }
        }
        let mut running = Map::new();
        let mut leased_by_group = Map::new();
        let mut debt = Map::new();
        for (name, group) in &self.groups {
            debt.extend(self.dispatcher.debts_of(group.id).map(|(of, owed)| (format!("{name}|{of}"), json!(owed))));
            let workers = self.dispatcher.running_in(group.id);
            if workers > 0 {
                running.insert(name.clone(), json!(workers));
                let held: BTreeMap<_, _> =
                    group.amounts.iter().map(|(name, amount)| (name, amount * workers)).collect();
                leased_by_group.insert(name.clone(), json!(held));
            }
        }
        json!({"leased": leased, "available": available, "running_by_group": running,
               "leased_by_group": leased_by_group, "debt": debt,
               "release_diagnostics": release_diagnostics(self.dispatcher.release_diagnostics())})
    }
}

impl Subject for Admission {
    fn lasting_quirk(&self) -> Option<&'static str> {
        self.has_revived.then_some("stale_deque_entry_revives")
    }

    fn step(&mut self, step: &Step) -> Result<Value> {
        let args = &step.args;
        let mut came = json!({});
        match step.op.as_str() {
            "enqueue" => came["accepted"] = json!(self.enqueue(args["tasks"].as_array().context("tasks")?)?),
            "dispatch" => came["order"] = json!(self.dispatch(args["max"].as_u64().unwrap_or(u64::MAX))),
            "evaluate" => {
                let number = self.numbers.get(text(args, "task")?).context("an unknown task")?;
                let group = &self.groups[&self.tasks[*number as usize].1];
                came["result"] = match self.dispatcher.evaluate(group.id, group.demand) {
                    Ok(()) => json!({"allowed": true, "granted": true, "reason": null}),
                    Err(denial) => json!({"granted": false, "allowed": false, "reason": reason(&denial)}),
                };
            }
            "release" => {
                let id = self.leases.get(text(args, "task")?).copied().unwrap_or_else(never_made);
                came["result"] = self.release(id);
            }
            "release_forged" => {
                let id = self.forge(args)?;
                came["result"] = self.release(id);
            }
            "cycle" => came["result"] = self.cycle(args)?,
            "discard" => {
                if let Some(number) = self.numbers.get(text(args, "id")?).copied()
                    && self.dispatcher.discard(number)
                {
                    self.discarded.insert(number);
                }
            }
            "explain" => {
                let blocked = self.dispatcher.why_blocked();
                let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
                for (denial, heads) in &blocked.heads {
                    *reasons.entry(reason(denial)).or_default() += heads;
                }
                came["result"] = json!({"queued_count": blocked.queued, "dominant_denial_reasons": reasons});
            }
            other => bail!("the operation `{other}` is unknown"),
        }
        came["queued_total"] = json!(self.dispatcher.queued());
        came["state"] = self.state();
        Ok(came)
    }
}

fn never_made() -> LeaseId {
    LeaseId { controller: u32::MAX, key: SlotKey { slot: u32::MAX - 1, generation: 0 }, item: 0 }
}

fn reason(denial: &TaskDenial) -> &'static str {
    match denial.reason {
        TaskDenialReason::NoCapacity => "no_capacity",
        TaskDenialReason::GroupCap => "group_cap",
        TaskDenialReason::BorrowDebt => "borrow_debt",
        TaskDenialReason::Shutdown => "shutdown",
        _ => "policy",
    }
}
