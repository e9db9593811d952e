//! Tests of invalid values for each key: the error has the location, the value found and the value expected.

use super::*;

const HEAD: &str = "[seed]\npath = \"d.csv\"\n";
const CHAT: &str = "[[models]]\nname = \"m\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\n";
const COLUMN: &str = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\n";

/// Asserts that `text` is rejected with a location, an expectation and each of `parts`.
fn assert_rejected(text: &str, parts: &[&str]) {
    let parsed = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("dir"));
    let error = parsed.expect_err(text).to_string();
    assert!(error.starts_with("p.toml:") && error.contains("expected "), "{error}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in:\n{error}");
    }
}

/// Like [`assert_rejected`], for a chat model with `line` added.
fn assert_model_rejected(line: &str, parts: &[&str]) {
    assert_rejected(&format!("{HEAD}{CHAT}{line}\n{COLUMN}"), parts);
}

/// Like [`assert_rejected`], for a column of kind llm with `line` added.
fn assert_llm_rejected(line: &str, parts: &[&str]) {
    assert_rejected(&format!("{HEAD}{CHAT}{COLUMN}{line}\n"), parts);
}

/// Like [`assert_rejected`], for a sampler column with `keys`.
fn assert_sampler_rejected(keys: &str, parts: &[&str]) {
    assert_rejected(&format!("{HEAD}[[columns]]\nname = \"a\"\nkind = \"sampler\"\nsampler = {{ {keys} }}\n"), parts);
}

#[test]
fn prices_and_budgets_must_be_in_range_and_in_one_currency() {
    let price = |text: &str| format!("price = {{ {text} }}");
    assert_model_rejected(
        &price("input_per_million = -1"),
        &["p.toml:8:31: `input_per_million` in [models.price] is -1", "from 0 to 1000000"],
    );
    assert_model_rejected(
        &price("input_per_million = 1, output_per_million = 1e9"),
        &["`output_per_million` in [models.price] is 1e9"],
    );
    assert_model_rejected(&price("output_per_million = 1"), &["[models.price] has no `input_per_million`"]);
    let image = |price: &str| format!("domain = \"image\"\nprice = {{ {price} }}\n");
    assert_model_rejected(&image("per_image = 2000"), &["`per_image` in [models.price] is 2000", "from 0 to 1000"]);
    assert_model_rejected(
        &price("input_per_million = 1, per_image = 0.04"),
        &["`per_image` is given for a model of the domain `chat`", "only for models of images"],
    );
    assert_model_rejected(&price("input_per_milion = 1"), &["did you mean `input_per_million`?"]);
    let second = CHAT.replace("\"m\"", "\"n\"");
    let two =
        format!("price = {{ input_per_million = 1 }}\n{second}price = {{ input_per_million = 1, currency = \"EUR\" }}");
    assert_model_rejected(&two, &["this price is in EUR, and an earlier one in USD", "one currency"]);
    assert_model_rejected(
        "budgets = { tokens_per_minute = 0 }",
        &["`tokens_per_minute` in [models.budgets] is 0", "from 1 to 10^15"],
    );
    assert_model_rejected("budget = {}", &["unknown key `budget` in [[models]]", "did you mean `budgets`?"]);
    assert_model_rejected("budgets = { tokens_per_minut = 5 }", &["did you mean `tokens_per_minute`?"]);
}

