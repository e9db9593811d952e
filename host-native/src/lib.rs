//! # tidegate-native
//!
//! tidegate on tokio: the [`host`] that the core's drivers run on, and the parts of the program `tidegate`, which runs
//! a pipeline of model calls over a dataset. Nothing here decides when a task runs or a call goes out: that is the
//! core's business, and this crate tells it what happened.
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`blocking`] | permits for threads that are not asynchronous |
//! | [`cli`], [`error`] | the command line, errors and exit codes |
//! | [`pipeline_file`], [`dataset`], [`template`], [`job`] | the input, from text to a checked plan |
//! | [`client`], [`mock`] | calls over HTTP, and a provider to call that needs no account |
//! | [`models`], [`provider`], [`usage`] | models at run time: keys, the gate, what their slots did |
//! | [`fill`], [`spend`] | what fills each kind of column, and what it costs |
//! | [`workload`], [`cells`], [`output`], [`row_file`], [`kind`] | what a task does, the values in work, finished rows on disk |
//! | [`record`] | decision logs, written and replayed |
//! | [`observe`] | events as JSON lines, and the capacity values of a run |
//! | [`dry_run`], [`estimate`] | what a run would do and cost, without a call |
//! | [`run`], [`progress`], [`verdict`], [`summary`] | a whole run, and what a person sees of it |
//! | [`simulate`], [`regress`] | runs in virtual time: one scenario, or the idle suite against its baseline |
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
pub mod host;
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
pub mod record;
pub mod regress;
pub mod row_file;
pub mod run;
pub mod simulate;
pub mod spend;
pub mod summary;
mod table;
pub mod template;
pub mod usage;
pub mod verdict;
pub mod workload;
