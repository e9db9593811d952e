//! A scheduler and admission control for rate-limited services, LLM providers first.
//!
//! It keeps a service as busy as its limits allow, shares it fairly, never storms it, and never loses or
//! doubles a unit of work. This crate makes every decision. It reads no clock, starts no thread and draws no
//! random number: time is an argument, and the host provides the executor. Equal inputs give equal decisions
//! on every target.
//!
//! # Quick start
//!
//! ```toml
//! tidegate-core = { version = "0.1", features = ["sim"] }
//! ```
//!
//! A [`Gate`](gate::Gate) admits calls. Here it runs on the executor of the feature `sim`, in virtual time.
//! [`runtime`] lists hosts for tokio, smol, embassy and plain threads. The crate `tidegate-native` has a host
//! for tokio.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use tidegate_core::gate::Gate;
//! use tidegate_core::request::{Domain, Outcome, Request, RequestAdmission, RequestConfig};
//! use tidegate_core::sim::executor::Executor;
//!
//! let runtime = Executor::new();
//! let gate = Gate::new(runtime.host(), RequestAdmission::new(RequestConfig::default())?);
//! let chat = gate.with(|control, now| {
//!     let model = control.register(now, "acme", "large", "default", 8)?; // at most 8 calls at once
//!     control.resource(model, Domain::Chat)
//! })?;
//! let call = async { Ok::<_, Outcome>("an answer") }; // your client's future
//! let answer = runtime.block_on(gate.run(Request::new(chat), call));
//! // The executor did not stall, the gate did not deny the call, and the call succeeded.
//! assert_eq!(answer, Ok(Ok(Ok("an answer"))));
//! # }
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! # Five types to know
//!
//! | type | what it is |
//! | --- | --- |
//! | [`gate::Gate`] | admits calls: `run(request, call).await`, or `acquire(request).await` for a permit |
//! | [`request::RequestAdmission`] | the machine behind a gate: limits, budgets, queue and health |
//! | [`pipeline::Pipeline`] | the machine of a run of rows and columns; [`driver::run_through`] drives it |
//! | [`runtime::Host`] | the clock, timer and lock of a runtime; [`runtime::Spawn`] starts its tasks |
//! | `sim::world::World` | a run in virtual time against mock providers, for tests of policies and limits |
//!
//! # Driving a machine without a runtime
//!
//! A *machine* is a plain struct that decides and does no I/O: [`request::RequestAdmission`],
//! [`pipeline::Pipeline`] and [`task::Dispatcher`]. To drive one, repeat three steps:
//!
//! 1. Give it one command and the present instant: `acquire(now, ..)`, `release(now, ..)`,
//!    `handle_timeout(now)` and so on.
//! 2. Call `poll_effect()` until it returns `None`, and carry each effect out.
//! 3. Arm one timer for `poll_timeout()`. When it fires, call `handle_timeout(now)`.
//!
//! Extra calls, early, late or repeated, are harmless. Each call does bounded work, and none calls back or
//! blocks. The example `machine_by_hand` is a whole loop.
//!
//! # Examples
//!
//! In the repository, `cargo run -p tidegate-core --features sim --example NAME` runs one.
//!
//! | example | what it shows |
//! | --- | --- |
//! | [`machine_by_hand`] | request admission without a runtime: commands, effects and one timer |
//! | [`gate_in_virtual_time`] | a gate with three callers and one slot; no time passes |
//! | [`pipeline_through_a_gate`] | a pipeline whose workers release their slots during a cooldown |
//! | [`policy_with_manual_clock`] | a test of cap, budget and cooldown with a clock that the test sets |
//! | [`host_on_tokio`] and four more | a host, with a gate and a pipeline on it; [`runtime`] lists them |
//! | [`own_limit`] | a custom [`LimitAlgorithm`](limit::LimitAlgorithm) in request admission |
//! | [`own_limit_in_a_scenario`] | such an algorithm in a simulated run, compared with AIMD |
//! | [`own_task_policy`] | a custom [`TaskPolicy`](task::TaskPolicy) in a [`Dispatcher`](task::Dispatcher) |
//! | [`own_policy_in_a_scenario`] | such a policy in a simulated run, judged by a `PolicyReport` |
//!
//! [`machine_by_hand`]: examples::machine_by_hand
//! [`gate_in_virtual_time`]: examples::gate_in_virtual_time
//! [`pipeline_through_a_gate`]: examples::pipeline_through_a_gate
//! [`policy_with_manual_clock`]: examples::policy_with_manual_clock
//! [`host_on_tokio`]: examples::host_on_tokio
//! [`own_limit`]: examples::own_limit
//! [`own_limit_in_a_scenario`]: examples::own_limit_in_a_scenario
//! [`own_task_policy`]: examples::own_task_policy
//! [`own_policy_in_a_scenario`]: examples::own_policy_in_a_scenario
//!
//! # Layers, top to bottom
//!
//! | module | the question that it answers |
//! | --- | --- |
//! | [`driver`], [`gate`] | how do machines run on an async host? |
//! | [`observe`], [`replay`] | why is capacity idle? would the same inputs decide the same again? |
//! | [`pipeline`] | what is ready, next, finished or failed? |
//! | [`task`] | may this ready task become a running worker? |
//! | [`request`] | may this call start now? |
//! | [`share`] | which part of one limit may each of several processes use? |
//! | [`limit`], [`budget`] | how many calls at once, and how many per minute? |
//! | [`fair_queue`], [`lease`] | which waiter is next? which lease holds what? |
//! | [`yielding`], [`backoff`] | when does a waiting worker release its slots? when is a call repeated? |
//! | [`call`], [`id`] | how did a call end? which slot, and which use of it? |
//! | [`runtime`], [`time`], [`event`], [`error`] | what does a host provide, and what does it see? |
//!
//! # Features
//!
//! | feature | default | what it enables |
//! | --- | --- | --- |
//! | `std` | yes | panics of workloads, sinks, wakers and policies are caught; host checks can time out |
//! | `serde` | no | `Serialize` and `Deserialize` for configurations, commands, snapshots, events and logs |
//! | `redis` | no | the module `share::redis`: a store of shared limits on Redis; enables `serde` |
//! | `sim` | no | the module `sim`; enables `serde`, because scenarios are files |
//! | `schemars` | no | with `sim`: `JsonSchema` for scenarios, samples and reports of runs; enables `serde` |
//!
//! The crate is `no_std` and needs `alloc` and a target with atomic pointers (`target_has_atomic = "ptr"`).
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod backoff;
pub mod budget;
pub mod call;
pub mod driver;
pub mod error;
pub mod event;
#[cfg(all(doc, not(doctest)))]
pub mod examples;
pub mod fair_queue;
pub mod gate;
#[cfg(feature = "serde")]
mod hex;
pub mod id;
pub mod lease;
pub mod limit;
mod map;
#[cfg(feature = "serde")]
mod millis;
#[cfg(feature = "serde")]
mod number;
pub mod observe;
mod panics;
pub mod pipeline;
mod portable_hasher;
pub mod replay;
pub mod request;
pub mod runtime;
pub mod share;
#[cfg(feature = "sim")]
pub mod sim;
pub mod task;
pub mod time;
mod timer_queue;
mod wake_list;
pub mod yielding;

/// The crate of the locks that a [`runtime::Host`] names, in the version that this crate uses.
pub use lock_api;

/// The code of the README runs as written.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
