use std::path::Path;

use serde_json::json;

use super::*;
use crate::app::data::DatasetFormat;
use crate::app::run::columns::FillContext;
use crate::app::template::object_in_any_form;

const MODEL: &str =
    "[seed]\npath = \"d.csv\"\n[[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 2\nmock = {}\n";

/// Resolves columns given as `name|key = value|...` against a dataset with the columns `id` and `note`.
fn resolve(columns: &[&str]) -> Result<ResolvedPipeline, String> {
    let tables: Vec<String> = columns
        .iter()
        .map(|column| {
            format!(
                "[[columns]]
name = {}
",
                column.replace(
                    '|', "
"
                )
            )
        })
        .collect();
    resolve_text(&format!("{MODEL}{}", tables.concat()))
}

fn resolve_text(text: &str) -> Result<ResolvedPipeline, String> {
    resolve_with("id,note\n1,x\n", text)
}

fn resolve_with(csv: &str, text: &str) -> Result<ResolvedPipeline, String> {
    let file =
        PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).map_err(|error| error.to_string())?;
    let dataset = Dataset::parse(Path::new("d.csv"), csv.as_bytes(), DatasetFormat::Csv).unwrap();
    let listed = |errors: Vec<FileError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    ResolvedPipeline::resolve(&file, dataset).map_err(listed)
}

#[test]
fn upstreams_are_the_columns_that_templates_read_and_those_that_are_listed() {
    let resolved = resolve(&[
        "\"a\"|model = \"m\"|prompt = \"{{ note }} {{ row }}\"",
        "\"b\"|kind = \"expression\"|template = \"{{ a }}\"|upstreams = [\"id\"]",
    ])
    .unwrap();
    assert_eq!(resolved.columns[0].inputs, [Input::RowNumber, Input::Seed(1)]);
    assert_eq!(resolved.columns[1].inputs, [Input::Generated(0)]);
    assert_eq!(resolved.output_columns(), ["id", "note", "a", "b"]);
}

#[test]
fn an_unknown_template_variable_is_an_error_at_its_place() {
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"\"\"|Sum up:|{{ notes }}\"\"\""]).unwrap_err();
    assert!(error.starts_with("p.toml:13:4: unknown template variable `notes`\n"), "{error}");
    assert!(error.contains("\n 13 | {{ notes }}"), "{error}");
    assert!(error.contains("did you mean `note`?"), "{error}");
    let error = resolve(&["\"a\"|strategy = \"full_column\"|model = \"m\"|prompt = \"{{ note }}\""]).unwrap_err();
    assert!(error.contains("expected one of: rows, row_group"), "{error}");
}

#[test]
fn a_file_whose_fields_have_another_separator_is_named_where_a_template_reads_one_of_them() {
    let column = |prompt: &str| format!("{MODEL}[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{prompt}\"\n");
    let hint = "the header has the one field `id^note`: a CSV file has `,`, `;`, `|` or tabs between fields";
    let error = resolve_with("id^note\n1^x\n", &column("{{ note }}")).unwrap_err();
    assert!(error.contains(hint), "{error}");
    for (header, prompt) in [("id^note", "{{ text }}"), ("id^note,b", "{{ note }}"), ("note_2", "{{ note }}")] {
        let error = resolve_with(&format!("{header}\n{header}\n"), &column(prompt)).unwrap_err();
        assert!(!error.contains("the header has the one field"), "{error}");
    }
}

#[test]
fn a_template_reads_a_column_by_a_name_that_looks_the_same_whichever_form_each_is_written_in() {
    let forms = ["pr\u{e9}nom", "pre\u{301}nom"];
    for (header, written) in forms.into_iter().flat_map(|header| forms.map(|written| (header, written))) {
        let text = format!(
            "{MODEL}[[columns]]\nname = \"a\"\nkind = \"expression\"\ntemplate = \"Of {{{{ {written} }}}}\"\nwhen = \"{written}\"\n"
        );
        let resolved = resolve_with(&format!("id,{header}\n1,Ada\n"), &text).unwrap();
        let column = &resolved.columns[0];
        assert_eq!(column.inputs, [Input::Seed(1)]);
        assert_eq!(resolved.output_columns(), ["id", header, "a"], "a column keeps its name");
        let context = TemplateValue::from_pairs(resolved.keyed(column, Input::Seed(1), TemplateValue::from("Ada")));
        assert_eq!(resolved.templates.holds(column.when.as_ref().unwrap(), context.clone()), Ok(true));
        let Fill::Expression(fill) = &column.fill else { panic!("{:?}", column.fill) };
        assert_eq!(resolved.templates.render(&fill.template, context).unwrap(), "Of Ada");
    }
}

