//! Admission in front of HTTP clients and services.
//!
//! | module | feature | what it admits |
//! | --- | --- | --- |
//! | `tower` | `tower` | the requests of any `tower` service |
//! | `reqwest` | `reqwest-middleware` | the requests of a `reqwest` client |
//!
//! Place retries before admission in a stack, so that each attempt is admitted. Place the timeout of one
//! attempt after it, so that waiting for a permit does not count; [`Call::within`](crate::gate::Call::within)
//! bounds the wait.

#[cfg(feature = "reqwest-middleware")]
pub mod reqwest;
#[cfg(feature = "tower")]
pub mod tower;
