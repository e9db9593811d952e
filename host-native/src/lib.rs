//! Admission control and scheduling for rate-limited services, LLM providers first, on tokio.
//!
//! A gate in front of a service finds out how many concurrent calls it accepts, shares them fairly among
//! tenants, keeps to rate budgets, and waits when the service states a Retry-After or is down. A pipeline
//! fills a table of rows and columns through a gate. Every decision is made by [`tidegate_core`]; this crate
//! connects it to tokio and to HTTP clients.
//!
//! # Quick start
//!
//! Register a model with a maximum of concurrent calls. Acquire a permit before each call, and finish it with
//! the outcome:
//!
//! ```
//! use tidegate_core::request::Outcome;
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = RequestGate::new()?;
//! let writer = ResourceKey::chat("acme", "writer-large");
//! gate.register(&writer, &Limits::at_most(16))?; // at most 16 calls at once
//! gate.register_tenant("interactive", 4.0)?; // four times the share of other tenants
//!
//! let permit = gate.acquire(&Call::new(writer).for_tenant("interactive")).await?;
//! let answer = Ok::<_, Outcome>("an answer"); // your client's call
//! permit.finish(answer.err().unwrap_or(Outcome::Success));
//! # Ok(())
//! # }
//! ```
//!
//! For HTTP clients, the layers in `middleware` acquire and finish by themselves.
//!
//! # Types to know
//!
//! | type | what it is |
//! | --- | --- |
//! | [`gate::RequestGate`] | admits calls by name: `acquire(&call).await` returns a permit |
//! | [`gate::Call`], [`gate::ResourceKey`] | a call, and the model that it calls |
//! | [`gate::Limits`] | the limits of a model: concurrent calls, limit algorithm, rate budgets |
//! | `middleware::tower::AdmissionLayer` | admits the requests of a `tower` service |
//! | `middleware::reqwest::AdmissionMiddleware` | admits the requests of a `reqwest` client |
//! | [`http::PermitBody`] | a response body that holds the permit of its call until it ends |
//! | `share::Share` | shares the limits of a gate with other processes, over Redis |
//! | [`pipeline::PipelineRunner`] | runs a pipeline of closures, one per column |
//! | [`blocking::AcquireBlocking`] | acquires permits on plain threads |
//! | [`host::TokioHost`] | the host of the core's [gate](tidegate_core::gate) and [driver](tidegate_core::driver) |
//! | [`observe`] | sinks for events: JSON lines, Perfetto traces, `tracing`, `metrics` |
//!
//! # Errors
//!
//! A denied call is a [`Denial`](tidegate_core::request::Denial): it has a reason, and the next instant at
//! which another attempt makes sense, if that is known. Invalid settings are a
//! [`ConfigError`](tidegate_core::error::ConfigError), which names the setting, its value and the range.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `cli` | yes | the program `tidegate`, and the module `app` that it consists of |
//! | `parquet` | yes | Parquet files as datasets and as output; implies `cli` |
//! | `tower` | | `middleware::tower`: admission as a `tower` layer |
//! | `reqwest-middleware` | | `middleware::reqwest`: admission for `reqwest` clients; implies `tower` |
//! | `share` | by `cli` | `share`: one limit for several processes, over Redis |
//! | `metrics` | | `observe::metrics`: events as metrics |
//! | `tracing` | | `observe::tracing`: events as spans |
//! | `opentelemetry` | | dependencies of the example `opentelemetry`; implies `tracing` |
//!
//! A library usually sets `default-features = false`, which leaves out the program and most dependencies.
//!
//! # Tests in virtual time
//!
//! All deadlines, pauses and ramps follow tokio's clock. A test with `tokio::time::pause`, or
//! `#[tokio::test(start_paused = true)]`, runs in virtual time.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
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
#[cfg(all(test, feature = "share"))]
#[path = "../tests/integration/support/redis_server.rs"]
mod redis_server;
#[cfg(feature = "share")]
pub mod share;
#[cfg(feature = "share")]
mod suspend;

/// Runs the examples of the README as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
