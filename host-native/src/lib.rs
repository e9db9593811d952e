//! # tidegate-native
//!
//! tidegate on tokio: the [`host`] that the core's drivers run on, and the parts of the program `tidegate`, which runs
//! a pipeline of model calls over a dataset. Nothing here decides when a task runs or a call goes out: that is the
//! core's business, and this crate tells it what happened.
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`gate`], [`blocking`] | a gate that knows its providers by name; permits for threads that are not asynchronous |
//! | [`response`] | what an HTTP or gRPC answer tells the gate |
//! | [`cli`], [`error`] | the command line, errors and exit codes |
//! | [`pipeline_file`], [`dataset`], [`template`], [`job`] | the input, from text to a checked plan |
//! | [`client`], [`mock`] | calls over HTTP, and a provider to call that needs no account |
//! | [`models`], [`provider`], [`usage`] | models at run time: keys, the gate, what their slots did |
//! | [`workload`], [`cells`], [`output`] | what a task does, the values in work, finished rows on disk |
//! | [`record`] | decision logs, written and replayed |
//! | [`observe`] | events as JSON lines, and the capacity values of a run |
//! | [`run`], [`progress`], [`verdict`], [`summary`] | a whole run, and what a person sees of it |
//! | [`simulate`], [`regress`] | runs in virtual time: one scenario, or the idle suite against its baseline |
//! | [`proxy`] | the same gate for programs in any language, as an HTTP proxy |
//! | [`example`] | the bundled pipeline and dataset |
#![forbid(unsafe_code)]

pub mod blocking;
pub mod cells;
pub mod cli;
pub mod client;
pub mod dataset;
pub mod error;
pub mod example;
pub mod gate;
pub mod host;
mod interrupt;
pub mod job;
pub mod mock;
pub mod models;
pub mod observe;
pub mod output;
pub mod pipeline_file;
pub mod progress;
pub mod provider;
pub mod proxy;
pub mod record;
pub mod regress;
#[cfg(feature = "reqwest-middleware")]
pub mod reqwest;
pub mod response;
pub mod run;
pub mod runner;
pub mod simulate;
pub mod summary;
mod table;
pub mod template;
#[cfg(feature = "tower")]
pub mod tower;
pub mod usage;
pub mod verdict;
pub mod workload;
