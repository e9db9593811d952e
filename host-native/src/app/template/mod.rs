//! Templates of prompts and expressions, in Jinja syntax. An undefined variable is an error.
//!
//! A template of a cell column reads the values of its row by [their variables](variables_of), and the row
//! number. A template of a full column or from-scratch column reads `rows`, a list with one such object per
//! row, and `row_group`, the index of the row group.

mod analysis;
pub mod shape;
mod variables;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use minijinja::Value as TemplateValue;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
pub use minijinja::value::Serde;
use minijinja::value::{DynObject, Enumerator, Object};
use minijinja::{AutoEscape, Environment, Expression, UndefinedBehavior};

use shape::Shape;
pub use variables::{is_part, is_same_name, names_spelled, normal_form, variables_of};

/// The maximum number of instructions of one rendering: far more than a prompt needs, few enough to stop an
/// endless loop.
const FUEL: u64 = 2_000_000;

/// The compiled templates of a pipeline.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
}

/// The id of a template in a [`Templates`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateId(String);

/// An expression that holds or does not hold, checked by a [`Templates`].
///
/// By Jinja's rule, empty values, zero, `false` and `none` do not hold, and any other value does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    expression: String,
    /// Bytes of the written text before the expression.
    offset: usize,
    /// Line breaks of the written text before the expression.
    line_offset: usize,
}

impl Condition {
    /// Finds the expression in `text`, which may have braces around it.
    fn of(text: &str) -> Self {
        let bare = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        let offset = if bare.is_some() { text.find("{{").map_or(0, |at| at + 2) } else { 0 };
        Self { expression: bare.unwrap_or(text).to_string(), offset, line_offset: text[..offset].matches('\n').count() }
    }

    /// Returns the span of the expression without the white space around it.
    fn trimmed(&self) -> Range<usize> {
        let start = self.expression.len() - self.expression.trim_start().len();
        start..start + self.expression.trim().len()
    }

    /// Maps a span of the expression to the written text.
    fn written(&self, part: &Range<usize>) -> Range<usize> {
        let place = |at: usize| at.min(self.expression.len()) + self.offset;
        place(part.start)..place(part.end)
    }

    /// Returns the error for an expression whose value is undefined.
    fn undefined(&self) -> TemplateError {
        let span = self.trimmed();
        let line = self.expression[..span.start].matches('\n').count() + 1;
        let message = format!("undefined value: `{}` is undefined", &self.expression[span.clone()]);
        TemplateError { message, span: Some(span), line: Some(line) }.in_condition(self)
    }
}

/// A syntax error of a template, or an error of its rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The message, without a place.
    pub message: String,
    /// The span of the error, in bytes of the template's text.
    pub span: Option<Range<usize>>,
    /// The line of the error in the template's text, from 1.
    pub line: Option<usize>,
}

impl TemplateError {
    /// Returns an error of `text`.
    fn of(error: &minijinja::Error, text: &str) -> Self {
        let message = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        // A span of the library may end after the text or within a character.
        let span = |span: Range<usize>| {
            let start = text.floor_char_boundary(span.start);
            start..text.ceil_char_boundary(span.end.min(text.len())).max(start)
        };
        Self { message, span: error.range().map(span), line: error.line() }
    }

    /// Maps the place of an error in the expression of `condition` to the written text.
    fn in_condition(self, condition: &Condition) -> Self {
        // Errors of an evaluation have a line and no span.
        let span = self.span.unwrap_or_else(|| condition.trimmed());
        let line = self.line.map(|line| line + condition.line_offset);
        Self { span: Some(condition.written(&span)), line, ..self }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.line.map_or(Ok(()), |line| write!(f, " (line {line} of the template)"))
    }
}

impl std::error::Error for TemplateError {}

/// An error that a template has for all values of its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticError {
    /// The message, without a place.
    pub message: String,
    /// The span of the error, in bytes of the template's text.
    pub span: Range<usize>,
    /// The unknown word.
    pub word: String,
    /// What was expected.
    pub expected: String,
    /// Known words that may have been intended.
    pub candidates: Vec<String>,
}

