//! The program `tidegate`: everything behind its command line. It is not a stable interface.
//!
//! | folder | contents |
//! | --- | --- |
//! | [`cli`], [`error`] | the command line; errors and exit codes |
//! | [`config`] | the pipeline file, read into checked types, and what the files of proxies and scenarios share with it |
//! | [`data`] | datasets and finished rows as CSV, JSONL and Parquet |
//! | [`template`] | prompts and expressions |
//! | `tokens`, `token_counts` | estimates the tokens of a text, and reads how many a provider counted |
//! | [`provider`] | calls to providers over HTTP: requests, answers, keys, cost |
//! | [`output`] | finished rows on disk, and what a later run resumes from |
//! | [`run`] | a run of a pipeline file: resolved, checked, estimated, executed |
//! | [`report`] | progress, summary and report of a run |
//! | `render` | tables, charts and pages |
//! | [`replay`], [`task_timeline`], [`inspect`], [`check`] | the commands of these names |
//! | [`answer_shape`] | the shapes of chat answers that a mock can send |
//! | [`mock`] | a provider that needs no account: inside a run, and as `tidegate mock` |
//! | `openmetrics` | pages of metrics for Prometheus |
//! | [`proxy`] | the gate as an HTTP proxy, for programs in any language |
//! | [`simulate`] | scenarios in virtual time, and the suites with their baselines |

pub mod answer_shape;
pub mod check;
pub mod cli;
pub mod config;
pub mod data;
pub mod error;
pub mod example;
#[cfg(test)]
pub(crate) mod fuzz;
pub mod inspect;
mod interrupt;
pub mod mock;
mod openmetrics;
pub mod output;
pub mod provider;
pub mod proxy;
mod render;
pub mod replay;
pub mod report;
pub mod run;
pub mod simulate;
pub mod task_timeline;
pub mod template;
mod token_counts;
mod tokens;