#[test]
fn a_template_reads_the_fields_of_rows_by_names_in_any_form() {
    let rendered = |header: &str, template: &str| {
        let text = format!(
            "{MODEL}[[columns]]\nname = \"a\"\nkind = \"expression\"\nstrategy = \"full_column\"\ntemplate = '{template}'\n"
        );
        let resolved = resolve_with(&format!("{header}\nAda,Bob\n"), &text).unwrap();
        let column = &resolved.columns[0];
        let seed = |(at, name): (usize, &str)| resolved.keyed(column, Input::Seed(at), name.into());
        let row = object_in_any_form(["Ada", "Bob"].into_iter().enumerate().flat_map(seed));
        let context = TemplateValue::from_pairs([("rows", TemplateValue::from(vec![row]))]);
        let Fill::Expression(fill) = &column.fill else { panic!("{:?}", column.fill) };
        resolved.templates.render(&fill.template, context).unwrap()
    };
    let [composed, decomposed] = ["pr\u{e9}nom", "pre\u{301}nom"];
    for (name, written) in [composed, decomposed].into_iter().flat_map(|name| [(name, composed), (name, decomposed)]) {
        let template = format!("{{{{ rows[0].{written} }}}} {{{{ rows[0] | list | join(\" \") }}}}");
        assert_eq!(rendered(&format!("{name},b"), &template), format!("Ada b {name}"), "a field keeps its name");
    }
}

/// The same name in three forms of Unicode: composed, decomposed, and half of each.
const FORMS: [&str; 3] = ["pr\u{e9}c\u{e9}dent", "pre\u{301}ce\u{301}dent", "pr\u{e9}ce\u{301}dent"];

#[test]
fn keys_name_a_column_of_the_dataset_in_any_form() {
    for (header, written) in FORMS.into_iter().flat_map(|header| FORMS.map(|written| (header, written))) {
        let text = format!(
            "{MODEL}[[models]]\nname = \"j\"\ncommand = [\"cat\"]\nmax_parallel = 1\n\
             [[columns]]\nname = \"a\"\nkind = \"judge\"\nmodel = \"j\"\ninputs = [\"{written}\"]\n\
             [[columns]]\nname = \"b\"\nkind = \"sampler\"\n\
             sampler = {{ law = \"subcategory\", of = \"{written}\", values = {{ x = [7] }} }}\n\
             [[columns]]\nname = \"c\"\nkind = \"sampler\"\nsampler = {{ law = \"bernoulli\", p = 0.5, \
             cases = [{{ when = \"true\", law = \"timedelta\", of = \"{written}\", low = 1, high = 1, unit = \"day\" }}] }}\n\
             [[columns]]\nname = \"d\"\nkind = \"expression\"\ntemplate = \"x\"\nupstreams = [\"{written}\"]\n\
             [output]\ncolumns = [{{ name = \"{written}\" }}, {{ name = \"x\", from = \"{written}.x\" }}]\n\
             unique = {{ column = \"{header}\" }}\n"
        );
        let resolved = resolve_with(&format!("id,{header}\n1,x\n"), &text).unwrap();
        for column in &resolved.columns[..3] {
            assert_eq!(column.inputs, [Input::Seed(1)], "{} in {text}", column.name);
        }
        let drawn = |at: usize, value: &str| {
            let column = &resolved.columns[at];
            let values = TemplateValue::from_pairs(resolved.keyed(column, Input::Seed(1), value.into()));
            let context = FillContext {
                column: "x",
                templates: &resolved.templates,
                values: &values,
                row: 0,
                is_whole_group: false,
            };
            match &column.fill {
                Fill::Judge(fill) => fill.request(context).unwrap(),
                Fill::Sampler(fill) => fill.fill(context).unwrap(),
                fill => panic!("{fill:?}"),
            }
        };
        let asked = json!({ "column": "x", "row": 0, "values": { header: "Ada" } });
        assert_eq!(drawn(0, "Ada"), asked, "a column keeps its name");
        assert_eq!((drawn(1, "x"), drawn(2, "2024-05-01")), (json!(7), json!("2024-05-02")));
        let output: Vec<_> = resolved.output.iter().map(|column| (column.name.as_str(), column.source)).collect();
        assert_eq!(output, [(written, OutputSource::Seed(1)), ("x", OutputSource::Seed(1))]);
        let unique = resolved.unique.as_ref().unwrap();
        assert_eq!(unique.column.get_ref(), written, "the output has the name that is listed");
    }
}

