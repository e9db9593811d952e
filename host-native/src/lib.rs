//! # tidegate-native
//!
//! tidegate on tokio: the [`host`] that the core's drivers run on, and the parts of the program `tidegate`, which runs
//! a pipeline of model calls over a dataset. Nothing here decides when a task runs or a call goes out: that is the
//! core's business, and this crate tells it what happened.
//!
//! For other programs, whatever features are on:
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`gate`], [`blocking`] | a gate that knows its providers by name; permits for threads that are not asynchronous |
//! | [`response`] | what an HTTP or gRPC answer tells the gate |
//! | `tower`, `reqwest` | the gate before services and clients, with the features `tower` and `reqwest-middleware` |
//! | [`runner`] | a pipeline of closures |
//! | [`observe`] | events as JSON lines and as a trace; with features `tracing` and `metrics` too |
//!
//! With `default-features = false` that is all. The feature `cli` adds the program and what it is made of:
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`cli`], [`error`] | the command line, errors and exit codes |
//! | [`pipeline_file`], [`dataset`], [`template`], [`job`] | the input, from text to a checked plan |
//! | [`client`] | calls over HTTP |
//! | [`mock`] | a provider to call that needs no account: inside a run, and as `tidegate mock` |
//! | [`models`], [`provider`], [`usage`] | models at run time: keys, the gate, what their slots did |
//! | [`fill`], [`spend`] | what fills each kind of column, and what it costs |
//! | [`workload`], [`cells`], [`output`], [`row_file`], [`kind`] | what a task does, the values in work, finished rows on disk |
//! | [`record`] | decision logs, written and replayed |
//! | [`preflight`], [`check`] | what is wrong before a run, without a call and with the smallest ones |
//! | [`dry_run`], [`estimate`] | what a run would do and cost, without a call |
//! | [`run`] | a whole run of a pipeline file |
//! | [`progress`], [`verdict`], [`summary`], [`report`] | what a person sees of a run |
//! | [`simulate`], [`regress`] | runs in virtual time: one scenario, or the idle suite against its baseline |
//! | [`proxy`] | the same gate for programs in any language, as an HTTP proxy |
//! | [`example`], [`comparison`] | the bundled pipeline and dataset, and what they take under another limit |
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
#[cfg(feature = "cli")]
pub mod cells;
#[cfg(feature = "cli")]
mod chart;
#[cfg(feature = "cli")]
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod client;
#[cfg(feature = "cli")]
pub mod comparison;
#[cfg(feature = "cli")]
pub mod dataset;
#[cfg(feature = "cli")]
pub mod dry_run;
#[cfg(feature = "cli")]
pub mod error;
#[cfg(feature = "cli")]
pub mod estimate;
#[cfg(feature = "cli")]
pub mod example;
#[cfg(feature = "cli")]
pub mod fill;
pub mod gate;
pub mod host;
#[cfg(feature = "cli")]
mod html;
#[cfg(feature = "cli")]
mod idle;
#[cfg(feature = "cli")]
mod interrupt;
#[cfg(feature = "cli")]
pub mod job;
#[cfg(feature = "cli")]
pub mod kind;
#[cfg(feature = "cli")]
pub mod mock;
#[cfg(feature = "cli")]
pub mod models;
pub mod observe;
#[cfg(feature = "cli")]
pub mod output;
#[cfg(test)]
#[path = "../tests/integration/support/patience.rs"]
mod patience;
#[cfg(feature = "cli")]
pub mod pipeline_file;
#[cfg(feature = "cli")]
pub mod preflight;
#[cfg(feature = "cli")]
pub mod progress;
#[cfg(feature = "cli")]
pub mod provider;
#[cfg(feature = "cli")]
pub mod proxy;
#[cfg(feature = "cli")]
pub mod record;
#[cfg(feature = "cli")]
pub mod regress;
#[cfg(feature = "cli")]
pub mod report;
#[cfg(feature = "reqwest-middleware")]
pub mod reqwest;
pub mod response;
#[cfg(feature = "cli")]
pub mod row_file;
#[cfg(feature = "cli")]
pub mod run;
#[cfg(feature = "cli")]
pub mod run_request;
pub mod runner;
#[cfg(feature = "cli")]
pub mod simulate;
#[cfg(feature = "cli")]
pub mod spend;
#[cfg(feature = "cli")]
pub mod summary;
#[cfg(feature = "cli")]
mod table;
#[cfg(feature = "cli")]
pub mod task_timeline;
#[cfg(feature = "cli")]
pub mod template;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "cli")]
pub mod usage;
#[cfg(feature = "cli")]
pub mod verdict;
#[cfg(feature = "cli")]
pub mod workload;

/// The code of the README runs as written.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