#[test]
fn a_key_is_sent_unencrypted_only_to_this_machine_unless_allowed() {
    let key = |url: &str, more: &str| {
        let chat = CHAT.replace("http://h", url);
        format!("{HEAD}{chat}api_key_env = \"K\"\n{more}\n{COLUMN}")
    };
    let accepted = |text: &str| drop(PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap());
    let hint = "expected an address with https, or of this machine; or `allow_plain_http = true` beside it";
    for far in ["http://10.0.0.7:8000/v1", "http://localhost.example/v1", "http://0.0.0.0/v1"] {
        let host = far.split(['/', ':']).nth(3).unwrap();
        let message = format!("p.toml:6:12: keys would go to `{host}` unencrypted");
        assert_rejected(&key(far, ""), &[&message, hint]);
        assert_rejected(&key(far, "allow_plain_http = false"), &[&message]);
        accepted(&key(far, "allow_plain_http = true"));
        let chat = CHAT.replace("http://h", far);
        accepted(&format!("{HEAD}{chat}{COLUMN}"));
        let header = "extra_headers = { api-key = { env = \"K\" } }";
        assert_rejected(&format!("{HEAD}{chat}{header}\n{COLUMN}"), &[&message, hint]);
    }
    for near in ["http://127.0.0.1:1/v1", "http://[::1]:1/v1", "http://localhost:1/v1", "https://10.0.0.7/v1"] {
        accepted(&key(near, ""));
    }
    let judge =
        format!("{HEAD}[[models]]\nname = \"j\"\nurl = \"http://h/j\"\nmax_parallel = 1\napi_key_env = \"K\"\n");
    assert_rejected(&(judge + COLUMN), &["p.toml:5:7: keys would go to `h` unencrypted"]);
    assert_model_rejected("allow_plain_http = 1", &["`allow_plain_http` in [[models]] is 1", "true or false"]);
}

#[test]
fn a_ca_file_is_read_and_belongs_to_an_https_address() {
    assert_model_rejected("ca_file = \"ca.pem\"", &["p.toml:8:11: `ca_file` is given for an address without https"]);
    let https = CHAT.replace("http://h", "https://h");
    let file = |name: &str| format!("{HEAD}{https}ca_file = \"{name}\"\n{COLUMN}");
    assert_rejected(&file("no-such.pem"), &["cannot read", "no-such.pem", "expected a file of certificates in PEM"]);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert_rejected(&file(manifest), &["Cargo.toml holds no certificate"]);
    let command = "[[models]]\nname = \"m\"\nmax_parallel = 1\ncommand = [\"x\"]\n";
    let mock = "[[models]]\nname = \"m\"\nmax_parallel = 1\nprovider = \"mock\"\nmock = {}\n";
    for key in ["ca_file = \"x\"", "allow_plain_http = true"] {
        assert_rejected(&format!("{HEAD}{command}{key}\n{COLUMN}"), &["is given beside `command`"]);
        let text = format!("{HEAD}{mock}{key}\n{COLUMN}");
        let error = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap_err().to_string();
        assert!(error.starts_with("p.toml:8:") && error.contains("has no meaning for a mock"), "{error}");
    }
}

#[test]
fn extra_headers_and_parameters_are_what_the_program_does_not_set_and_hold_no_key_in_plain_text() {
    let model = |keys: &str| format!("{HEAD}{}{keys}\n{COLUMN}", CHAT.replace("http://h", "https://h"));
    let file = |keys: &str| PipelineFile::parse(SourceText::new("p.toml", model(keys)), Path::new("")).unwrap();
    let keys = "extra_headers = { X-Team = \"harbour\", api-key = { env = \"ACME_KEY\" } }\n\
                query = { \"api-version\" = \"2024-10-21\" }\nextra_body = { effort = \"low\" }";
    let expected = "requests to `m` have also: header x-team: harbour, header api-key: (from ACME_KEY), \
                    query api-version=2024-10-21, body effort = \"low\"\n";
    assert_eq!(file(keys).describe_extras(), expected);
    assert_eq!(file(keys).models[0].secret_variables().collect::<Vec<_>>(), ["ACME_KEY"]);
    assert_eq!(file("").describe_extras(), "");
    for header in ["Authorization", "content-type", "Host", "user-agent", "transfer-encoding"] {
        let keys = format!("extra_headers = {{ {header} = \"x\" }}");
        assert_model_rejected(&keys, &[&format!("has `{header}`, which the program sets"), "`api_key_env`"]);
    }
    assert_model_rejected("extra_headers = { \"a b\" = \"x\" }", &["which is no name of a header"]);
    assert_model_rejected("extra_headers = { a = \"x\\ny\" }", &["whose value is not valid in a header"]);
    assert_model_rejected("extra_headers = { a = 1 }", &["expected a text, or `{ env = \"NAME\" }`"]);
    for key in [
        "extra_headers = { x-api-key = \"tide-7\" }",
        "extra_headers = { x-team = \"sk-tide-7\" }",
        "query = { key = \"tide-7\" }",
        "query = { access_token = \"tide-7\" }",
        "extra_body = { proxy = { api_key = \"tide-7\" } }",
    ] {
        let text = model(key);
        let error = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap_err().to_string();
        assert!(error.contains("holds a key in plain text") && !error.contains("tide-7"), "{error}");
    }
    let pasted = "extra_headers = { api-key = { env = \"sk-tide-7\" } }";
    assert_model_rejected(pasted, &["`env` of `api-key` in `extra_headers` of [[models]] is not the name of an env"]);
    assert_model_rejected("extra_body = { stream = true }", &["`extra_body` in [[models]] has `stream`"]);
    let judge = format!(
        "{HEAD}[[models]]\nname = \"m\"\nurl = \"http://h\"\nmax_parallel = 1\nquery = {{ a = \"b\" }}\n{COLUMN}"
    );
    assert_rejected(&judge, &["`query` is given for a judge"]);
}

