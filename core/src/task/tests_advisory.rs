use std::vec::Vec;

use super::*;
use crate::request::RequestPressure;

const MODELS: [&str; 2] = ["request:p/busy", "request:p/open"];

/// One group for each model and one local group, which share `slots` workers.
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
        let mut fixture = Self { tasks, groups };
        for name in MODELS {
            fixture.tasks.set_request_pressure(name, None);
        }
        fixture
    }

    fn queue(&mut self, task: u64, group: usize) {
        let (group, demand) = self.groups[group];
        assert!(self.tasks.enqueue(task, group, demand));
    }

    fn set_pressure(&mut self, pressure: Option<RequestPressure>) {
        assert!(self.tasks.set_request_pressure(MODELS[0], pressure));
    }

    fn start_all(&mut self) -> Vec<u64> {
        core::iter::from_fn(|| self.tasks.dispatch()).map(|one| one.task).collect()
    }
}

#[test]
fn a_task_that_would_wait_for_its_request_is_passed_over_for_one_that_would_not() {
    let mut fixture = ModelGroups::new(1);
    fixture.set_pressure(Some(RequestPressure::CoolingDown));
    fixture.queue(1, 0);
    fixture.queue(2, 1);
    assert_eq!(fixture.start_all(), [2]);
    let skip = AdvisorySkip { skipped: 1, pressure: RequestPressure::CoolingDown, preferred: 2 };
    assert_eq!((fixture.tasks.advisory_skips(), fixture.tasks.last_advisory_skip()), (1, Some(skip)));
}

#[test]
fn tasks_start_in_their_turn_if_no_task_could_call_at_once() {
    let mut fixture = ModelGroups::new(3);
    fixture.set_pressure(Some(RequestPressure::Waiters));
    fixture.queue(1, 0);
    fixture.queue(2, 0);
    fixture.queue(3, 2);
    assert_eq!(fixture.start_all(), [1, 3, 2], "a task without a call is no reason to pass over another task");
    assert_eq!(fixture.tasks.advisory_skips(), 0);
}

#[test]
fn a_task_that_was_passed_over_keeps_its_turn() {
    let mut fixture = ModelGroups::new(4);
    fixture.set_pressure(Some(RequestPressure::LimitReached));
    for task in [1, 2] {
        fixture.queue(task, 0);
    }
    for task in [11, 12] {
        fixture.queue(task, 1);
    }
    assert_eq!(fixture.tasks.dispatch().map(|one| one.task), Some(11));
    fixture.set_pressure(None);
    assert_eq!(fixture.start_all(), [1, 12, 2], "its tag did not move while it was passed over");
}

#[test]
fn an_open_task_without_capacity_is_no_reason_to_pass_over_another_task() {
    let mut fixture = ModelGroups::new(2);
    fixture.set_pressure(Some(RequestPressure::CapReached));
    let both = fixture.tasks.demand(&[(MODELS[1], 9)]).expect("a demand that fits");
    let (open, _) = fixture.groups[1];
    assert!(fixture.tasks.enqueue(1, open, both) && fixture.tasks.enqueue(2, open, both));
    let first = fixture.tasks.dispatch().expect("the request resource is open");
    fixture.queue(3, 0);
    assert_eq!(fixture.start_all(), [3], "the other open task has to wait for the first");
    let _ = fixture.tasks.release(first.lease);
    assert_eq!(fixture.start_all(), [2]);
}

#[test]
fn pressure_on_an_unknown_resource_changes_nothing() {
    let mut fixture = ModelGroups::new(1);
    assert!(!fixture.tasks.set_request_pressure("request:p/unknown", Some(RequestPressure::Waiters)));
    fixture.set_pressure(Some(RequestPressure::Waiters));
    assert!(!fixture.tasks.set_request_pressure(MODELS[0], Some(RequestPressure::Waiters)), "the same as before");
}
