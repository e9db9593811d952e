//! Conversion of the result of a call into its completion.

use crate::request::{Completion, Outcome};

/// Converts the result of a call into its completion. [`Gate::run`](super::Gate::run) finishes its permit
/// with it.
///
/// Implement it for the error type of a client. A `Result` with that error type is then a success or the
/// completion of the error.
///
/// ```
/// use tidegate_core::gate::Classify;
/// use tidegate_core::request::{Completion, Outcome};
///
/// struct Status(u16);
///
/// impl Classify for Status {
///     fn completion(&self) -> Completion {
///         match self.0 {
///             429 => Outcome::RateLimited.into(),
///             504 => Outcome::ProviderTimeout.into(),
///             _ => Outcome::ProviderFailure.into(),
///         }
///     }
/// }
///
/// assert_eq!(Ok::<&str, Status>("an answer").completion().outcome, Outcome::Success);
/// assert_eq!(Err::<&str, Status>(Status(429)).completion().outcome, Outcome::RateLimited);
/// ```
pub trait Classify {
    /// Returns how the call ended.
    fn completion(&self) -> Completion;
}

impl Classify for Completion {
    fn completion(&self) -> Completion {
        *self
    }
}

impl Classify for Outcome {
    fn completion(&self) -> Completion {
        (*self).into()
    }
}

impl<T, E: Classify> Classify for Result<T, E> {
    fn completion(&self) -> Completion {
        match self {
            Ok(_) => Outcome::Success.into(),
            Err(error) => error.completion(),
        }
    }
}

impl<C: Classify + ?Sized> Classify for &C {
    fn completion(&self) -> Completion {
        (**self).completion()
    }
}
