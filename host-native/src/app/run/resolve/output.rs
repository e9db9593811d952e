//! Resolves which columns are written, in which order and under which names.

use serde_json::Value;

use super::location::find_word;
use super::names::Names;
use super::{GeneratedColumn, Input};
use crate::app::config::pipeline::{FileError, OutputColumnSpec};
use crate::app::data::Dataset;
use crate::app::data::column_type::ColumnType;

/// A column of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name in the output.
    pub name: String,
    /// The column that it is written from.
    pub source: OutputSource,
    /// The path of a field in the values of that column; empty for the whole value.
    pub path: Vec<String>,
    /// The type of its values.
    pub column_type: ColumnType,
}

/// What a column of the output is written from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputSource {
    /// A column of the dataset, by index.
    Seed(usize),
    /// A generated column, by index.
    Generated(usize),
}

impl OutputColumn {
    /// Returns the field of `value` that is written; null if it has none.
    #[must_use]
    pub fn field<'a>(&self, value: &'a Value) -> &'a Value {
        self.path.iter().fold(value, |value, key| value.get(key).unwrap_or(&Value::Null))
    }
}

/// Returns the columns of the output after the row number.
pub(super) fn output_columns(
    names: &Names<'_>,
    dataset: &Dataset,
    columns: &[GeneratedColumn],
    errors: &mut Vec<FileError>,
) -> Vec<OutputColumn> {
    let Some(listed) = &names.file.output.columns else {
        let seeds = (0..names.seeds.len()).map(OutputSource::Seed);
        let is_written = |at: &usize| names.file.columns[*at].is_written;
        let generated = (0..columns.len()).filter(is_written).map(OutputSource::Generated);
        let column = |source| {
            let name = match source {
                OutputSource::Seed(at) => names.seeds[at].clone(),
                OutputSource::Generated(at) => columns[at].name.clone(),
            };
            let column_type = column_type(dataset, columns, source, &[]);
            OutputColumn { name, source, path: Vec::new(), column_type }
        };
        return seeds.chain(generated).map(column).collect();
    };
    let mut output = Vec::with_capacity(listed.len());
    for OutputColumnSpec { name, from } in listed {
        match resolve_path(names, from.get_ref()) {
            Some((OutputSource::Generated(at), _)) if !names.file.columns[at].is_written => {
                let message = format!("`{}` has `drop = true`, and is listed in [output]", columns[at].name);
                errors.push(names.source().error(from.span(), message).expected("one of both"));
            }
            Some((source, path)) => {
                let column_type = column_type(dataset, columns, source, &path);
                output.push(OutputColumn { name: name.get_ref().clone(), source, path, column_type });
            }
            None => {
                let row_key = &names.file.output.row_key;
                let known: Vec<&str> = names.row_names().filter(|name| name != row_key).collect();
                let message = format!("there is no column `{}` to write", from.get_ref());
                errors.push(
                    names
                        .source()
                        .error(find_word(names.source(), from, from.get_ref()), message)
                        .expected(format!("one of: {}; or a field in one, such as `{}.x`", known.join(", "), known[0]))
                        .suggest(from.get_ref(), known),
                );
            }
        }
    }
    output
}

/// Returns the column that `from` names, and the path of the field that it names in its values. A column
/// whose own name has dots comes first.
fn resolve_path(names: &Names<'_>, from: &str) -> Option<(OutputSource, Vec<String>)> {
    let ends = std::iter::once(from.len()).chain(from.rmatch_indices('.').map(|(at, _)| at));
    for end in ends {
        let source = match names.resolve_name(&from[..end]) {
            Some(Input::Seed(at)) => OutputSource::Seed(at),
            Some(Input::Generated(at)) => OutputSource::Generated(at),
            Some(Input::RowNumber) | None => continue,
        };
        let path = from[end..].split('.').skip(1).map(str::to_string);
        return Some((source, path.collect()));
    }
    None
}

