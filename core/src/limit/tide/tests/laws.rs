//! Laws that hold under random calls.

use super::*;

/// A `Tide` driven by random calls, with checks of its laws.
struct Chance {
    state: u64,
    tide: Tide,
    now: Instant,
    max: u32,
    granted: u64,
    out: Vec<CallReport>,
    since: Vec<Instant>,
    blocked_until: Instant,
    /// The next grant at the last refusal that lowered the limit.
    cut_at: u64,
}

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's multiplier.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    fn step(&mut self) {
        match self.below(10) {
            0..=4 => self.grant(),
            5..=7 if !self.out.is_empty() => self.end(),
            8 if self.below(50) == 0 => {
                self.max = 1 + self.below(100) as u32;
                self.tide.set_max(self.now, self.max, false);
            }
            _ => self.wait(),
        }
        assert!((1..=self.max).contains(&self.tide.limit(self.now)));
    }

    fn grant(&mut self) {
        self.tide.on_attempt(self.now, self.out.len() as u32);
        let may = self.now >= self.blocked_until && self.tide.opens_at(self.now).is_none();
        let limit = self.tide.limit(self.now);
        if may && (self.out.len() as u32) < limit {
            let admitted_in_flight = self.out.len() as u32 + 1;
            self.out.push(CallReport {
                outcome: Outcome::Success,
                grant: self.granted,
                admitted_limit: limit,
                admitted_in_flight,
                retry_after: None,
                latency: Duration::ZERO,
                in_flight: 0,
                is_cooling_down: false,
            });
            self.since.push(self.now);
            self.tide.on_grant(self.now, self.granted, admitted_in_flight);
            self.granted += 1;
        }
    }

    fn end(&mut self) {
        let which = self.below(self.out.len() as u64) as usize;
        let (mut call, since) = (self.out.swap_remove(which), self.since.swap_remove(which));
        call.latency = self.now - since;
        call.in_flight = self.out.len() as u32;
        call.outcome = match self.below(12) {
            0 | 1 => Outcome::RateLimited,
            2 => Outcome::ProviderTimeout,
            3 => Outcome::LocalCancelled,
            _ => Outcome::Success,
        };
        if call.outcome == Outcome::RateLimited {
            let asked = (self.below(2) == 0).then(|| Duration::from_nanos(1 + self.below(3_000_000_000)));
            call.retry_after = asked;
            let pause = self.tide.cooldown(self.now, &call).unwrap();
            self.blocked_until = self.blocked_until.max(self.now + pause);
            if self.blocked_until > self.now {
                self.tide.on_cooldown(self.now, self.blocked_until);
            }
        }
        call.is_cooling_down = self.blocked_until > self.now;
        let before = self.tide.limit;
        self.tide.on_outcome(self.now, &call);
        let is_refused = call.outcome == Outcome::RateLimited;
        if is_refused && self.tide.limit < before {
            assert!(call.grant >= self.cut_at, "a call of the same cascade cut again");
            self.cut_at = self.granted;
        }
    }

    /// Advances time, and checks that nothing changes before `next_change`.
    fn wait(&mut self) {
        let until = self.now + Duration::from_nanos(1 + self.below(50_000_000));
        let announced = self.tide.next_change(self.now).map_or(until, |at| at.min(until));
        assert!(announced > self.now);
        let answer = |at| (self.tide.limit(at), self.tide.opens_at(at).is_some());
        let before = answer(self.now);
        let last = Instant::from_nanos(announced.as_nanos() - 1).max(self.now);
        let between = Instant::from_nanos(self.now.as_nanos().midpoint(last.as_nanos()));
        assert_eq!([before, before], [answer(between), answer(last)]);
        self.now = announced;
    }
}

#[test]
fn the_limit_keeps_its_laws_under_random_calls() {
    for seed in 0..60 {
        let tide = Tide::new(TideConfig::default()).unwrap();
        let mut chance = Chance {
            state: seed,
            tide,
            now: Instant::ZERO,
            max: 50,
            granted: 0,
            out: Vec::new(),
            since: Vec::new(),
            blocked_until: Instant::ZERO,
            cut_at: 0,
        };
        chance.tide.set_max(Instant::ZERO, 50, false);
        for _ in 0..4_000 {
            chance.step();
        }
    }
}