#[test]
fn each_key_of_the_original_system_names_what_replaces_it() {
    for (key, help) in [
        ("provider_type", "use instead: `api` in [[models]]: \"openai\", \"responses\" or \"anthropic\""),
        ("skip_health_check", "there is no such setting: a run makes no test call before it starts"),
    ] {
        assert_model_rejected(&format!("{key} = true"), &[&format!("unknown key `{key}`"), help]);
    }
    for (key, help) in [
        ("multi_modal_context", "`images` and `audio` of the column"),
        ("with_trace", "`calls = true` in [output], for `tidegate inspect`"),
        ("extract_reasoning_content", "a column with `kind = \"reasoning\"`"),
        ("tool_alias", "`tools`, a list of names of [[tools]]"),
        ("code_lang", "a column with `kind = \"validation\"` that checks the code"),
        ("scores", "`criteria` of a column with `kind = \"score\"`"),
        ("target_columns", "`input` of a column with `kind = \"validation\"`"),
        ("validator_type", "`schema`, or `model` with a command"),
        ("validator_params", "`schema`, or `model` with a command"),
        ("conditional_params", "`cases = [{ when = ..., law = ... }]` in `sampler`"),
        ("convert_to", "`integer` or `decimals` in `sampler`"),
    ] {
        assert_llm_rejected(&format!("{key} = true"), &[&format!("unknown key `{key}`"), "use instead: ", help]);
    }
    for (key, help) in [
        ("async_trace", "use instead: `--trace FILE` or `--events FILE` of `tidegate run`"),
        ("display_tui", "use instead: `--tui` of `tidegate run`"),
        ("progress_bar", "there is no such setting: a terminal always has it, unless"),
        ("progress_interval", "there is no such setting: a pipe has a line every two seconds"),
        ("preserve_dropped_columns", "use instead: `--all-columns` of `tidegate run`"),
        ("jinja_rendering_engine", "there is no such setting: there is one engine"),
    ] {
        let text = format!("{HEAD}{CHAT}{COLUMN}[run]\n{key} = true\n");
        assert_rejected(&text, &[&format!("unknown key `{key}` in [run]"), help]);
    }
}

#[test]
fn a_judge_has_exactly_one_endpoint() {
    let judge = |text: &str| format!("{HEAD}[[models]]\nname = \"j\"\nmax_parallel = 1\n{text}\n{COLUMN}");
    assert_rejected(
        &judge("command = []"),
        &["`command` in [[models]] is an array of 0 items", "the program and its arguments"],
    );
    assert_rejected(&judge("command = [\"x\"]\nurl = \"http://h\""), &["`url` is given beside `command`"]);
    assert_rejected(&judge("command = [\"x\"]\napi_key_env = \"K\""), &["`api_key_env` is given beside `command`"]);
    assert_rejected(&judge("url = \"ftp://h\""), &["`url` in [[models]] has the scheme `ftp`"]);
    assert_rejected(&judge("url = \"http://h\"\nmock = {}"), &["`mock` is given beside `url`"]);
    assert_rejected(
        &judge("command = [\"x\"]\ndomain = \"chat\""),
        &["`domain` in [[models]] is the string \"chat\"", "one of: judge"],
    );
    assert_model_rejected(
        "domain = \"embeding\"",
        &["`domain` in [[models]] is the string \"embeding\"", "did you mean `embedding`?"],
    );
}

