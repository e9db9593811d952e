//! Simulation of whole runs in virtual time, to test a scheduler, a policy or a limit before it costs money.
//!
//! A simulation runs the real [pipeline](crate::pipeline::Pipeline) and the real [request
//! admission](crate::request::RequestAdmission), and drives them as a host does. Only their surroundings are
//! simulated: providers with a capacity, latencies, outages and rate limits; hooks and checkpoints; other
//! clients of the same models. The cost of a simulated hour depends on the number of its events, of which
//! 10^5 to 10^6 are processed per second. A run is a function of its scenario and its seed: its
//! [digest](world::World::digest), a hash over every decision, is the same on every target.
//!
//! # A first run
//!
//! ```
//! use tidegate_core::sim::{scenario, world::World};
//!
//! let calm = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
//! let mut world = World::accounted(&calm, 7)?;
//! while world.step() {}
//! let report = world.finished().expect("a world without a next step has finished");
//! assert_eq!(report.rows_in, calm.rows);
//! let figures = world.figures().expect("the world has an account");
//! let calls = &figures.requests[0];
//! assert_eq!(calls.starved_slot_ns + calls.frontier_slot_ns, calls.idle_slot_ns, "{calls}");
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```
//!
//! # Choosing a world
//!
//! | world | in addition to the run | use |
//! | --- | --- | --- |
//! | [`World::new`] | nothing | speed |
//! | [`World::measured`] | an [account] of the use of the capacity, no checker | pages that show figures |
//! | [`World::watched`] | a [checker](check) of every law | tests |
//! | [`World::accounted`] | a checker and an account | tests that compare figures |
//! | [`World::judged`] | a checker, and an account with the service of each group | policies |
//! | [`World::watched_with_events`] | a checker, an account, and both event streams | traces |
//! | [`World::with_policy`] | a checker, and an account with the service of each group | custom task policy |
//! | [`World::with_limit`] | a checker and an account | custom limit algorithms |
//! | [`World::with_events`] | both event streams | other observers |
//! | [`World::recorded`] | a log of all commands | [replays](crate::replay) |
//!
//! [account]: crate::observe::RunAccount
//! [`World::new`]: world::World::new
//! [`World::measured`]: world::World::measured
//! [`World::watched`]: world::World::watched
//! [`World::accounted`]: world::World::accounted
//! [`World::judged`]: world::World::judged
//! [`World::watched_with_events`]: world::World::watched_with_events
//! [`World::with_policy`]: world::World::with_policy
//! [`World::with_limit`]: world::World::with_limit
//! [`World::with_events`]: world::World::with_events
//! [`World::recorded`]: world::World::recorded
//!
//! None of these additions influences the run. The digest of a scenario and a seed is the same in all worlds,
//! except under a custom policy or limit. The examples [`own_policy_in_a_scenario`] and
//! [`own_limit_in_a_scenario`] show those. A limit algorithm of the crate is a [setting of the
//! scenario](scenario::Model::algorithm).
//!
//! [`own_policy_in_a_scenario`]: crate::examples::own_policy_in_a_scenario
//! [`own_limit_in_a_scenario`]: crate::examples::own_limit_in_a_scenario
//!
//! # Custom policies and limits
//!
//! A [`PolicyReport`](policy::PolicyReport) judges a task policy by the service of each group and by the
//! wall time. [A guide](crate::examples::testing_policies) has code to start from, for policies and for
//! limits.
//!
//! # Custom scenarios
//!
//! A [`Scenario`](scenario::Scenario) is data, and can be a file: `tidegate simulate NAME --dump` writes one
//! to start from. The time that a task spends without a call is [`local`](scenario::ScenarioColumn::local).
//! Tasks can [`hold`](scenario::ScenarioColumn::holds) resources while they run, so any resource can be the
//! bottleneck. For work that starts late, let its column depend on a column that only takes time. A run's
//! wall time can be compared with [`LowerBound`](suite::idle::LowerBound), which no scheduler can beat.
//!
//! # Changes during a run
//!
//! [`World::change`](world::World::change) changes a run as an operator would: it reduces a provider's
//! capacity, makes it refuse calls or slow, or sets another limit or policy. The same changes in the
//! scenario's [`changes`](scenario::Scenario::changes) give the same run again.
//! [`World::why`](world::World::why) explains why something waits:
//!
//! ```
//! use tidegate_core::sim::scenario::{self, Intervention};
//! use tidegate_core::sim::world::{WhySubject, World};
//! use tidegate_core::time::{Duration, Instant};
//!
//! let mut scenario = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
//! let mut world = World::new(&scenario, 7)?;
//! world.advance_to(Instant::ZERO + Duration::from_secs(3));
//! world.change(Intervention::Refuse { model: "silent".into(), span: Duration::from_secs(2) })?;
//! world.advance_to(Instant::ZERO + Duration::from_secs(4));
//! let whys = world.why(&WhySubject::Provider(0));
//! assert!(whys.iter().any(|why| why.why == "a burst of refusals, until 5.0 s"), "{whys:?}");
//!
//! scenario.changes = world.changes().to_vec();
//! let mut again = World::new(&scenario, 7)?;
//! again.advance_to(world.now());
//! assert_eq!(again.digest(), world.digest());
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`scenario`] | what to run, as data |
//! | [`world`] | the run: events, virtual time, the pipeline and request admission |
//! | [`provider`], [`latency`] | mock providers, and their latencies |
//! | [`report`] | the results of a run, as data |
//! | [`policy`] | the judgement of a task policy by stated thresholds |
//! | [`sharing`] | processes that share a limit, under faults |
//! | [`check`] | a checker of the laws that every run keeps |
//! | [`suite`] | scenarios with expected results |
//! | [`rng`], [`executor`] | seeded random numbers; futures in virtual time |

pub mod check;
pub mod executor;
pub mod latency;
pub mod policy;
pub mod provider;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod sharing;
pub mod suite;
pub mod world;
