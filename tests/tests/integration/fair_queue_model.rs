//! The fair queue against a small obvious model: every selection agrees, whatever blocked classes are parked
//! and whichever services are refunded.

use crate::cases;
use proptest::prelude::*;
use tidegate_core::fair_queue::{BlockedSetId, ClassId, Eligibility, FairQueue, QueueGroupId, ServiceRecord};

const WEIGHTS: [f64; 4] = [0.25, 1.0, 3.0, 1024.0];
const CLASSES: usize = 3;

#[derive(Clone, Debug)]
enum Command {
    Enqueue {
        group: usize,
        class: usize,
        item: u64,
    },
    Discard {
        item: u64,
    },
    /// Gives a class this much room; 0 blocks it.
    Room {
        class: usize,
        slots: u32,
    },
    /// Serves as many as there is room for.
    Serve,
    /// Selects and drops the selection: nothing may change.
    Peek,
    /// Charges back a service that has not ended yet, if its group is not ahead by so many already.
    Refund {
        which: usize,
        most: u32,
    },
    /// Ends a service.
    Answer(usize),
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        5 => (0..WEIGHTS.len(), 0..CLASSES, 0..40_u64)
            .prop_map(|(group, class, item)| Command::Enqueue { group, class, item }),
        1 => (0..40_u64).prop_map(|item| Command::Discard { item }),
        3 => (0..CLASSES, 0..4_u32).prop_map(|(class, slots)| Command::Room { class, slots }),
        3 => Just(Command::Serve),
        1 => Just(Command::Peek),
        4 => (0..1_000_usize, prop_oneof![Just(2_u32), Just(50)])
            .prop_map(|(which, most)| Command::Refund { which, most }),
        1 => (0..1_000_usize).prop_map(Command::Answer),
    ]
}

/// The queue as the specification words it: sorted anew for every selection.
#[derive(Default)]
struct Model {
    virtual_time: f64,
    sequence: u64,
    groups: [Group; 4],
    /// What each group may be refunded.
    allowed: f64,
}

#[derive(Default)]
struct Group {
    items: Vec<(u64, usize)>,
    finish: Option<f64>,
    tag: f64,
    sequence: u64,
    lag: f64,
    lead: f64,
    allowed_seen: f64,
}

impl Model {
    fn contains(&self, item: u64) -> bool {
        self.groups.iter().any(|group| group.items.iter().any(|(id, _)| *id == item))
    }

    fn enqueue(&mut self, at: usize, class: usize, item: u64) -> bool {
        if self.contains(item) {
            return false;
        }
        let group = &mut self.groups[at];
        if group.items.is_empty() {
            group.tag = group.finish.unwrap_or(self.virtual_time);
            group.sequence = self.sequence;
            self.sequence += 1;
        }
        group.items.push((item, class));
        true
    }

    fn discard(&mut self, item: u64) -> bool {
        let found = self.contains(item);
        for group in &mut self.groups {
            group.items.retain(|(id, _)| *id != item);
        }
        found
    }

    fn select(&self, room: &[u32; CLASSES]) -> Option<usize> {
        let active = (0..self.groups.len()).filter(|at| !self.groups[*at].items.is_empty());
        let open = active.filter(|at| room[self.groups[*at].items[0].1] > 0);
        open.min_by(|a, b| {
            let (a, b) = (&self.groups[*a], &self.groups[*b]);
            a.tag.total_cmp(&b.tag).then(a.sequence.cmp(&b.sequence))
        })
    }

    fn serve(&mut self, at: usize) -> (u64, usize) {
        let group = &mut self.groups[at];
        let start = group.tag.max(self.virtual_time - group.lag);
        self.virtual_time = self.virtual_time.max(start);
        group.tag = start + 1.0 / WEIGHTS[at];
        group.lag = group.lag.min(0.0_f64.max(self.virtual_time - group.tag));
        group.finish = Some(group.tag);
        group.sequence = self.sequence;
        self.sequence += 1;
        group.items.remove(0)
    }

    /// The share of the others in the weight of all that wait.
    fn rivals(&self, at: usize) -> f64 {
        let waiting = (0..WEIGHTS.len()).filter(|at| !self.groups[*at].items.is_empty());
        let share = WEIGHTS[at] / waiting.map(|at| WEIGHTS[at]).sum::<f64>();
        f64::from((1.0 - share) as f32)
    }