/// Rejects the statements that load another template: there is none. The compiler would also panic on
/// `import` with a wrong name.
fn reject_other_templates(text: &str) -> Result<(), TemplateError> {
    let mut is_statement = false;
    // An invalid token is reported by the compiler.
    for (token, span) in tokenize(text, false, SyntaxConfig::default()).map_while(Result::ok) {
        if let Token::Ident(word @ ("extends" | "from" | "import" | "include")) = token
            && is_statement
        {
            return Err(TemplateError {
                message: format!("`{word}` is a statement that loads another template, and there is none"),
                span: Some(span.start_offset as usize..span.end_offset as usize),
                line: Some(usize::from(span.start_line)),
            });
        }
        is_statement = matches!(token, Token::BlockStart);
    }
    Ok(())
}

/// An object whose fields are found by names in any form of Unicode. No two of them have the same name.
#[derive(Debug)]
struct AnyForm(TemplateValue);

impl Object for AnyForm {
    fn get_value(self: &Arc<Self>, key: &TemplateValue) -> Option<TemplateValue> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<TemplateValue> {
        let get = |name: &str| self.0.get_attr(name).ok().filter(|value| !value.is_undefined());
        get(name).or_else(|| {
            let normal = normal_form(name);
            let is_same = |other: &TemplateValue| other.as_str().is_some_and(|other| normal_form(other) == normal);
            get(&normal).or_else(|| get(self.0.try_iter().ok()?.find(is_same)?.as_str()?))
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.0.as_object().map_or(Enumerator::Empty, DynObject::enumerate)
    }
}

/// Returns an object with `fields`, which templates read by names in any form of Unicode.
#[must_use]
pub fn object_in_any_form<'a>(fields: impl Iterator<Item = (&'a str, TemplateValue)>) -> TemplateValue {
    TemplateValue::from_object(AnyForm(TemplateValue::from_pairs(fields)))
}

/// Returns the values of `context` for the template `text`, which may spell names in any form.
fn in_any_form(context: TemplateValue, text: &str) -> TemplateValue {
    if matches!(normal_form(text), Cow::Borrowed(_)) { context } else { TemplateValue::from_object(AnyForm(context)) }
}

impl Default for Templates {
    fn default() -> Self {
        Self::new()
    }
}

impl Templates {
    /// Creates an empty set of templates.
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
    ///
    /// # Errors
    /// If `text` has a syntax error, or a statement that loads another template.
    pub fn add(&mut self, name: String, text: &str) -> Result<TemplateId, TemplateError> {
        reject_other_templates(text)?;
        match self.environment.add_template_owned(name.clone(), text.to_string()) {
            Ok(()) => Ok(TemplateId(name)),
            Err(error) => Err(TemplateError::of(&error, text)),
        }
    }

    /// Compiles `text`, an expression such as `score > 3` that may have braces around it.
    ///
    /// # Errors
    /// If `text` is not exactly one expression.
    pub fn condition(&self, text: &str) -> Result<Condition, TemplateError> {
        let condition = Condition::of(text);
        self.compile(&condition)?;
        Ok(condition)
    }

    /// Compiles `text`, an expression with braces around it.
    ///
    /// # Errors
    /// If `text` is not exactly one expression with braces.
    pub fn braced_expression(&self, text: &str) -> Result<Condition, TemplateError> {
        match text.trim_start().strip_prefix("{{") {
            // `{{-` strips the white space before it, and is no sign of a number.
            Some(rest) if !rest.starts_with(['-', '+']) => self.condition(text),
            _ => {
                let message = "the text has no braces around it".to_string();
                Err(TemplateError { message, span: None, line: None })
            }
        }
    }

