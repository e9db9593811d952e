//! JSON Schemas that a file has for the values of its rows and tools.

use jsonschema::Validator;
use serde_json::Value;

/// Compiles `schema`. References to other documents are an error, because nothing is fetched.
pub(crate) fn compile_schema(schema: &Value) -> Result<Validator, String> {
    jsonschema::options().build(schema).map_err(|error| cut(&error.to_string()))
}

/// The maximum length of a validation error in characters. The error may quote a value of any length.
const MAX_ERROR_CHARS: usize = 300;

/// Returns `text`, shortened if it is long.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_ERROR_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invalid_schema_is_rejected_and_nothing_is_fetched() {
        assert!(compile_schema(&json!({ "type": 7 })).is_err());
        assert!(compile_schema(&json!({ "$ref": "https://schemas.test/grade.json" })).is_err());
    }
}