#[test]
fn keys_name_a_generated_column_in_any_form() {
    for (name, written) in FORMS.into_iter().flat_map(|name| FORMS.map(|written| (name, written))) {
        let answer = format!("\"{name}\"|model = \"m\"|prompt = \"{{{{ note }}}}\"");
        let resolved = resolve(&[
            &format!("\"a\"|kind = \"reasoning\"|of = \"{written}\""),
            &format!("\"b\"|kind = \"model\"|of = \"{written}\""),
            &format!("\"c\"|kind = \"expression\"|template = \"x\"|upstreams = [\"{written}\", \"note\"]"),
            &format!(
                "\"d\"|kind = \"expression\"|strategy = \"full_column\"|template = \"{{{{ rows[0].{written} }}}}\"|upstreams = [\"{written}\"]"
            ),
            &answer,
        ]);
        let resolved = resolved.unwrap();
        for column in &resolved.columns[..4] {
            assert_eq!(column.upstreams, [4], "{}", column.name);
        }
        assert_eq!(resolved.output_columns(), ["id", "note", "a", "b", "c", "d", name]);
        let of_sampler = |of: &str| {
            let category =
                format!("\"{name}\"|kind = \"sampler\"|sampler = {{ law = \"category\", values = [\"x\"] }}");
            let sampler = format!("sampler = {{ law = \"subcategory\", of = \"{of}\", values = {{ y = [1] }} }}");
            resolve(&[&category, &format!("\"s\"|kind = \"sampler\"|{sampler}")]).unwrap_err()
        };
        assert!(of_sampler(written).contains("has no list for \"x\""), "{}", of_sampler(written));
    }
}

#[test]
fn two_columns_whose_names_differ_only_in_their_form_are_an_error() {
    for (first, second) in FORMS.into_iter().flat_map(|first| FORMS.map(|second| (first, second))) {
        let constant = "kind = \"expression\"|template = \"x\"";
        let error = resolve(&[&format!("\"{first}\"|{constant}"), &format!("\"{second}\"|{constant}")]).unwrap_err();
        let message = format!("p.toml:13:8: the column `{second}` exists already, from an earlier [[columns]]");
        assert!(error.starts_with(&message), "{error}");
        assert_eq!(error.contains("in different forms of Unicode"), first != second, "{error}");

        let column =
            format!("[[columns]]\nname = \"{second}\"\nkind = \"expression\"\ntemplate = \"{{{{ {second} }}}}\"\n");
        let error = resolve_with(&format!("{first}\nx\n"), &format!("{MODEL}{column}")).unwrap_err();
        assert!(error.contains(&format!("`{second}` exists already, from the dataset")), "{error}");
        assert!(!error.contains("may be any of"), "one error is enough: {error}");

        let text = format!("{MODEL}{column}[output]\nrow_key = \"{first}\"\n");
        let error = resolve_text(&text).unwrap_err();
        assert!(error.contains("is the key of the row number, and also the name of this column"), "{error}");
        let error =
            resolve_with(&format!("{second}\nx\n"), &text.replace(&format!("name = \"{second}\""), "name = \"a\""));
        assert!(error.unwrap_err().contains("and also the name of a column of the dataset"));

        let listed = format!("{{ name = \"{first}\", from = \"id\" }}, {{ name = \"{second}\", from = \"note\" }}");
        let text = format!(
            "{MODEL}[[columns]]\nname = \"a\"\n{}\n[output]\ncolumns = [{listed}]\n",
            constant.replace('|', "\n")
        );
        let error = resolve_text(&text).unwrap_err();
        assert!(error.contains(&format!("the output has the column `{second}` already")), "{error}");
    }
}

#[test]
fn an_unknown_variable_in_any_form_is_an_error_at_its_place() {
    for (written, variable) in [("pr\u{e9}nom", "pr\u{e9}nom"), ("pre\u{301}nom", "pr\u{e9}nom"), ("pre", "pre")] {
        let text = format!("To pre\u{301}nom_2, pr\u{e9}: {{{{ {written} }}}}");
        let error = resolve(&[&format!("\"a\"|model = \"m\"|prompt = \"{text}\"")]).unwrap_err();
        assert!(error.starts_with(&format!("p.toml:11:33: unknown template variable `{variable}`\n")), "{error}");
    }
}

