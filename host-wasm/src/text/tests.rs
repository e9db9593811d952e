use serde::Deserialize;

use super::*;

/// The same by a parser that everybody uses.
fn theirs(node: &serde_json::Value) -> Value {
    let inside = |value| Node { at: 0, value };
    match node {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(yes) => Value::Bool(*yes),
        serde_json::Value::Number(number) => match number.as_i128() {
            Some(whole) => Value::Whole(whole),
            None => Value::Decimal(number.as_f64().expect("a number")),
        },
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(items) => Value::List(items.iter().map(theirs).map(inside).collect()),
        serde_json::Value::Object(entries) => Value::Table(
            entries.iter().map(|(name, node)| (Key { at: 0, name: name.clone() }, inside(theirs(node)))).collect(),
        ),
    }
}

/// Without places, and with keys in the order of the alphabet.
fn bare(value: &Value) -> Value {
    let inside = |node: &Node| Node { at: 0, value: bare(&node.value) };
    match value {
        Value::List(items) => Value::List(items.iter().map(inside).collect()),
        Value::Table(entries) => {
            let mut entries: Vec<_> =
                entries.iter().map(|(key, node)| (Key { at: 0, name: key.name.clone() }, inside(node))).collect();
            entries.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
            Value::Table(entries)
        }
        other => other.clone(),
    }
}

#[test]
fn json_is_read_as_everybody_reads_it_and_what_they_refuse_is_refused() {
    for text in [
        "null",
        " true ",
        "false",
        "0",
        "-0.5",
        "12.25e-2",
        "1E+3",
        "-7",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "-9223372036854775809",
        r#""""#,
        r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀""#,
        "[]",
        "[ ]",
        "[1,[2,[]],{}]",
        "{ }",
        r#"{"a":1, "b" : {"c":[true,null]},"":"x"}"#,
        "\n{\t\"a\"\r:1}\n",
        "",
        " ",
        "nul",
        "nulls",
        "+1",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "--1",
        "1-2",
        "1e999",
        "[1,]",
        "[,]",
        "[1 2]",
        "[",
        "]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1",
        "\"a",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\",
        "1 1",
        "[]]",
        "'a'",
        "\u{a0}1",
    ] {
        let ours = parse_json(text).ok().map(|node| bare(&node.value));
        let expected = serde_json::from_str(text).ok().map(|value| theirs(&value));
        assert_eq!(ours, expected, "{text}");
    }
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert!(parse_json(&nested(127)).is_ok());
    assert!(parse_json(&nested(100_000)).unwrap_err().to_string().contains("nested"));
}

