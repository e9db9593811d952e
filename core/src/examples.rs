//! Whole examples, and a guide to testing policies and limits.
//!
//! This module is in the documentation only. The code of each example is that of `core/examples`, which the
//! tests run.

/// Shows a file of `core/examples`.
macro_rules! example {
    ($(#[$title:meta])* $name:ident: $code:expr) => {
        $(#[$title])*
        ///
        #[doc = concat!("```rust,no_run\n", $code, "```")]
        pub mod $name {}
    };
}

example! {
    /// Request admission without a runtime: commands, effects and one timer.
    machine_by_hand: include_str!("../examples/machine_by_hand.rs")
}
example! {
    /// A gate with three callers and one slot; no time passes.
    gate_in_virtual_time: include_str!("../examples/gate_in_virtual_time.rs")
}
example! {
    /// A pipeline whose workers release their slots during a cooldown.
    pipeline_through_a_gate: include_str!("../examples/pipeline_through_a_gate.rs")
}
example! {
    /// A test of cap, budget and cooldown with a clock that the test sets.
    policy_with_manual_clock: include_str!("../examples/policy_with_manual_clock.rs")
}
example! {
    /// A host on tokio, several threads.
    host_on_tokio: include_str!("../examples/host_on_tokio.rs")
}
example! {
    /// A host on one thread of tokio.
    host_on_tokio_local: include_str!("../examples/host_on_tokio_local.rs")
}
example! {
    /// A host on smol.
    host_on_smol: include_str!("../examples/host_on_smol.rs")
}
example! {
    /// A host on embassy.
    host_on_embassy: include_str!("../examples/host_on_embassy.rs")
}
example! {
    /// A host on plain threads.
    host_on_threads: include_str!("../examples/host_on_threads.rs")
}
example! {
    /// A custom limit algorithm in request admission.
    own_limit: include_str!("../examples/own_limit.rs")
}
example! {
    /// A custom limit algorithm in a simulated run, compared with AIMD.
    own_limit_in_a_scenario: include_str!("../examples/own_limit_in_a_scenario.rs")
}
example! {
    /// A custom task policy in a dispatcher.
    own_task_policy: include_str!("../examples/own_task_policy.rs")
}
example! {
    /// A custom task policy in a simulated run, judged by a report.
    own_policy_in_a_scenario: include_str!("../examples/own_policy_in_a_scenario.rs")
}
example! {
    /// What the examples with hosts share: settings, a call and a workload.
    shared: include_str!("../examples/shared/mod.rs")
}

#[doc = include_str!("../docs/testing-policies.md")]
pub mod testing_policies {}
