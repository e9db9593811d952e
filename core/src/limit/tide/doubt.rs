//! Whether what looks like a rate is one.
//!
//! A pace may have been learned where there is no rate: from slots that were all taken, or in a pool that
//! refuses a share of all calls. Either shows in the refusals that still come:
//!
//! - **Slots** refuse only when more calls are out than usual; a rate refuses at any load. So two refusals in
//!   a row with more calls out than the mean and one and a half mean deviations end the pace.
//! - **A share** is refused at any pace; a rate is hardly met again by a pace that was learned from what it
//!   let through. So after six refusals with fewer than 48 calls between two of them, sixteen calls go out
//!   eight times as fast, with no more out at once than were let through before. A rate refuses seven of
//!   eight of them, a pool no more than ever. The pace passes where the refusals are at least two thirds of
//!   the way from what a pool refuses to what a rate does. After a test that the pace passed, the next waits
//!   for twice as many refusals.

/// Calls over which the mean number in flight is taken.
const MEMORY: f64 = 32.0;
/// How many mean deviations above the mean are more than usual, and the least deviation.
const HIGH: f64 = 1.5;
const LEAST_DEVIATION: f64 = 0.5;
/// Refusals of more than usual in a row that are for a want of slots.
const HIGHS: u32 = 2;
/// With as many calls between two refusals, nothing is wrong: a pace that is quickened is refused once in
/// about as many.
const FEW: u64 = 48;
/// Refusals sooner than that before a test, doubled with each test that the pace passed, so many times at
/// most.
const STRIKES: u32 = 6;
const DOUBLINGS: u32 = 12;
/// Calls of a test, and how many times as fast they go out.
const CALLS: u32 = 16;
pub(super) const FASTER: u64 = 8;
/// How far from what a pool refuses (0) to what a rate refuses (1) the refusals of a test have to be for the
/// pace to pass.
const PASSES_AT: f64 = 2.0 / 3.0;

/// Calls that go out faster than the pace.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// The first of them, once it is out.
    first: Option<u64>,
    left: u32,
    refused: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// How many calls are usually out, and by how much that varies.
    mean: f64,
    deviation: f64,
    /// Refusals of more than usual in a row.
    highs: u32,
    /// Refusals that came too soon, and the calls that were let through between them.
    strikes: u32,
    calls: u64,
    test: Option<Test>,
    /// Tests that the pace passed.
    passed: u32,
}

impl Doubt {
    /// There is another pace.
    pub(super) fn start_over(&mut self) {
        *self = Self { mean: self.mean, deviation: self.deviation, passed: self.passed, ..Self::default() };
    }

    /// A call goes out with so many, itself included.
    pub(super) fn on_grant(&mut self, at_once: u32) {
        let off = f64::from(at_once) - self.mean;
        self.mean += off / MEMORY;
        self.deviation += (off.abs() - self.deviation) / MEMORY;
    }

    /// A call was refused at the pace that went out with so many. Whether it is slots that are wanting.
    pub(super) fn is_want_of_slots(&mut self, at_once: u32) -> bool {
        let usual = self.mean + HIGH * self.deviation.max(LEAST_DEVIATION);
        self.highs = if f64::from(at_once) > usual { self.highs + 1 } else { 0 };
        self.highs >= HIGHS
    }

    /// A call was refused at a pace, so many calls after the one before; `is_quickened`: the pace was made
    /// quicker than was learned, and is to be refused. Whether a test begins.
    pub(super) fn on_refused(&mut self, calls: u64, is_quickened: bool) -> bool {
        if calls >= FEW {
            (self.strikes, self.calls) = (0, 0);
        }
        if calls >= FEW || is_quickened {
            return false;
        }
        self.strikes += 1;
        self.calls += calls;
        let begins = self.strikes >= STRIKES << self.passed.min(DOUBLINGS);
        if begins {
            self.test = Some(Test { first: None, left: CALLS, refused: 0 });
        }
        begins
    }

    /// Whether calls go out faster to find out.
    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// A call goes out in a test. `None`: all have gone. Otherwise whether it is the last.
    pub(super) fn on_test_grant(&mut self, grant: u64) -> Option<bool> {
        let test = self.test.as_mut().filter(|test| test.left > 0)?;
        test.first.get_or_insert(grant);
        test.left -= 1;
        Some(test.left == 0)
    }

    /// A call was refused; whether it is one of a test.
    pub(super) fn on_test_refused(&mut self, grant: u64) -> bool {
        let test = self.test.as_mut().filter(|test| test.first.is_some_and(|first| grant >= first));
        if let Some(test) = test {
            test.refused += 1;
            return true;
        }
        false
    }

    /// Ends a test. The share of calls that is refused at any pace, if that is what it showed.
    pub(super) fn conclude(&mut self) -> Option<f64> {
        let test = self.test.take()?;
        let strikes = f64::from(self.strikes);
        let share = strikes / (self.calls as f64 + strikes);
        (self.strikes, self.calls) = (0, 0);
        let of_a_rate = 1.0 - 1.0 / FASTER as f64;
        if f64::from(test.refused) >= f64::from(CALLS) * (share + (of_a_rate - share) * PASSES_AT) {
            self.passed += 1;
            return None;
        }
        Some(share)
    }
}
