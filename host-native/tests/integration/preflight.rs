//! Tests of the checks before a run, in `run` and in `run --dry-run`: all errors are reported with their
//! locations, without a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;

use crate::support::{Ended, Scratch, remote_pipeline, serve};

/// Starts a provider that counts its calls. Returns its base URL and the counter.
fn provider() -> (String, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let answer = move || async move { seen.fetch_add(1, Ordering::SeqCst).to_string() };
    (serve(Router::new().fallback(answer)) + "/v1", calls)
}

/// Asserts that a dry run and a run of `columns` both exit with `code` and print `parts`, without a call or a
/// file.
fn assert_rejected(columns: &str, code: i32, parts: &[&str]) -> Ended {
    let (url, calls) = provider();
    let scratch = Scratch::new(3);
    scratch.write("p.toml", &(remote_pipeline(&url, "", "") + columns));
    let dry = scratch.run(&["run", "p.toml", "--dry-run", "--out", "out"]);
    dry.assert(code, parts);
    scratch.run(&["run", "p.toml", "--out", "out"]).assert(code, parts);
    assert!(calls.load(Ordering::SeqCst) == 0 && !scratch.path("out").exists());
    dry
}

/// Asserts that a dry run of `columns` over a JSON Lines dataset finds no error.
fn assert_accepted(columns: &str) -> Ended {
    let scratch = Scratch::new(0);
    let rows = [0, 1, 2, 3, 4].map(|row| format!("{{\"note\": \"n{row}\", \"meta\": {{\"tags\": [{row}]}}}}\n"));
    scratch.write("data.jsonl", &rows.concat());
    let (url, _) = provider();
    scratch.write("p.toml", &(remote_pipeline(&url, "", "").replace("data.csv", "data.jsonl") + columns));
    let ended = scratch.run(&["run", "p.toml", "--dry-run"]);
    ended.assert(0, &[]);
    ended
}

fn llm(name: &str, prompt: &str, more: &str) -> String {
    format!("[[columns]]\nname = \"{name}\"\nmodel = \"m\"\nprompt = \"{prompt}\"\n{more}\n")
}

const CLOSED: &str = "schema = { type = \"object\", additionalProperties = false, properties = { score = { type = \"integer\" }, \
                      why = { type = \"string\" } } }";

#[test]
fn an_unknown_filter_or_test_is_rejected_with_its_location() {
    let columns = llm("a", "{% if title is blank %}{{ note | uper }}{% endif %}", "");
    let ended =
        assert_rejected(&columns, 2, &["unknown filter `uper`", "did you mean `upper`?", "unknown test `blank`"]);
    ended.assert(
        2,
        &["p.toml:20:26: unknown test `blank`", "p.toml:20:44: unknown filter `uper`", "2 errors; nothing was started"],
    );
    assert_rejected(
        &llm("a", "x", "when = \"note | lenght > 3\""),
        2,
        &["p.toml:21:16: unknown filter `lenght`", "`length`?"],
    );
    assert_rejected(&llm("a", "{{ rnge(3) }}", ""), 2, &["unknown function `rnge`", "did you mean `range`?"]);
}

#[test]
fn all_template_errors_are_listed_in_the_order_of_the_file() {
    let columns =
        llm("a", "{{ note | uper }} {{ notes }}", "when = \"row is od\"") + &llm("b", "{{ a.trim() }} {{ }}", "");
    let ended = assert_rejected(&columns, 2, &["4 errors; nothing was started"]);
    let found = ["`uper`", "`notes`", "`od`", "this template does not parse"].map(|part| ended.stderr.find(part));
    assert!(found.iter().all(Option::is_some) && found.is_sorted(), "{}", ended.all());
}

#[test]
fn a_method_call_is_rejected_with_the_equivalent_filter() {
    let parts = ["p.toml:20:14: unknown method `upper`", "expected a filter, such as `note | upper`"];
    assert_rejected(&llm("a", "{{ note.upper() }}", ""), 2, &parts);
    assert_rejected(&llm("a", "{{ title.strip() }}", ""), 2, &["unknown method `strip`", "`title | trim`"]);
}

