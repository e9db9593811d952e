//! The task that drives one shared limit: carries out its steps at the store.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tidegate_core::gate;
use tidegate_core::runtime::Timer as _;
use tidegate_core::share::Role;
use tidegate_core::time::Instant;
use tokio::sync::watch;

use super::store::Store;
use crate::host::TokioHost;

/// A shared limit on tokio.
pub(super) type Shared = gate::SharedLimit<TokioHost, parking_lot::RawMutex>;

/// Drives one shared limit until the process has left. `leaves` becomes true when it leaves. The future can
/// be dropped at any time: the other processes then treat this one as killed.
pub(super) async fn drive(shared: Arc<Shared>, host: TokioHost, store: impl Store, mut leaves: watch::Receiver<bool>) {
    let mut is_leaving = false;
    // Both roles wait for the store, and neither delays the other.
    let mut steps = FuturesUnordered::new();
    loop {
        shared.update();
        for role in Role::ALL {
            if let Some(step) = shared.poll_step(role) {
                let store = &store;
                steps.push(async move { (role, store.run(step).await) });
            }
        }
        if shared.has_ended() {
            return;
        }
        let next = shared.poll_timeout().unwrap_or(Instant::MAX);
        tokio::select! {
            Some((role, reply)) = steps.next() => {
                shared.on_reply(role, reply.map_err(|error| error.to_string()));
            }
            () = host.sleep_until(next) => {}
            _ = leaves.wait_for(|leaves| *leaves), if !is_leaving => {
                is_leaving = true;
                shared.leave();
            }
        }
    }
}