#[test]
fn a_column_can_call_only_models_of_the_domain_of_its_kind() {
    let column =
        |kind: &str, rest: &str| format!("[[columns]]\nname = \"b\"\nkind = \"{kind}\"\nmodel = \"m\"\n{rest}");
    let text = format!("{HEAD}{CHAT}{}", column("embedding", "input = \"x\"\n"));
    assert_rejected(
        &text,
        &["the model `m` has the domain `chat`; a column of kind `embedding` calls one of the domain `embedding`"],
    );
    let text = format!("{HEAD}{CHAT}{}", column("judge", "input = \"x\"\n"));
    assert_rejected(&text, &["calls one of the domain `judge`", "with this name and a `command` or a `url`"]);
    let text = format!("{HEAD}{CHAT}{}", column("judge", ""));
    assert_rejected(&text, &["[[columns]] of kind `judge` has nothing to judge", "`inputs = ` the columns to send"]);
}

#[test]
fn a_validation_has_a_schema_or_a_command() {
    let validation = |keys: &str| {
        format!(
            "{HEAD}[[models]]\nname = \"lint\"\ncommand = [\"true\"]\nmax_parallel = 1\n\
             [[models]]\nname = \"server\"\nurl = \"http://h\"\nmax_parallel = 1\n\
             {CHAT}[[columns]]\nname = \"a\"\nkind = \"validation\"\n{keys}\n"
        )
    };
    assert_rejected(&validation("schema = {}"), &["[[columns]] has no `input`", "a template of what is checked"]);
    assert_rejected(&validation("input = \"x\"\nschema = { type = 7 }"), &["this is not a JSON Schema: "]);
    let beside = "`schema_file` is given beside `model`";
    assert_rejected(&validation("input = \"x\"\nmodel = \"lint\"\nschema_file = \"s.json\""), &[beside]);
    assert_rejected(
        &validation("input = \"x\"\nmodel = \"server\""),
        &["the model `server` is a server; a column of kind `validation` runs a command", "a model with a `command`"],
    );
    assert_rejected(&validation("input = \"x\"\nmodel = \"m\""), &["the model `m` has the domain `chat`"]);
    assert_rejected(&validation("input = \"x\"\ninvalid_exit_codes = [1]"), &["has no effect without a command"]);
    for codes in ["[]", "[0]", "[1, 75]"] {
        let keys = format!("input = \"x\"\nmodel = \"lint\"\ninvalid_exit_codes = {codes}");
        assert_rejected(&validation(&keys), &["`invalid_exit_codes` in [[columns]] is", "from 1 to 255, but 75"]);
    }
    assert_rejected(
        &validation("input = \"x\"\nmodel = \"lint\"\ninvalid_exit_codes = [256]"),
        &["`invalid_exit_codes[0]` in [[columns]] is 256"],
    );
}

#[test]
fn images_and_audio_belong_to_a_user_message_of_an_api_that_has_them() {
    assert_llm_rejected("images = 3", &["`images` in [[columns]] is 3", "an array of strings"]);
    let messages = |keys: &str| format!("{HEAD}{CHAT}{}{keys}\n", COLUMN.replace("prompt = \"x\"\n", ""));
    assert_rejected(
        &messages("images = \"a.png\"\nmessages = [{ role = \"user\", content = \"x\" }]"),
        &["`images` is given beside `messages`", "a message of the list can have `images`"],
    );
    assert_rejected(
        &messages("messages = [{ role = \"system\", content = \"x\", images = \"a.png\" }]"),
        &["`images` in [[columns.messages]] is given for a message that is not the user's", "`role = \"user\"`"],
    );
    for api in ["anthropic", "responses"] {
        let of_api =
            |keys: &str| messages(keys).replace("max_parallel = 1", &format!("max_parallel = 1\napi = \"{api}\""));
        let audio = "`audio` in [[columns]] is given, but the API of the model `m` has none";
        assert_rejected(&of_api("prompt = \"x\"\naudio = \"a.wav\""), &[audio]);
        assert_rejected(&of_api("messages = [{ role = \"user\", content = \"x\", audio = \"a.wav\" }]"), &[audio]);
    }
}

