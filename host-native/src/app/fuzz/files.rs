//! Files that people write: pipelines, the configuration of the proxy, scenarios, templates.

use std::path::Path;

use tidegate_core::sim::scenario::builtin;

use super::fuzz_text;
use crate::app::config::pipeline::{FileError, PipelineFile, SourceText};
use crate::app::proxy::config::ProxyConfig;
use crate::app::simulate::file;
use crate::app::template::{TemplateError, Templates, normal_form};

const TOML: &[&str] = &[
    "\n",
    " = ",
    "[",
    "]",
    "[[models]]\n",
    "[[columns]]\n",
    "[run]\n",
    "[seed]\n",
    "[output]\n",
    "{",
    "}",
    ",",
    "\"",
    "'''",
    "\\u0000",
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    "9223372036854775807",
    "18446744073709551616",
    "true",
    "\"5m\"",
    "\"-1s\"",
    "\"999999999999999999h\"",
    "1979-05-27T07:32:00Z",
    "name",
    "model",
    "kind",
    "limit",
    "provider",
    "\u{feff}",
    "é",
    "#",
    ".",
    "budgets",
    "max_parallel",
    "when",
    "prompt",
    "{{",
    "}}",
    "{%",
];

const GUIDE: &str = include_str!("../../../docs/proxy.md");

/// Returns the blocks of a Markdown page that are TOML.
fn toml_blocks(page: &'static str) -> Vec<&'static str> {
    page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// An error names a line of the file, and says something.
fn check_error(error: &FileError, text: &str) {
    assert!(!error.message().is_empty());
    assert!(error.to_string().contains("fuzz.toml"), "{error}");
    if let Some(place) = error.place() {
        assert!((1..=text.split('\n').count()).contains(&place.line), "{error}");
    }
}

#[test]
fn a_pipeline_file_is_read_or_refused_with_a_line_of_it() {
    let corpus = [
        include_str!("../../../example/harbour_log.toml"),
        include_str!("../../../example/harbour_letters.toml"),
        include_str!("../../../example/harbour_verdicts.toml"),
    ];
    fuzz_text(&corpus, TOML, |text| {
        if let Err(error) = PipelineFile::parse(SourceText::new("fuzz.toml", text), Path::new(".")) {
            check_error(&error, text);
        }
    });
}

#[test]
fn the_configuration_of_the_proxy_is_read_or_refused_with_a_line_of_it() {
    let corpus = toml_blocks(GUIDE);
    assert!(!corpus.is_empty());
    fuzz_text(&corpus, TOML, |text| {
        let key = |_: &str| Some("sk-of-the-operator".to_string());
        if let Err(error) = ProxyConfig::parse(&SourceText::new("fuzz.toml", text), &key) {
            check_error(&error, text);
            assert!(!error.to_string().contains("sk-of-the-operator"), "{error}");
        }
    });
}

#[test]
fn a_scenario_is_read_or_refused_with_a_line_of_it() {
    let corpus: Vec<String> =
        builtin().iter().map(|scenario| file::dump(scenario).expect("it can be written")).collect();
    let corpus: Vec<&str> = corpus.iter().map(String::as_str).collect();
    fuzz_text(&corpus, TOML, |text| {
        if let Err(error) = file::parse(&SourceText::new("fuzz.toml", text)) {
            check_error(&error, text);
        }
    });
}

const TEMPLATE: &[&str] = &[
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "|",
    "(",
    ")",
    "[",
    "]",
    "~",
    " if ",
    "endif",
    "for x in note",
    "endfor",
    "range(9)",
    "note",
    "title",
    "length",
    "default('x')",
    "\"",
    "'",
    "0",
    "-1",
    "99999999999",
    ".",
    ":",
    ",",
    "é",
    "\\",
    "loop.index",
    "macro m()",
    "endmacro",
    "set a = ",
    "include 'x'",
    "import 'x' as y",
    "extends 'x'",
    "**",
    "//",
    " in ",
    " not ",
    " is ",
    " and ",
    "e\u{301}",
    " else ",
    "*",
    "-",
    "{",
    "}",
    "=",
    "none",
    "true",
    "1e308",
    "\n",
];

/// An error says something, and its place is one of the text.
fn check_template_error(error: &TemplateError, text: &str) {
    assert!(!error.message.is_empty());
    if let Some(span) = &error.span {
        assert!(text.get(span.clone()).is_some(), "{error:?}: {text:?}");
    }
    if let Some(line) = error.line {
        assert!((1..=text.split('\n').count()).contains(&line), "{error:?}: {text:?}");
    }
}

#[test]
fn a_template_is_compiled_and_rendered_or_refused() {
    let corpus = [
        "A title for: {{ note }}",
        "{% if note | length > 3 %}{{ note[:10] | upper }}{% else %}{{ title | default('none') }}{% endif %}",
        "{% for word in note.split(' ') %}{{ loop.index }}. {{ word }}{% endfor %}",
    ];
    fuzz_text(&corpus, TEMPLATE, |text| {
        let mut templates = Templates::new();
        let template = match templates.add("fuzz".to_string(), text) {
            Ok(template) => template,
            Err(error) => return check_template_error(&error, text),
        };
        let context = minijinja::context! { note => "a note of some words", title => 7 };
        drop(templates.variables(&template));
        for error in templates.static_errors(&template, |_| None) {
            assert!(text.get(error.span.clone()).is_some(), "{error:?}: {text:?}");
        }
        if let Err(error) = templates.render(&template, context) {
            check_template_error(&error, text);
        }
    });
}

#[test]
fn a_condition_is_evaluated_or_refused_at_a_place_of_its_text() {
    let corpus = [
        "score > 3",
        "{{ note | length > 3 and title is not none }}",
        "\n  {{ note.missing > 1 }}  ",
        "'x' if note else title",
        "a) %}1{% endif %}{% if (b",
        "{{ note }} {{ title }}",
        "note }}{{ title",
    ];
    fuzz_text(&corpus, TEMPLATE, |text| {
        let templates = Templates::new();
        drop(templates.braced_expression(text).map_err(|error| check_template_error(&error, text)));
        let condition = match templates.condition(text) {
            Ok(condition) => condition,
            Err(error) => return check_template_error(&error, text),
        };
        for error in templates.condition_static_errors(&condition, |_| None) {
            assert!(text.get(error.span.clone()).is_some(), "{error:?}: {text:?}");
        }
        // All other names that it reads are undefined.
        let variables = templates.condition_variables(&condition);
        let normal = normal_form(text);
        assert!(variables.iter().all(|variable| normal.contains(variable.as_str())), "{variables:?}: {text:?}");
        let context = minijinja::context! { note => "a note of some words", title => 7 };
        let holds = templates.holds(&condition, context.clone());
        match (templates.value(&condition, context), holds) {
            (Ok(_), Ok(_)) => {}
            (Ok(value), Err(error)) => panic!("{value} neither holds nor does not: {error}: {text:?}"),
            (Err(error), holds) => {
                check_template_error(&error, text);
                if let Err(error) = holds {
                    check_template_error(&error, text);
                }
            }
        }
    });
}
