//! Passes the rate-limit feedback in response headers from the client to the permit of the call.
//!
//! The code of a column lies between the two and does not handle rate limits, so the feedback is passed in a
//! task-local variable.

use std::cell::RefCell;

use tidegate_core::budget::RateLimitFeedback;

tokio::task_local! {
    static FEEDBACK: RefCell<Vec<RateLimitFeedback>>;
}

/// Awaits `call` and returns its result with the feedback of the last response that it received.
pub(crate) async fn with_rate_feedback<T>(call: impl Future<Output = T>) -> (T, Vec<RateLimitFeedback>) {
    let call = async {
        let result = call.await;
        (result, FEEDBACK.with(RefCell::take))
    };
    FEEDBACK.scope(RefCell::default(), call).await
}

/// Records the feedback of a response. Does nothing outside of [`with_rate_feedback`].
pub(super) fn record(feedback: Vec<RateLimitFeedback>) {
    let _ = FEEDBACK.try_with(|recorded| recorded.replace(feedback));
}
