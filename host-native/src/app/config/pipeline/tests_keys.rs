//! Every new key, wrong: the place, what is there, what was expected.

use super::*;

const HEAD: &str = "[seed]\npath = \"d.csv\"\n";
const CHAT: &str = "[[models]]\nname = \"m\"\nprovider = \"p\"\nbase_url = \"http://h\"\nmax_parallel = 1\n";
const COLUMN: &str = "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\n";

/// Checks that `text` is refused with each of `parts`, and at a place unless the first part is one.
fn refused(text: &str, parts: &[&str]) {
    let parsed = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("dir"));
    let error = parsed.expect_err(text).to_string();
    assert!(error.starts_with("p.toml:") && error.contains("  expected "), "{error}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in:\n{error}");
    }
}

/// The same for a chat model with `line` added.
fn model(line: &str, parts: &[&str]) {
    refused(&format!("{HEAD}{CHAT}{line}\n{COLUMN}"), parts);
}

/// The same for a column of kind llm with `line` added.
fn llm(line: &str, parts: &[&str]) {
    refused(&format!("{HEAD}{CHAT}{COLUMN}{line}\n"), parts);
}

/// The same for a column with the sampler of `keys`.
fn sampler(keys: &str, parts: &[&str]) {
    refused(&format!("{HEAD}[[columns]]\nname = \"a\"\nkind = \"sampler\"\nsampler = {{ {keys} }}\n"), parts);
}

#[test]
fn prices_and_budgets_are_in_range_and_in_one_currency() {
    let price = |text: &str| format!("price = {{ {text} }}");
    model(
        &price("input_per_million = -1"),
        &["p.toml:8:31: `input_per_million` in [models.price] is -1", "from 0 to 1000000"],
    );
    model(
        &price("input_per_million = 1, output_per_million = 1e9"),
        &["`output_per_million` in [models.price] is 1e9"],
    );
    model(&price("output_per_million = 1"), &["[models.price] has no `input_per_million`"]);
    model(&price("input_per_milion = 1"), &["did you mean `input_per_million`?"]);
    let second = CHAT.replace("\"m\"", "\"n\"");
    let two =
        format!("price = {{ input_per_million = 1 }}\n{second}price = {{ input_per_million = 1, currency = \"EUR\" }}");
    model(&two, &["this price is in EUR, and an earlier one in USD", "one currency"]);
    model("budget = { tokens_per_minute = 0 }", &["`tokens_per_minute` in [models.budget] is 0", "from 1 to 10^15"]);
    model("budget = { tokens_per_minut = 5 }", &["did you mean `tokens_per_minute`?"]);
}

#[test]
fn a_judge_says_where_it_is_and_nothing_else() {
    let judge = |text: &str| format!("{HEAD}[[models]]\nname = \"j\"\nmax_parallel = 1\n{text}\n{COLUMN}");
    refused(
        &judge("command = []"),
        &["`command` in [[models]] is an array of 0 items", "the program and its arguments"],
    );
    refused(&judge("command = [\"x\"]\nurl = \"http://h\""), &["`url` is given beside `command`"]);
    refused(&judge("command = [\"x\"]\napi_key_env = \"K\""), &["`api_key_env` is given beside `command`"]);
    refused(&judge("url = \"ftp://h\""), &["`url` in [[models]] has the scheme `ftp`"]);
    refused(&judge("url = \"http://h\"\nmock = {}"), &["`mock` is given beside `url`"]);
    refused(
        &judge("command = [\"x\"]\ndomain = \"chat\""),
        &["`domain` in [[models]] is the string \"chat\"", "one of: judge"],
    );
    model("domain = \"embeding\"", &["`domain` in [[models]] is the string \"embeding\"", "did you mean `embedding`?"]);
}

#[test]
fn a_kind_calls_models_of_its_own_domain() {
    let column =
        |kind: &str, rest: &str| format!("[[columns]]\nname = \"b\"\nkind = \"{kind}\"\nmodel = \"m\"\n{rest}");
    let text = format!("{HEAD}{CHAT}{}", column("embedding", "input = \"x\"\n"));
    refused(
        &text,
        &["the model `m` has the domain `chat`; a column of kind `embedding` calls one of the domain `embedding`"],
    );
    let text = format!("{HEAD}{CHAT}{}", column("judge", "input = \"x\"\n"));
    refused(&text, &["calls one of the domain `judge`", "with this name and a `command` or a `url`"]);
    let text = format!("{HEAD}{CHAT}{}", column("judge", ""));
    refused(&text, &["[[columns]] of kind `judge` has nothing to judge", "`inputs = ` the columns to send"]);
}