#[test]
fn a_field_that_no_value_has_is_rejected() {
    assert_rejected(&llm("a", "{{ note.lenght }}", ""), 2, &["there is no field `lenght`: `note` is a text"]);
    let misspelt = llm("a", "x", CLOSED) + &llm("b", "{% for i in range(0) %}{{ a.scor }}{% endfor %}", "");
    let parts = ["there is no field `scor`", "expected one of: score, why", "did you mean `score`?"];
    assert_rejected(&misspelt, 2, &parts);
    let rows =
        llm("a", "{% for r in rows %}{{ r.titel }}{% endfor %}", "strategy = \"full_column\"\nupstreams = [\"title\"]");
    assert_rejected(&rows, 2, &["there is no field `titel`", "did you mean `title`?"]);
}

#[test]
fn a_template_that_fails_for_all_sampled_rows_is_rejected_and_one_that_fails_for_some_is_reported() {
    assert_rejected(&llm("a", "{{ note | int }}", ""), 2, &["`a` fails for every one of the first rows", "p.toml:20:"]);
    assert_rejected(
        &llm("a", "x", "temperature = \"{{ note }}\""),
        2,
        &["`a` has no value for any of the first rows: `temperature` is \"entry 0"],
    );
    let some =
        assert_accepted("[[columns]]\nname = \"a\"\nkind = \"expression\"\ntemplate = \"{{ 1 // meta.tags[0] }}\"\n");
    some.assert(0, &["`a` could not be rendered for 1 of these rows: such as", "The run would drop them"]);
}

#[test]
fn an_access_that_depends_on_an_answer_is_not_an_error() {
    let open =
        "schema = { type = \"object\", properties = { items = { type = \"array\", items = { type = \"object\" } } } }";
    let columns = [
        llm("open", "x", open),
        llm("closed", "x", CLOSED),
        llm("free", "x", "output = \"json\""),
        llm("a", "{{ free.some.path[3].x }} {{ open.other }} {{ title | int }} {{ (title | split(' '))[7] }}", ""),
        llm("b", "{% for i in open['items'] %}{{ i.name }}{{ loop.index }}{% else %}none{% endfor %}", ""),
        llm("c", "{{ closed.note | default('') }}{% if closed.more is defined %}{{ closed.more }}{% endif %}", ""),
        llm("d", "{% set x = closed %}{% if free %}{% set x = free %}{% endif %}{{ x.other }}", ""),
        llm("e", "{{ 1 / closed.score }} {{ free | map(attribute='x') | join(', ') }} {{ closed.why[0] }}", ""),
        llm(
            "f",
            "{% macro m(v) %}{{ v.any.thing }}{% endmacro %}{{ m(free) }}{% set n = namespace(i=0) %}{{ n.i }}",
            "",
        ),
        llm(
            "g",
            "{% for r in rows %}{{ r.note }}{% endfor %}{{ rows[0].meta.tags | first }}{{ rows[900].note }}",
            "strategy = \"full_column\"",
        ),
        llm("h", "{{ meta.tags[0] }}", "when = \"free.is_good and title | length > 3\""),
    ];
    assert_accepted(&columns.concat());
}