#[test]
fn a_variable_that_may_be_either_of_two_columns_is_an_error_that_names_both() {
    for (first, second) in [("full name", "full_name"), ("full name", "full-name"), ("full_name", "full name")] {
        let columns = |prompt: &str| {
            let constant = "kind = \"expression\"|template = \"x\"";
            let [first, second] = [first, second].map(|name| format!("\"{name}\"|{constant}"));
            resolve(&[&first, &second, &format!("\"a\"|model = \"m\"|prompt = \"{prompt}\"")])
        };
        let error = columns("Of {{ full_name }}").unwrap_err();
        let message = format!("p.toml:19:17: `full_name` may be any of the columns `{first}` and `{second}`\n");
        assert!(error.starts_with(&message), "{error}");
        columns("Of {{ note }}").expect("a column that no template reads may have any name");
    }
}

#[test]
fn a_syntax_error_of_a_template_has_its_line_in_the_file() {
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"\"\"|Sum up:|{{ note }\"\"\""]).unwrap_err();
    assert!(
        error.starts_with("p.toml:13:9: ") && error.contains("this template does not parse: syntax error"),
        "{error}"
    );
}

#[test]
fn a_listed_upstream_that_does_not_exist_is_an_error_at_its_place() {
    let error = resolve(&["\"a\"|kind = \"expression\"|template = \"x\"|upstreams = [\"id\", \"nots\"]"]).unwrap_err();
    assert!(error.starts_with("p.toml:12:20: the column `a` has the upstream `nots`, which does not exist"), "{error}");
    assert!(error.contains("did you mean `note`?"), "{error}");
}

#[test]
fn a_cycle_is_an_error_that_names_its_columns() {
    let error = resolve(&[
        "\"a\"|kind = \"expression\"|template = \"{{ b }}\"",
        "\"b\"|kind = \"expression\"|template = \"{{ note }}\"|upstreams = [\"a\"]",
    ])
    .unwrap_err();
    assert!(error.contains("these columns wait for each other: "), "{error}");
    assert!(error.contains("a -> b -> a") || error.contains("b -> a -> b"), "{error}");
    let error = resolve(&["\"a\"|kind = \"expression\"|template = \"{{ a }}\""]).unwrap_err();
    assert!(error.contains("these columns wait for each other: a -> a"), "{error}");
}

#[test]
fn a_duplicate_column_is_an_error_at_its_second_place() {
    let column = "\"a\"|kind = \"expression\"|template = \"x\"";
    let error = resolve(&[column, column]).unwrap_err();
    assert!(error.starts_with("p.toml:13:8: the column `a` exists already, from an earlier [[columns]]"), "{error}");
    let error = resolve(&["\"note\"|kind = \"expression\"|template = \"x\""]).unwrap_err();
    assert!(error.contains("from the dataset"), "{error}");
}

#[test]
fn a_weight_out_of_range_is_an_error_at_its_place() {
    for weight in ["0", "-1", "1e9"] {
        let error = resolve(&[&format!("\"a\"|model = \"m\"|prompt = \"x\"|weight = {weight}")]).unwrap_err();
        assert!(error.starts_with("p.toml:12:10: `weight` in [[columns]] is "), "{error}");
        assert!(error.contains("expected a number from 2^-20 to 2^20"), "{error}");
    }
}

#[test]
fn a_column_with_the_name_of_the_row_number_is_an_error_that_suggests_another_row_key() {
    let error = resolve(&["\"row\"|model = \"m\"|prompt = \"x\""]).unwrap_err();
    assert!(
        error.starts_with("p.toml:9:8: `row` is the key of the row number") && error.contains("row_key"),
        "{error}"
    );
    let text =
        format!("{MODEL}[[columns]]\nname = \"row\"\nmodel = \"m\"\nprompt = \"x\"\n[output]\nrow_key = \"nr\"\n");
    resolve_text(&text).expect("another key resolves the conflict");
}

#[test]
fn columns_that_are_named_outside_of_templates_are_upstreams() {
    let resolved = resolve(&[
        "\"k\"|kind = \"sampler\"|sampler = { law = \"uuid\" }",
        "\"s\"|kind = \"sampler\"|sampler = { law = \"subcategory\", of = \"k\", values = { a = [1] } }",
        "\"c\"|model = \"m\"|prompt = \"x\"|when = \"k != id\"",
    ])
    .unwrap();
    assert_eq!(resolved.columns[1].inputs, [Input::Generated(0)]);
    assert_eq!(resolved.columns[2].inputs, [Input::Seed(0), Input::Generated(0)]);
    let error =
        resolve(&["\"s\"|kind = \"sampler\"|sampler = { law = \"subcategory\", of = \"nots\", values = { a = [1] } }"])
            .unwrap_err();
    assert!(error.contains("`of` in [columns.sampler] names `nots`, which does not exist"), "{error}");
    assert!(error.contains("did you mean `note`?"), "{error}");
}