#[test]
fn keys_of_an_llm_column_are_validated() {
    assert_llm_rejected("max_tokens = 1.5", &["`max_tokens` in [[columns]] is 1.5", "a whole number"]);
    assert_llm_rejected("temperature = true", &["`temperature` in [[columns]] is true", "a finite number"]);
    assert_llm_rejected("stop = 3", &["`stop` in [[columns]] is 3", "an array of strings"]);
    assert_llm_rejected(
        "extra = { temperature = 1 }",
        &["`extra` in [[columns]] has `temperature`, which it cannot set"],
    );
    assert_llm_rejected("extra = 1", &["`extra` in [[columns]] is 1", "a table"]);
    assert_llm_rejected("messages = []", &["`prompt` is given beside `messages`"]);
    let messages = |list: &str| format!("{HEAD}{CHAT}{}messages = {list}\n", COLUMN.replace("prompt = \"x\"\n", ""));
    assert_rejected(&messages("[]"), &["`messages` in [[columns]] is an array of 0 items", "at least one message"]);
    assert_rejected(&messages("[{ content = \"x\" }]"), &["[[columns.messages]] has no `role`"]);
    assert_rejected(&messages("[{ role = \"usr\", content = \"x\" }]"), &["did you mean `user`?"]);
    assert_rejected(&messages("[{ role = \"user\", text = \"x\" }]"), &["unknown key `text` in [[columns.messages]]"]);
    assert_llm_rejected(
        "otherwise = 1",
        &["p.toml:12:13: `otherwise` in [[columns]] has no effect without a condition"],
    );
    assert_llm_rejected("when = 3", &["`when` in [[columns]] is 3"]);
}

#[test]
fn criteria_have_a_description_and_at_least_two_options_of_one_type() {
    let score = |rest: &str| {
        format!("{HEAD}{CHAT}[[columns]]\nname = \"a\"\nkind = \"score\"\nmodel = \"m\"\nprompt = \"x\"\n{rest}\n")
    };
    let criterion = |options: &str| score(&format!("criteria.c = {{ description = \"d\", options = {options} }}"));
    assert_rejected(&score(""), &["[[columns]] has no `criteria`", "a table `criteria.NAME` for each criterion"]);
    assert_rejected(&score("criteria = {}"), &["`criteria` in [[columns]] has no criterion"]);
    assert_rejected(&score("criteria = 3"), &["`criteria` in [[columns]] is 3", "a table"]);
    assert_rejected(&score("criteria.c = { options = { a = \"x\", b = \"y\" } }"), &["has no `description`"]);
    assert_rejected(&score("criteria.c = { description = \"d\", scale = {} }"), &["unknown key `scale`"]);
    assert_rejected(
        &criterion("{ 1 = \"x\" }"),
        &["p.toml:13:45: `options` of the criterion `c` has 1", "at least two"],
    );
    assert_rejected(&criterion("{}"), &["`options` of the criterion `c` has nothing"]);
    assert_rejected(&criterion("{ 1 = \"x\", many = \"y\" }"), &["has 1, many", "all of them whole numbers or none"]);
    assert_rejected(&criterion("[1, 2]"), &["a table"]);
    assert_rejected(&criterion("{ 1 = 1, 2 = \"y\" }"), &["a string that is not empty"]);
    assert_rejected(
        &score("criteria.c = { description = \"d\", options = { a = \"x\", b = \"y\" } }\nschema = {}"),
        &["`schema` is given for a column of kind `score`"],
    );
    assert_rejected(
        &score("messages = []").replace("prompt = \"x\"\n", ""),
        &["`messages` is given for a column of kind `score`"],
    );
}

