//! Checks the criteria of a column of kind `score`, and makes of them the instruction for the model and the
//! JSON Schema of its answer.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::app::config::document::Document;
use crate::app::config::pipeline::raw::RawCriterion;
use crate::app::config::source::FileError;
use crate::app::config::value::{JsonTable, Table, Text, WithSpan};

/// The criteria that a model scores by, in file order.
pub(super) struct Criteria {
    span: Range<usize>,
    criteria: Vec<Criterion>,
}

struct Criterion {
    name: String,
    description: String,
    /// Its scale: numbers in ascending order, or labels in file order, each with its meaning. At least two.
    options: Vec<(Value, String)>,
}

type RawCriteria = BTreeMap<String, WithSpan<Table<RawCriterion>>>;

/// Validates the `criteria` of the column in `table`.
pub(super) fn check(
    file: &Document<'_>,
    table: &Range<usize>,
    raw: Option<WithSpan<RawCriteria>>,
) -> Result<Criteria, FileError> {
    let expected = "a table `criteria.NAME` for each criterion, with `description` and `options`";
    let raw = raw.ok_or_else(|| file.missing(table.clone(), "criteria", expected))?;
    let span = raw.span();
    if raw.get().is_empty() {
        return Err(file.error(span, "`criteria` in [[columns]] has no criterion").expected(expected));
    }
    let mut raw: Vec<_> = raw.into_inner().into_iter().collect();
    raw.sort_by_key(|(_, criterion)| criterion.span().start);
    let criterion = |(name, raw): (String, WithSpan<Table<RawCriterion>>)| {
        let Table(RawCriterion { description, options }) = raw.into_inner();
        Ok(Criterion { description: description.into_inner().0, options: check_options(file, &name, options)?, name })
    };
    Ok(Criteria { span, criteria: raw.into_iter().map(criterion).collect::<Result<_, _>>()? })
}

/// Returns the options of the criterion `name`: whole numbers if all names are such, else labels.
fn check_options(
    file: &Document<'_>,
    name: &str,
    raw: WithSpan<BTreeMap<String, WithSpan<Text>>>,
) -> Result<Vec<(Value, String)>, FileError> {
    let span = raw.span();
    let mut options: Vec<_> = raw.into_inner().into_iter().collect();
    options.sort_by_key(|(_, meaning)| meaning.span().start);
    // `01` is a label: as a number it would be the same as `1`.
    let number = |name: &str| name.parse::<i64>().ok().filter(|number| number.to_string() == name);
    let numbers = options.iter().filter(|(name, _)| number(name).is_some()).count();
    if options.len() < 2 || (numbers > 0 && numbers < options.len()) {
        let names: Vec<&str> = options.iter().map(|(name, _)| name.as_str()).collect();
        let found = if names.is_empty() { "nothing".to_string() } else { names.join(", ") };
        let message = format!("`options` of the criterion `{name}` has {found}");
        let expected =
            "at least two options, all of them whole numbers or none, such as { 1 = \"wrong\", 5 = \"right\" }";
        return Err(file.error(span, message).expected(expected));
    }
    if numbers > 0 {
        options.sort_by_key(|(name, _)| number(name));
    }
    let option = |(name, meaning): (String, WithSpan<Text>)| {
        (number(&name).map_or_else(|| Value::from(name), Value::from), meaning.into_inner().0)
    };
    Ok(options.into_iter().map(option).collect())
}