#[test]
fn pretty_text_is_that_of_serde_json() {
    for text in
        [r#"{"a":[],"b":{},"c":[1,2.5,{"d":"x,y:{}[]\"\\"}],"e":null}"#, "[]", "3", "[[],[[]]]", r#"{"a":"\\"}"#]
    {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(pretty(text), serde_json::to_string_pretty(&value).unwrap());
    }
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Boat {
    name: String,
    #[serde(default)]
    crew: Vec<Sailor>,
    #[serde(default)]
    draught: Option<f64>,
    rig: Rig,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sailor {
    age: u8,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rig {
    Sloop,
    Masts(u32),
    Ketch { sails: u32 },
}

fn boat(text: &str) -> Result<Boat, String> {
    let node = parse_json(text).map_err(|mistake| mistake.in_text(text))?;
    read(&node).map_err(|mistake| mistake.in_text(text))
}

#[test]
fn structs_options_and_enums_of_all_forms_are_read() {
    let read =
        |rig: &str| boat(&format!(r#"{{"name":"Ann","draught":null,"rig":{rig},"crew":[{{"age":30}}]}}"#)).unwrap();
    let ann = read(r#""sloop""#);
    assert_eq!(ann, Boat { name: "Ann".into(), crew: vec![Sailor { age: 30 }], draught: None, rig: Rig::Sloop });
    assert_eq!(read(r#"{"masts":3}"#).rig, Rig::Masts(3));
    assert_eq!(read(r#"{"ketch":{"sails":4}}"#).rig, Rig::Ketch { sails: 4 });
    assert_eq!(boat(r#"{"name":"B","draught":2,"rig":"sloop"}"#).unwrap().draught, Some(2.0));
}

#[test]
fn a_mistake_is_told_with_its_line_column_and_path() {
    for (text, told) in [
        (
            "{\"name\": \"Ann\",\n \"rig\": \"sloop\",\n \"crew\": [{\"age\": 30}, {\"age\": -1}]}",
            "line 3, column 32: crew[1].age: invalid value: integer `-1`, expected u8",
        ),
        (
            "{\"name\": \"Ann\",\n  \"nmae\": 1}",
            "line 2, column 3: unknown field `nmae`, expected one of `name`, `crew`, `draught`, `rig`",
        ),
        (r#"{"name": "A", "rig": "sloop", "name": "B"}"#, "line 1, column 31: duplicate field `name`"),
        (r#"{"name": "Ann"}"#, "line 1, column 1: missing field `rig`"),
        (r#"{"name": 3, "rig": "sloop"}"#, "line 1, column 10: name: invalid type: integer `3`, expected a string"),
        (
            r#"{"name": "é", "rig": "raft"}"#,
            "line 1, column 22: rig: unknown variant `raft`, expected one of `sloop`, `masts`, `ketch`",
        ),
        (r#"{"name": "A", "rig": {"ketch": {}}}"#, "line 1, column 32: rig.ketch: missing field `sails`"),
        (r#"{"name": "A", "rig": "masts"}"#, "line 1, column 22: rig: `masts` needs a value"),
        (r#"{"name": "A", "rig": {"sloop": 1}}"#, "line 1, column 32: rig: `sloop` takes no value"),
        ("{\"name\"}", "line 1, column 8: it is not JSON: expected `:`"),
    ] {
        assert_eq!(boat(text), Err(told.to_string()), "{text}");
    }
}

#[cfg(feature = "playground")]
mod files {
    use super::*;
    use tidegate_core::sim::scenario::{Scenario, builtin};

    fn node_of(scenario: &Scenario) -> Node {
        parse_json(&serde_json::to_string(scenario).unwrap()).unwrap()
    }

    #[test]
    fn every_scenario_is_written_as_toml_that_is_read_back_equal() {
        for scenario in builtin() {
            let text = write_toml(&node_of(&scenario));
            let again: Scenario =
                read(&parse_toml(&text).unwrap()).unwrap_or_else(|mistake| panic!("{text}\n{mistake}"));
            assert_eq!(again, scenario, "{text}");
        }
    }

    /// `value` without one of its entries, for each of them at any depth.
    fn without_one(value: &serde_json::Value) -> Vec<serde_json::Value> {
        use serde_json::Value::{Array, Object};
        match value {
            Object(entries) => {
                let names = || entries.keys().cloned();
                let dropped = names().map(|name| {
                    let mut rest = entries.clone();
                    rest.remove(&name);
                    Object(rest)
                });
                let inner = names().flat_map(|name| {
                    without_one(&entries[&name]).into_iter().map(move |inside| (name.clone(), inside)).map(
                        |(name, inside)| {
                            let mut changed = entries.clone();
                            changed.insert(name, inside);
                            Object(changed)
                        },
                    )
                });
                dropped.chain(inner).collect()
            }
            Array(items) => {
                let changed = |(nth, item): (usize, &serde_json::Value)| {
                    without_one(item)
                        .into_iter()
                        .map(|inside| {
                            let mut changed = items.clone();
                            changed[nth] = inside;
                            Array(changed)
                        })
                        .collect::<Vec<_>>()
                };
                items.iter().enumerate().flat_map(changed).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Structs are read as sequences of fields, which know nothing of `Option`: one that may be absent has to have a default.
    #[test]
    fn whatever_serde_lets_be_absent_from_a_scenario_may_be_absent_here_and_nothing_else() {
        let mut tried = 0;
        for scenario in builtin() {
            for changed in without_one(&serde_json::to_value(&scenario).unwrap()) {
                let expected = serde_json::from_value::<Scenario>(changed.clone());
                let answer = read::<Scenario>(&parse_json(&changed.to_string()).unwrap());
                match (expected, answer) {
                    (Ok(expected), Ok(answer)) => assert_eq!(answer, expected, "{changed}"),
                    (Err(expected), Err(answer)) => {
                        let (expected, answer) = (expected.to_string(), answer.to_string());
                        let is_missing = expected.starts_with("missing field");
                        assert!(
                            !is_missing || answer.ends_with(expected.as_str()),
                            "{answer}, not {expected}, of {changed}"
                        );
                    }
                    (expected, answer) => panic!("{answer:?}, not {expected:?}, of {changed}"),
                }
                tried += 1;
            }
        }
        assert!(tried > 500, "{tried}");
    }

    #[test]
    fn a_mistake_in_a_file_is_told_with_its_place() {
        for (text, told) in [
            ("rows = 1\nrows = 2", "line 2, column 1: this is not TOML: duplicate key"),
            ("a = 1\nb = = 2", "line 2, column 5: this is not TOML: "),
            ("rows = 2024-01-01", "line 1, column 8: a date has no meaning here"),
            ("name = nan", "line 1, column 8: name: invalid type: floating point `NaN`, expected a string"),
            ("name = -inf", "line 1, column 8: name: invalid type: floating point `-inf`, expected a string"),
            ("name = 2.5", "line 1, column 8: name: invalid type: floating point `2.5`, expected a string"),
            ("name = \"a\"\nrow = 1", "line 2, column 1: unknown field `row`, expected one of `name`, `title`, "),
        ] {
            let read = parse_toml(text).and_then(|node| read::<Scenario>(&node).map(|_| ()));
            let message = read.unwrap_err().in_text(text);
            assert!(message.starts_with(told), "{message}");
        }
    }

    #[test]
    fn texts_and_keys_of_all_kinds_survive_a_file() {
        let text = r#"{"plain":"a","needs quotes":{"":"\"\\\n\t\r\u0001é"},"list":[{"a":1.0},{"b":[{"c":1e300}]}],"empty":[],"deep":{"er":{"x":{}}}}"#;
        let node = parse_json(text).unwrap();
        let again = parse_toml(&write_toml(&node)).unwrap_or_else(|mistake| panic!("{}\n{mistake}", write_toml(&node)));
        assert_eq!(bare(&again.value), bare(&node.value), "{}", write_toml(&node));
    }
}

#[test]
fn half_a_pair_is_replaced_and_what_follows_it_stays() {
    let text = |json: &str| parse_json(json).ok().map(|node| node.value);
    let expected = |text: &str| Some(Value::Text(text.to_owned()));
    assert_eq!(text(r#""\ud83c\udf0a""#), expected("\u{1f30a}"));
    assert_eq!(text(r#""\ud800\ud800""#), expected("\u{fffd}\u{fffd}"));
    assert_eq!(text(r#""\ud800\u0041""#), expected("\u{fffd}A"));
    assert_eq!(text(r#""\udc00""#), expected("\u{fffd}"));
}

/// The same text as by a library that everybody uses.
#[cfg(feature = "engine")]
fn assert_written_alike<T: serde::Serialize>(value: &T) {
    let theirs = serde_json::to_string(value).expect("a value has a text");
    assert_eq!(write_json(value).expect("a value has a text"), theirs);
}

#[cfg(feature = "engine")]
#[test]
fn json_is_written_as_everybody_writes_it() {
    #[derive(serde::Serialize)]
    struct Sail {
        name: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reef: Option<u8>,
    }
    #[derive(serde::Serialize)]
    enum Wind {
        Calm,
        Knots(u32),
        From(i16, f64),
        Gusts { most: u64, least: Option<u64> },
    }
    #[derive(serde::Serialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Low { at: i64 },
    }
    assert_written_alike(&[Sail { name: "jib", reef: None }, Sail { name: "main", reef: Some(2) }]);
    assert_written_alike(&[
        Wind::Calm,
        Wind::Knots(7),
        Wind::From(-3, 0.5),
        Wind::Gusts { most: u64::MAX, least: None },
    ]);
    assert_written_alike(&(Tagged::Low { at: i64::MIN }, u128::MAX, f64::NAN, (), 'x', Vec::<u8>::new()));
    assert_written_alike(&[u128::from(u64::MAX), u128::from(u64::MAX) + 1, 10_u128.pow(19) * 7, 10_u128.pow(38)]);
    assert_written_alike(&std::collections::BTreeMap::from([(-1, "a"), (20, "b")]));
    assert_written_alike(&std::collections::BTreeMap::from([("", Some(true)), ("\n", None)]));
    let letters: String = ('\0'..'\u{100}').chain("é😀\u{2028}".chars()).collect();
    assert_written_alike(&letters);
    assert!(write_json(&std::collections::BTreeMap::from([(vec![1], 1)])).is_err(), "a list is no key");
}

#[cfg(feature = "engine")]
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test::wasm_bindgen_test)]
fn decimals_are_written_as_serde_json_writes_them_and_read_back_to_the_last_bit() {
    let mut bits = 0x0123_4567_89ab_cdef_u64;
    let any = (0..20_000).map(|_| {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        f64::from_bits(bits)
    });
    let of_all_sizes = (-330..310).map(|exponent| 1.25 * 10_f64.powi(exponent));
    let plain = [0.0, -0.0, 0.1 + 0.2, 1.0, -1.5, 5e-324, 1e15, 1e16, 123_456_789_012_345_680.0, 1e-5, 9.5e-6];
    for number in any.chain(of_all_sizes).chain(plain) {
        let written = write_json(&number).expect("a number has a text");
        let theirs = serde_json::to_string(&number).expect("a number has a text");
        // Of two texts that are as near, JavaScript takes the even one, as `serde_json` does, and the standard library either.
        let is_as_near = written.len() == theirs.len() && written.parse() == theirs.parse::<f64>();
        assert!(written == theirs || cfg!(not(target_arch = "wasm32")) && is_as_near, "{written} is not {theirs}");
        if number.is_finite() {
            let Node { value, .. } = parse_json(&written).expect("what was written can be read");
            assert_eq!(value, Value::Decimal(number), "{written}");
        }
    }
}