#[test]
fn a_missing_key_or_command_is_reported_with_all_other_errors() {
    let (url, calls) = provider();
    let scratch = Scratch::new(3);
    let pipeline = remote_pipeline(&url, "api_key_env = \"TIDEGATE_TEST_NO_KEY\"", "")
        + "[[models]]\nname = \"judge\"\ncommand = [\"no-such-judge\"]\nmax_parallel = 1\n\
           [[models]]\nname = \"spare\"\nprovider = \"x\"\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key_env = \"TIDEGATE_TEST_NO_KEY_EITHER\"\nmax_parallel = 1\n\
           [[columns]]\nname = \"grade\"\nkind = \"judge\"\nmodel = \"judge\"\ninput = \"{{ title | nosuch }}\"\n";
    scratch.write("p.toml", &pipeline);
    scratch.write("file", "");
    for command in [&["run", "p.toml", "--out", "file/out"][..], &["run", "p.toml", "--out", "file/out", "--dry-run"]] {
        let parts = [
            "4 errors; nothing was started",
            "environment variable `TIDEGATE_TEST_NO_KEY`, which is not set",
            "the command `no-such-judge`, which is in no directory of PATH",
            "unknown filter `nosuch`",
            "cannot write to file/out",
        ];
        let ended = scratch.run(command);
        ended.assert(2, &parts);
        assert!(!ended.all().contains("NO_KEY_EITHER"), "no column uses it: {}", ended.all());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_key_given_instead_of_a_variable_name_is_printed_nowhere() {
    let scratch = Scratch::new(1);
    let not_a_name = "`api_key_env` of the model `m` is not the name of an environment variable";
    let not_set = "the model `m` takes its key from an environment variable that is not set";
    for (key, error) in
        [("sk-very-secret", not_a_name), ("gsk_very_secret", not_set), ("AKIAIOSFODNN7EXAMPLE", not_set)]
    {
        scratch.write("p.toml", &remote_pipeline("http://127.0.0.1:9/v1", &format!("api_key_env = \"{key}\""), ""));
        for command in [&["run", "p.toml"][..], &["run", "p.toml", "--dry-run"], &["check", "p.toml"]] {
            let ended = scratch.run(command);
            ended.assert(2, &[error]);
            assert!(!ended.all().contains(key), "{}", ended.all());
        }
    }
    let key = "sk-very-secret";
    let mock = format!("[[models]]\nname = \"m\"\nprovider = \"mock\"\napi_key_env = \"{key}\"\nmax_parallel = 1\n");
    let inline = format!("models = [{{ name = \"m\", api_key_env = \"{key}\", max_paralel = 4 }}]\n");
    for (models, error) in [
        (mock.clone(), "`api_key_env`"),
        (mock.replace("secret\"", "secret"), "this is not TOML"),
        (mock.replace("max_parallel", &format!("api_key_env = \"{key}\"\nmax_parallel")), "this is not TOML"),
        (inline, "unknown key `max_paralel`"),
    ] {
        scratch.write("p.toml", &models);
        let ended = scratch.run(&["check", "p.toml"]);
        ended.assert(2, &["p.toml:", error]);
        assert!(!ended.all().contains(key), "{}", ended.all());
    }
}

#[test]
fn a_dry_run_lists_what_its_estimate_leaves_out_where_the_pipeline_uses_it() {
    let left_out = |columns: &str| -> Vec<String> {
        let ended = assert_accepted(columns);
        let lines = ended.stdout.lines().filter_map(|line| line.trim().strip_prefix("not included: "));
        lines.map(str::to_string).collect()
    };
    let retries = "retries of failed calls, at most 3 for each task";
    assert_eq!(left_out(""), [retries]);
    assert_eq!(left_out("retries = 0\n"), Vec::<String>::new());
    let columns =
        llm("small", "x", "output = \"json\"\nschema_retries = 1") + &llm("long", "x", "retry_max_tokens = 900");
    assert_eq!(
        left_out(&columns),
        [
            retries,
            "calls after answers of `small` that do not fit, at most 1 for each conversation",
            "second calls after truncated answers of `long`",
        ]
    );
    assert_eq!(left_out(&llm("sure", "x", "output = \"json\"\nschema_retries = 0")), [retries]);
    let model = |name: &str, domain: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\nprovider = \"mock\"\nmax_parallel = 1\ndomain = \"{domain}\"\nmock = {{}}\n"
        )
    };
    let column = |name: &str, keys: &str| format!("[[columns]]\nname = \"{name}\"\n{keys}\n");
    let columns = llm("long", "x", "")
        + &model("second", "chat")
        + &model("embedder", "embedding")
        + &model("painter", "image")
        + &column("either", "models = [\"m\", \"second\"]\nprompt = \"x\"")
        + &column("thoughts", "kind = \"reasoning\"\nof = \"either\"")
        + &column("vector", "kind = \"embedding\"\nmodel = \"embedder\"\ninput = \"x\"\nbatch_size = 8")
        + &column("cover", "kind = \"image\"\nmodel = \"painter\"\nprompt = \"x\"")
        + &column("sized", "kind = \"image\"\nmodel = \"painter\"\nprompt = \"x\"\nanswer_tokens = 900");
    assert_eq!(
        left_out(&columns),
        [
            retries,
            "calls of `either` to its second model and later ones",
            "the reasoning for `either`, other than by its `answer_tokens`",
            "calls for parts of the texts of `vector`, if a model rejects some of them",
            "the tokens of the images that `cover` makes, since it has no `answer_tokens`",
            "the tokens of the images that `sized` makes, other than by their `answer_tokens`",
        ]
    );
}
