//! The tools that the models of columns may call.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::Value;
use tidegate_core::time::Duration;
use toml::Spanned;

/// One `[[tools]]` table.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The name, for columns and models.
    pub name: String,
    /// What the tool does, for models.
    pub description: String,
    /// The JSON Schema of its arguments, which are an object.
    pub parameters: Spanned<Value>,
    /// The program and its arguments. There is at least the program.
    pub argv: Vec<String>,
    /// The working directory: the directory of the pipeline file.
    pub directory: PathBuf,
    /// Environment variables with keys that the command may read. All other key variables are removed.
    pub pass_env: Vec<String>,
    /// The timeout of one call \[60 seconds\].
    pub timeout: Duration,
    /// The span of the table.
    pub span: Range<usize>,
}