impl Criteria {
    /// Returns the JSON Schema of the answer: for each criterion an object with `reasoning` and `score`. The
    /// reasoning comes first, so that a model that writes in this order reasons before it decides.
    pub(super) fn schema(&self) -> WithSpan<JsonTable> {
        let of_criterion = |criterion: &Criterion| {
            let scores: Vec<&Value> = criterion.options.iter().map(|(score, _)| score).collect();
            let kind = if criterion.options.iter().all(|(score, _)| score.is_i64()) { "integer" } else { "string" };
            let properties = json!({ "reasoning": { "type": "string" }, "score": { "type": kind, "enum": scores } });
            closed_object(&properties, &["reasoning", "score"])
        };
        let properties = self.criteria.iter().map(|criterion| (criterion.name.clone(), of_criterion(criterion)));
        let names: Vec<&str> = self.criteria.iter().map(|criterion| criterion.name.as_str()).collect();
        let schema = match closed_object(&Value::Object(properties.collect()), &names) {
            Value::Object(schema) => schema,
            _ => Map::new(),
        };
        WithSpan::new(self.span.clone(), JsonTable(schema))
    }

    /// Returns the instruction for the model, which follows what it scores.
    pub(super) fn instruction(&self) -> String {
        let option = |(score, meaning): &(Value, String)| match score {
            Value::String(label) => format!("- {label}: {meaning}\n"),
            number => format!("- {number}: {meaning}\n"),
        };
        let of_criterion = |criterion: &Criterion| {
            let options: String = criterion.options.iter().map(option).collect();
            format!("\n{}: {}\n{options}", criterion.name, criterion.description)
        };
        let criteria: String = self.criteria.iter().map(of_criterion).collect();
        format!(
            "Score this by each of the following criteria. For each criterion, first give the reasons for your score \
             in one or two sentences (`reasoning`), then the option that fits best (`score`).\n{}",
            criteria.trim_end()
        )
    }
}

/// Returns the schema of an object with exactly these properties.
fn closed_object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::app::config::pipeline::{LlmCall, PipelineFile, SourceText};

    /// Returns the call of a column with these criteria.
    fn call(criteria: &str) -> LlmCall {
        let text = format!(
            "[seed]\npath = \"d.csv\"\n[[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 1\nmock = {{}}\n\
             [[columns]]\nname = \"grade\"\nkind = \"score\"\nmodel = \"m\"\nprompt = \"x\"\n{criteria}"
        );
        let file = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap();
        file.columns[0].kind.chat().unwrap().clone()
    }

    #[test]
    fn the_instruction_has_the_criteria_and_their_options_in_file_order_and_numbers_in_ascending_order() {
        let call = call(
            "criteria.style = { description = \"How it reads.\", options = { plain = \"as a log\", florid = \"as a novel\" } }\n\
             criteria.accuracy = { description = \"What it says.\", options = { 10 = \"right\", 2 = \"vague\", -1 = \"wrong\" } }\n",
        );
        let instruction = call.instruction.unwrap();
        let (_, criteria) = instruction.split_once("\n\n").unwrap();
        assert_eq!(
            criteria,
            "style: How it reads.\n- plain: as a log\n- florid: as a novel\n\n\
             accuracy: What it says.\n- -1: wrong\n- 2: vague\n- 10: right"
        );
    }

    #[test]
    fn the_schema_allows_for_each_criterion_a_score_of_its_options_and_the_reasoning() {
        let call = call("criteria.a = { description = \"x\", options = { 5 = \"good\", 1 = \"bad\" } }\n");
        let schema = call.structure.unwrap().schema.unwrap();
        let score = json!({ "type": "integer", "enum": [1, 5] });
        let of_a =
            closed_object(&json!({ "reasoning": { "type": "string" }, "score": score }), &["reasoning", "score"]);
        assert_eq!(*schema.get_ref(), closed_object(&json!({ "a": of_a }), &["a"]));
    }

    #[test]
    fn labels_that_look_like_numbers_to_a_person_only_are_labels() {
        let call = call("criteria.a = { description = \"x\", options = { 01 = \"good\", 1e2 = \"bad\" } }\n");
        let schema = call.structure.unwrap().schema.unwrap();
        let score = &schema.get_ref()["properties"]["a"]["properties"]["score"];
        assert_eq!(*score, json!({ "type": "string", "enum": ["01", "1e2"] }));
    }
}
