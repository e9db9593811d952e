//! Files that people write: pipelines, the configuration of the proxy, scenarios, templates.

use std::path::Path;

use tidegate_core::sim::scenario::builtin;

use super::fuzz_text;
use crate::app::config::pipeline::{FileError, PipelineFile, SourceText};
use crate::app::proxy::config::ProxyConfig;
use crate::app::simulate::file;
use crate::app::template::Templates;

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

#[test]
fn a_template_is_compiled_and_rendered_or_refused() {
    let tokens = [
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
    ];
    let corpus = [
        "A title for: {{ note }}",
        "{% if note | length > 3 %}{{ note[:10] | upper }}{% else %}{{ title | default('none') }}{% endif %}",
        "{% for word in note.split(' ') %}{{ loop.index }}. {{ word }}{% endfor %}",
    ];
    fuzz_text(&corpus, &tokens, |text| {
        let mut templates = Templates::new();
        let Ok(template) = templates.add("fuzz".to_string(), text) else { return };
        let context = minijinja::context! { note => "a note of some words", title => 7 };
        drop(templates.variables(&template));
        drop(templates.static_errors(&template, |_| None));
        drop(templates.render(&template, context));
    });
}