#[test]
fn structured_output_keys_are_validated() {
    assert_llm_rejected("schema = { type = 7 }", &["p.toml:12:10: this is not a JSON Schema: "]);
    assert_llm_rejected("schema = 3", &["`schema` in [[columns]] is 3"]);
    assert_llm_rejected("schema = {}\nschema_file = \"s.json\"", &["there can be one schema only"]);
    assert_llm_rejected(
        "schema_file = \"nowhere.json\"",
        &["p.toml:12:15: the schema dir/nowhere.json: cannot read: "],
    );
    assert_llm_rejected("schema = {}\noutput = \"text\"", &["`output` in [[columns]] is the string \"text\""]);
    assert_llm_rejected(
        "max_tokens = 200\nretry_max_tokens = 200",
        &["`retry_max_tokens` in [[columns]] is 200", "from 201 to 4294967295: more than `max_tokens`"],
    );
    assert_llm_rejected("retry_max_tokens = 0", &["expected a whole number from 1 to"]);
    assert_llm_rejected("schema_retries = 1", &["`schema_retries` applies only to structured answers"]);
    assert_llm_rejected("schema = {}\nschema_retries = 11", &["`schema_retries` in [[columns]] is 11", "from 0 to 10"]);
    assert_llm_rejected("schema = {}\njson_mode = \"objct\"", &["did you mean `object`?"]);
    assert_llm_rejected(
        "output = \"json\"\njson_mode = \"schema\"",
        &["`json_mode` in [[columns]] is the string \"schema\""],
    );
    assert_llm_rejected("output = \"jsn\"", &["did you mean `json`?"]);
}

#[test]
fn a_sampler_has_a_law_with_its_own_keys_in_range() {
    assert_sampler_rejected(
        "law = \"categry\"",
        &["p.toml:6:19: `law` in [columns.sampler] is the string \"categry\"", "did you mean `category`?"],
    );
    assert_sampler_rejected(
        "law = \"uuid\", p = 1",
        &["`p` in [columns.sampler] is not a key of the law `uuid`", "no other key"],
    );
    assert_sampler_rejected(
        "law = \"category\", values = []",
        &["`values` in [columns.sampler] is an array of 0 items"],
    );
    assert_sampler_rejected("law = \"category\", values = [1, 2], weights = [1]", &["2 numbers, one for each value"]);
    assert_sampler_rejected("law = \"category\", values = [1], weights = [-1]", &["none below 0 and not all 0"]);
    assert_sampler_rejected("law = \"category\", values = [1], weights = [0]", &["none below 0 and not all 0"]);
    assert_sampler_rejected(
        "law = \"subcategory\", of = \"x\", values = { a = 1 }",
        &["`values.a` in [columns.sampler] is not a list of values"],
    );
    assert_sampler_rejected(
        "law = \"uniform\", low = 2, high = 1",
        &["`high` in [columns.sampler] is 1", "not below `low`"],
    );
    assert_sampler_rejected("law = \"uniform\", low = -1.7e308, high = 1.7e308", &["at a finite distance from it"]);
    assert_sampler_rejected(
        "law = \"uniform\", low = 1, high = 2, integer = true, decimals = 1",
        &["no `decimals` beside `integer = true`"],
    );
    assert_sampler_rejected(
        "law = \"uniform\", low = 0.91, high = 0.99, decimals = 1",
        &["`decimals` in [columns.sampler] is 1", "more decimals: no number of 1 is from 0.91 to 0.99"],
    );
    for strategy in ["full_column", "from_scratch"] {
        let column = format!("[[columns]]\nname = \"a\"\nkind = \"sampler\"\nstrategy = \"{strategy}\"\n");
        assert_rejected(
            &format!("{HEAD}{column}sampler = {{ law = \"uuid\" }}\n"),
            &[
                &format!("p.toml:6:12: `strategy` in [[columns]] is the string \"{strategy}\""),
                "a sampler draws for each row",
                "`strategy = \"cell\"`, or no `strategy`",
            ],
        );
    }
    assert_sampler_rejected("law = \"normal\", mean = 1, sd = -1", &["`sd` in [columns.sampler] is -1"]);
    assert_sampler_rejected("law = \"normal\", mean = 1, sd = 1, decimals = 10", &["a whole number from 0 to 9"]);
    assert_sampler_rejected("law = \"bernoulli\", p = 1.5", &["`p` in [columns.sampler] is 1.5", "from 0 to 1"]);
    assert_sampler_rejected(
        "law = \"poisson\", mean = -1",
        &["`mean` in [columns.sampler] is -1", "from 0 to 1000000000"],
    );
    assert_sampler_rejected("law = \"binomial\", trials = 0, p = 1", &["`trials` in [columns.sampler] is 0"]);
    assert_sampler_rejected(
        "law = \"timedelta\", of = \"x\", low = 0, high = 4000000, unit = \"day\"",
        &["`high` in [columns.sampler] is 4000000", "at most 9999 years"],
    );
    assert_sampler_rejected("law = \"person\", age = [30, 20]", &["two whole numbers from 0 to 130"]);
    assert_sampler_rejected("law = \"person\", locale = \"de_AT\"", &["did you mean `de_DE`?"]);
    assert_sampler_rejected("law = \"uuid\", when = \"x\"", &["belongs into one of its `cases`"]);
    assert_sampler_rejected("law = \"uuid\", cases = [{ law = \"uuid\" }]", &["has no `when`", "a condition such as"]);
    assert_sampler_rejected(
        "law = \"uuid\", cases = [{ when = \"x\", law = \"uuid\", p = 1 }]",
        &["`p` in [columns.sampler] is not a key of the law `uuid`"],
    );
    assert_sampler_rejected(
        "law = \"uuid\", cases = [{ when = \"x\", law = \"uuid\", cases = [] }]",
        &["a case cannot have `cases` of its own"],
    );
    assert_sampler_rejected(
        "law = \"datetime\", from = \"x\", to = 2024-01-01",
        &["`from` in [columns.sampler] is the string \"x\"", "2024-05-01"],
    );
    assert_sampler_rejected("law = \"datetime\", from = 2024-01-02, to = 2024-01-02", &["a time after `from`"]);
    assert_sampler_rejected(
        "law = \"datetime\", from = 2024-01-01, to = 2025-01-01, unit = \"week\"",
        &["one of: second, minute, hour, day"],
    );
    assert_rejected(
        &format!("{HEAD}[[columns]]\nname = \"a\"\nkind = \"sampler\"\n"),
        &["[[columns]] has no `sampler`"],
    );
}

