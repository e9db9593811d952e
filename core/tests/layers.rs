//! Tests that the modules of the core form layers: a module imports only modules before it in [`LAYERS`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, from bottom to top.
const LAYERS: &[&str] = &[
    "time",
    "error",
    "panics",
    "hex",
    "millis",
    "map",
    "portable_hasher",
    "id",
    "lease",
    "timer_queue",
    "wake_list",
    "call",
    "backoff",
    "runtime",
    "event",
    "fair_queue",
    "limit",
    "share",
    "budget",
    "yielding",
    "request",
    "task",
    "pipeline",
    "observe",
    "replay",
    "gate",
    "driver",
    "sim",
];

#[test]
fn no_module_imports_a_module_above_it() {
    let upwards: Vec<String> = modules().iter().flat_map(|module| imports(module)).filter_map(upward_import).collect();
    assert!(upwards.is_empty(), "upward imports:\n{}\nthe layers: {LAYERS:?}", upwards.join("\n"));
}

#[test]
fn every_module_is_a_layer_and_every_layer_is_a_module() {
    let modules: BTreeSet<String> = modules().into_iter().collect();
    let layers: BTreeSet<String> = LAYERS.iter().map(ToString::to_string).collect();
    assert_eq!(modules, layers);
}

#[test]
fn an_upward_import_is_found() {
    let found = |text: &str| imports_of(text).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(found("use crate::{driver::PipelineRun, time};\n"), ["driver", "time"]);
    assert_eq!(found("let gate = crate::gate::Gate::new(); // crate::sim\n/// [`crate::sim`]\n"), ["gate"]);
    assert_eq!(found("use crate::{\n    driver::{Run, crate_of},\n    time::Instant,\n};\n"), ["driver", "time"]);
    let import =
        |to: &str| upward_import(Import { module: "gate".into(), file: "gate/mod.rs".into(), line: 1, to: to.into() });
    assert!(import("driver").is_some() && import("request").is_none() && import("gate").is_none());
}

struct Import {
    module: String,
    file: PathBuf,
    line: usize,
    to: String,
}

/// Returns the error message for an import of a module above.
fn upward_import(import: Import) -> Option<String> {
    let Import { module, file, line, to } = import;
    let layer_of = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let points_up = to != module && layer_of(&to) >= layer_of(&module);
    points_up.then(|| format!("{}:{line}: `{module}` imports `{to}`", file.display()))
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the top-level modules: the files and folders of `src`.
fn modules() -> Vec<String> {
    let entries = fs::read_dir(source()).expect("the sources are there").map(|entry| entry.expect("readable").path());
    let name = |path: PathBuf| path.file_stem().and_then(|stem| stem.to_str()).expect("a plain name").to_string();
    let is_module = |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
    let mut names: Vec<String> = entries.filter(is_module).map(name).filter(|name| name != "lib").collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the imports of a module. Test code is excluded, because tests may use any module.
fn imports(module: &str) -> Vec<Import> {
    let mut files = Vec::new();
    collect(&source().join(module), &mut files);
    files.push(source().join(module).with_extension("rs"));
    let mut all = Vec::new();
    for file in files.into_iter().filter(|file| file.exists() && !is_test(file)) {
        let text = fs::read_to_string(&file).expect("a source file");
        let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let of_file = imports_of(production).into_iter();
        all.extend(of_file.map(|(line, to)| Import { module: module.to_string(), file: file.clone(), line, to }));
    }
    all
}

/// Returns whether a file is test code: its name or that of a parent folder begins with `test`.
fn is_test(file: &Path) -> bool {
    let relative = file.strip_prefix(source()).unwrap_or(file);
    relative.components().any(|part| part.as_os_str().to_str().is_some_and(|name| name.starts_with("test")))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the modules that follow `crate::` in code, each with its line. Comments are ignored.
fn imports_of(text: &str) -> Vec<(usize, String)> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.push((line, first_word(rest))),
            Some(list) => found.extend(listed(list).into_iter().map(|name| (line, name))),
        }
    }
    found.retain(|(_, name)| name.starts_with(char::is_lowercase));
    found
}

/// Returns the first word of each entry of a list such as `a::B, c::{D, E}, f}`.
fn listed(list: &str) -> Vec<String> {
    let (mut depth, mut names, mut is_start) = (0, Vec::new(), true);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_start = true,
            letter if is_start && !letter.is_whitespace() => {
                names.push(first_word(&list[at..]));
                is_start = false;
            }
            _ => {}
        }
    }
    names
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}
