//! Prompt and expression templates: Jinja syntax, and strict: a variable that is not there is an error, never "".
//!
//! A template of a cell column sees the values of its row by column name, and the row number. A template of a full
//! column or from-scratch column sees `rows`, a list with one object of the same kind per row, and `row_group`.

use std::collections::BTreeSet;

pub use minijinja::Value as TemplateValue;
pub use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};

/// Instructions one rendering may take: far more than a prompt needs, far less than a stuck loop.
const FUEL: u64 = 2_000_000;

/// All templates of a pipeline, compiled once.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
}

/// A compiled template of a [`Templates`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateId(String);

/// A compiled condition of a [`Templates`]: an expression that holds or does not, by Jinja's rule that empty values, zero
/// and none do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(TemplateId);

impl Condition {
    /// The template behind it.
    #[must_use]
    pub fn template(&self) -> &TemplateId {
        &self.0
    }
}

/// What is wrong with a template's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// In words, without a place.
    pub message: String,
    /// Where it is wrong, in bytes of the template's text.
    pub offset: Option<usize>,
    /// The line it is wrong in, from 1, as counted in the template's text.
    pub line: Option<usize>,
}

impl Default for Templates {
    fn default() -> Self {
        Self::new()
    }
}

impl Templates {
    /// No templates yet.
    #[must_use]
    pub fn new() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_debug(true);
        Self { environment }
    }

    /// Compiles `text` under `name`, which must be new.
    pub fn add(&mut self, name: String, text: &str) -> Result<TemplateId, TemplateError> {
        match self.environment.add_template_owned(name.clone(), text.to_string()) {
            Ok(()) => Ok(TemplateId(name)),
            Err(error) => Err(TemplateError {
                message: error_text(&error),
                offset: error.range().map(|range| range.start),
                line: error.line(),
            }),
        }
    }

    /// Compiles `text`, an expression such as `score > 3`, with or without braces around it, under `name`, which must be
    /// new.
    pub fn add_condition(&mut self, name: String, text: &str) -> Result<Condition, TemplateError> {
        const BEFORE: &str = "{% if (";
        let bare = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        let skipped = if bare.is_some() { text.find("{{").map_or(0, |at| at + 2) } else { 0 };
        let expression = bare.unwrap_or(text);
        let template = self.add(name, &format!("{BEFORE}{expression}) %}}1{{% endif %}}")).map_err(|error| {
            let offset = error.offset.map(|offset| offset.saturating_sub(BEFORE.len()).min(expression.len()) + skipped);
            TemplateError { offset, ..error }
        })?;
        Ok(Condition(template))
    }

    /// Whether `condition` holds. The error is a message for a person.
    pub fn holds(&self, condition: &Condition, context: TemplateValue) -> Result<bool, String> {
        self.render(&condition.0, context).map(|text| !text.is_empty())
    }

    /// The variables that `template` reads from outside, in alphabetical order; built-in functions are left out.
    #[must_use]
    pub fn variables(&self, template: &TemplateId) -> BTreeSet<String> {
        let mut variables: BTreeSet<String> = match self.environment.get_template(&template.0) {
            Ok(template) => template.undeclared_variables(false).into_iter().collect(),
            Err(_) => BTreeSet::new(),
        };
        for (name, _) in self.environment.globals() {
            variables.remove(name);
        }
        variables
    }

    /// Renders `template`. The error is a message for a person.
    pub fn render(&self, template: &TemplateId, context: TemplateValue) -> Result<String, String> {
        let template = self.environment.get_template(&template.0).map_err(|error| error_text(&error))?;
        template.render(context).map_err(|error| match error.line() {
            Some(line) => format!("{} (line {line} of the template)", error_text(&error)),
            None => error_text(&error),
        })
    }
}

fn error_text(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (Templates, TemplateId) {
        let mut templates = Templates::new();
        let id = templates.add("t".to_string(), text).unwrap();
        (templates, id)
    }

    #[test]
    fn the_variables_are_those_read_from_outside() {
        let (templates, id) =
            one("{% set x = note %}{% for i in range(3) %}{{ i }}{{ x.y }}{% endfor %}{{ boat['n'] }}");
        assert_eq!(templates.variables(&id).into_iter().collect::<Vec<_>>(), ["boat", "note"]);
    }

    #[test]
    fn an_undefined_variable_or_attribute_is_an_error() {
        let (templates, id) = one("a\n{{ note.missing }}");
        let error = templates.render(&id, minijinja::context! { note => minijinja::context! {} }).unwrap_err();
        assert_eq!(error, "undefined value: `note.missing` is undefined (line 2 of the template)");
    }

    #[test]
    fn a_syntax_error_says_where() {
        let error = Templates::new().add("t".to_string(), "ok\n{{ note }").unwrap_err();
        assert_eq!(error.line, Some(2));
        assert!(error.message.starts_with("syntax error"), "{error}");
    }

    #[test]
    fn a_template_that_never_ends_runs_out_of_fuel() {
        let (templates, id) =
            one("{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}");
        assert!(templates.render(&id, minijinja::context! {}).unwrap_err().contains("fuel"));
    }

    #[test]
    fn a_condition_is_an_expression_with_or_without_braces() {
        for (text, score, expected) in [("score > 3", 4, true), ("{{ score > 3 }}", 3, false), ("score", 0, false)] {
            let mut templates = Templates::new();
            let condition = templates.add_condition("c".to_string(), text).unwrap();
            let holds = templates.holds(&condition, minijinja::context! { score });
            assert_eq!(holds, Ok(expected), "{text}");
            assert_eq!(templates.variables(condition.template()).len(), 1);
        }
        let mut templates = Templates::new();
        let error = templates.add_condition("c".to_string(), "{{ score > }}").unwrap_err();
        assert!(error.offset.is_some_and(|offset| offset <= "{{ score > }}".len()), "{error:?}");
    }

    #[test]
    fn nothing_is_escaped() {
        let (templates, id) = one("<{{ note }}>");
        assert_eq!(templates.render(&id, minijinja::context! { note => "a&b" }).unwrap(), "<a&b>");
    }
}
