//! Is a provider stormed? Counts refusals over every ten seconds, from nothing but when calls went out and when they ended.
//!
//! ```text
//! in any 10 s that begin with a refusal:   refusals  <=  allowed + cascade + share
//!
//! allowed     20: two refused calls a second
//! cascade     the calls that were out when the first of these refusals came: none of them could be taken back
//! share       what the provider refuses at any load, of the calls that went out in these 10 s
//! ```
//!
//! A share is drawn call by call. Of `n` calls, a provider that refuses a share `p` refuses `n p` on average,
//! with a standard deviation of `sqrt(n p (1 - p))`. A run has thousands of overlapping ten seconds, of which
//! the worst counts. Three standard deviations are exceeded in one of 740 by chance, five in one of 3.5
//! million. So five are allowed.
//!
//! Nothing else is allowed for chance: a client that knows the provider, but not what the next call costs,
//! exceeds the rest by 12 at most, on 891 drawn providers ([`informed`](super::informed)).
//!
//! Ten seconds that begin anywhere have no more refusals than those that begin with their first.

use tidegate_core::sim::suite::control::CallTimes;
use tidegate_core::time::{Duration, Instant};

/// What refusals are counted in.
const WINDOW: Duration = Duration::from_secs(10);
/// Refused calls in it that are no storm.
pub const ALLOWED: f64 = 20.0;
/// Standard deviations by which a share may be exceeded.
const LUCK: f64 = 5.0;

/// The ten seconds of a run in which most was refused beyond the cascade and the share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// The first refusal.
    pub from: Instant,
    /// Refusals in ten seconds from then on.
    pub refused: usize,
    /// Calls that were out just before.
    pub cascade: usize,
    /// What may have been refused whatever the load.
    pub share: f64,
    /// The attempts that were refused. An attempt is a refused call, with all refused calls that were sent
    /// before its refusal arrived.
    pub attempts: usize,
}

impl Worst {
    /// Refusals that neither the cascade nor the share accounts for.
    #[must_use]
    pub fn excess(&self) -> f64 {
        self.refused as f64 - self.cascade as f64 - self.share
    }
}

/// The worst ten seconds of a run; `None` if nothing was refused. `refused_share` is what the provider refuses at any load.
#[must_use]
pub fn worst(calls: &[CallTimes], refused_share: f64) -> Option<Worst> {
    let mut sent: Vec<Instant> = calls.iter().map(|call| call.sent).collect();
    let mut ended: Vec<Instant> = calls.iter().map(|call| call.ended).collect();
    let mut refused_calls: Vec<&CallTimes> = calls.iter().filter(|call| call.is_refused).collect();
    refused_calls.sort_unstable_by_key(|call| call.ended);
    let refused: Vec<Instant> = refused_calls.iter().map(|call| call.ended).collect();
    for times in [&mut sent, &mut ended] {
        times.sort_unstable();
    }
    let before = |times: &[Instant], at: Instant| times.partition_point(|time| *time < at);
    let from = |(nth, from): (usize, &Instant)| {
        let end = *from + WINDOW;
        let in_window = (before(&sent, end) - before(&sent, *from)) as f64;
        let luck = LUCK * (in_window * refused_share * (1.0 - refused_share)).sqrt();
        Worst {
            from: *from,
            refused: before(&refused, end) - nth,
            cascade: before(&sent, *from) - before(&ended, *from),
            share: in_window * refused_share + luck,
            attempts: 0,
        }
    };
    let worst = refused.iter().enumerate().map(from).max_by(|a, b| a.excess().total_cmp(&b.excess()))?;
    let first = before(&refused, worst.from);
    Some(Worst { attempts: attempts(&refused_calls[first..first + worst.refused]), ..worst })
}

/// Counts the attempts among refused calls, which are sorted by their end.
fn attempts(refused: &[&CallTimes]) -> usize {
    let (mut attempts, mut arrived) = (0, None);
    for call in refused {
        if arrived.is_none_or(|arrived| call.sent > arrived) {
            attempts += 1;
            arrived = Some(call.ended);
        }
    }
    attempts
}