    /// Returns the value of `expression` as JSON.
    ///
    /// # Errors
    /// If the expression cannot be evaluated, or its value is undefined or no JSON.
    pub fn value(&self, expression: &Condition, context: TemplateValue) -> Result<serde_json::Value, TemplateError> {
        let value = self.compile(expression)?.eval(in_any_form(context, &expression.expression));
        let value =
            value.map_err(|error| TemplateError::of(&error, &expression.expression).in_condition(expression))?;
        if value.is_undefined() {
            return Err(expression.undefined());
        }
        serde_json::to_value(value).map_err(|error| {
            TemplateError { message: error.to_string(), span: None, line: None }.in_condition(expression)
        })
    }

    fn compile(&self, condition: &Condition) -> Result<Expression<'_, 'static>, TemplateError> {
        let compiled = self.environment.compile_expression_owned(condition.expression.clone());
        compiled.map_err(|error| TemplateError::of(&error, &condition.expression).in_condition(condition))
    }

    /// Returns whether `condition` holds for the variables of `context`.
    ///
    /// Compiles the expression again, which takes a few microseconds: a compiled expression of minijinja
    /// borrows its environment, so the two cannot be stored together.
    ///
    /// # Errors
    /// If the expression cannot be evaluated, or its value is undefined.
    pub fn holds(&self, condition: &Condition, context: TemplateValue) -> Result<bool, TemplateError> {
        let value = self.compile(condition)?.eval(in_any_form(context, &condition.expression));
        let value = value.map_err(|error| TemplateError::of(&error, &condition.expression).in_condition(condition))?;
        // This filter applies the rule of `if`, which rejects some undefined values and accepts others.
        let holds = self.environment.empty_state().apply_filter("bool", &[value]);
        holds.map(|holds| holds.is_true()).map_err(|_| condition.undefined())
    }

    /// Returns the variables that `template` reads from outside, in the [normal form](normal_form), without
    /// built-in functions.
    #[must_use]
    pub fn variables(&self, template: &TemplateId) -> BTreeSet<String> {
        let template = self.environment.get_template(&template.0);
        self.without_globals(template.map_or_else(|_| HashSet::new(), |template| template.undeclared_variables(false)))
    }

    /// Returns the variables that `condition` reads, in the [normal form](normal_form), without built-in
    /// functions.
    #[must_use]
    pub fn condition_variables(&self, condition: &Condition) -> BTreeSet<String> {
        let expression = self.compile(condition);
        self.without_globals(
            expression.map_or_else(|_| HashSet::new(), |expression| expression.undeclared_variables(false)),
        )
    }

    fn without_globals(&self, variables: HashSet<String>) -> BTreeSet<String> {
        let mut variables: BTreeSet<String> =
            variables.into_iter().map(|name| normal_form(&name).into_owned()).collect();
        for (name, _) in self.environment.globals() {
            variables.remove(name);
        }
        variables
    }

    /// Renders `template` with the variables of `context`.
    pub fn render(&self, template: &TemplateId, context: TemplateValue) -> Result<String, TemplateError> {
        let found = self.environment.get_template(&template.0).map_err(|error| TemplateError::of(&error, ""))?;
        let rendered = found.render(in_any_form(context, found.source()));
        rendered.map_err(|error| TemplateError::of(&error, found.source()))
    }

