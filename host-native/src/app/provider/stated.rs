//! What the head of an answer states of the provider's rates, on its way from the client that reads the head to the permit of the
//! call.
//!
//! Between the two lies the code of a column, which is not concerned with rates. So the call's future carries them.

use std::cell::RefCell;

use tidegate_core::budget::Correction;

tokio::task_local! {
    static STATED: RefCell<Vec<Correction>>;
}

/// Makes a call, and answers with what the latest head stated meanwhile.
pub(crate) async fn with_stated_rates<T>(call: impl Future<Output = T>) -> (T, Vec<Correction>) {
    let call = async {
        let answer = call.await;
        (answer, STATED.with(RefCell::take))
    };
    STATED.scope(RefCell::default(), call).await
}

/// Keeps what a head stated. Nothing happens outside [`with_stated_rates`].
pub(super) fn keep(stated: Vec<Correction>) {
    let _ = STATED.try_with(|kept| kept.replace(stated));
}
