//! Configuration files, parsed with serde into validated types. `source` holds the text of a file and its
//! errors. `document` parses it and words errors in the same way for all files. `value`, `limit`, `budgets`,
//! `share` and `transport` are shared by several files. `original` maps keys of other systems to their
//! replacements. `schema` generates JSON Schemas for editors, and `json_schema` compiles those in files.

pub(crate) mod budgets;
pub(crate) mod document;
pub(crate) mod json_schema;
pub(crate) mod limit;
mod original;
pub mod pipeline;
pub(crate) mod schema;
pub(crate) mod share;
pub(crate) mod source;
pub(crate) mod transport;
pub(crate) mod value;
