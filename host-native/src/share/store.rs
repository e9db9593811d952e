//! A store that is asynchronous and fallible: what the driver needs of it.

use std::future::Future;

use tidegate_core::share::redis::DamagedValue;
use tidegate_core::share::{StoreReply, StoreStep};

/// A step of the store that failed. It may have run. The next beat tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// The store did not answer in time.
    #[error("it did not answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The connection failed, or the store rejected the command.
    #[error("{0}")]
    Failed(String),
    /// A value of a shared limit is not one that this version of tidegate wrote.
    #[error(transparent)]
    DamagedLimit(#[from] DamagedValue),
    /// The same of a value of row groups.
    #[cfg(feature = "cli")]
    #[error("it has a damaged value at {0}")]
    DamagedRowGroup(String),
    /// The same of an answer about a cost limit.
    #[cfg(feature = "cli")]
    #[error("its answer about the cost limit at {0} is damaged")]
    DamagedCost(String),
}

/// The store of one shared limit. What each step does is defined by
/// [`MemoryStore`](tidegate_core::share::MemoryStore).
pub(super) trait Store: Send + Sync + 'static {
    /// Carries out one step, and returns its answer.
    fn run(&self, step: StoreStep) -> impl Future<Output = Result<StoreReply, StoreError>> + Send;
}
