//! Replays `fair_task_queue` traces.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tidegate_core::fair_queue::{ClassId, Eligibility, FairQueue, QueueGroupId, Selection};

use super::{Step, Subject, text};

type Amounts = BTreeMap<String, u64>;

pub(super) struct Turns {
    queue: FairQueue,
    groups: BTreeMap<String, (QueueGroupId, ClassId)>,
    /// By group number: name and what each of its tasks asks for.
    specs: Vec<(String, Amounts)>,
    ids: BTreeMap<String, u64>,
    names: Vec<String>,
    row_groups: BTreeMap<u64, u64>,
    selections: BTreeMap<String, Option<Selection>>,
    discarded: BTreeSet<u64>,
    /// A discarded id came again: the recorded queue may serve it at its old place.
    has_revived: bool,
}

impl Turns {
    pub(super) fn new(config: &Value) -> Result<Self> {
        let mut queue = FairQueue::new();
        let mut groups = BTreeMap::new();
        let mut specs = Vec::new();
        for (name, spec) in config["groups"].as_object().context("groups")? {
            let weight = spec["weight"].as_f64().unwrap_or(1.0).max(1.0);
            groups.insert(name.clone(), (queue.add_group(weight)?, queue.add_class()));
            let amounts = spec["resources"].as_object().map_or_else(
                || Amounts::from([("submission".to_owned(), 1)]),
                |asked| asked.iter().map(|(name, amount)| (name.clone(), amount.as_u64().unwrap_or(0))).collect(),
            );
            specs.push((name.clone(), amounts));
        }
        Ok(Self {
            queue,
            groups,
            specs,
            ids: BTreeMap::new(),
            names: Vec::new(),
            row_groups: BTreeMap::new(),
            selections: BTreeMap::new(),
            discarded: BTreeSet::new(),
            has_revived: false,
        })
    }

    fn enqueue(&mut self, tasks: &[Value]) -> Result<Vec<String>> {
        let mut accepted = Vec::new();
        for task in tasks {
            let name = text(task, "id")?;
            let id = *self.ids.entry(name.to_owned()).or_insert_with(|| {
                self.names.push(name.to_owned());
                self.names.len() as u64 - 1
            });
            if let Some(row_group) = task["row_group"].as_u64() {
                self.row_groups.insert(id, row_group);
            }
            let (group, class) = *self.groups.get(text(task, "group")?).context("an unknown group")?;
            if self.queue.enqueue(id, group, class, 1.0) {
                self.has_revived |= self.discarded.contains(&id);
                accepted.push(name.to_owned());
            }
        }
        Ok(accepted)
    }

    fn select(&mut self, is_eligible: impl Fn(&str) -> bool) -> Option<Selection> {
        let Self { queue, specs, .. } = self;
        queue.select(
            |head| if is_eligible(&specs[head.group.index()].0) { Eligibility::Accept } else { Eligibility::Skip },
        )
    }

    fn commit(&mut self, selection: Option<Selection>) -> Value {
        let served = selection.filter(|selection| self.queue.commit(selection).is_ok());
        served.map_or(Value::Null, |selection| json!(self.names[selection.candidate.item as usize]))
    }

    fn drain(&mut self, args: &Value) -> Vec<Value> {
        let ineligible = names(&args["ineligible_groups"]);
        let mut served: BTreeMap<String, u64> = BTreeMap::new();
        let mut order = Vec::new();
        for _ in 0..args["max"].as_u64().unwrap_or(u64::MAX) {
            let is_eligible = |group: &str| {
                let cap = args["group_caps"][group].as_u64().unwrap_or(u64::MAX);
                served.get(group).copied().unwrap_or(0) < cap && !ineligible.iter().any(|name| name == group)
            };
            let Some(selection) = self.select(is_eligible) else { break };
            *served.entry(self.specs[selection.candidate.group.index()].0.clone()).or_default() += 1;
            order.push(self.commit(Some(selection)));
        }
        order
    }

    fn view(&self) -> Value {
        let mut by_group = Map::new();
        let mut demand_by_group = Map::new();
        let mut first_by_group = Map::new();
        let mut total = Amounts::new();
        for (name, (group, _)) in &self.groups {
            let queued = self.queue.group_len(*group) as u64;
            let Some(first) = self.queue.first(*group) else { continue };
            let demand: Amounts = self.specs[group.index()].1.iter().map(|(r, n)| (r.clone(), n * queued)).collect();
            for (resource, amount) in &demand {
                *total.entry(resource.clone()).or_default() += amount;
            }
            by_group.insert(name.clone(), json!(queued));
            demand_by_group.insert(name.clone(), json!(demand));
            first_by_group.insert(name.clone(), json!(self.names[first.item as usize]));
        }
        json!({"queued_total": self.queue.len(), "queued_by_group": by_group, "demand_by_group": demand_by_group,
               "demand_by_resource": total, "first_by_group": first_by_group})
    }
}

impl Subject for Turns {
    fn lasting_quirk(&self) -> Option<&'static str> {
        self.has_revived.then_some("stale_deque_entry_revives")
    }

    fn step(&mut self, step: &Step) -> Result<Value> {
        let args = &step.args;
        let mut came = json!({});
        match step.op.as_str() {
            "enqueue" => came["accepted"] = json!(self.enqueue(args["tasks"].as_array().context("tasks")?)?),
            "next" => {
                let ineligible = names(&args["ineligible_groups"]);
                let selection = self.select(|group| !ineligible.iter().any(|name| name == group));
                came["task"] = self.commit(selection);
            }
            "drain" => came["order"] = json!(self.drain(args)),
            "select" => {
                let selection = self.select(|_| true);
                came["task"] = selection.map_or(Value::Null, |found| json!(self.names[found.candidate.item as usize]));
                self.selections.insert(text(args, "as")?.to_owned(), selection);
            }
            "commit" => {
                let selection = self.selections.get(text(args, "selection")?).copied().context("no such selection")?;
                came["task"] = self.commit(selection);
            }
            "discard" => {
                if let Some(id) = self.ids.get(text(args, "id")?).copied()
                    && self.queue.discard(id)
                {
                    self.discarded.insert(id);
                }
            }
            "discard_row_group" => {
                let row_group = args["row_group"].as_u64();
                let Self { queue, row_groups, discarded, .. } = self;
                queue.discard_where(|id| {
                    let is_doomed = row_groups.get(&id).copied() == row_group;
                    if is_doomed {
                        discarded.insert(id);
                    }
                    is_doomed
                });
            }
            "view" => {}
            other => bail!("the operation `{other}` is unknown"),
        }
        came["has_queued"] = json!(!self.queue.is_empty());
        came["view"] = self.view();
        Ok(came)
    }
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
