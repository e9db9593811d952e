//! Tests of columns of kind `validation`: whole runs of the program with commands and JSON Schemas.

use serde_json::json;

use crate::support::Scratch;

/// Returns a pipeline that checks the column `text` of `texts.jsonl`.
fn pipeline(models: &str, columns: &str) -> String {
    format!("[seed]\npath = \"texts.jsonl\"\n{models}\n{columns}\n[run]\nshutdown_rate = \"never\"\n")
}

#[test]
fn a_json_schema_checks_texts_and_values_without_a_call() {
    let scratch = Scratch::new(0);
    scratch.write(
        "texts.jsonl",
        "{\"text\": \"{\\\"n\\\": 1}\", \"value\": {\"n\": 1}}\n\
         {\"text\": \"{n: 1}\", \"value\": {\"n\": \"one\"}}\n\
         {\"text\": \"{\\\"n\\\": 9}\", \"value\": {}}\n",
    );
    scratch
        .write("n.json", "{\"properties\": {\"n\": {\"type\": \"integer\", \"maximum\": 5}}, \"required\": [\"n\"]}");
    let columns = "[[columns]]\nname = \"of_text\"\nkind = \"validation\"\ninput = \"{{ text }}\"\nschema_file = \"n.json\"\n\
                   [[columns]]\nname = \"of_value\"\nkind = \"validation\"\ninput = \"{{ value }}\"\nschema_file = \"n.json\"\n\
                   [[columns]]\nname = \"is_json\"\nkind = \"validation\"\ninput = \"{{ text }}\"\n\
                   [output]\ncolumns = [{ name = \"of_text\" }, { name = \"of_value\" }, { name = \"is_json\", from = \"is_json.valid\" }]\n";
    scratch.run_pipeline(&pipeline("", columns)).assert(0, &["calls            0", "rows out         3"]);
    let rows = scratch.rows("out");
    let valid = json!({ "valid": true, "errors": [] });
    assert_eq!(rows[0], json!({ "row": 0, "of_text": valid, "of_value": valid, "is_json": true }));
    assert!(rows[1]["of_text"]["errors"][0].as_str().unwrap().starts_with("it is not JSON: "), "{}", rows[1]);
    assert!(rows[1]["of_value"]["errors"][0].as_str().unwrap().ends_with("(at /n)"), "{}", rows[1]);
    assert_eq!((&rows[1]["is_json"], &rows[2]["is_json"]), (&json!(false), &json!(true)));
    assert_eq!(rows[2]["of_value"]["errors"], json!(["\"n\" is a required property"]));
}

#[test]
fn a_command_decides_by_its_exit_code_and_its_failure_drops_the_row() {
    let scratch = Scratch::new(0);
    scratch.write(
        "texts.jsonl",
        "{\"text\": \"fine\"}\n{\"text\": \"bad\\nworse\"}\n{\"text\": \"broken\"}\n{\"text\": \"busy\"}\n{\"text\": \"other\"}\n",
    );
    let script = "case $(cat) in fine) ;; bad*) echo 'line 1: bad'; echo 'found 1' >&2; exit 1;; other) exit 4;; \
                  busy) if [ -e tried ]; then exit 0; else touch tried; exit 75; fi;; *) echo 'no rules' >&2; exit 2;; esac";
    let models = format!("[[models]]\nname = \"lint\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\nmax_parallel = 2\n");
    let columns = "[[columns]]\nname = \"lint\"\nkind = \"validation\"\nmodel = \"lint\"\ninput = \"{{ text }}\"\n\
                   invalid_exit_codes = [1, 4]\n\
                   [[columns]]\nname = \"loud\"\nkind = \"expression\"\ntemplate = \"{{ lint.errors | join(' / ') }}\"\n";
    let ended = scratch.run_pipeline(&pipeline(&models, columns));
    ended.assert(6, &["the command failed (exit status: 2: no rules)", "command/lint "]);
    let rows = scratch.rows("out");
    let loud: Vec<_> = rows.iter().map(|row| (row["row"].as_u64().unwrap(), row["loud"].as_str().unwrap())).collect();
    assert_eq!(loud, [(0, ""), (1, "line 1: bad / found 1"), (3, ""), (4, "the command gives no reason")]);
    assert_eq!(rows[1]["lint"]["valid"], false);
    let wrong = columns.replace("lint.errors", "lint.error");
    scratch.run_pipeline(&pipeline(&models, &wrong)).assert(2, &["error", "did you mean `errors`?"]);
}

#[test]
fn the_example_of_the_reference_checks_code_with_the_commands_of_the_reference() {
    let reference = include_str!("../../docs/pipeline-file.md");
    let section = &reference[reference.find("### Kind `validation`").unwrap()..];
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    // The answer of the model is a value of the dataset here, and the linter may not be installed.
    let (_, columns) = example.split_once("[[columns]]\nname = \"python_check\"").unwrap();
    let (before, lint) = columns.split_once("[[columns]]\nname = \"lint\"").unwrap();
    let (_, size) = lint.split_once("[[columns]]\nname = \"size\"").unwrap();
    let columns = format!("[[columns]]\nname = \"python_check\"{before}[[columns]]\nname = \"size\"{size}");
    let (_, models) = example.split_once("[[models]]\nname = \"python\"").unwrap();
    let (models, _) = models.split_once("[[models]]\nname = \"ruff\"").unwrap();
    let models = format!("[[models]]\nname = \"python\"{models}");
    let scratch = Scratch::new(0);
    let codes = [
        ("def f(x):\n    return x\n", "SELECT max(height) FROM tides"),
        ("def f(x):\nreturn x\n", "SELECT max(height) FROM tides"),
        ("x = 1\n", "SELECT depth FROM tides"),
    ];
    let lines = codes.map(|(python, sql)| json!({ "code": { "python": python, "sql": sql } }).to_string() + "\n");
    scratch.write("texts.jsonl", &lines.concat());
    scratch.run_pipeline(&pipeline(&models, &columns)).assert(0, &["2 rejected by size"]);
    assert_eq!(scratch.rows("out").len(), 1);
    let all = columns.replace("accept_if", "# accept_if");
    scratch.run(&["check", "pipeline.toml"]).assert(0, &["command/python "]);
    std::fs::remove_dir_all(scratch.path("out")).unwrap();
    scratch.run_pipeline(&pipeline(&models, &all)).assert(0, &[]);
    let rows = scratch.rows("out");
    let error = rows[1]["python_check"]["errors"][0].as_str().unwrap();
    assert!(error.contains("indented block") && error.ends_with("(line 2)"), "{error}");
    assert_eq!(rows[2]["sql_check"]["errors"], json!(["no such column: depth"]));
}
