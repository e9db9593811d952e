//! Prompt and expression templates: Jinja syntax, and strict: a variable that is not there is an error, never "".
//!
//! A template of a cell column sees the values of its row by column name, and the row number. A template of a full
//! column or from-scratch column sees `rows`, a list with one object of the same kind per row, and `row_group`.

mod faults;
pub mod shape;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

pub use minijinja::Value as TemplateValue;
pub use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};

use shape::Shape;

/// Instructions one rendering may take: far more than a prompt needs, far less than a stuck loop.
const FUEL: u64 = 2_000_000;

/// All templates of a pipeline, compiled once.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
}

/// A compiled template of a [`Templates`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateId(String);

/// A compiled condition of a [`Templates`]: an expression that holds or does not, by Jinja's rule that empty values, zero
/// and none do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    template: TemplateId,
    /// Where the expression stands in the text that it was written as.
    written: Range<usize>,
}

/// What stands before the expression of a condition in its template.
const BEFORE_CONDITION: &str = "{% if (";

impl Condition {
    /// The template behind it.
    #[must_use]
    pub fn template(&self) -> &TemplateId {
        &self.template
    }

    /// Where bytes of the template stand in the text that the condition was written as.
    fn written(&self, part: &Range<usize>) -> Range<usize> {
        let place = |at: usize| at.saturating_sub(BEFORE_CONDITION.len()).min(self.written.len()) + self.written.start;
        place(part.start)..place(part.end)
    }
}

/// What is wrong with a template's text, or with the values that it is rendered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// In words, without a place.
    pub message: String,
    /// What is wrong, in bytes of the template's text.
    pub span: Option<Range<usize>>,
    /// The line it is wrong in, from 1, as counted in the template's text.
    pub line: Option<usize>,
}

impl TemplateError {
    fn of(error: &minijinja::Error) -> Self {
        let message = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        Self { message, span: error.range(), line: error.line() }
    }

    fn in_condition(self, condition: &Condition) -> Self {
        Self { span: self.span.map(|span| condition.written(&span)), ..self }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.line.map_or(Ok(()), |line| write!(f, " (line {line} of the template)"))
    }
}

impl std::error::Error for TemplateError {}

/// What is wrong with a template whatever it is rendered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFault {
    /// In words, without a place.
    pub message: String,
    /// What is wrong, in bytes of the template's text.
    pub span: Range<usize>,
    /// The word that is wrong.
    pub word: String,
    /// What would be right.
    pub expected: String,
    /// Words that may have been meant.
    pub candidates: Vec<String>,
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
            Err(error) => Err(TemplateError::of(&error)),
        }
    }

    /// Compiles `text`, an expression such as `score > 3`, with or without braces around it, under `name`, which must be
    /// new.
    pub fn add_condition(&mut self, name: String, text: &str) -> Result<Condition, TemplateError> {
        let bare = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        let start = if bare.is_some() { text.find("{{").map_or(0, |at| at + 2) } else { 0 };
        let expression = bare.unwrap_or(text);
        let written = start..start + expression.len();
        let mut condition = Condition { template: TemplateId::default(), written };
        match self.add(name, &format!("{BEFORE_CONDITION}{expression}) %}}1{{% endif %}}")) {
            Ok(template) => condition.template = template,
            Err(error) => return Err(error.in_condition(&condition)),
        }
        Ok(condition)
    }

    /// Whether `condition` holds.
    pub fn holds(&self, condition: &Condition, context: TemplateValue) -> Result<bool, TemplateError> {
        let rendered = self.render(&condition.template, context).map_err(|error| error.in_condition(condition))?;
        Ok(!rendered.is_empty())
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

    /// Renders `template`.
    pub fn render(&self, template: &TemplateId, context: TemplateValue) -> Result<String, TemplateError> {
        let rendered = self.environment.get_template(&template.0).and_then(|template| template.render(context));
        rendered.map_err(|error| TemplateError::of(&error))
    }

    /// What is wrong with `template` whatever it is rendered with, if its variables are of the shapes that `shape` gives: filters, tests
    /// and methods that do not exist, and fields that no value can have. In the order of the text.
    #[must_use]
    pub fn faults<'s>(&self, template: &TemplateId, shape: impl Fn(&str) -> Option<Shape<'s>>) -> Vec<TemplateFault> {
        let template = self.environment.get_template(&template.0);
        template.map_or_else(|_| Vec::new(), |template| faults::find(&self.environment, template.source(), &shape))
    }

    /// The same of a condition.
    #[must_use]
    pub fn faults_of_condition<'s>(
        &self,
        condition: &Condition,
        shape: impl Fn(&str) -> Option<Shape<'s>>,
    ) -> Vec<TemplateFault> {
        let faults = self.faults(&condition.template, shape).into_iter();
        faults.map(|fault| TemplateFault { span: condition.written(&fault.span), ..fault }).collect()
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
        assert_eq!(error.to_string(), "undefined value: `note.missing` is undefined (line 2 of the template)");
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
        assert!(templates.render(&id, minijinja::context! {}).unwrap_err().message.contains("fuel"));
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
        assert!(error.span.as_ref().is_some_and(|span| span.end <= "{{ score > }}".len()), "{error:?}");
    }

    #[test]
    fn nothing_is_escaped() {
        let (templates, id) = one("<{{ note }}>");
        assert_eq!(templates.render(&id, minijinja::context! { note => "a&b" }).unwrap(), "<a&b>");
    }
}
