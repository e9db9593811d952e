//! Integration tests of the program and the host library over real sockets, files and signals.
//!
//! All tests are in one binary, so that the crate is linked once.

mod accepted_rows;
#[cfg(all(feature = "reqwest-middleware", feature = "tower"))]
mod admitted_clients;
mod answers;
mod apis;
mod bad_input;
mod batches;
mod blocking;
mod check;
mod columns;
#[cfg(target_os = "linux")]
mod dashboard;
#[cfg(feature = "reqwest-middleware")]
mod default_limit;
mod embeddings;
mod examples;
mod export;
mod fallbacks;
mod generated_rows;
mod images;
mod inspect;
mod jobs;
mod media;
mod mock_command;
mod outages;
mod panics;
mod parts;
mod preflight;
mod providers;
mod proxy;
mod proxy_attacks;
mod proxy_budgets;
mod proxy_outages;
mod proxy_program;
mod rate_headers;
mod record;
mod remote_dataset;
mod resume;
mod retried;
mod runs;
mod scores;
#[cfg(unix)]
mod sharing;
mod simulator;
mod support;
mod timeline;
#[cfg(unix)]
mod together;
#[cfg(unix)]
mod tools;
mod validations;
