//! What the result of a call tells the gate.

use crate::request::{Completion, Outcome};

/// Says how a call ended, from its result. What [`Gate::run`](super::Gate::run) finishes its permit with.
///
/// Implement it for the error of a client; a `Result` of that error then is a success or what the error says.
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
    /// How the call ended.
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
