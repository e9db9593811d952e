//! Replays `task_admission` traces, together with the queue, under the strict-fair policy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use tidegate_core::handle::SlotKey;
use tidegate_core::lease::LeaseId;
use tidegate_core::task::{
    DemandId, Denial, DenialReason, Dispatcher, GroupKind, TaskConfig, TaskGroup, TaskGroupId, TaskLease,
};

use super::{Step, Subject, release_diagnostics, release_result, text};

struct Group {
    id: TaskGroupId,
    demand: DemandId,
    amounts: BTreeMap<String, u32>,
}

pub(super) struct Admission {
    dispatcher: Dispatcher,
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
        let policy = text(config, "policy")?;
        ensure!(policy == "strict_fair", "the policy `{policy}` is not there yet; expected strict_fair");
        let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
        let limits = config["resource_limits"].as_object().context("resource_limits")?;
        let resources = limits.iter().map(|(name, limit)| Ok((name.clone(), number(limit).context("a limit")?)));
        let submission_limit = number(&config["submission_capacity"]).context("submission_capacity")?;
        let resources = resources.collect::<Result<Vec<_>>>()?;
        let mut dispatcher = Dispatcher::new(TaskConfig { submission_limit, resources })?;
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
            let demand = dispatcher.demand(&vector)?;
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
                let held: BTreeMap<_, _> =
                    group.amounts.iter().map(|(name, amount)| (name, amount * workers)).collect();
                leased_by_group.insert(name.clone(), json!(held));
            }
        }
        json!({"leased": leased, "available": available, "running_by_group": running,
               "leased_by_group": leased_by_group, "debt": {},
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
