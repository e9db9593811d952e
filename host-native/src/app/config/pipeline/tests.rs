use super::*;

pub(super) const VALID: &str = r#"
[seed]
path = "notes.csv"

[[models]]
name = "writer"
provider = "mock"
model = "small"
max_parallel = 4
timeout = "5s"
aimd = { ramp = "3s", cooldown = "250ms", initial_limit = 2 }
mock = { seed = 9, capacity = { shape = "constant", slots = 3 } }

[[models]]
name = "judge"
provider = "acme"
base_url = "https://api.acme.test/v1"
api_key_env = "ACME_KEY"
max_parallel = 8

[[columns]]
name = "title"
model = "writer"
prompt = "A title for {{ note }}"
weight = 0.5

[[columns]]
name = "shout"
kind = "expression"
template = "{{ title | upper }}"
upstreams = ["note"]

[run]
row_group_size = 10
rate_limit_patience = "2m"
policy = "strict_fair"
adaptive_row_groups = true
yield_while_waiting = false
rate_limit_headers = false
"#;

fn parse(text: &str) -> Result<PipelineFile, String> {
    PipelineFile::parse(SourceText::new("p.toml", text), Path::new("dir")).map_err(|error| error.to_string())
}

/// Returns the error of the valid file with `from` replaced by `to`.
fn error_after(from: &str, to: &str) -> String {
    assert!(VALID.contains(from), "{from:?} is not in the file");
    parse(&VALID.replacen(from, to, 1)).expect_err("the file is wrong")
}

/// Asserts that the error after the replacement begins with the line `head` and contains `hint`.
fn assert_error_after(from: &str, to: &str, head: &str, hint: &str) {
    let error = error_after(from, to);
    assert_eq!(error.lines().next().unwrap(), head);
    assert!(error.contains(hint), "{hint:?} is not in:\n{error}");
}

#[test]
fn a_valid_file_is_parsed_into_typed_settings() {
    let file = parse(VALID).unwrap();
    assert_eq!(file.rows.dataset.as_ref().unwrap().location.to_string(), "dir/notes.csv");
    let [writer, judge] = file.models.as_slice() else { panic!("two models") };
    assert_eq!((writer.model.as_str(), writer.max_parallel.get()), ("small", 4));
    assert_eq!(writer.limit_config.ramp, tidegate_core::time::Duration::from_secs(3));
    assert!(matches!(&writer.endpoint, Endpoint::Mock(mock) if mock.seed == 9));
    assert_eq!(judge.model, "judge");
    let Endpoint::Remote { base_url, api_key_env } = &judge.endpoint else { panic!("a remote model") };
    assert_eq!((base_url.as_str(), api_key_env.as_deref()), ("https://api.acme.test/v1", Some("ACME_KEY")));
    let [title, shout] = file.columns.as_slice() else { panic!("two columns") };
    assert!((title.weight.get_ref() - 0.5).abs() < f64::EPSILON);
    assert!(matches!(shout.kind, ColumnKind::Expression { .. }));
    assert_eq!((file.run.row_group_size.get(), file.run.row_groups.get()), (10, 3));
    assert_eq!(file.run.policy, tidegate_core::pipeline::PolicyChoice::StrictFair);
    let switches = (file.run.adaptive_row_groups, file.run.pressure_advisory, file.run.yield_while_waiting);
    assert!(!file.run.rate_limit_headers);
    assert_eq!(switches, (true, true, false));
    assert_eq!(file.output.row_key, "row");
}

#[test]
fn an_unknown_key_is_rejected_with_its_location_and_the_most_similar_name() {
    let head = "p.toml:9:1: unknown key `max_paralel` in [[models]]";
    assert_error_after("max_parallel", "max_paralel", head, "did you mean `max_parallel`?");
    assert_error_after(
        "[run]",
        "[runs]",
        "p.toml:33:2: unknown key `runs` in the pipeline file",
        "did you mean `run`?",
    );
    let head = "p.toml:11:23: unknown key `cool_down` in [models.aimd]";
    assert_error_after("cooldown =", "cool_down =", head, "did you mean `cooldown`?");
    let head = "p.toml:12:53: unknown key `slot` in [models.mock.capacity]";
    assert_error_after("slots = 3", "slot = 3", head, "did you mean `slots`?");
}

