//! Compiles `record` of the output: the object that each line of an export to JSONL has.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toml::Spanned;

use super::compile::template_strings;
use super::location::{find_word, static_error, template_error};
use super::names::ambiguity;
use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::template::shape::Shape;
use crate::app::template::{Condition, Serde, TemplateError, TemplateId, TemplateValue, Templates, variables_of};

/// A compiled `record`.
#[derive(Debug)]
pub struct Record {
    /// The object, with the sources of its templates.
    object: Value,
    /// The strings that are templates.
    parts: Vec<Part>,
    /// The columns whose variable is not their name: the column, and the variable.
    renamed: Vec<(String, String)>,
}

/// A string that is a template.
#[derive(Debug)]
struct Part {
    /// Its JSON pointer.
    pointer: String,
    /// Its text, with the span of the whole record.
    text: Spanned<String>,
    kind: PartKind,
}

#[derive(Debug)]
enum PartKind {
    /// Text with expressions in it, which stays text.
    Text(TemplateId),
    /// Only an expression, which becomes its value.
    Value(Condition),
}

impl Record {
    /// Compiles `record`, whose templates may read the columns of the output, `columns`.
    pub(super) fn compile(
        source: &SourceText,
        record: &Spanned<Map<String, Value>>,
        columns: &[&str],
        templates: &mut Templates,
        errors: &mut Vec<FileError>,
    ) -> Self {
        let object = Value::Object(record.get_ref().clone());
        let variables = variables_of(columns.iter().copied());
        let mut parts = Vec::new();
        for (pointer, text) in template_strings(&object, "") {
            let text = Spanned::new(record.span(), text);
            let kind = if let Ok(expression) = templates.braced_expression(text.get_ref()) {
                PartKind::Value(expression)
            } else {
                match templates.add(format!("record of the output{pointer}"), text.get_ref()) {
                    Ok(id) => PartKind::Text(id),
                    Err(error) => {
                        let message = format!("`record` in [output] does not parse: {}", error.message);
                        errors.push(template_error(source, &text, &error, message));
                        continue;
                    }
                }
            };
            let read = match &kind {
                PartKind::Text(id) => templates.variables(id),
                PartKind::Value(expression) => templates.condition_variables(expression),
            };
            for name in &read {
                if let Some(error) = ambiguity(source, &text, columns.iter().copied(), name) {
                    errors.push(error);
                    continue;
                }
                if variables.contains(name) {
                    continue;
                }
                let error = source.error(find_word(source, &text, name), format!("the output has no column `{name}`"));
                let known = format!("one of: {}", variables.join(", "));
                errors.push(error.expected(known).suggest(name, variables.iter().map(String::as_str)));
            }
            parts.push(Part { pointer, text, kind });
        }
        let renamed = columns.iter().zip(variables).filter(|(column, variable)| *column != variable);
        let renamed = renamed.map(|(column, variable)| ((*column).to_string(), variable)).collect();
        Self { object, parts, renamed }
    }

    /// Returns the static errors of its templates. `shape` returns the shape of the output column that a
    /// variable names.
    pub(super) fn static_errors<'s>(
        &self,
        source: &SourceText,
        templates: &Templates,
        shape: impl Fn(&str) -> Option<Shape<'s>> + Copy,
    ) -> Vec<FileError> {
        let found = self.parts.iter().flat_map(|Part { text, kind, .. }| {
            let found = match kind {
                PartKind::Text(id) => templates.static_errors(id, shape),
                PartKind::Value(expression) => templates.condition_static_errors(expression, shape),
            };
            found.into_iter().map(|error| static_error(source, text, error))
        });
        found.collect()
    }

    /// Returns the record of a row of the output.
    ///
    /// # Errors
    ///
    /// If a template fails for these values.
    pub fn of(&self, templates: &Templates, values: &Map<String, Value>) -> Result<Value, TemplateError> {
        let mut values = Cow::Borrowed(values);
        for (column, variable) in &self.renamed {
            if let Some(value) = values.to_mut().remove(column) {
                values.to_mut().insert(variable.clone(), value);
            }
        }
        let context = TemplateValue::from(Serde(&*values));
        let mut record = self.object.clone();
        for Part { pointer, kind, .. } in &self.parts {
            if let Some(place) = record.pointer_mut(pointer) {
                *place = match kind {
                    PartKind::Text(id) => Value::String(templates.render(id, context.clone())?),
                    PartKind::Value(expression) => templates.value(expression, context.clone())?,
                };
            }
        }
        Ok(record)
    }
}
