//! Random orders of polls, drops, releases and clock steps: nothing leaks and nothing is granted twice.

use std::task::{Poll, Waker};

use tidegate_core::gate::{AcquireOwned, Gate, OwnedPermit};
use tidegate_core::request::{Completion, Outcome, Request, ResourceId};
use tidegate_core::sim::rng::Rng;

use crate::support::{Runtime, TestHost, at, gate_of, held, ms, poll};

const CAP: u32 = 3;

struct Scenario {
    runtime: Runtime,
    gate: Gate<TestHost>,
    resource: ResourceId,
    acquires: Vec<AcquireOwned<TestHost>>,
    permits: Vec<OwnedPermit<TestHost>>,
    now_ms: u64,
}

impl Scenario {
    fn new() -> Self {
        let runtime = Runtime::new();
        let (gate, resource) = gate_of(runtime.host(), CAP);
        Self { runtime, gate, resource, acquires: Vec::new(), permits: Vec::new(), now_ms: 0 }
    }

    fn random_step(&mut self, rng: &mut Rng) {
        match rng.below(8) {
            0 | 1 => {
                let request = Request::new(self.resource);
                let bounded = rng.below(2) == 0;
                self.acquires.push(self.gate.acquire_owned(if bounded {
                    request.within(ms(rng.below(20)))
                } else {
                    request
                }));
            }
            2 | 3 if !self.acquires.is_empty() => {
                let index = pick(rng, self.acquires.len());
                if let Poll::Ready(answer) = poll(&mut self.acquires[index], Waker::noop()) {
                    drop(self.acquires.swap_remove(index));
                    self.permits.extend(answer);
                }
            }
            4 if !self.acquires.is_empty() => drop(self.acquires.swap_remove(pick(rng, self.acquires.len()))),
            5 if !self.permits.is_empty() => drop(self.permits.swap_remove(pick(rng, self.permits.len()))),
            6 if !self.permits.is_empty() => {
                let permit = self.permits.swap_remove(pick(rng, self.permits.len()));
                let rate_limited = Completion::rate_limited(Some(ms(5)));
                permit.finish(if rng.below(4) == 0 { rate_limited } else { Outcome::Success.into() });
            }
            7 => {
                self.now_ms += rng.below(4);
                self.runtime.run_until(at(self.now_ms));
            }
            _ => self.permits.extend(self.gate.try_acquire_owned(Request::new(self.resource))),
        }
    }
}

fn pick(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len as u64)).expect("an index")
}

#[test]
fn nothing_leaks_in_any_order_of_polls_drops_finishes_and_ticks() {
    for seed in 0..300 {
        let (mut rng, mut scenario) = (Rng::new(seed), Scenario::new());
        for _ in 0..200 {
            scenario.random_step(&mut rng);
            assert!(held(&scenario.gate).0 <= CAP as usize, "seed {seed}");
            assert!(scenario.permits.len() <= held(&scenario.gate).0, "seed {seed}");
        }
        let Scenario { runtime, gate, acquires, permits, .. } = scenario;
        // For half of the seeds the acquires are dropped last, and for the other half the permits.
        if seed % 2 == 0 {
            drop((permits, acquires));
        } else {
            drop((acquires, permits));
        }
        assert_eq!(held(&gate), (0, 0), "seed {seed}");
        drop(gate);
        runtime.run();
        assert_eq!((runtime.tasks(), runtime.armed_timers()), (0, 0), "seed {seed}");
    }
}
