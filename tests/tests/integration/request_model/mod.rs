//! Request admission against a small obvious model: after every command the same grants, refusals and
//! denials, in the same order for each provider/model, and the same figures. An independent ledger watches
//! every lease.

mod driver;
mod history;
mod limits;
mod model;
mod stories;

use std::cell::RefCell;

use self::driver::{Pair, Seen};
use crate::cases;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestError, TestRunner};
use tidegate_core::request::{Domain, ProviderModelId, RequestAdmission, ResourceId};

/// The resource of a domain.
pub(crate) fn resource(machine: &mut RequestAdmission, owner: ProviderModelId, domain: Domain) -> ResourceId {
    machine.resource(owner, domain).expect("a known model")
}

/// How many cases: 1 500, or as many as `REQUEST_MODEL_CASES` asks for.
fn cases() -> u32 {
    std::env::var("REQUEST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_500)
}

/// Answers that some history must bring about, or the histories try too little.
const ANSWERS: [&str; 11] = [
    "cooldown",
    "granted after waiting",
    "granted at once",
    "granted while its group waits for another provider/model",
    "no capacity",
    "now or not at all",
    "queued waiters ahead",
    "refused after waiting",
    "shutdown",
    "unregistered",
    "waiting",
];

#[test]
fn every_answer_and_effect_equals_that_of_a_model_with_one_queue_for_each_provider_and_model() {
    let config = cases::config(cases());
    let RngSeed::Fixed(seed) = config.rng_seed else { panic!("the seed is fixed") };
    let replay = format!("PROPTEST_RNG_SEED={seed} REQUEST_MODEL_CASES={}", config.cases);
    let tally = RefCell::new(Seen::new());
    let drawn =
        (history::settings(), history::layout(), prop::collection::vec(history::command(), 1..160), any::<bool>());
    let tried = TestRunner::new(config).run(&drawn, |(settings, layout, commands, by_shutdown)| {
        let mut pair = Pair::new(settings, &layout);
        for command in &commands {
            pair.carry_out(command)?;
        }
        pair.finish(by_shutdown)?;
        for (what, count) in &pair.seen {
            *tally.borrow_mut().entry(what).or_default() += count;
        }
        Ok(())
    });
    match tried {
        Ok(()) => assert_eq!(tally.borrow().keys().copied().collect::<Vec<_>>(), ANSWERS),
        Err(TestError::Fail(why, history)) => panic!("{why}\nsmallest history: {history:#?}\nreplay with {replay}"),
        Err(abort) => panic!("{abort}"),
    }
}
