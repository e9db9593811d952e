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
//! | [`client`] | calls over HTTP |
//! | [`mock`] | a provider to call that needs no account: inside a run, and as `tidegate mock` |
//! | [`models`], [`provider`], [`usage`] | models at run time: keys, the gate, what their slots did |
//! | [`fill`], [`spend`] | what fills each kind of column, and what it costs |
//! | [`workload`], [`cells`], [`output`], [`row_file`], [`kind`] | what a task does, the values in work, finished rows on disk |
//! | [`record`] | decision logs, written and replayed |
//! | [`observe`] | events as JSON lines, and the capacity values of a run |
//! | [`dry_run`], [`estimate`] | what a run would do and cost, without a call |
//! | [`run`], [`runner`] | a whole run of a pipeline file; a pipeline of closures |
//! | [`progress`], [`verdict`], [`summary`], [`report`] | what a person sees of a run |
//! | [`simulate`], [`regress`] | runs in virtual time: one scenario, or the idle suite against its baseline |
//! | [`proxy`] | the same gate for programs in any language, as an HTTP proxy |
//! | [`example`] | the bundled pipeline and dataset |
#![forbid(unsafe_code)]

pub mod blocking;
pub mod cells;
pub mod cli;
pub mod client;
pub mod dataset;
pub mod dry_run;
pub mod error;
pub mod estimate;
pub mod example;
pub mod fill;
pub mod gate;
pub mod host;
mod html;
mod idle;
mod interrupt;
pub mod job;
pub mod kind;
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
pub mod report;
#[cfg(feature = "reqwest-middleware")]
pub mod reqwest;
pub mod response;
pub mod row_file;
pub mod run;
pub mod runner;
pub mod simulate;
pub mod spend;
pub mod summary;
mod table;
pub mod template;
#[cfg(feature = "tower")]
pub mod tower;
pub mod usage;
pub mod verdict;
pub mod workload;
