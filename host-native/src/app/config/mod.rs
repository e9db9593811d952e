//! The files that people write, read by serde into types that cannot be wrong.
//!
//! `source` is the text of a file and its errors. `document` reads it, with one wording of errors for all
//! files. `value`, `limit` and `budgets` are what several files have. `original` names what replaces the keys
//! of other systems. `schema` describes the files for editors.

pub(crate) mod budgets;
pub(crate) mod document;
pub(crate) mod limit;
mod original;
pub mod pipeline;
pub(crate) mod schema;
pub(crate) mod source;
pub(crate) mod value;
