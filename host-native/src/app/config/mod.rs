//! The files that people write, read into types that cannot be wrong.
//!
//! `reader` reads TOML tables key by key, `source` is the text of a file with the places of its errors, and
//! `limit` is the settings of a limit algorithm, which the pipeline file and the configuration of the proxy share.

pub(crate) mod limit;
pub mod pipeline;
pub(crate) mod reader;
pub(crate) mod source;
