//! Whether every name that a module takes from another is one that the other has.
//!
//! In a browser a module that takes a name which is not there does not run, and the page stays empty. Joined, it would run, and
//! the name would be `undefined` until somebody needs it. Types would tell, but not everybody who builds the page checks them.

use std::collections::{BTreeMap, BTreeSet};

use super::{EXPORT, Line, Result, Texts, ensure, is_module, lines_of, refused, resolve};

/// What may stand between `export` and a name.
const KINDS: [&str; 8] =
    ["const ", "let ", "var ", "class ", "function ", "function* ", "async function ", "async function* "];

/// Fails at the first name that is taken from one of these modules, and that it does not export. Modules that are not among
/// the texts may export anything.
pub(super) fn check(texts: &Texts) -> Result<()> {
    let modules = || texts.iter().filter(|(key, _)| is_module(key));
    let mut exported = BTreeMap::new();
    for (key, text) in modules() {
        let mut names = BTreeSet::new();
        for line in lines_of(key, text)?.iter().filter(|line| !line.is_inside && line.text.starts_with("export ")) {
            let found = exported_by(line.text);
            ensure!(!found.is_empty(), refused(key, line, EXPORT));
            names.extend(found.into_iter().map(str::to_owned));
        }
        exported.insert(key.as_str(), names);
    }
    for (key, text) in modules() {
        for line in lines_of(key, text)?.iter().filter(|line| !line.is_inside) {
            let Some((taken, from)) = taken_by(key, line) else { continue };
            let Some(names) = exported.get(from.as_str()) else { continue };
            for name in taken {
                let expected = format!("a name that {from} exports, which `{name}` is not");
                ensure!(names.contains(name), refused(key, line, &expected));
            }
        }
    }
    Ok(())
}

/// The names that a line exports; none where its form is not known.
fn exported_by(line: &str) -> Vec<&str> {
    let Some(exported) = line.strip_prefix("export ") else { return Vec::new() };
    if exported.starts_with("default ") {
        return vec!["default"];
    }
    if exported.starts_with('{') {
        return listed(exported).filter_map(|name| name.rsplit(" as ").next()).collect();
    }
    let declared = KINDS.iter().find_map(|kind| exported.strip_prefix(kind));
    let name = declared.and_then(|declared| declared.split(|letter| !is_of_any_name(letter)).next());
    name.filter(|name| !name.is_empty()).into_iter().collect()
}

/// The names that a line takes from another module, and the path of that.
fn taken_by<'a>(key: &str, line: &Line<'a>) -> Option<(Vec<&'a str>, String)> {
    let passed_on = || line.text.strip_prefix("export ").filter(|exported| exported.starts_with('{'));
    let (clause, from) = line.text.strip_prefix("import ").or_else(passed_on)?.split_once(" from \"")?;
    let from = resolve(key, from.strip_suffix("\";")?)?;
    let mut names: Vec<_> = listed(clause).filter_map(|name| name.split(" as ").next()).collect();
    // The default one has no brackets around it, and may stand before those that have.
    if clause.starts_with(is_of_any_name) {
        names.push("default");
    }
    Some((names, from))
}

/// What stands between the first brackets, one by one.
fn listed(clause: &str) -> impl Iterator<Item = &str> {
    let list = clause.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(list, _)| list);
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn is_of_any_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$')
}
