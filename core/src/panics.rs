//! What becomes of a panic in the code of a workload.

use alloc::string::String;

/// Runs `code`; a panic in it is an error, in words: `what` happened, and the panic's message. What the code was working
/// on must not be used any more then, only dropped.
#[cfg(feature = "std")]
pub(crate) fn catch<R>(what: &str, code: impl FnOnce() -> R) -> Result<R, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(code)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref().map(String::as_str));
        alloc::format!("{what}: {}", text.unwrap_or("(the panic has no message)"))
    })
}

/// Runs `code`; a panic goes on to the host.
#[cfg(not(feature = "std"))]
#[allow(clippy::unnecessary_wraps, reason = "the same signature whatever the features")]
pub(crate) fn catch<R>(_what: &str, code: impl FnOnce() -> R) -> Result<R, String> {
    Ok(code())
}