#[test]
fn near_duplicates_have_a_column_and_a_similarity_in_range() {
    let unique = |keys: &str| format!("{HEAD}{CHAT}{COLUMN}[output]\nunique = {{ {keys} }}\n");
    assert_rejected(&unique("similarity = 0.5"), &["[output.unique] has no `column`"]);
    for similarity in ["0.05", "1.01", "-1"] {
        let keys = format!("column = \"a\", similarity = {similarity}");
        assert_rejected(&unique(&keys), &["`similarity` in [output.unique] is", "a number from 0.1 to 1"]);
    }
    assert_rejected(&unique("column = \"a\", like = 1"), &["unknown key `like` in [output.unique]"]);
}

#[test]
fn an_unknown_format_is_rejected_with_the_most_similar_name() {
    assert_rejected(&format!("{HEAD}{CHAT}{COLUMN}[output]\nformat = \"jsnl\"\n"), &["did you mean `jsonl`?"]);
    assert_rejected(
        &format!("[seed]\npath = \"d\"\nformat = \"jsonlines\"\n{CHAT}{COLUMN}"),
        &["did you mean `jsonl`?"],
    );
}

#[test]
fn the_encoding_of_a_dataset_is_a_label_of_the_standard_and_for_texts_only() {
    let seed = |path: &str, label: &str| format!("[seed]\npath = \"{path}\"\nencoding = \"{label}\"\n{CHAT}{COLUMN}");
    for label in ["windows-1252", "Latin1", "shift_jis", "UTF-16"] {
        PipelineFile::parse(SourceText::new("p.toml", seed("d.jsonl", label)), Path::new("dir")).unwrap();
    }
    for label in ["cp850", "iso-2022-jp"] {
        let message = format!("`encoding` in [seed] is \"{label}\", which names no encoding that can be read");
        assert_rejected(&seed("d.csv", label), &[&message, "WHATWG", "save a file in another encoding as UTF-8"]);
    }
    #[cfg(feature = "parquet")]
    assert_rejected(&seed("d.parquet", "latin1"), &["`encoding` in [seed] is given for a parquet dataset"]);
}

