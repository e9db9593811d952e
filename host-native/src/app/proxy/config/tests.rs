use super::*;
use tidegate_core::limit::LimitChoice;
use tidegate_core::time::Duration;
use wildmatch::WildMatch;

const GOOD: &str = r#"
listen = "127.0.0.1:9000"

[[providers]]
name = "acme"
base_url = "https://api.acme.test/v1"
api_key_env = "ACME_KEY"
serves = ["gpt-*"]
rename = { small = "gpt-mini" }
max_parallel = 12
limit = "vegas"
cooldown = "1s"
budgets = { requests_per_minute = 500, tokens_per_day = 1_000_000 }

[[providers.models]]
name = "gpt-large"
max_parallel = 3
budgets = { tokens_per_minute = 9000 }

[[providers]]
name = "rest"
base_url = "http://localhost:1/v1"

[tenants]
by = "api_key"
default_weight = 0.5

[[tenants.known]]
name = "people"
weight = 4
key_env = "PEOPLE_KEY"

[queue]
deadline = "30s"

[priority]
high = 8
"#;

fn environment(name: &str) -> Option<String> {
    match name {
        "ACME_KEY" => Some("sk-acme".to_string()),
        "PEOPLE_KEY" => Some("sk-people".to_string()),
        "TIDEGATE_SHARE_URL" => Some("redis://:pass-word@host".to_string()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<ProxyConfig, String> {
    ProxyConfig::parse(&SourceText::new("p.toml", text), &environment).map_err(|error| error.to_string())
}

fn error_after(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the file");
    parse(&GOOD.replacen(from, to, 1)).expect_err("the file is wrong")
}

#[test]
fn a_valid_file_is_parsed_into_typed_settings() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.listen.port(), 9000);
    let [acme, rest] = config.providers.as_slice() else { panic!("two providers") };
    assert!(acme.api_key.is_some() && rest.api_key.is_none());
    assert_eq!((acme.limits.max_parallel.get(), acme.limits.budgets.len()), (12, 2));
    assert_eq!(acme.rename, [("small".to_string(), "gpt-mini".to_string())]);
    assert_eq!((rest.serves.as_slice(), rest.limits.max_parallel.get()), ([WildMatch::new("*")].as_slice(), 64));
    assert!(matches!(rest.limits.algorithm, LimitChoice::Tide(_)));
    let [large] = acme.models.as_slice() else { panic!("one model of its own") };
    assert_eq!((large.limits.max_parallel.get(), large.limits.budgets.len()), (3, 1));
    assert!(matches!(large.limits.algorithm, LimitChoice::Vegas(_)));
    assert_eq!(large.limits.limit_config.cooldown, Duration::from_secs(1));
    assert_eq!(config.tenants.known[0].key, Some(sha256(b"sk-people")));
    assert_eq!(config.queue.deadline, StdDuration::from_secs(30));
    assert_eq!(config.priority.factors.map(|factor| (factor * 100.0) as u32), [800, 100, 25]);
}

#[test]
fn aimd_settings_of_a_model_select_aimd_and_conflict_with_another_limit() {
    let of_large = |extra: &str| parse(&GOOD.replacen("max_parallel = 3", &format!("max_parallel = 3\n{extra}"), 1));
    let config = of_large("aimd = { increase_step = 2 }").unwrap();
    let (provider, model) = (&config.providers[0].limits, &config.providers[0].models[0].limits);
    assert_eq!((provider.algorithm.name(), model.algorithm.name()), ("vegas", "aimd"));
    assert_eq!((model.limit_config.increase_step, model.limit_config.cooldown), (2, Duration::from_secs(1)));
    assert_eq!(of_large("limit = \"tide\"").unwrap().providers[0].models[0].limits.algorithm.name(), "tide");
    let error = of_large("limit = \"tide\"\naimd = { increase_step = 2 }").unwrap_err();
    assert!(error.contains("`aimd` in [[providers.models]] sets the limit \"aimd\""), "{error}");
}

#[test]
fn debug_output_contains_no_key() {
    let text = format!("{:?}", parse(GOOD).unwrap());
    assert!(!text.contains("sk-acme") && !text.contains("sk-people"), "{text}");
}

#[test]
fn an_error_names_the_position_and_the_expected_value() {
    let error = error_after("max_parallel = 12", "max_paralel = 12");
    assert!(error.starts_with("p.toml:10:1: unknown key `max_paralel` in [[providers]]"), "{error}");
    assert!(error.contains("did you mean `max_parallel`?"), "{error}");
    for (from, to, hint) in [
        ("max_parallel = 12", "max_parallel_requests = 12", "did you mean `max_parallel`?"),
        ("budgets = { requests", "budget = { requests", "did you mean `budgets`?"),
        ("base_url = \"http://localhost:1/v1\"", "", "base_url: The base URL of an OpenAI-compatible API"),
        ("rename = { small = \"gpt-mini\" }", "rename = { small = 3 }", "`small` in [providers.rename] is 3"),
        ("\"127.0.0.1:9000\"", "\"9000\"", "expected an address and a port"),
        ("\"api_key\"", "\"apikey\"", "did you mean `api_key`?"),
        ("\"api_key\"", "\"header:Authorization\"", "the header `authorization` holds a key"),
        ("\"api_key\"", "\"header:x-api-key\"", "expected \"api_key\", which shows no key"),
        ("weight = 4", "weight = 0", "expected a number from 0.001 to 1000"),
        ("ACME_KEY", "NO_KEY", "the environment variable `NO_KEY` is not set"),
        ("https://api", "https://me:secret@api", "holds a user name or password"),
        ("requests_per_minute = 500", "requests_per_minute = 0", "expected a whole number from 1 to 10^15"),
        ("key_env = \"PEOPLE_KEY\"", "key_sha256 = \"abc\"", "expected 64 hexadecimal digits"),
        ("key_env = \"PEOPLE_KEY\"", "", "either `key_env`"),
        ("by = \"api_key\"", "by = \"none\"", "tenants are not identified by key"),
        ("weight = 4", "weight = 4\nmodels = [\"a-*\"]", "`require_known = true` in [tenants]"),
        ("high = 8", "high = 0.5", "the factors in [priority] are out of order"),
        ("\"30s\"", "\"0s\"", "more than 0"),
        ("name = \"rest\"", "name = \"acme\"", "two providers called `acme`"),
    ] {
        let error = error_after(from, to);
        assert!(error.contains(hint), "{hint:?} is not in:\n{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(parse("listen = \"127.0.0.1:1\"").unwrap_err().contains("has no [[providers]]"));
}

/// Parses a file of one provider at `base_url` with extra lines.
fn provider(base_url: &str, lines: &str) -> Result<ProxyConfig, String> {
    parse(&format!("[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\n{lines}"))
}

#[test]
fn keys_are_sent_unencrypted_only_to_this_machine_unless_allowed() {
    let far = "http://10.0.0.7:8000/v1";
    for keys in ["client_key = \"forward\"", "api_key_env = \"ACME_KEY\""] {
        let error = provider(far, keys).unwrap_err();
        assert!(error.starts_with("p.toml:3:12: keys would go to `10.0.0.7` unencrypted"), "{error}");
        assert!(error.contains("`allow_plain_http = true` beside it"), "{error}");
        provider(far, &format!("{keys}\nallow_plain_http = true")).unwrap();
        for near in ["http://127.0.0.1:1/v1", "http://[::1]:1/v1", "http://localhost:1/v1", "https://10.0.0.7/v1"] {
            provider(near, keys).unwrap();
        }
        for other in ["http://localhost.example/v1", "http://127.0.0.1.example/v1", "http://0.0.0.0/v1"] {
            provider(other, keys).expect_err(other);
        }
    }
    assert!(!provider(far, "").unwrap().providers[0].forwards_client_key, "no key goes there");
}

#[test]
fn access_settings_are_checked_with_their_position() {
    let near = "http://127.0.0.1:1/v1";
    let config = provider(near, "passthrough = [{ methods = [\"GET\", \"DELETE\"], path = \"/files/*\" }]").unwrap();
    let rule = &config.providers[0].passthrough[0];
    assert_eq!((rule.path.as_str(), rule.methods.len()), ("files/*", 2));
    for (lines, hint) in [
        (
            "passthrough = [{ methods = [\"TRACE\"], path = \"/x\" }]",
            "\"TRACE\" in `passthrough` in [[providers]] is not a method",
        ),
        ("passthrough = [{ methods = [\"get\"], path = \"/x\" }]", "expected \"GET\""),
        ("passthrough = [{ methods = [\"GET\"], path = \"x\" }]", "expected such as \"/files\""),
        ("passthrough = [{ methods = [\"GET\"], path = \"/*\" }]", "is not a path under /v1"),
        ("passthrough = [{ methods = [\"GET\"], path = \"/a/../b\" }]", "is not a path under /v1"),
        ("passthrough = [{ methods = [\"GET\"], path = \"/a/%2e\" }]", "is not a path under /v1"),
        ("passthrough = [\"/x\"]", "expected a table"),
        ("client_key = \"foward\"", "did you mean `forward`?"),
        ("client_key = \"forward\"\napi_key_env = \"ACME_KEY\"", "only one key is sent"),
        ("ca_file = \"authority.pem\"", "an address without https"),
    ] {
        let error = provider(near, lines).expect_err(lines);
        assert!(error.contains(hint) && error.starts_with("p.toml:4:"), "{hint:?} is not in:\n{error}");
    }
    let error = provider("https://h/v1", "ca_file = \"Cargo.toml\"").unwrap_err();
    assert!(error.contains("Cargo.toml holds no certificate"), "{error}");
    for (line, hint) in [
        ("allowed_hosts = [\"llm.example:80\"]", "expected a name without a port"),
        ("allowed_hosts = [\"*\"]", "is not the name of a host"),
        ("allowed_origins = [\"*\"]", "is not an origin"),
        ("allowed_origins = [\"https://app.example/\"]", "is not an origin"),
        ("connections = { header_timeout = \"0s\" }", "more than 0"),
        ("connections = { max_connections = 0 }", "`max_connections` in [connections] is 0"),
        ("connections = { max_url_bytes = 100_000 }", "expected at most 61440"),
    ] {
        let error = parse(&format!("{line}\n{GOOD}")).expect_err(line);
        assert!(error.contains(hint) && error.starts_with("p.toml:1:"), "{hint:?} is not in:\n{error}");
    }
}

#[test]
fn the_stored_schema_matches_the_types() {
    crate::app::config::schema::assert_stored("proxy", &schema());
}

#[test]
fn the_schema_accepts_valid_files_and_rejects_invalid_ones() {
    let schema = serde_json::from_str(&schema()).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let is_good = |text: &str| {
        let source = SourceText::new("p.toml", text);
        validator.is_valid(&crate::app::config::pipeline::document(&source).expect("the file is TOML"))
    };
    assert!(is_good(GOOD) && is_good(&example(include_str!("../../../../docs/proxy.md"), "")));
    for (from, to) in [
        ("max_parallel = 12", "max_paralel = 12"),
        ("weight = 4", "weight = 0"),
        ("\"30s\"", "\"30 seconds\""),
        ("\"vegas\"", "\"vega\""),
        ("requests_per_minute = 500", "requests_per_minute = 0"),
    ] {
        assert!(GOOD.contains(from) && !is_good(&GOOD.replacen(from, to, 1)), "{to}");
    }
}

#[test]
fn limits_are_shared_with_a_valid_name_and_an_address_that_is_shown_nowhere() {
    let share = |keys: &str| parse(&format!("{GOOD}\n[share]\n{keys}"));
    let shared = share("url_env = \"TIDEGATE_SHARE_URL\"\nname = \"a-b.c_1\"\non_loss = \"stop\"").unwrap();
    assert!(!format!("{shared:?}").contains("pass-word"));
    let settings = shared.share.unwrap();
    assert_eq!((&*settings.name, settings.on_loss), ("a-b.c_1", crate::share::OnLoss::Stop));
    assert!(parse(GOOD).unwrap().share.is_none());
    for (keys, expected) in [
        ("url_env = \"OTHER\"\nname = \"a\"", "the environment variable `OTHER` is not set"),
        ("url_env = \"TIDEGATE_SHARE_URL\"", "name"),
        ("name = \"a b\"", "`a b` is not a name to share limits under"),
        ("name = \"a\"\non_loss = \"halt\"", "stop"),
        ("name = \"a\"\nca_file = \"no-such.pem\"", "cannot read no-such.pem"),
        ("name = \"a\"\nca_file = \"Cargo.toml\"", "Cargo.toml holds no certificate"),
    ] {
        let error = share(keys).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn tenant_by_accepts_a_header_name() {
    let by = |text: &str| tenant_by(text);
    assert_eq!(by("header:x-team"), Some(TenantBy::Header(HeaderName::from_static("x-team"))));
    assert_eq!(by("header:no spaces"), None);
    assert_eq!(by("none"), Some(TenantBy::Nothing));
}

/// Returns the first TOML block of a text, without `prefix` at each line.
fn example(text: &str, prefix: &str) -> String {
    let lines = text.lines().map(|line| line.strip_prefix(prefix).unwrap_or(line));
    let inside = lines.skip_while(|line| *line != "```toml").skip(1).take_while(|line| *line != "```");
    inside.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn the_documented_files_are_valid() {
    let reference = parse(&example(include_str!("mod.rs"), "//! ").replace("//!\n", "\n")).unwrap();
    let defaults = ProxyConfig::upstream(reference.providers[0].base_url.clone());
    assert_eq!((reference.queue, reference.drain), (defaults.queue, defaults.drain));
    assert_eq!((reference.priority, reference.providers[0].models.len()), (defaults.priority, 1));
    let sharing = parse(&example(include_str!("../../../../docs/sharing.md"), "")).unwrap();
    assert_eq!(sharing.share.map(|share| share.name).as_deref(), Some("acme-prod"));
    let page = include_str!("../../../../docs/proxy.md");
    let guide = parse(&example(page, "")).unwrap();
    assert_eq!((guide.providers.len(), guide.tenants.known.len()), (2, 1));
    let examples: Vec<ProxyConfig> =
        page.match_indices("```toml\n").map(|(at, _)| parse(&example(&page[at..], "")).unwrap()).collect();
    let [_, pages, calls, keys] = examples.as_slice() else { panic!("{} examples", examples.len()) };
    assert_eq!((pages.access.hosts.len(), pages.access.origins.len()), (1, 1));
    assert_eq!(calls.providers[0].passthrough.len(), 3);
    assert!(keys.providers[0].forwards_client_key);
}
