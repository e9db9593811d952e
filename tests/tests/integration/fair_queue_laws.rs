//! What the fair queue may offer, whatever the commands: nothing that was refused, until its set was opened.

use crate::cases;
use proptest::prelude::*;
use tidegate_core::fair_queue::{BlockedSetId, Candidate, ClassId, Eligibility, FairQueue, QueueGroupId};

const GROUPS: usize = 6;
const CLASSES: usize = 4;
const SETS: usize = 3;

#[derive(Clone, Debug)]
enum Command {
    Enqueue {
        group: usize,
        class: usize,
        item: u64,
    },
    Discard(u64),
    /// Opens a set, whether or not there is room.
    Open(usize),
    Unpark(usize),
    /// Serves at most so many. What is refused depends on the seed: the class, the set it goes to, or the group alone.
    Serve {
        most: u32,
        seed: u64,
    },
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => (0..GROUPS, 0..CLASSES, 0..60_u64)
            .prop_map(|(group, class, item)| Command::Enqueue { group, class, item }),
        1 => (0..60_u64).prop_map(Command::Discard),
        2 => (0..SETS).prop_map(Command::Open),
        1 => (0..GROUPS).prop_map(Command::Unpark),
        4 => (0..4_u32, any::<u64>()).prop_map(|(most, seed)| Command::Serve { most, seed }),
    ]
}

/// What the judge has said so far and nothing has taken back.
#[derive(Default)]
struct Refusals {
    /// The set each class went to.
    lot_of: [Option<usize>; CLASSES],
    is_closed: [bool; SETS],
    parked: [bool; GROUPS],
    /// The class of the head of each group in turn.
    heads: [Option<usize>; GROUPS],
}

impl Refusals {
    fn forbid(&self, head: &Candidate) -> bool {
        let is_shut_in = self.lot_of[head.class.index()].is_some_and(|set| self.is_closed[set]);
        is_shut_in || self.parked[head.group.index()]
    }

    /// The head of a group goes away, or the group is parked. A class leaves its set with the last group in turn.
    fn leave(&mut self, group: usize) {
        let Some(class) = self.heads[group].take() else { return };
        if !self.heads.contains(&Some(class)) {
            self.lot_of[class] = None;
        }
    }

    fn see(&mut self, queue: &FairQueue) {
        for group in queue.groups() {
            let head = queue.first(group).filter(|_| !self.parked[group.index()]);
            self.heads[group.index()] = head.map(|head| head.class.index());
        }
    }
}

proptest! {
    #![proptest_config(cases::config(4_000))]

    #[test]
    fn a_parked_group_is_not_offered_again_until_its_lot_was_opened(
        commands in prop::collection::vec(command(), 1..120),
    ) {
        let mut queue = FairQueue::new();
        let groups: Vec<QueueGroupId> = (0..GROUPS).map(|_| queue.add_unit_group()).collect();
        let classes: Vec<ClassId> = (0..CLASSES).map(|_| queue.add_class()).collect();
        let blocked_sets: Vec<BlockedSetId> = (0..SETS).map(|_| queue.add_blocked_set()).collect();
        let mut refusals = Refusals::default();
        for command in commands {
            match command {
                Command::Enqueue { group, class, item } => {
                    queue.enqueue(item, groups[group], classes[class], 1.0);
                }
                Command::Discard(item) => {
                    let head_of = queue.groups().find(|group| queue.first(*group).is_some_and(|head| head.item == item));
                    if let Some(group) = head_of {
                        refusals.leave(group.index());
                        refusals.parked[group.index()] = false;
                    }
                    queue.discard(item);
                }
                Command::Open(set) => {
                    refusals.is_closed[set] = false;
                    queue.unblock(blocked_sets[set]);
                }
                Command::Unpark(group) => {
                    refusals.parked[group] = false;
                    queue.unpark(groups[group]);
                }
                Command::Serve { most, seed } => {
                    let mut served = 0;
                    let mut forbidden = None;
                    while let Some(selection) = queue.select(|head| {
                        forbidden = forbidden.or(refusals.forbid(head).then_some(*head));
                        let class = head.class.index();
                        match seed >> (8 * class) & 7 {
                            0..3 if served < most => {
                                refusals.leave(head.group.index());
                                Eligibility::Accept
                            }
                            7 => {
                                refusals.leave(head.group.index());
                                refusals.parked[head.group.index()] = true;
                                Eligibility::GroupBlocked
                            }
                            answer => {
                                let set = answer as usize % SETS;
                                refusals.lot_of[class] = Some(set);
                                refusals.is_closed[set] = true;
                                Eligibility::ClassBlocked(blocked_sets[set])
                            }
                        }
                    }) {
                        prop_assert_eq!(queue.commit(&selection), Ok(()));
                        served += 1;
                        refusals.see(&queue);
                    }
                    prop_assert_eq!(forbidden, None, "it was refused, and nothing about it changed");
                }
            }
            refusals.see(&queue);
        }
    }
}