#[test]
fn tools_must_be_declared_and_have_names_and_parameters_that_apis_accept() {
    const TOOL: &str = "[[tools]]\nname = \"tide\"\ndescription = \"d\"\ncommand = [\"cat\"]\n";
    let file = |tool: &str, line: &str| format!("{HEAD}{CHAT}{tool}{COLUMN}{line}\n");
    let parsed = PipelineFile::parse(SourceText::new("p.toml", file(TOOL, "tools = [\"tide\"]")), Path::new("dir"));
    let column = parsed.unwrap().columns[0].kind.chat().cloned().unwrap();
    assert_eq!((column.tools, column.max_turns), (vec![0], 8));
    for (line, parts) in [
        ("tools = [\"tid\"]", &["there is no tool `tid`", "one of: tide", "did you mean `tide`?"][..]),
        ("tools = [\"tide\", \"tide\"]", &["has `tide` twice"]),
        ("tools = []", &["at least one tool"]),
        ("tools = [\"tide\"]\nmax_turns = 1", &["a whole number from 2 to 100"]),
        ("max_turns = 4", &["`max_turns` in [[columns]] has no effect without tools"]),
        ("tools = [\"tide\"]\nextra = { tools = [] }", &["`extra` in [[columns]] has `tools` beside"]),
    ] {
        assert_rejected(&file(TOOL, line), parts);
    }
    let forced = CHAT.replace("[[models]]\n", "[[models]]\nextra_body = { tool_choice = \"required\" }\n");
    let forced = |line: &str| format!("{HEAD}{forced}{TOOL}{COLUMN}{line}\n");
    let parts = ["`extra_body` of the model `m` has `tool_choice`", "`extra = { tool_choice = ... }`"];
    assert_rejected(&forced("tools = [\"tide\"]"), &parts);
    assert!(PipelineFile::parse(SourceText::new("p.toml", forced("")), Path::new("")).is_ok());
    assert_rejected(&file("", "tools = [\"tide\"]"), &["there is no tool `tide`", "a [[tools]] table with this name"]);
    for (from, to, parts) in [
        (
            "\"tide\"",
            "\"the tide\"",
            &["p.toml:9:8: `name` in [[tools]] is the string \"the tide\"", "up to 64 letters"][..],
        ),
        ("[\"cat\"]", "[]", &["the program and its arguments"]),
        ("description", "descripton", &["did you mean `description`?"]),
        ("command", "parameters = { type = \"array\" }\ncommand", &["with `type = \"object\"`"]),
        ("command", "parameters = { type = \"object\", properties = 3 }\ncommand", &["this is not a JSON Schema"]),
        ("command", "timeout = \"0s\"\ncommand", &["a duration of more than 0"]),
        (
            "[[tools]]",
            "[[tools]]\nname = \"tide\"\ndescription = \"d\"\ncommand = [\"cat\"]\n[[tools]]",
            &["two tools"],
        ),
    ] {
        assert_rejected(&file(&TOOL.replacen(from, to, 1), ""), parts);
    }
    let expression = "[[columns]]\nname = \"e\"\nkind = \"expression\"\ntemplate = \"x\"\ntools = [\"tide\"]\n";
    assert_rejected(&file(TOOL, expression), &["`tools` is given for a column of kind `expression`"]);
}

#[test]
fn an_image_needs_a_model_of_its_domain_and_has_keys_of_its_own() {
    const PAINTER: &str =
        "[[models]]\nname = \"i\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\ndomain = \"image\"\n";
    const IMAGE: &str = "[[columns]]\nname = \"a\"\nkind = \"image\"\nmodel = \"i\"\nprompt = \"x\"\n";
    let file = |line: &str| format!("{HEAD}{CHAT}{PAINTER}{IMAGE}{line}\n");
    assert!(
        PipelineFile::parse(SourceText::new("p.toml", file("size = \"1x1\"\nanswer_tokens = 900")), Path::new(""))
            .is_ok()
    );
    assert_rejected(&file("").replace("model = \"i\"", "model = \"m\""), &["has the domain `chat`", "one of: i"]);
    assert_rejected(&file("").replace("prompt = \"x\"\n", ""), &["has no `prompt`"]);
    assert_rejected(&file("temperature = 1"), &["`temperature` is given for a column of kind `image`", "size, extra"]);
    assert_rejected(&file("extra = { n = 2 }"), &["`extra` in [[columns]] has `n`, which it cannot set"]);
    let model = file("").replace("domain = \"image\"\n", "domain = \"image\"\nextra_body = { prompt = \"x\" }\n");
    assert_rejected(&model, &["`extra_body` in [[models]] has `prompt`"]);
}