/// Returns the type of the values at `path` in a column.
fn column_type(dataset: &Dataset, columns: &[GeneratedColumn], source: OutputSource, path: &[String]) -> ColumnType {
    match source {
        OutputSource::Seed(at) if path.is_empty() => dataset.column_types().get(at).copied().unwrap_or_default(),
        OutputSource::Seed(_) => ColumnType::Json,
        OutputSource::Generated(at) if path.is_empty() => columns[at].column_type,
        OutputSource::Generated(at) => {
            // A skipped cell need not fit the schema.
            let schema = columns[at].fill.schema().filter(|_| columns[at].otherwise.is_null());
            let field = schema
                .and_then(|schema| path.iter().try_fold(schema, |schema, key| schema.get("properties")?.get(key)));
            field.map_or(ColumnType::Json, ColumnType::from_schema)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::app::config::pipeline::{PipelineFile, SourceText};
    use crate::app::data::{Dataset, DatasetFormat};
    use crate::app::run::resolve::ResolvedPipeline;

    const FILE: &str = "[seed]\npath = \"d.csv\"\n[[models]]\nname = \"m\"\nprovider = \"p\"\nbase_url = \"http://h\"\n\
                        max_parallel = 1\n[[columns]]\nname = \"grade\"\nmodel = \"m\"\nprompt = \"{{ a }}\"\n\
                        schema = { properties = { score = { type = \"integer\" }, by = { properties = { name = { type = \"string\" } } } } }\n\
                        [[columns]]\nname = \"hidden\"\nkind = \"sampler\"\nsampler = { law = \"uuid\" }\ndrop = true\n";

    /// Resolves the file with this table `[output]`: the names and types of the output, or the errors.
    fn output(table: &str) -> Result<Vec<String>, String> {
        let text = format!("{FILE}[output]\n{table}");
        let file = PipelineFile::parse(SourceText::new("p.toml", text), Path::new(""));
        let file = file.map_err(|error| error.to_string())?;
        let data = Dataset::parse(Path::new("d.csv"), b"a,b.c\n1,2\n", DatasetFormat::Csv).unwrap();
        let resolved = ResolvedPipeline::resolve(&file, data);
        let resolved = resolved.map_err(|errors| errors.iter().map(ToString::to_string).collect::<String>())?;
        Ok(resolved.output.iter().map(|it| format!("{}: {:?}", it.name, it.column_type)).collect())
    }

    #[test]
    fn without_a_list_the_output_is_the_dataset_and_every_column_that_is_not_dropped() {
        assert_eq!(output("").unwrap(), ["a: Text", "b.c: Text", "grade: Json"]);
    }

    #[test]
    fn a_list_gives_the_order_the_names_and_fields_of_values() {
        let list = "columns = [{ name = \"score\", from = \"grade.score\" }, { name = \"a\" }, { name = \"who\", from = \
                    \"grade.by.name\" }, { name = \"c\", from = \"b.c\" }, { name = \"d\", from = \"b.c.d\" }]";
        assert_eq!(output(list).unwrap(), ["score: Integer", "a: Text", "who: Text", "c: Text", "d: Json"]);
    }

    /// Returns the errors about fields of `[output]`, for a dataset and a grade without other fields.
    fn field_errors(table: &str) -> String {
        let file = FILE.replace("schema = { ", "schema = { type = \"object\", additionalProperties = false, ");
        let file = PipelineFile::parse(SourceText::new("p.toml", format!("{file}[output]\n{table}")), Path::new(""));
        let file = file.unwrap();
        let data = Dataset::parse(Path::new("d.csv"), b"a,b.c\n1,2\n", DatasetFormat::Csv).unwrap();
        let resolved = ResolvedPipeline::resolve(&file, data).unwrap();
        resolved.output_errors(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_field_that_no_value_can_have_is_an_error_in_columns_and_in_the_record() {
        let columns = |from: &str| format!("columns = [{{ name = \"x y\", from = \"{from}\" }}]\n");
        let record = |expression: &str| format!("{}record = {{ of = \"{expression}\" }}", columns("grade"));
        for (table, part) in [
            (columns("grade.scor"), "did you mean `score`?"),
            (columns("grade.score.of"), "there is no field `of`"),
            (columns("a.b"), "`a.b` names one in a text"),
            (record("{{ x_y.scor }}"), "did you mean `score`?"),
            (record("is {{ x_y.score.of }}"), "there is no field `of`"),
            (record("{{ row.of }}"), "there is no field `of`"),
        ] {
            let errors = field_errors(&table);
            assert!(errors.contains(part), "{table}: {errors}");
        }
        for table in [columns("grade.score"), columns("grade.by.name"), record("{{ x_y.score }} of {{ row }}")] {
            assert_eq!(field_errors(&table), "");
        }
    }

    #[test]
    fn a_list_of_unknown_hidden_or_repeated_columns_is_rejected() {
        for (list, part) in [
            ("{ name = \"grad\" }", "did you mean `grade`?"),
            ("{ name = \"grad.score\" }", "there is no column `grad.score` to write"),
            ("{ name = \"row_number\", from = \"row\" }", "there is no column `row` to write"),
            ("{ name = \"row\", from = \"a\" }", "the row number is always written"),
            ("{ name = \"a\" }, { name = \"a\", from = \"grade\" }", "the output has the column `a` already"),
            ("{ name = \"hidden\" }", "`hidden` has `drop = true`"),
            ("", "at least one column"),
        ] {
            let error = output(&format!("columns = [{list}]")).unwrap_err();
            assert!(error.contains(part), "{list}: {error}");
        }
    }
}
