//! A task policy of one's own: no group ever holds more than its limit, whether or not somebody else is waiting.

use tidegate_core::task::{DenialReason, Dispatcher, GroupView, TaskConfig, TaskGroup, TaskPolicy};

struct HardCap;

impl TaskPolicy for HardCap {
    fn evaluate(&self, group: &GroupView, _peers_press: &mut dyn FnMut() -> bool) -> Result<(), DenialReason> {
        let is_below = group.admitted_limit.is_none_or(|limit| group.running < limit);
        if is_below { Ok(()) } else { Err(DenialReason::Policy) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut tasks = Dispatcher::with_policy(TaskConfig::default(), HardCap)?;
    let group = tasks.group(&TaskGroup { admitted_limit: Some(2), ..TaskGroup::local("render") })?;
    let demand = tasks.demand::<&str>(&[])?;
    for task in 0..5 {
        tasks.enqueue(task, group, demand);
    }
    let running: Vec<_> = std::iter::from_fn(|| tasks.dispatch()).collect();
    println!("{} run; {}", running.len(), tasks.explain());
    assert_eq!(running.len(), 2);
    for one in running {
        let _ = tasks.release(one.lease);
    }
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("the settings are valid");
}
