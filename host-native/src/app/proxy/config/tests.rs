use super::*;
use tidegate_core::limit::LimitChoice;

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
        _ => None,
    }
}

fn parse(text: &str) -> Result<ProxyConfig, String> {
    ProxyConfig::parse(&SourceText::new("p.toml", text), &environment).map_err(|error| error.to_string())
}

fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the file");
    parse(&GOOD.replacen(from, to, 1)).expect_err("the file is wrong")
}

#[test]
fn a_good_file_becomes_typed_settings() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.listen.port(), 9000);
    let [acme, rest] = config.providers.as_slice() else { panic!("two providers") };
    assert!(acme.api_key.is_some() && rest.api_key.is_none());
    assert_eq!((acme.limits.max_parallel.get(), acme.limits.budgets.len()), (12, 2));
    assert_eq!(acme.rename, [("small".to_string(), "gpt-mini".to_string())]);
    assert_eq!((rest.serves.as_slice(), rest.limits.max_parallel.get()), (["*".to_string()].as_slice(), 64));
    assert!(matches!(rest.limits.algorithm, LimitChoice::Tide(_)));
    let [large] = acme.models.as_slice() else { panic!("one model of its own") };
    assert_eq!((large.limits.max_parallel.get(), large.limits.budgets.len()), (3, 1));
    assert!(matches!(large.limits.algorithm, LimitChoice::Vegas(_)));
    assert_eq!(large.limits.aimd.cooldown, Duration::from_secs(1));
    assert_eq!(config.tenants.known[0].key, Some(super::super::tenant::sha256(b"sk-people")));
    assert_eq!(config.queue.deadline, StdDuration::from_secs(30));
    assert_eq!(config.priority.factors.map(|factor| (factor * 100.0) as u32), [800, 100, 25]);
}

#[test]
fn a_models_own_settings_of_aimd_select_it_and_beside_another_limit_they_are_refused() {
    let of_large = |extra: &str| parse(&GOOD.replacen("max_parallel = 3", &format!("max_parallel = 3\n{extra}"), 1));
    let config = of_large("aimd = { increase_step = 2 }").unwrap();
    let (provider, model) = (&config.providers[0].limits, &config.providers[0].models[0].limits);
    assert_eq!((provider.algorithm.name(), model.algorithm.name()), ("vegas", "aimd"));
    assert_eq!((model.aimd.increase_step, model.aimd.cooldown), (2, Duration::from_secs(1)));
    assert_eq!(of_large("limit = \"tide\"").unwrap().providers[0].models[0].limits.algorithm.name(), "tide");
    let error = of_large("limit = \"tide\"\naimd = { increase_step = 2 }").unwrap_err();
    assert!(error.contains("`aimd` in [[providers.models]] sets the limit \"aimd\""), "{error}");
}

#[test]
fn a_key_is_in_no_debug_output() {
    let text = format!("{:?}", parse(GOOD).unwrap());
    assert!(!text.contains("sk-acme") && !text.contains("sk-people"), "{text}");
}

#[test]
fn a_wrong_value_is_refused_at_its_place_with_what_was_expected() {
    let error = refused("max_parallel = 12", "max_paralel = 12");
    assert!(error.starts_with("p.toml:10:1: unknown key `max_paralel` in [[providers]]"), "{error}");
    assert!(error.contains("did you mean `max_parallel`?"), "{error}");
    for (from, to, hint) in [
        ("\"127.0.0.1:9000\"", "\"9000\"", "expected an address and a port"),
        ("\"api_key\"", "\"apikey\"", "did you mean `api_key`?"),
        ("\"api_key\"", "\"header:Authorization\"", "the header `authorization` holds a key"),
        ("\"api_key\"", "\"header:x-api-key\"", "expected \"api_key\", which shows no key"),
        ("weight = 4", "weight = 0", "expected a number from 0.001 to 1000"),
        ("ACME_KEY", "NO_KEY", "the environment variable `NO_KEY` is not set"),
        ("https://api", "https://me:secret@api", "holds a user name or password"),
        ("requests_per_minute = 500", "requests_per_minute = 0", "expected a number from 1 to 10^15"),
        ("key_env = \"PEOPLE_KEY\"", "key_sha256 = \"abc\"", "expected 64 hexadecimal digits"),
        ("key_env = \"PEOPLE_KEY\"", "", "either `key_env`"),
        ("by = \"api_key\"", "by = \"none\"", "tenants are not told apart by key"),
        ("high = 8", "high = 0.5", "the factors in [priority] are out of order"),
        ("\"30s\"", "\"0s\"", "more than 0"),
        ("name = \"rest\"", "name = \"acme\"", "two providers called `acme`"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(hint), "{hint:?} is not in:\n{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(parse("listen = \"127.0.0.1:1\"").unwrap_err().contains("has no [[providers]]"));
}

#[test]
fn tenants_are_told_apart_by_a_header_too() {
    let by = |text: &str| tenant_by(text);
    assert_eq!(by("header:x-team"), Some(TenantBy::Header(HeaderName::from_static("x-team"))));
    assert_eq!(by("header:no spaces"), None);
    assert_eq!(by("none"), Some(TenantBy::Nothing));
}

/// The text between the first fence of TOML and the next, without what is before each line.
fn example(text: &str, prefix: &str) -> String {
    let lines = text.lines().map(|line| line.strip_prefix(prefix).unwrap_or(line));
    let inside = lines.skip_while(|line| *line != "```toml").skip(1).take_while(|line| *line != "```");
    inside.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn the_documented_files_are_well_formed() {
    let reference = parse(&example(include_str!("mod.rs"), "//! ").replace("//!\n", "\n")).unwrap();
    let defaults = ProxyConfig::upstream(reference.providers[0].base_url.clone());
    assert_eq!((reference.queue, reference.drain), (defaults.queue, defaults.drain));
    assert_eq!((reference.priority, reference.providers[0].models.len()), (defaults.priority, 1));
    let guide = parse(&example(include_str!("../../../../docs/proxy.md"), "")).unwrap();
    assert_eq!((guide.providers.len(), guide.tenants.known.len()), (2, 1));
}
