//! Orders of service: the queue itself, and some that are unfair on purpose.

use std::collections::VecDeque;

use tidegate_core::fair_queue::{BlockedSetId, ClassId, Eligibility, FairQueue, MIN_WEIGHT, QueueGroupId};

/// Decides whose item goes next. Groups are numbered from 0.
pub(crate) trait Order {
    fn put(&mut self, group: usize, cost: f64);
    /// Forgets what a group has queued.
    fn clear(&mut self, group: usize);
    fn set_blocked(&mut self, group: usize, is_blocked: bool);
    /// Takes the next item out: its group and its cost.
    fn next(&mut self) -> Option<(usize, f64)>;
}

/// The queue under test.
pub(crate) struct Real {
    queue: FairQueue,
    places: Vec<(QueueGroupId, ClassId, BlockedSetId)>,
    is_blocked: Vec<bool>,
    items: u64,
    pub(crate) rebases: u64,
}

impl Real {
    /// Its virtual time starts at `start`, below 2^20.
    pub(crate) fn new(weights: &[f64], start: f64) -> Self {
        let mut queue = FairQueue::new();
        let mut place = |weight: f64| {
            let group = queue.add_group(weight).expect("a valid weight");
            (group, queue.add_class(), queue.add_blocked_set())
        };
        let places = weights.iter().copied().map(&mut place).collect();
        let (runner, class, _) = place(MIN_WEIGHT);
        if start > 0.0 {
            // One service gives the runner the tag `start`, the second takes virtual time there.
            for item in [u64::MAX, u64::MAX - 1] {
                queue.enqueue(item, runner, class, start * MIN_WEIGHT);
                let selection = queue.select(|_| Eligibility::Accept).expect("one is queued");
                queue.commit(&selection).expect("nothing changed");
            }
        }
        Self { queue, places, is_blocked: vec![false; weights.len()], items: 0, rebases: 0 }
    }

    pub(crate) fn virtual_time(&self) -> f64 {
        self.queue.virtual_time()
    }
}

impl Order for Real {
    fn put(&mut self, group: usize, cost: f64) {
        let (id, class, _) = self.places[group];
        // The low byte says whose the item is.
        assert!(self.queue.enqueue(self.items << 8 | group as u64, id, class, cost));
        self.items += 1;
    }

    fn clear(&mut self, group: usize) {
        self.queue.discard_where(|item| (item & 0xff) as usize == group);
    }

    fn set_blocked(&mut self, group: usize, is_blocked: bool) {
        self.is_blocked[group] = is_blocked;
        if !is_blocked {
            self.queue.unblock(self.places[group].2);
        }
    }

    fn next(&mut self) -> Option<(usize, f64)> {
        let Self { queue, places, is_blocked, .. } = self;
        let before = queue.virtual_time();
        let selection = queue.select(|head| {
            let group = head.group.index();
            if is_blocked[group] { Eligibility::ClassBlocked(places[group].2) } else { Eligibility::Accept }
        })?;
        queue.commit(&selection).expect("nothing changed");
        self.rebases += u64::from(queue.virtual_time() < before);
        Some((selection.candidate.group.index(), selection.candidate.cost))
    }
}

/// What a simpler scheduler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Virtual finish tags, done right: the checker must have nothing to say.
    Tags,
    /// Virtual finish tags that count items instead of cost.
    TagsBlindToCost,
    /// Virtual finish tags that let an idle group claim the time it was away.
    TagsWithCredit,
    /// The groups in turn, whatever their weights.
    RoundRobin,
    /// First come, first served.
    Fifo,
}

pub(crate) struct Simple {
    rule: Rule,
    weights: Vec<f64>,
    /// Arrival number and cost, by group.
    queued: Vec<VecDeque<(f64, f64)>>,
    is_blocked: Vec<bool>,
    tags: Vec<f64>,
    virtual_time: f64,
    arrivals: f64,
    services: f64,
    last_served: Vec<f64>,
}

impl Simple {
    pub(crate) fn new(rule: Rule, weights: &[f64]) -> Self {
        let groups = weights.len();
        Self {
            rule,
            weights: weights.to_vec(),
            queued: vec![VecDeque::new(); groups],
            is_blocked: vec![false; groups],
            tags: vec![0.0; groups],
            virtual_time: 0.0,
            arrivals: 0.0,
            services: 0.0,
            last_served: vec![0.0; groups],
        }
    }

    /// The least goes first.
    fn rank(&self, group: usize) -> f64 {
        match self.rule {
            Rule::Tags | Rule::TagsBlindToCost | Rule::TagsWithCredit => self.tags[group],
            Rule::RoundRobin => self.last_served[group],
            Rule::Fifo => self.queued[group][0].0,
        }
    }
}

impl Order for Simple {
    fn put(&mut self, group: usize, cost: f64) {
        self.arrivals += 1.0;
        self.queued[group].push_back((self.arrivals, cost));
    }

    fn clear(&mut self, group: usize) {
        self.queued[group].clear();
    }

    fn set_blocked(&mut self, group: usize, is_blocked: bool) {
        self.is_blocked[group] = is_blocked;
    }

    fn next(&mut self) -> Option<(usize, f64)> {
        let open = (0..self.queued.len()).filter(|group| !self.is_blocked[*group] && !self.queued[*group].is_empty());
        let group = open.min_by(|a, b| self.rank(*a).total_cmp(&self.rank(*b)))?;
        let (_, cost) = self.queued[group].pop_front()?;
        self.services += 1.0;
        self.last_served[group] = self.services;
        self.virtual_time = self.virtual_time.max(self.tags[group]);
        let from = if self.rule == Rule::TagsWithCredit { self.tags[group] } else { self.virtual_time };
        let charged = if self.rule == Rule::TagsBlindToCost { 1.0 } else { cost };
        self.tags[group] = from + charged / self.weights[group];
        Some((group, cost))
    }
}