    fn refund(&mut self, at: usize, rivals: f64, most: f64) -> bool {
        let group = &mut self.groups[at];
        let charge = 1.0 / WEIGHTS[at];
        let lead = 0.0_f64.max(group.lead - (self.allowed - group.allowed_seen)) + charge * rivals;
        if lead > charge * most {
            return false;
        }
        self.allowed += charge * (1.0 - rivals);
        let next = group.finish.expect("it was served").max(self.virtual_time - group.lag);
        group.tag = next - charge;
        group.finish = Some(group.tag);
        group.lag = 0.0_f64.max(self.virtual_time - group.tag);
        (group.lead, group.allowed_seen) = (lead, self.allowed);
        true
    }

    fn answer(&mut self, at: usize, rivals: f64) {
        if self.allowed > 0.0 {
            self.allowed += 2.0 / WEIGHTS[at] * (1.0 - rivals);
        }
    }
}

struct Real {
    queue: FairQueue,
    groups: Vec<QueueGroupId>,
    classes: Vec<ClassId>,
    blocked_sets: Vec<BlockedSetId>,
}

impl Real {
    fn new() -> Self {
        let mut queue = FairQueue::new();
        let groups = WEIGHTS.iter().map(|weight| queue.add_group(*weight).expect("a valid weight")).collect();
        let classes = (0..CLASSES).map(|_| queue.add_class()).collect();
        let blocked_sets = (0..CLASSES).map(|_| queue.add_blocked_set()).collect();
        Self { queue, groups, classes, blocked_sets }
    }

    fn select(&mut self, room: &[u32; CLASSES]) -> Option<tidegate_core::fair_queue::Selection> {
        let blocked_sets = &self.blocked_sets;
        self.queue.select(|head| match room[head.class.index()] {
            0 => Eligibility::ClassBlocked(blocked_sets[head.class.index()]),
            _ => Eligibility::Accept,
        })
    }
}

proptest! {
    #![proptest_config(cases::config(2_000))]

    #[test]
    fn every_selection_equals_the_models(commands in prop::collection::vec(command(), 1..120)) {
        let (mut model, mut real) = (Model::default(), Real::new());
        let mut room = [0; CLASSES];
        let mut services: Vec<(usize, f64, ServiceRecord)> = Vec::new();
        for command in commands {
            match command {
                Command::Enqueue { group, class, item } => {
                    let accepted = real.queue.enqueue(item, real.groups[group], real.classes[class], 1.0);
                    prop_assert_eq!(accepted, model.enqueue(group, class, item));
                }
                Command::Discard { item } => prop_assert_eq!(real.queue.discard(item), model.discard(item)),
                Command::Room { class, slots } => {
                    room[class] = slots;
                    if slots > 0 {
                        real.queue.unblock(real.blocked_sets[class]);
                    }
                }
                Command::Peek => {
                    let expected = model.select(&room).map(|at| model.groups[at].items[0].0);
                    prop_assert_eq!(real.select(&room).map(|found| found.candidate.item), expected);
                }
                Command::Refund { which, most } if !services.is_empty() => {
                    let (at, rivals, service) = services.swap_remove(which % services.len());
                    let refunded = real.queue.refund(service, 1.0, f64::from(most));
                    prop_assert_eq!(refunded, model.refund(at, rivals, f64::from(most)));
                }
                Command::Answer(which) if !services.is_empty() => {
                    let (at, rivals, service) = services.swap_remove(which % services.len());
                    real.queue.answered(service, 1.0);
                    model.answer(at, rivals);
                }
                Command::Refund { .. } | Command::Answer(_) => {}
                Command::Serve => while let Some(at) = model.select(&room) {
                    services.push((at, model.rivals(at), real.queue.next_service(real.groups[at])));
                    let (item, class) = model.serve(at);
                    let found = real.select(&room);
                    prop_assert_eq!(found.map(|found| found.candidate.item), Some(item));
                    if let Some(selection) = found {
                        prop_assert_eq!(real.queue.commit(&selection), Ok(()));
                    }
                    room[class] -= 1;
                },
            }
            prop_assert_eq!(real.queue.len(), model.groups.iter().map(|group| group.items.len()).sum::<usize>());
            prop_assert_eq!(real.queue.virtual_time().to_bits(), model.virtual_time.to_bits());
        }
    }
}
