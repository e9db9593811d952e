//! A limit that several processes share over Redis or Valkey.
//!
//! [`SharedLimit`] decides what is sent to the store, and when: [`update`](SharedLimit::update) makes the steps that
//! are due, [`poll_command`](SharedLimit::poll_command) returns their commands, and the reply to each goes to
//! [`on_reply`](SharedLimit::on_reply). JavaScript has the client and the timer. Each of the two roles of a process
//! has one command under way at most.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::{Array, RangeError};
use serde::Serialize;
use tidegate_core::gate;
use tidegate_core::share::redis::{self as codec, Command, RedisLimit, Reply};
use tidegate_core::share::{OnLoss, Role, SessionSettings, ShareConfig, StoreStep};
use tidegate_core::time::Clock;
use tsify::Tsify;
use wasm_bindgen::prelude::*;

use super::{RequestGate, completions, millis, random_number, settings};
use crate::host::JsHost;
use crate::json;

/// A share in the module. The lock of the member has to be one that threads could share, as every limit algorithm.
pub(super) type Shared = gate::SharedLimit<JsHost, parking_lot::RawMutex>;

/// The state of a share at one instant.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
struct ShareState {
    /// The processes that share the limit; 0 before the first decision of a leader.
    members: u32,
    /// The limit of all processes together; 0 before the first decision.
    limit: u32,
    /// The slots of this process in the newest decision.
    share: u32,
    /// How many calls this process may have in flight now. Without a valid lease, `onLoss` decides.
    room: u32,
    /// Whether the lease of the share is valid.
    has_lease: bool,
    /// The number of the leader, the same in all processes; absent before the first decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    /// Whether this process leads.
    is_leader: bool,
    /// The milliseconds since the newest decision; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<f64>,
    /// The last error of the store, until the step has succeeded; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// All of this in one line.
    text: String,
}

/// One shared limit of a gate.
#[wasm_bindgen]
pub struct SharedLimit {
    shared: Rc<Shared>,
    limit: RedisLimit,
    /// The step of each role whose reply is awaited.
    awaited: [Cell<Option<StoreStep>>; 2],
}

#[wasm_bindgen]
impl RequestGate {
    /// Shares the limit of a registered resource from now on, under `name`. No call starts until the first share
    /// arrives. `on_loss` is `share`, `stop` or `alone`. Throws for another one, and for a resource that is not
    /// registered.
    #[wasm_bindgen(js_name = shareLimit)]
    pub fn share_limit(
        &self,
        provider: &str,
        model: &str,
        domain: &str,
        name: &str,
        on_loss: &str,
    ) -> Result<SharedLimit, JsValue> {
        let on_loss = match on_loss {
            "share" => OnLoss::Share,
            "stop" => OnLoss::Stop,
            "alone" => OnLoss::Alone,
            other => {
                let message = format!("onLoss is {other:?}; expected \"share\", \"stop\" or \"alone\"");
                return Err(RangeError::new(&message).into());
            }
        };
        let limit = codec::limit_name(provider, model, domain);
        let mut registered = self.registered.borrow_mut();
        let Some(known) = registered.get_mut(&limit) else {
            return Err(RangeError::new(&format!("{limit} is not registered")).into());
        };
        let share = ShareConfig { on_loss, ..ShareConfig::default() };
        let settings = SessionSettings { share, choice: known.algorithm, limit: known.limit_config.clone() };
        // Two numbers of 32 bits each, cut to 53.
        let random = || (u64::from(random_number()) << 32 | u64::from(random_number())) >> 11;
        let shared = Shared::install(&self.gate, known.resource, settings, random);
        let shared = Rc::new(shared.map_err(|error| settings::config_error(&error))?);
        known.shared = Some(Rc::clone(&shared));
        completions::announce();
        Ok(SharedLimit { shared, limit: RedisLimit::new(name, &limit), awaited: Default::default() })
    }
}

