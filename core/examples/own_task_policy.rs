//! A custom task policy: no group ever runs more workers than its admitted limit, even if no other group
//! waits.

use tidegate_core::task::{
    Dispatcher, PolicyDenial, PolicyGrant, PolicyView, TaskConfig, TaskDenialReason, TaskGroup, TaskPolicy,
};

/// Denies every task of a group that is at its admitted limit.
#[derive(Debug)]
struct HardCap;

impl TaskPolicy for HardCap {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let is_below = view.admitted_limit().is_none_or(|limit| view.running() < limit);
        if is_below { Ok(PolicyGrant::unlimited()) } else { Err(TaskDenialReason::Policy.into()) }
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
    println!("{} run; {}", running.len(), tasks.why_blocked());
    assert_eq!(running.len(), 2);
    for one in running {
        let _ = tasks.release(one.lease);
    }
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the settings are valid");
}
