//! How many random cases a property is tried on, and which.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// The same `cases` in every run; `PROPTEST_RNG_SEED=n` draws others, and a failure prints its smallest case.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(asked.unwrap_or(1)),
        ..ProptestConfig::default()
    }
}
