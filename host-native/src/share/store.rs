//! The steps of a store, asynchronous and fallible: what the driver needs of it.

use std::future::Future;

use tidegate_core::share::{Decide, Decided, Decision, Lead, MemberReport, Reports, TakeLead, Term};

/// A step of the store that failed. It may have run. The next beat tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// The store did not answer in time.
    #[error("it did not answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The connection failed, or the store rejected the command.
    #[error("{0}")]
    Failed(String),
    /// A value in the store is not one that this version of tidegate wrote.
    #[error("it has a damaged value at {0}")]
    Damaged(String),
}

/// The store of one shared limit. The steps are those of [`MemoryStore`](tidegate_core::share::MemoryStore),
/// which defines them: each is atomic, and repeating it is harmless.
pub(super) trait Store: Send + Sync + 'static {
    fn report(&self, report: MemberReport) -> impl Future<Output = Result<(), StoreError>> + Send;

    fn reports_since(&self, since: u64) -> impl Future<Output = Result<Reports, StoreError>> + Send;

    fn decide(&self, decide: Decide, read: u64) -> impl Future<Output = Result<Decided, StoreError>> + Send;

    fn take_lead(&self, request: TakeLead) -> impl Future<Output = Result<Lead, StoreError>> + Send;

    fn decisions_since(
        &self,
        term: Term,
        version: u64,
    ) -> impl Future<Output = Result<Option<Decision>, StoreError>> + Send;
}
