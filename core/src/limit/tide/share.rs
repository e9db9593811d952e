//! Refusals that have nothing to do with load.
//!
//! A pool that others use, too, refuses a share of all calls however few are out. What is refused of calls
//! that are out alone is that share, for one call is never too many; later, what is refused of calls that are
//! out with no more than three quarters of what last was too many:
//!
//! ```text
//! usual    recent <= base + (1 - base) x 1/4      of the calls that went out lately, of those that are surely borne
//!    and   runs   <= base + (1 - base) x 1/2      of the refused calls, those that followed a refused one
//! ```
//!
//! While that holds, a refusal says nothing of the limit. A provider that refuses nobody who is alone has no
//! such share, and each refusal of it is news. A rate refuses calls that are alone, too, but in runs: while
//! its bucket is empty, one after the other. A share above three fifths is a provider that answers almost
//! nobody, and is not to be pressed.
//!
//! Where more is refused, the limit gives up a quarter, and climbs fast only to seven eighths of what was too
//! many; nearer after a time that doubles with each time in vain.
//!
//! Google's client-side throttling compares what was accepted with what was sent in the same way (Site
//! Reliability Engineering, 2016, chapter 21).

/// How many calls tell what is refused lately, and how many times as many what is refused at any load.
const MEMORY: f64 = 64.0;
const LONG: f64 = 4.0;
/// The fewest calls alone that tell a share, and the least share that is one.
const FEWEST: u32 = 8;
const LEAST: f64 = 0.03;
/// The greatest.
const MOST: f64 = 0.6;
/// How much of what would be answered may be refused beyond the share: four times what chance does in
/// [`MEMORY`] calls, about.
const MARGIN: f64 = 0.25;
/// How many refusals tell whether they come in runs, and how many more may do so than by chance.
const RUNS: f64 = 16.0;
const RUNNING: f64 = 0.5;
/// Calls before the limit goes near what was too many again; each time in vain doubles them, so many times.
const PATIENCE: u32 = 256;
const DOUBLINGS: u32 = 6;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// What was refused at any load, and of how many calls.
    base: f64,
    seen: u32,
    /// What was refused lately.
    recent: f64,
    /// The call refused last, and how many of the refused ones came right after a refused one.
    last: Option<u64>,
    runs: f64,
    /// The limit at which more was refused.
    too_many: u32,
    /// Calls since, and how often in a row it was about the same.
    calls: u32,
    found: u32,
}

impl Share {
    /// A call goes out with so many, itself included.
    pub(super) fn on_grant(&mut self, at_once: u32) {
        self.recent -= self.recent / memory(at_once);
        self.calls = self.calls.saturating_add(1);
        if self.is_bearable(at_once) {
            self.seen = self.seen.saturating_add(1);
            self.base -= self.base / f64::from(self.seen).min(LONG * MEMORY);
        }
    }

    /// One was refused that went out with so many. Answers are not waited for: they come much later than
    /// refusals.
    pub(super) fn on_refused(&mut self, grant: u64, at_once: u32) {
        self.recent += 1.0 / memory(at_once);
        let follows = grant > 0 && self.last == Some(grant - 1);
        self.runs += (f64::from(u8::from(follows)) - self.runs) / runs(at_once);
        self.last = Some(grant);
        if self.is_bearable(at_once) {
            self.base += 1.0 / f64::from(self.seen.max(1)).min(LONG * MEMORY);
        }
    }

    /// What was refused at any pace is refused at any load, as long as nothing else is known.
    pub(super) fn learn(&mut self, share: f64) {
        if self.seen < FEWEST {
            (self.base, self.seen) = (share, FEWEST);
            self.recent = share;
            self.runs = share;
        }
    }

    fn is_bearable(&self, at_once: u32) -> bool {
        at_once <= (self.too_many / 4 * 3).max(1)
    }

    /// More than the share was refused at this limit.
    pub(super) fn on_cut(&mut self, limit: u32) {
        let room = self.too_many / 4 + 1;
        self.found = if limit.abs_diff(self.too_many) <= room { self.found + 1 } else { 0 };
        self.too_many = limit;
        self.calls = 0;
        self.recent = self.base;
        self.runs = self.base;
    }

    /// Whether a limit may grow beyond this one fast.
    pub(super) fn is_far(&self, limit: u32) -> bool {
        self.too_many == 0
            || limit < self.too_many - (self.too_many / 8).max(1)
            || self.calls > PATIENCE << self.found.min(DOUBLINGS)
    }

    /// Whether calls are refused at any load.
    pub(super) fn is_known(&self) -> bool {
        self.seen >= FEWEST && (LEAST..=MOST).contains(&self.base)
    }

    /// Whether no more is refused than that.
    pub(super) fn is_usual(&self) -> bool {
        let most = |margin: f64| self.base + (1.0 - self.base) * margin;
        self.is_known() && self.recent <= most(MARGIN) && self.runs <= most(RUNNING)
    }
}

/// How many calls tell what is refused lately: more where many are out, since chance has more to do with
/// them.
fn memory(at_once: u32) -> f64 {
    MEMORY.max(2.0 * f64::from(at_once))
}

/// How many refusals tell whether they come in runs.
fn runs(at_once: u32) -> f64 {
    RUNS.max(f64::from(at_once) / 8.0)
}