#[test]
fn a_subcategory_has_a_list_for_each_value_of_its_category() {
    let of = |category: &str, more: &str| {
        let category = format!("\"k\"|kind = \"sampler\"|sampler = {{ law = \"category\", {category} }}");
        let sampler = "sampler = { law = \"subcategory\", of = \"k\", values = { a = [1], 2 = [3] } }";
        resolve(&[&category, &format!("\"s\"|kind = \"sampler\"|{sampler}{more}")]).map(drop)
    };
    of("values = [\"a\", 2]", "").unwrap();
    of("values = [\"a\", \"b\"], weights = [1, 0]", "").unwrap();
    of("values = [\"a\", \"b\"]", "|when = \"k == 'a'\"").unwrap();
    let error = of("values = [\"a\", \"b\", 4]", "").unwrap_err();
    let message = "`values` in [columns.sampler] has no list for \"b\" or \"4\", a value of `k`";
    assert!(error.starts_with("p.toml:13:8: ") && error.contains(message), "{error}");
}

#[test]
fn a_condition_that_does_not_parse_or_reads_an_unknown_variable_is_an_error_at_its_place() {
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"x\"|when = \"note >\""]).unwrap_err();
    assert!(error.starts_with("p.toml:12:") && error.contains("this condition does not parse"), "{error}");
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"x\"|when = \"note) %}1{% endif %}{% if (id\""]).unwrap_err();
    assert!(
        error.starts_with(
            "p.toml:12:13: this condition does not parse: syntax error: unexpected input after expression"
        ),
        "{error}"
    );
    assert!(error.contains("expected one expression, such as `score > 3`"), "{error}");
    let error = resolve(&["\"a\"|model = \"m\"|prompt = \"x\"|when = \"{{ notes }}\""]).unwrap_err();
    assert!(error.starts_with("p.toml:12:12: unknown template variable `notes`"), "{error}");
}

#[test]
fn a_selection_without_rows_is_an_error() {
    let mut resolved = resolve(&["\"a\"|kind = \"expression\"|template = \"x\""]).unwrap();
    assert_eq!(resolved.rows, 0..1);
    assert_eq!(resolved.select_rows(Some(0..9), None, 4).map(|()| resolved.rows.clone()), Ok(0..1));
    let error = resolved.select_rows(Some(1..9), None, u64::MAX).unwrap_err();
    assert_eq!(error, "there are no such rows: the dataset has 1, counted from 0");
}

#[test]
fn the_ancestors_of_a_column_are_its_direct_and_indirect_upstreams_in_topological_order() {
    let resolved = resolve(&[
        "\"d\"|kind = \"expression\"|template = \"{{ b }} {{ c }}\"|upstreams = [\"a\"]",
        "\"c\"|kind = \"expression\"|template = \"{{ b }}\"",
        "\"b\"|kind = \"expression\"|template = \"{{ a }}\"",
        "\"a\"|kind = \"expression\"|template = \"{{ note }}\"",
    ])
    .unwrap();
    assert_eq!(
        (resolved.ancestors(0), resolved.ancestors(1), resolved.ancestors(3)),
        (vec![3, 2, 1], vec![3, 2], vec![])
    );
    assert_eq!(resolved.columns[0].upstreams, [1, 2, 3]);
    assert_eq!(resolved.topological_order(), [3, 2, 1, 0]);
}

#[cfg(feature = "parquet")]
#[test]
fn row_groups_that_are_done_are_skipped_in_the_dataset() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("r.parquet");
    let columns = vec![("note".to_string(), ColumnType::Integer)];
    let layout = Layout { format: RowFormat::Parquet, compression: ParquetCompression::default(), columns };
    let mut file = std::fs::File::create(&path).unwrap();
    layout
        .write(
            (0..50).map(|row| crate::app::data::row_file::FileRow::New(serde_json::json!({ "note": row }))),
            &mut file,
        )
        .unwrap();
    let text = format!("{MODEL}[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n");
    let file = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap();
    let mut resolved =
        ResolvedPipeline::resolve(&file, Dataset::load(&path, DatasetFormat::Parquet, None).unwrap()).unwrap();
    resolved.select_rows(Some(10..45), None, u64::MAX).unwrap();
    resolved.skip_row_groups([0, 1, 3, 400], 10);
    assert_eq!(resolved.dataset.skipped_rows(), [0..30, 40..45]);
}
