//! What one process has of a limit that several [share](crate::share).

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::time::Duration;

/// The state of one process that shares a limit, at one instant, to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MemberState {
    /// The number of members in the adopted decision, or 0 if there is none.
    pub members: u32,
    /// The limit over all members in this decision, or 0.
    pub limit: u32,
    /// The share of the member in this decision, or 0.
    pub share: u32,
    /// How many calls the member may have in flight now: see [`Member::room`](crate::share::Member::room).
    pub room: u32,
    /// Whether the lease is valid. If not, the share does not apply.
    pub has_lease: bool,
    /// The number that the present leader has drawn, as far as the member knows. Meaningless before the first
    /// decision of a leader.
    pub leader_number: u32,
    /// Whether the process of the member is the leader, as far as it knows.
    pub is_leader: bool,
    /// The time since the member adopted a decision. `None` if it has adopted none.
    pub age: Option<Duration>,
}

impl MemberState {
    /// Returns the number of the leader as all members show it, eight hexadecimal digits; `None` before the
    /// first decision of a leader.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        self.age.map(|_| format!("{:08x}", self.leader_number))
    }

    /// Describes what holds back calls, with `in_flight` calls of the member in flight.
    #[must_use]
    pub fn describe_block(&self, in_flight: u32) -> String {
        match self {
            Self { room: 0, .. } => "this process has no slots of the shared limit".to_string(),
            Self { has_lease: true, .. } => {
                format!("its share of the limit is reached, and {in_flight} are in flight")
            }
            _ => format!("its slots are in use, and {in_flight} are in flight"),
        }
    }
}

/// One line for people.
impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, limit, share, room, has_lease, leader_number, is_leader, age } = *self;
        match age {
            None => f.write_str("waits for its first share"),
            Some(age) if has_lease => {
                let processes = describe_processes(members as usize, leader_number);
                let this = if is_leader { " (this one)" } else { "" };
                let tenths = age.as_nanos() / 100_000_000;
                let (secs, tenths) = (tenths / 10, tenths % 10);
                write!(f, "{share} of {limit} slots, {processes}{this}, decision {secs}.{tenths} s ago")
            }
            Some(age) => {
                let age = age.as_nanos() / 1_000_000_000;
                write!(f, "no share for {age} s, {room} slots until it is back; last {share} of {limit}")
            }
        }
    }
}

/// Describes how many processes share a limit, and which one leads: `2 processes, leader 12ab34cd`.
pub(crate) fn describe_processes(count: usize, leader_number: u32) -> String {
    let processes = if count == 1 { "process" } else { "processes" };
    format!("{count} {processes}, leader {leader_number:08x}")
}