#[wasm_bindgen]
impl SharedLimit {
    /// Makes the steps that are due.
    pub fn update(&self) {
        self.shared.update();
        completions::announce();
    }

    /// Returns the next command of a role (0 is the member, 1 the leader), if one is due and the reply to its last one
    /// has arrived.
    #[wasm_bindgen(js_name = pollCommand)]
    pub fn poll_command(&self, role: usize) -> Option<Vec<String>> {
        let step = self.shared.poll_step(*Role::ALL.get(role)?)?;
        let command = self.limit.command(&step);
        self.awaited.get(role)?.set(Some(step));
        Some(texts(command))
    }

    /// Handles the reply to the last command of a role: an array of strings and nulls.
    #[wasm_bindgen(js_name = onReply)]
    pub fn on_reply(&self, role: usize, reply: &Array) {
        let step = self.awaited.get(role).and_then(Cell::take);
        let (Some(role), Some(step)) = (Role::ALL.get(role), step) else { return };
        let answer = self.limit.read_reply(&step, reply_of(reply)).map_err(|error| error.to_string());
        self.shared.on_reply(*role, answer);
        completions::announce();
    }

    /// Handles that the last command of a role failed.
    #[wasm_bindgen(js_name = onFailure)]
    pub fn on_failure(&self, role: usize, error: String) {
        let Some(role) = Role::ALL.get(role) else { return };
        self.shared.on_reply(*role, Err(error));
        completions::announce();
    }

    /// Returns the milliseconds until `update` has steps to make; NaN while only replies are awaited.
    #[wasm_bindgen(js_name = dueInMs)]
    #[must_use]
    pub fn due_in_ms(&self) -> f64 {
        self.shared.poll_timeout().map_or(f64::NAN, |at| millis(at - JsHost.now()))
    }

    /// Leaves: no more calls start, and the other processes get the share at once. The commands go on until the
    /// calls in flight have ended.
    pub fn leave(&self) {
        self.shared.leave();
        completions::announce();
    }

    /// Returns whether the process has left: no command follows.
    #[wasm_bindgen(js_name = hasEnded)]
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Returns the state now.
    #[wasm_bindgen(unchecked_return_type = "ShareState")]
    pub fn state(&self) -> Result<JsValue, JsError> {
        let (member, error) = (self.shared.state(), self.shared.error());
        let suffix = error.as_ref().map_or_else(String::new, |error| format!("; the store: {error}"));
        json::to_js(&ShareState {
            members: member.members,
            limit: member.limit,
            share: member.share,
            room: member.room,
            has_lease: member.has_lease,
            leader: member.leader(),
            is_leader: member.is_leader,
            age_ms: member.age.map(millis),
            text: format!("{member}{suffix}"),
            error,
        })
    }
}

/// Returns whether processes can share limits under `name`.
#[wasm_bindgen(js_name = isShareName)]
#[must_use]
pub fn is_share_name(name: &str) -> bool {
    codec::is_valid_name(name)
}

/// Returns the command that tests a store at the start.
#[wasm_bindgen(js_name = storeCheck)]
#[must_use]
pub fn store_check(name: &str) -> Vec<String> {
    texts(codec::check(name))
}

/// Returns the command whose reply [`is_cluster`] reads.
#[wasm_bindgen(js_name = clusterInfo)]
#[must_use]
pub fn cluster_info() -> Vec<String> {
    texts(codec::cluster_info())
}

/// Returns whether the store is a node of a cluster, which has some of the keys only.
#[wasm_bindgen(js_name = isCluster)]
#[must_use]
pub fn is_cluster(reply: &Array) -> bool {
    codec::is_cluster(&reply_of(reply))
}

fn texts(command: Command) -> Vec<String> {
    command.into_iter().map(std::borrow::Cow::into_owned).collect()
}

fn reply_of(reply: &Array) -> Reply {
    reply.iter().map(|text| text.as_string()).collect()
}
