//! The files that people write, read by serde into types that cannot be wrong.
//!
//! `source` is the text of a file and its errors, `document` reads it and says what is wrong in the words of all files, and
//! `value`, `limit` and `budgets` are what several files have. `original` names what takes the place of keys of other
//! systems, and `schema` describes the files for editors.

pub(crate) mod budgets;
pub(crate) mod document;
pub(crate) mod limit;
mod original;
pub mod pipeline;
pub(crate) mod schema;
pub(crate) mod source;
pub(crate) mod value;
