//! tidegate on tokio: a gate for calls to rate-limited providers, and pipelines of closures over them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`gate`], [`blocking`] | a gate that knows its providers by name; permits for threads that are not asynchronous |
//! | [`pipeline`] | a pipeline of closures |
//! | [`http`] | what an HTTP or gRPC response says about the provider |
//! | `middleware` | the gate in front of services and clients, with the features `tower` and `reqwest-middleware` |
//! | [`observe`] | events as JSON lines and as a trace; with features also for `tracing` and `metrics` |
//! | [`host`] | tokio as the host of the core's drivers |
//!
//! With `default-features = false` that is all. The feature `cli` adds the program `tidegate`, in `app`. No module of
//! this crate decides when a task runs or a call starts: the core does.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "cli")]
pub mod app;
pub mod blocking;
pub mod gate;
pub mod host;
pub mod http;
#[cfg(any(feature = "reqwest-middleware", feature = "tower"))]
pub mod middleware;
pub mod observe;
#[cfg(test)]
#[path = "../tests/integration/support/patience.rs"]
mod patience;
pub mod pipeline;

/// The code of the README runs as written.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
