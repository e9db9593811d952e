//! The adaptive limit of one resource as SPEC 5.2 and 5.3 word it, with the pause after a rate limit.

use tidegate_core::request::Outcome;

/// Nanoseconds.
pub(crate) type Time = u64;

/// Settings, equal for all resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) successes_until_increase: u32,
    pub(crate) cooldown: Time,
    pub(crate) max_cooldown: Time,
    pub(crate) ramp: Time,
    pub(crate) initial_limit: Option<u32>,
    /// A maximum below the cap of the provider/model.
    pub(crate) max_limit: Option<u32>,
    pub(crate) default_timeout: Option<Time>,
}

impl Settings {
    fn effective_max(&self, cap: u32) -> u32 {
        self.max_limit.map_or(cap, |max| max.min(cap))
    }
}

/// A call that ended, as its limit sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) retry_after: Option<Time>,
    /// The limit it was admitted under.
    pub(crate) admitted_limit: u32,
    /// The number of its grant.
    pub(crate) grant: u64,
    /// Whether no other call of the resource is in flight.
    pub(crate) is_last: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) max: u32,
    /// The limit when no ramp runs, and the target of one that does.
    target: u32,
    is_ramping: bool,
    ramp_started: Option<Time>,
    pub(crate) blocked_until: Time,
    pub(crate) consecutive: u32,
    pub(crate) streak: u32,
    pub(crate) ceiling: u32,
    grants: u64,
    /// Grants before the last cut: calls of these belong to the cascade that was cut already.
    grants_at_cut: u64,
}

impl Limit {
    /// "Starts at the initial limit [effective max], clamped to 1..=effective max."
    pub(crate) fn new(settings: &Settings, cap: u32) -> Self {
        let max = settings.effective_max(cap);
        let limit = settings.initial_limit.unwrap_or(max).clamp(1, max);
        Self {
            max,
            target: limit,
            is_ramping: settings.ramp > 0 && limit > 1,
            ramp_started: None,
            blocked_until: 0,
            consecutive: 0,
            streak: 0,
            ceiling: 0,
            grants: 0,
            grants_at_cut: 0,
        }
    }

    /// While a ramp runs: "1 + floor((target - 1) x elapsed / ramp)".
    pub(crate) fn at(&self, settings: &Settings, now: Time) -> u32 {
        if !self.is_ramping(settings, now) {
            return self.target;
        }
        let elapsed = self.ramp_started.map_or(0, |started| now - started);
        1 + (u128::from(self.target - 1) * u128::from(elapsed) / u128::from(settings.ramp)) as u32
    }

    /// "Reaching the target at elapsed >= ramp by time alone, traffic or not."
    pub(crate) fn is_ramping(&self, settings: &Settings, now: Time) -> bool {
        self.is_ramping && self.ramp_started.is_none_or(|started| now - started < settings.ramp)
    }

    /// "Elapsed counts from the first acquire attempt."
    pub(crate) fn attempt(&mut self, settings: &Settings, now: Time) {
        self.ramp_started.get_or_insert(now);
        self.settle(settings, now);
    }

    /// A ramp that has reached its target is over, whatever becomes of the target later.
    fn settle(&mut self, settings: &Settings, now: Time) {
        self.is_ramping = self.is_ramping(settings, now);
    }

    /// "A later registration may lower the current limits at once. A raised cap lifts a current limit only if
    /// that stood at its old maximum and was never cut."
    pub(crate) fn set_cap(&mut self, settings: &Settings, now: Time, cap: u32) {
        self.settle(settings, now);
        let max = settings.effective_max(cap);
        if self.grants_at_cut == 0 && self.target == self.max {
            self.target = max;
        }
        self.target = self.target.min(max);
        self.max = max;
    }

    /// Counts a grant: its number, and the limit it was admitted under.
    pub(crate) fn grant(&mut self, settings: &Settings, now: Time) -> (u64, u32) {
        self.grants += 1;
        (self.grants - 1, self.at(settings, now))
    }

    pub(crate) fn release(&mut self, settings: &Settings, now: Time, ended: &Ended) {
        self.settle(settings, now);
        match ended.outcome {
            Outcome::RateLimited => self.rate_limited(settings, now, ended),
            Outcome::Success if now >= self.blocked_until => {
                self.consecutive = 0;
                self.streak += u32::from(!self.is_ramping);
                if self.streak == settings.successes_until_increase {
                    self.streak = 0;
                    self.target = (self.target + 1).min(self.max);
                }
            }
            Outcome::LocalCancelled | Outcome::LocalTimeout => {}
            _ if ended.is_last => self.consecutive = 0,
            _ => {}
        }
    }

    /// "Blocked until now + Retry-After if given and > 0, else now + cooldown, never earlier than an end
    /// already promised and never later than a maximum. Cut to max(1, floor(limit x 0.75)) once per cascade."
    fn rate_limited(&mut self, settings: &Settings, now: Time, ended: &Ended) {
        let asked = ended.retry_after.filter(|span| *span > 0).unwrap_or(settings.cooldown);
        self.blocked_until = self.blocked_until.max(now + asked.min(settings.max_cooldown));
        self.consecutive += 1;
        self.streak = 0;
        self.target = self.at(settings, now);
        self.is_ramping = false;
        if ended.grant >= self.grants_at_cut {
            self.grants_at_cut = self.grants;
            self.target = (self.target * 3 / 4).max(1);
            if self.ceiling == 0 {
                self.ceiling = ended.admitted_limit;
            }
        }
    }

    /// When time alone next changes what may go out: the end of the cooldown, or else the next step of the
    /// ramp.
    pub(crate) fn next_change(&self, settings: &Settings, now: Time) -> Option<Time> {
        if now < self.blocked_until {
            return Some(self.blocked_until);
        }
        let started = self.ramp_started.filter(|_| self.is_ramping(settings, now))?;
        let steps = u64::from(self.target - 1).max(1);
        (1..=steps).map(|step| started + (step * settings.ramp).div_ceil(steps)).find(|at| *at > now)
    }
}
