//! Simulation: whole runs in virtual time, to find out how a scheduler, a policy or a limit does before it
//! costs money.
//!
//! What runs is the real thing: the [pipeline](crate::pipeline::Pipeline) and
//! [request admission](crate::request::RequestAdmission), as a host would drive them. Only the rest of the
//! world is played: providers with a capacity, latencies, outages and manners of refusing; hooks and
//! checkpoints; somebody else who calls the same models. A simulated hour takes as long as its events, some
//! 10^5 to 10^6 of them in a second, and a run is a function of its scenario and its seed on every target,
//! down to the [digest](world::World::digest).
//!
//! # A first run
//!
//! ```
//! use tidegate_core::sim::{scenario, world::World};
//!
//! let calm = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
//! let mut world = World::accounted(&calm, 7)?;
//! while world.step() {}
//! assert_eq!(world.violation(), None);
//! let report = world.finished().expect("a world that stands still has finished");
//! assert_eq!(report.rows_in, calm.rows);
//! let figures = world.figures().expect("it was accounted for");
//! let calls = &figures.requests[0];
//! assert_eq!(calls.starved_slot_ns + calls.frontier_slot_ns, calls.idle_slot_ns, "{calls}");
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```
//!
//! # Which world
//!
//! | world | beside the run | for |
//! | --- | --- | --- |
//! | [`World::new`](world::World::new) | nothing | speed |
//! | [`World::measured`](world::World::measured) | an account of [idle time](crate::observe::RunAccount), and no checker | pages |
//! | [`World::watched`](world::World::watched) | a [checker](check) of every law | tests |
//! | [`World::accounted`](world::World::accounted) | that, and an account of [idle time](crate::observe::RunAccount) | figures |
//! | [`World::judged`](world::World::judged) | that, and an account of what each [fairness group gets](policy) | policies |
//! | [`World::watched_with_events`](world::World::watched_with_events) | all that, and you, with both event streams | traces |
//! | [`World::with_policy`](world::World::with_policy) | both | a task policy of your own |
//! | [`World::with_limit`](world::World::with_limit) | both | limit algorithms of your own |
//! | [`World::with_events`](world::World::with_events) | you, with both event streams | whatever you like |
//!
//! None of them decides anything: the digest of a scenario and a seed is the same in all, but for another
//! policy's or limit's. The examples `own_policy_in_a_scenario` and `own_limit_in_a_scenario` try both. A
//! limit algorithm of the crate is a [setting of the scenario](scenario::Model::algorithm).
//!
//! # A policy or a limit of your own
//!
//! A [`PolicyReport`](policy::PolicyReport) judges a task policy by what each group got and by the wall time.
//! The guide `docs/testing-policies.md` has code to begin with, for policies and for limits.
//!
//! # A question of your own
//!
//! A [`Scenario`](scenario::Scenario) is data, and can be a file: `tidegate simulate NAME --dump` writes one
//! to begin with. Time that a task spends without a call is [`local`](scenario::ScenarioColumn::local); what
//! it [`holds`](scenario::ScenarioColumn::holds) meanwhile makes any resource the bottleneck. Work that shall
//! come late follows a column that only takes time: no clock of its own is needed for it.
//! [`LowerBound`](suite::idle::LowerBound) says what no scheduler could beat, so that you know how far from
//! it a run is.
//!
//! # In the midst of a run
//!
//! [`World::change`](world::World::change) does what a person would: it takes a provider's capacity away,
//! makes it refuse or slow, gives a model another limit, a run another policy. Written into the scenario as
//! [`changes`](scenario::Scenario::changes), it gives the same run again. [`World::why`](world::World::why)
//! says why something waits, in words:
//!
//! ```
//! use tidegate_core::sim::scenario::{self, Intervention};
//! use tidegate_core::sim::world::{About, World};
//! use tidegate_core::time::{Duration, Instant};
//!
//! let mut scenario = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
//! let mut world = World::new(&scenario, 7)?;
//! world.advance_to(Instant::ZERO + Duration::from_secs(3));
//! world.change(Intervention::Refuse { model: "tide".into(), span: Duration::from_secs(2) })?;
//! world.advance_to(Instant::ZERO + Duration::from_secs(4));
//! let whys = world.why(&About::Provider(0));
//! assert!(whys.iter().any(|why| why.why == "a burst of refusals, until 5.0 s"), "{whys:?}");
//!
//! scenario.changes = world.changes().to_vec();
//! let mut again = World::new(&scenario, 7)?;
//! again.advance_to(world.now());
//! assert_eq!(again.digest(), world.digest());
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`scenario`] | what is to be run, as data |
//! | [`world`] | the run: events, virtual time, the machines |
//! | [`provider`], [`latency`] | mock providers, and how long they take |
//! | [`report`] | what a run came to, as data |
//! | [`policy`] | how well a task policy did, judged by stated thresholds |
//! | [`check`] | the laws that every run keeps |
//! | [`suite`] | scenarios with what must come of them |
//! | [`rng`], [`executor`] | seeded chance; futures in virtual time |

pub mod check;
pub mod executor;
pub mod latency;
pub mod policy;
pub mod provider;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod suite;
pub mod world;