    /// Returns the static errors of `template` in the order of its text: filters, tests and methods that do
    /// not exist, and fields that no value can have. `shape` returns the shape of a variable.
    #[must_use]
    pub fn static_errors<'s>(
        &self,
        template: &TemplateId,
        shape: impl Fn(&str) -> Option<Shape<'s>>,
    ) -> Vec<StaticError> {
        let template = self.environment.get_template(&template.0);
        let shape = |name: &str| shape(&normal_form(name));
        template.map_or_else(
            |_| Vec::new(),
            |template| analysis::analyze_template(&self.environment, template.source(), &shape),
        )
    }

    /// Returns the static errors of `condition`, like [`static_errors`](Self::static_errors).
    #[must_use]
    pub fn condition_static_errors<'s>(
        &self,
        condition: &Condition,
        shape: impl Fn(&str) -> Option<Shape<'s>>,
    ) -> Vec<StaticError> {
        let shape = |name: &str| shape(&normal_form(name));
        let errors = analysis::analyze_expression(&self.environment, &condition.expression, &shape).into_iter();
        errors.map(|error| StaticError { span: condition.written(&error.span), ..error }).collect()
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
    fn a_statement_that_loads_another_template_is_rejected_at_its_place() {
        for statement in ["import 'x' as \"y\"", "import 'x' as 1", "from 'x' import y", "include 'x'", "extends 'x'"] {
            let error = Templates::new().add("t".to_string(), &format!("a\n{{% {statement} %}}")).unwrap_err();
            assert!(error.to_string().contains("loads another template"), "{statement}: {error}");
            assert_eq!((error.line, error.span.map(|span| span.start)), (Some(2), Some(5)), "{statement}");
        }
        Templates::new().add("t".to_string(), "{{ import }} from include").unwrap();
    }

    #[test]
    fn variables_are_those_that_a_template_reads_from_outside() {
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
    fn a_syntax_error_has_its_line() {
        let error = Templates::new().add("t".to_string(), "ok\n{{ note }").unwrap_err();
        assert_eq!(error.line, Some(2));
        assert!(error.message.starts_with("syntax error"), "{error}");
    }

    #[test]
    fn an_endless_template_runs_out_of_fuel() {
        let (templates, id) =
            one("{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}");
        assert!(templates.render(&id, minijinja::context! {}).unwrap_err().message.contains("fuel"));
    }

    #[test]
    fn a_condition_is_an_expression_with_or_without_braces() {
        for (text, score, expected) in [("score > 3", 4, true), ("{{ score > 3 }}", 3, false), ("score", 0, false)] {
            let templates = Templates::new();
            let condition = templates.condition(text).unwrap();
            let holds = templates.holds(&condition, minijinja::context! { score });
            assert_eq!(holds, Ok(expected), "{text}");
            assert_eq!(templates.condition_variables(&condition).len(), 1);
        }
        let error = Templates::new().condition("{{ score > }}").unwrap_err();
        assert!(error.span.as_ref().is_some_and(|span| span.end <= "{{ score > }}".len()), "{error:?}");
    }

    #[test]
    fn a_condition_cannot_leave_its_expression() {
        for text in ["a) %}1{% endif %}{% if (b", "{{ a }} {{ b }}", "a) or (b", "a }}", "{% if a %}", ""] {
            let error = Templates::new().condition(text).unwrap_err();
            assert!(error.message.starts_with("syntax error: "), "{text}: {error}");
        }
        let text = "a) or (b";
        let error = Templates::new().condition(text).unwrap_err();
        assert_eq!(error.to_string(), "syntax error: unexpected input after expression (line 1 of the template)");
        assert_eq!(error.span.map(|span| &text[span]), Some(")"));
    }

    #[test]
    fn a_condition_whose_value_is_undefined_is_an_error_at_its_place_in_the_text() {
        let templates = Templates::new();
        for (text, message, part) in [
            ("\n{{ note.missing }}", "`note.missing` is undefined (line 2 of the template)", "note.missing"),
            ("\n{{ note.missing > 1 }}", "undefined value", "note.missing > 1"),
            ("nothing", "`nothing` is undefined (line 1 of the template)", "nothing"),
        ] {
            let condition = templates.condition(text).unwrap();
            let error =
                templates.holds(&condition, minijinja::context! { note => minijinja::context! {} }).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(error.span.map(|span| &text[span]), Some(part), "{text}");
        }
        let condition = templates.condition("'x' if note").unwrap();
        let note = TemplateValue::from("");
        assert_eq!(templates.holds(&condition, minijinja::context! { note }), Ok(false), "as in an `if`");
    }

    #[test]
    fn nothing_is_escaped() {
        let (templates, id) = one("<{{ note }}>");
        assert_eq!(templates.render(&id, minijinja::context! { note => "a&b" }).unwrap(), "<a&b>");
    }
}
