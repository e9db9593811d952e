use std::vec::Vec;

use super::*;
use crate::request::RequestPressure;

const MODELS: [&str; 2] = ["request:p/busy", "request:p/open"];

/// One group for each model and one that calls none, all sharing `slots` workers.
struct ModelGroups {
    tasks: Dispatcher,
    groups: Vec<(TaskGroupId, DemandId)>,
}

impl ModelGroups {
    fn new(slots: u32) -> Self {
        let resources = MODELS.map(|name| (name.into(), 9)).into();
        let config = TaskConfig { submission_limit: slots, resources, ..TaskConfig::default() };
        let mut tasks = Dispatcher::new(config).expect("valid limits");
        let mut groups = Vec::new();
        for name in MODELS {
            let group = tasks.group(&TaskGroup::model("p", name, 9.0)).expect("a valid group");
            groups.push((group, tasks.demand(&[(name, 1)]).expect("a demand that fits")));
        }
        let local = tasks.group(&TaskGroup::local("local")).expect("a valid group");
        groups.push((local, tasks.demand::<&str>(&[]).expect("a demand that fits")));
        let mut desk = Self { tasks, groups };
        for name in MODELS {
            desk.tasks.set_request_pressure(name, None);
        }
        desk
    }

    fn queue(&mut self, task: u64, group: usize) {
        let (group, demand) = self.groups[group];
        assert!(self.tasks.enqueue(task, group, demand));
    }

    fn press(&mut self, pressure: Option<RequestPressure>) {
        assert!(self.tasks.set_request_pressure(MODELS[0], pressure));
    }

    fn started(&mut self) -> Vec<u64> {
        core::iter::from_fn(|| self.tasks.dispatch()).map(|one| one.task).collect()
    }
}

#[test]
fn a_task_that_would_wait_for_its_request_is_passed_over_for_one_that_would_not() {
    let mut desk = ModelGroups::new(1);
    desk.press(Some(RequestPressure::CoolingDown));
    desk.queue(1, 0);
    desk.queue(2, 1);
    assert_eq!(desk.started(), [2]);
    let skip = AdvisorySkip { skipped: 1, pressure: RequestPressure::CoolingDown, preferred: 2 };
    assert_eq!((desk.tasks.advisory_skips(), desk.tasks.last_advisory_skip()), (1, Some(skip)));
}

#[test]
fn where_nobody_could_call_at_once_tasks_start_in_their_turn() {
    let mut desk = ModelGroups::new(3);
    desk.press(Some(RequestPressure::Waiters));
    desk.queue(1, 0);
    desk.queue(2, 0);
    desk.queue(3, 2);
    assert_eq!(desk.started(), [1, 3, 2], "work that calls nobody is no reason to pass anybody over");
    assert_eq!(desk.tasks.advisory_skips(), 0);
}

#[test]
fn whoever_was_passed_over_keeps_the_turn() {
    let mut desk = ModelGroups::new(4);
    desk.press(Some(RequestPressure::LimitReached));
    for task in [1, 2] {
        desk.queue(task, 0);
    }
    for task in [11, 12] {
        desk.queue(task, 1);
    }
    assert_eq!(desk.tasks.dispatch().map(|one| one.task), Some(11));
    desk.press(None);
    assert_eq!(desk.started(), [1, 12, 2], "its tag did not move while it was passed over");
}

#[test]
fn an_open_task_without_capacity_passes_nobody_over() {
    let mut desk = ModelGroups::new(2);
    desk.press(Some(RequestPressure::CapReached));
    let both = desk.tasks.demand(&[(MODELS[1], 9)]).expect("a demand that fits");
    let (open, _) = desk.groups[1];
    assert!(desk.tasks.enqueue(1, open, both) && desk.tasks.enqueue(2, open, both));
    let first = desk.tasks.dispatch().expect("it is open");
    desk.queue(3, 0);
    assert_eq!(desk.started(), [3], "the other open one has to wait for the first");
    let _ = desk.tasks.release(first.lease);
    assert_eq!(desk.started(), [2]);
}

#[test]
fn pressure_on_an_unknown_resource_is_no_news() {
    let mut desk = ModelGroups::new(1);
    assert!(!desk.tasks.set_request_pressure("request:p/unknown", Some(RequestPressure::Waiters)));
    desk.press(Some(RequestPressure::Waiters));
    assert!(!desk.tasks.set_request_pressure(MODELS[0], Some(RequestPressure::Waiters)), "the same as before");
}