#[test]
fn a_key_of_the_original_system_is_rejected_with_its_replacement() {
    for (from, to, help) in [
        ("max_parallel = 4", "max_parallel_requests = 4", "did you mean `max_parallel`?"),
        ("max_parallel = 4", "max_parallel = 4\nstartup_ramp_seconds = 3.0", "use instead: `ramp`, a duration"),
        ("max_parallel = 4", "max_parallel = 4\nthrottle = {}", "use instead: `limit` and `aimd`"),
        ("row_group_size = 10", "buffer_size = 10", "did you mean `row_group_size`?"),
        ("row_group_size = 10", "max_parallel_requests = 10", "it is called `max_parallel`"),
        ("row_group_size = 10", "disable_early_shutdown = true", "use instead: `shutdown_rate = \"never\"`"),
        ("initial_limit = 2", "ceiling_overshoot = 0.1", "there is no such setting: the limit `tide` finds"),
        ("model = \"writer\"", "model_alias = \"writer\"", "did you mean `model`?"),
    ] {
        let error = error_after(from, to);
        assert!(error.contains("unknown key `") && error.contains(&format!("help: {help}")), "{error}");
    }
}

#[test]
fn a_secret_in_the_file_is_rejected_without_being_shown() {
    let error = error_after("api_key_env = \"ACME_KEY\"", "api_key = \"sk-hunter2\"");
    assert!(error.contains("unknown key `api_key`") && error.contains("did you mean `api_key_env`?"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn a_missing_key_is_reported_with_its_table() {
    let head = "p.toml:5:1: [[models]] has no `max_parallel`";
    assert_error_after("max_parallel = 4\n", "", head, "help: max_parallel: The maximum number of calls in flight");
    let head = "p.toml:21:1: [[columns]] has no `prompt`";
    assert_error_after("prompt = \"A title for {{ note }}\"\n", "", head, "a template, or `messages`");
    let head = "p.toml:2:1: [seed] has no `path`";
    assert_error_after("path = \"notes.csv\"\n", "", head, "expected `path = `");
}

#[test]
fn an_array_in_place_of_a_table_is_rejected() {
    assert_error_after("[run]", "[[run]]", "p.toml:33:1: `run` in the pipeline file is an array of 1 items", "a table");
    let price = "price = [1, 2]\nmax_parallel = 4";
    assert_error_after(
        "max_parallel = 4",
        price,
        "p.toml:9:9: `price` in [[models]] is an array of 2 items",
        "a table",
    );
}

#[test]
fn an_unknown_limit_is_rejected_with_the_choices() {
    let head = "p.toml:9:9: `limit` in [[models]] is the string \"tied\"";
    assert_error_after("max_parallel = 4", "limit = \"tied\"\nmax_parallel = 4", head, "did you mean `tide`?");
}

/// Returns the first model of the valid file, with `limit` in place of its AIMD settings.
fn first_model(limit: &str) -> Result<ModelSpec, String> {
    let settings = "aimd = { ramp = \"3s\", cooldown = \"250ms\", initial_limit = 2 }";
    assert!(VALID.contains(settings));
    parse(&VALID.replacen(settings, limit, 1)).map(|mut file| file.models.remove(0))
}

#[test]
fn the_default_limit_is_tide_and_a_table_aimd_selects_aimd() {
    for (limit, name, is_given) in [
        ("", "tide", false),
        ("ramp = \"3s\"\ncooldown = \"1s\"", "tide", false),
        ("limit = \"tide\"", "tide", true),
        ("limit = \"aimd\"", "aimd", true),
        ("aimd = { increase_step = 2 }", "aimd", true),
        ("aimd = {}", "aimd", true),
        ("limit = \"aimd\"\naimd = { increase_step = 2 }", "aimd", true),
        ("limit = \"fixed\"", "fixed", true),
    ] {
        let model = first_model(limit).unwrap();
        assert_eq!((model.limit.name(), model.is_limit_given), (name, is_given), "{limit}");
    }
    assert_eq!(parse(VALID).unwrap().models[1].limit, crate::gate::default_limit());
}

#[test]
fn a_table_aimd_beside_another_limit_is_rejected_with_the_alternative() {
    let error = first_model("limit = \"tide\"\naimd = { increase_step = 2 }").unwrap_err();
    let head = "p.toml:12:8: `aimd` in [[models]] sets the limit \"aimd\", and the table has `limit = \"tide\"`";
    assert_eq!(error.lines().next(), Some(head));
    assert!(
        error.contains("`limit = \"aimd\"`, or no `aimd`; `cooldown`, `max_cooldown`, `ramp` apply to every"),
        "{error}"
    );
}

#[test]
fn the_ramp_and_the_cooldowns_apply_to_every_limit() {
    let model = first_model("limit = \"vegas\"\nramp = \"3s\"\ncooldown = \"250ms\"\nmax_cooldown = \"1m\"").unwrap();
    let millis = tidegate_core::time::Duration::from_millis;
    assert_eq!(model.limit.name(), "vegas");
    assert_eq!(
        (model.limit_config.ramp, model.limit_config.cooldown, model.limit_config.max_cooldown),
        (millis(3_000), millis(250), millis(60_000))
    );
    let model = first_model("ramp = \"3s\"\naimd = { initial_limit = 2 }").unwrap();
    assert_eq!((model.limit_config.ramp, model.limit_config.initial_limit), (millis(3_000), Some(2)));
    let error = first_model("cooldown = \"0s\"").unwrap_err();
    assert!(error.starts_with("p.toml:11:12: `cooldown` in [[models]] is 0ns"), "{error}");
    let error = first_model("cooldown = \"20m\"").unwrap_err();
    assert!(
        error.starts_with("p.toml:11:12: `max_cooldown` in [[models]] is ") && error.contains("at least `cooldown`"),
        "{error}"
    );
}

#[test]
fn models_with_the_same_provider_and_model_id_share_one_limit() {
    let two = |again: &str| {
        let second = format!(
            "[[models]]\nname = \"twin\"\nprovider = \"acme\"\nmodel = \"judge\"\nmax_parallel = 2\n\
                              base_url = \"https://api.acme.test/v1\"\n{again}\n[[columns]]"
        );
        let first = VALID.replacen("max_parallel = 8", "max_parallel = 8\nlimit = \"vegas\"", 1);
        parse(&first.replacen("[[columns]]", &second, 1))
    };
    for again in ["", "limit = \"vegas\""] {
        assert_eq!(two(again).unwrap().models[2].limit.name(), "vegas");
    }
    for (key, again) in [("limit", "limit = \"tide\""), ("ramp", "ramp = \"3s\""), ("aimd", "aimd = {}")] {
        let error = two(again).unwrap_err();
        assert!(error.contains("`judge` is the same provider and model id, and one limit holds for both"), "{error}");
        assert!(error.contains(&format!("`{key}` in the first of them only")), "{error}");
    }
}

#[test]
fn an_invalid_policy_or_switch_is_rejected_with_the_choices() {
    let head = "p.toml:36:10: `policy` in [run] is the string \"strictfair\"";
    assert_error_after("strict_fair", "strictfair", head, "did you mean `strict_fair`?");
    let head = "p.toml:37:23: `adaptive_row_groups` in [run] is the string \"yes\"";
    assert_error_after("adaptive_row_groups = true", "adaptive_row_groups = \"yes\"", head, "expected true or false");
}

#[test]
fn a_rate_is_never_or_a_fraction() {
    let run = |lines: &str| parse(&VALID.replace("[run]\n", &format!("[run]\n{lines}\n"))).unwrap().run;
    let off = run("shutdown_rate = \"never\"\ndegraded_rate = \"never\"\ndegraded_window = 7");
    assert_eq!((off.shutdown_rate, off.degraded_rate, off.degraded_window.get()), (None, None, 7));
    let usual = run("");
    assert_eq!((usual.shutdown_rate, usual.degraded_rate, usual.degraded_window.get()), (Some(0.5), Some(0.5), 20));
    assert_eq!(run("shutdown_rate = 1").shutdown_rate, Some(1.0));
    for wrong in ["0", "1.5", "-1", "\"always\"", "nan"] {
        let error = error_after("[run]", &format!("[run]\nshutdown_rate = {wrong}"));
        assert!(error.starts_with("p.toml:34:17: `shutdown_rate` in [run] is "), "{error}");
        assert!(error.contains("expected a number above 0 and at most 1, or \"never\""), "{error}");
    }
}

#[test]
fn a_toml_syntax_error_is_reported_with_its_location() {
    let error = parse("[seed\npath = 1").unwrap_err();
    assert!(error.starts_with("p.toml:1:6: this is not TOML: "), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_or_range_is_shown_with_what_was_expected() {
    let head = "p.toml:9:16: `max_parallel` in [[models]] is 0";
    assert_error_after("max_parallel = 4", "max_parallel = 0", head, "expected a whole number from 1 to");
    let head = "p.toml:10:11: `timeout` in [[models]] is the string \"5\"";
    assert_error_after("\"5s\"", "\"5\"", head, "expected a duration such as");
    let head = "p.toml:25:10: `weight` in [[columns]] is the string \"heavy\"";
    assert_error_after("weight = 0.5", "weight = \"heavy\"", head, "expected a finite number");
    let head = "p.toml:25:10: `weight` in [[columns]] is nan";
    assert_error_after("weight = 0.5", "weight = nan", head, "expected a finite number");
}

#[test]
fn an_unknown_model_is_rejected_with_the_most_similar_name() {
    let head = "p.toml:23:9: there is no model `writr`";
    assert_error_after("model = \"writer\"", "model = \"writr\"", head, "did you mean `writer`?");
}

#[test]
fn keys_of_another_kind_are_rejected() {
    let error = error_after("kind = \"expression\"", "kind = \"expression\"\nprompt = \"x\"");
    assert!(error.contains("`prompt` is given for a column of kind `expression`"), "{error}");
    let error = error_after("kind = \"expression\"", "kind = \"expresion\"");
    assert!(error.contains("did you mean `expression`?"), "{error}");
}

#[test]
fn an_address_with_a_password_is_rejected_without_showing_it() {
    let error = error_after("https://api", "https://user:hunter2@api");
    assert!(error.contains("holds a user name or password") && !error.contains("hunter2"), "{error}");
}

#[test]
fn models_with_the_same_provider_and_model_id_share_one_address_and_one_mock() {
    let two = |second: &str| format!("{VALID}\n[[models]]\nname = \"again\"\nmax_parallel = 2\n{second}");
    let error = parse(&two("provider = \"acme\"\nmodel = \"judge\"\nbase_url = \"https://other.test\"")).unwrap_err();
    assert!(error.contains("one provider has one address"), "{error}");
    let error = parse(&two("provider = \"mock\"\nmodel = \"small\"\nmock = {}")).unwrap_err();
    assert!(error.contains("describes this mock already"), "{error}");
    let file = parse(&two("provider = \"mock\"\nmodel = \"small\"")).unwrap();
    assert_eq!(file.models[2].endpoint, Endpoint::SameMock);
    let error = parse(&two("provider = \"mock\"")).unwrap_err();
    assert!(error.contains("has no `mock`"), "{error}");
}

#[test]
fn a_mock_value_out_of_range_is_rejected_at_its_field() {
    let error = error_after("slots = 3", "slots = 3000000");
    assert!(error.starts_with("p.toml:12:61: `capacity.slots` in [models.mock] is 3000000"), "{error}");
}

#[test]
fn a_file_without_columns_or_seed_is_rejected_with_the_missing_table() {
    let error = parse("[seed]\npath = \"a.csv\"\n").unwrap_err();
    assert!(error.contains("has no [[columns]]"), "{error}");
    let error = error_after("[seed]\npath = \"notes.csv\"\n", "");
    assert!(error.contains("has no [seed]"), "{error}");
    let error = error_after("notes.csv", "notes.xml");
    assert!(error.contains("names no dataset format"), "{error}");
}
