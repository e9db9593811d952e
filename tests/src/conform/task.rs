//! Replays `task_admission` traces, together with the queue, under either policy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use tidegate_core::handle::SlotKey;
use tidegate_core::lease::LeaseId;
use tidegate_core::task::{
    BorrowCeiling, BoundedBorrow, BoundedBorrowConfig, DemandId, Denial, DenialReason, Dispatcher, GroupKind,
    ShareRounding, StrictFair, TaskConfig, TaskGroup, TaskGroupId, TaskLease, TaskPolicy,
};

use super::{Step, Subject, release_diagnostics, release_result, text};

struct Group {
    id: TaskGroupId,
    demand: DemandId,
}

pub(super) struct Admission<P> {
    dispatcher: Dispatcher<P>,
    groups: BTreeMap<String, Group>,
    /// By task number: its name and group.
    tasks: Vec<(String, String)>,
    numbers: BTreeMap<String, u64>,
    leases: BTreeMap<String, LeaseId>,
    discarded: BTreeSet<u64>,
    has_revived: bool,
}

/// The machine that a trace of this configuration drives.
pub(super) fn admission(config: &Value) -> Result<Box<dyn Subject>> {
    match text(config, "policy")? {
        "strict_fair" => Ok(Box::new(Admission::new(config, StrictFair)?)),
        "bounded_borrow" => {
            let policy = BoundedBorrow::new(borrowing(&config["bounded_borrow"])?)?;
            Ok(Box::new(Admission::new(config, policy)?))
        }
        other => bail!("`{other}` is no known policy; expected strict_fair or bounded_borrow"),
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|value| u32::try_from(value).ok())
}

fn borrowing(settings: &Value) -> Result<BoundedBorrowConfig> {
    let mut config = BoundedBorrowConfig::default();
    for (key, value) in settings.as_object().into_iter().flatten() {
        match key.as_str() {
            "default_borrow_ceiling" => config.default_ceiling = number(value),
            "dynamic_borrow_reserve_fraction" => {
                config.reserve_fraction = value.as_f64().context("dynamic_borrow_reserve_fraction")?;
            }
            "dynamic_borrow_max_reserved_slots" => {
                config.max_reserved = number(value).context("dynamic_borrow_max_reserved_slots")?;
            }
            "strict_share_rounding" => {
                let is_down = value == "floor";
                ensure!(is_down || value == "ceil", "strict_share_rounding is {value}; expected floor or ceil");
                config.rounding = if is_down { ShareRounding::Down } else { ShareRounding::Up };
            }
            // Which of these names a recording uses for single ceilings, and how it writes them, is not known: all are
            // read that could be meant.
            key if key.contains("ceiling") => config.ceilings = ceilings(value).with_context(|| key.to_owned())?,
            key if key.contains("repay") => config.repay_on_release = value.as_bool().context("a repayment switch")?,
            other => bail!("the setting `{other}` of bounded_borrow is unknown"),
        }
    }
    Ok(config)
}

/// Ceilings as `{"group|resource": n}`, or as `{"group": {"resource": n}}`.
fn ceilings(value: &Value) -> Result<Vec<BorrowCeiling>> {
    let mut all = Vec::new();
    for (key, value) in value.as_object().context("expected an object")? {
        let one = |group: &str, resource: &str, value: &Value| {
            let ceiling = number(value).context("a ceiling is a whole number")?;
            anyhow::Ok(BorrowCeiling { group: vec![group.to_owned()], resource: resource.to_owned(), ceiling })
        };
        match (key.split_once('|'), value.as_object()) {
            (Some((group, resource)), _) => all.push(one(group, resource, value)?),
            (None, Some(resources)) => {
                for (resource, value) in resources {
                    all.push(one(key, resource, value)?);
                }
            }
            _ => bail!("`{key}` names no group and resource"),
        }
    }
    Ok(all)
}

impl<P: TaskPolicy> Admission<P> {
    fn new(config: &Value, policy: P) -> Result<Self> {
        let limits = config["resource_limits"].as_object().context("resource_limits")?;
        let resources = limits.iter().map(|(name, limit)| Ok((name.clone(), number(limit).context("a limit")?)));
        let submission_limit = number(&config["submission_capacity"]).context("submission_capacity")?;
        let resources = resources.collect::<Result<Vec<_>>>()?;
        let task_config = TaskConfig { submission_limit, resources, liveness: false };
        let mut dispatcher = Dispatcher::with_policy(task_config, policy)?;
        let mut groups = BTreeMap::new();
        for (name, spec) in config["groups"].as_object().context("groups")? {
            let spec_of_group = TaskGroup {
                kind: if spec["kind"] == "local" { GroupKind::Local } else { GroupKind::Model },
                identity: vec![name.clone()],
                // The recorded system reads a weight below 1 as 1.
                weight: spec["weight"].as_f64().unwrap_or(1.0).max(1.0),
                admitted_limit: number(&spec["admitted_limit"]),
            };
            let asked = spec["resources"].as_object().context("resources")?;
            let amounts: BTreeMap<String, u32> =
                asked.iter().filter_map(|(name, amount)| Some((name.clone(), number(amount)?))).collect();
            let vector: Vec<_> = amounts.iter().map(|(name, amount)| (name.as_str(), *amount)).collect();
            let demand = dispatcher.demand_in_vain(&vector)?;
            groups.insert(name.clone(), Group { id: dispatcher.group(&spec_of_group)?, demand });
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
        for (name, group) in &self.groups {
            let workers = self.dispatcher.running_in(group.id);
            if workers > 0 {
                running.insert(name.clone(), json!(workers));
                let held = self.dispatcher.held_by(group.id).filter(|(_, held)| *held > 0);
                let held: BTreeMap<_, _> = held.collect();
                leased_by_group.insert(name.clone(), json!(held));
            }
        }
        let debts = self.groups.iter().flat_map(|(name, group)| {
            self.dispatcher.debts_of(group.id).map(move |(resource, debt)| (format!("{name}|{resource}"), json!(debt)))
        });
        let debts: Map<String, Value> = debts.collect();
        json!({"leased": leased, "available": available, "running_by_group": running,
               "leased_by_group": leased_by_group, "debt": debts,
               "release_diagnostics": release_diagnostics(self.dispatcher.release_diagnostics())})
    }
}

impl<P: TaskPolicy> Subject for Admission<P> {
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
            "discard" => {
                if let Some(number) = self.numbers.get(text(args, "id")?).copied()
                    && self.dispatcher.discard(number)
                {
                    self.discarded.insert(number);
                }
            }
            "explain" => {
                let blocked = self.dispatcher.explain();
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

fn reason(denial: &Denial) -> &'static str {
    match denial.reason {
        DenialReason::NoCapacity => "no_capacity",
        DenialReason::GroupCap => "group_cap",
        DenialReason::BorrowDebt => "borrow_debt",
        DenialReason::Shutdown => "shutdown",
        _ => "policy",
    }
}