#[test]
fn keys_of_an_llm_column_are_checked() {
    llm("max_tokens = 1.5", &["`max_tokens` in [[columns]] is 1.5", "a whole number"]);
    llm("temperature = true", &["`temperature` in [[columns]] is true", "a finite number"]);
    llm("stop = 3", &["`stop` in [[columns]] is 3", "an array of strings"]);
    llm("extra = { temperature = 1 }", &["`extra` in [[columns]] has `temperature`, which it cannot set"]);
    llm("extra = 1", &["`extra` in [[columns]] is 1", "a table"]);
    llm("messages = []", &["`prompt` is given beside `messages`"]);
    let messages = |list: &str| format!("{HEAD}{CHAT}{}messages = {list}\n", COLUMN.replace("prompt = \"x\"\n", ""));
    refused(&messages("[]"), &["`messages` in [[columns]] are none"]);
    refused(&messages("[{ content = \"x\" }]"), &["[[columns.messages]] has no `role`"]);
    refused(&messages("[{ role = \"usr\", content = \"x\" }]"), &["did you mean `user`?"]);
    refused(&messages("[{ role = \"user\", text = \"x\" }]"), &["unknown key `text` in [[columns.messages]]"]);
    llm(
        "otherwise = 1",
        &["p.toml:12:13: `otherwise` in [[columns]] says what there is where a condition does not hold"],
    );
    llm("when = 3", &["`when` in [[columns]] is 3"]);
}

#[test]
fn a_form_of_answers_is_checked_before_the_first_call() {
    llm("schema = { type = 7 }", &["p.toml:12:10: this is not a JSON Schema: "]);
    llm("schema = 3", &["`schema` in [[columns]] is 3"]);
    llm("schema = {}\nschema_file = \"s.json\"", &["there can be one schema only"]);
    llm("schema_file = \"nowhere.json\"", &["p.toml:12:15: the schema dir/nowhere.json: cannot read: "]);
    llm("schema = {}\noutput = \"text\"", &["`output` in [[columns]] is the string \"text\""]);
    llm("schema_retries = 1", &["`schema_retries` is given for a column whose answer may be any text"]);
    llm("schema = {}\nschema_retries = 11", &["`schema_retries` in [[columns]] is 11", "from 0 to 10"]);
    llm("schema = {}\njson_mode = \"objct\"", &["did you mean `object`?"]);
    llm("output = \"json\"\njson_mode = \"schema\"", &["`json_mode` in [[columns]] is the string \"schema\""]);
    llm("output = \"jsn\"", &["did you mean `json`?"]);
}

#[test]
fn a_sampler_is_a_law_with_its_own_keys_in_range() {
    sampler(
        "law = \"categry\"",
        &["p.toml:6:19: `law` in [columns.sampler] is the string \"categry\"", "did you mean `category`?"],
    );
    sampler("law = \"uuid\", p = 1", &["`p` in [columns.sampler] means nothing to the law `uuid`", "no other key"]);
    sampler("law = \"category\", values = []", &["`values` in [columns.sampler] is an array of 0 items"]);
    sampler("law = \"category\", values = [1, 2], weights = [1]", &["2 numbers, one for each value"]);
    sampler("law = \"category\", values = [1], weights = [-1]", &["none below 0 and not all 0"]);
    sampler("law = \"category\", values = [1], weights = [0]", &["none below 0 and not all 0"]);
    sampler(
        "law = \"subcategory\", of = \"x\", values = { a = 1 }",
        &["`values.a` in [columns.sampler] is not a list of values"],
    );
    sampler("law = \"uniform\", low = 2, high = 1", &["`high` in [columns.sampler] is 1", "not below `low`"]);
    sampler("law = \"uniform\", low = -1.7e308, high = 1.7e308", &["further from it than a number can say"]);
    sampler("law = \"uniform\", low = 1, high = 2, integer = true, decimals = 1", &["no `decimals` of a whole number"]);
    sampler(
        "law = \"uniform\", low = 0.91, high = 0.99, decimals = 1",
        &["`decimals` in [columns.sampler] is 1", "more decimals: no number of 1 is from 0.91 to 0.99"],
    );
    for strategy in ["full_column", "from_scratch"] {
        let column = format!("[[columns]]\nname = \"a\"\nkind = \"sampler\"\nstrategy = \"{strategy}\"\n");
        refused(
            &format!("{HEAD}{column}sampler = {{ law = \"uuid\" }}\n"),
            &[
                &format!("p.toml:6:12: `strategy` in [[columns]] is \"{strategy}\", and a sampler draws for each row"),
                "`strategy = \"cell\"`, or no `strategy`",
            ],
        );
    }
    sampler("law = \"normal\", mean = 1, sd = -1", &["`sd` in [columns.sampler] is -1"]);
    sampler("law = \"normal\", mean = 1, sd = 1, decimals = 10", &["a whole number from 0 to 9"]);
    sampler("law = \"bernoulli\", p = 1.5", &["`p` in [columns.sampler] is 1.5", "from 0 to 1"]);
    sampler(
        "law = \"datetime\", from = \"x\", to = 2024-01-01",
        &["`from` in [columns.sampler] is the string \"x\"", "2024-05-01"],
    );
    sampler("law = \"datetime\", from = 2024-01-02, to = 2024-01-02", &["a time after `from`"]);
    sampler(
        "law = \"datetime\", from = 2024-01-01, to = 2025-01-01, unit = \"week\"",
        &["one of: second, minute, hour, day"],
    );
    refused(&format!("{HEAD}[[columns]]\nname = \"a\"\nkind = \"sampler\"\n"), &["[[columns]] has no `sampler`"]);
}

#[test]
fn formats_are_those_that_there_are() {
    refused(&format!("{HEAD}{CHAT}{COLUMN}[output]\nformat = \"jsnl\"\n"), &["did you mean `jsonl`?"]);
    refused(&format!("[seed]\npath = \"d\"\nformat = \"jsonlines\"\n{CHAT}{COLUMN}"), &["did you mean `jsonl`?"]);
}
