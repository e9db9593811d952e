//! Puts the small files of the page together that a first load needs at once: each one by itself costs its headers, and
//! compresses worse.
//!
//! The style sheets that the page names become one. So do the modules that its script imports, each in a function that
//! returns what the module exports; views that come later import them from there, so that every module still runs once.
//!
//! This does not read JavaScript: it knows `import` and `export` by their lines. That is enough because it is strict. In
//! every script of the page, joined or not, each has to begin at the left edge, stand on one line and have one of the forms
//! below; whatever else looks like either is an error that names the file, the line and what was expected. So is a path in
//! any file that leads to one that is gone afterwards, and a name that is imported from a file which does not export it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};

use crate::code::{self, Line};

mod names;

/// The texts of the page, by path.
pub(crate) type Texts = BTreeMap<String, String>;

/// The page, its script, and the script that runs beside it: what the latter imports stays by itself, for both.
const PAGE: &str = "index.html";
const SCRIPT: &str = "app.js";
const WORKER: &str = "worker.js";
/// Folders whose files are added when the page is joined already.
const OTHER_FOLDERS: [&str; 2] = ["pkg/", "vendor/"];
/// What comes of the modules, and of the style sheets.
const JOINED_MODULES: &str = "app.parts.js";
const JOINED_SHEETS: &str = "page.css";

/// Joins the style sheets of the page into one, in their order.
pub(crate) fn style_sheets(texts: &mut Texts) -> Result<()> {
    let page = texts.get(PAGE).context("there is no page")?;
    let href = |line: &str| {
        line.trim().strip_prefix("<link rel=\"stylesheet\" href=\"")?.strip_suffix("\" />").map(str::to_owned)
    };
    let sheets: Vec<String> = page.lines().filter_map(href).collect();
    let mut kept = String::new();
    let mut is_named = false;
    for line in page.lines() {
        let is_sheet = href(line).is_some();
        match (is_sheet, is_named) {
            (false, _) => writeln!(kept, "{line}")?,
            (true, false) => writeln!(kept, "<link rel=\"stylesheet\" href=\"{JOINED_SHEETS}\" />")?,
            (true, true) => {}
        }
        is_named |= is_sheet;
    }
    let mut joined = String::new();
    for sheet in &sheets {
        let text = texts.remove(sheet).with_context(|| format!("the page names {sheet}, which is missing"))?;
        // Both mean something else in the middle of a sheet, or in another folder.
        ensure!(
            !text.contains("@import") && !text.contains("url("),
            "{sheet} refers to other files and cannot be joined"
        );
        joined.push_str(&text);
        joined.push('\n');
    }
    texts.insert(PAGE.to_owned(), kept);
    let gone = sheets.iter().map(String::as_str).collect();
    check_mentions(texts, &gone)?;
    texts.insert(JOINED_SHEETS.to_owned(), joined);
    Ok(())
}

/// Joins the modules that the page's script imports, directly or not, into one.
pub(crate) fn modules(texts: &mut Texts) -> Result<()> {
    let of_worker = reached(texts, WORKER)?;
    let mut order = reached(texts, SCRIPT)?;
    order.retain(|key| key != SCRIPT && !of_worker.contains(key));
    let joined: BTreeSet<&str> = order.iter().map(String::as_str).collect();
    let page = Page { texts, joined: &joined };
    let (mut bodies, mut outside) = (String::new(), BTreeSet::new());
    for key in &order {
        let module = Module::parse(&page, key)?;
        outside.extend(
            module.imports.iter().map(|import| import.from.clone()).filter(|from| !joined.contains(from.as_str())),
        );
        module.write_wrapped(key, &mut bodies)?;
    }
    let mut names = BTreeMap::new();
    for key in order.iter().chain(&outside) {
        if let Some(other) = names.insert(name_of(key), key) {
            bail!("{other} and {key} would both be {} once joined: expected names that differ", name_of(key));
        }
    }
    let mut whole = String::new();
    for key in &outside {
        writeln!(whole, "import * as {} from \"./{key}\";", name_of(key))?;
    }
    let names: Vec<_> = order.iter().map(|key| name_of(key)).collect();
    writeln!(whole, "{bodies}export {{ {} }};", names.join(", "))?;
    let others = texts.keys().filter(|key| is_module(key) && !joined.contains(key.as_str()));
    let others = others.map(|key| Ok((key.clone(), page.importing_from_joined(key)?))).collect::<Result<Texts>>()?;
    names::check(texts)?;
    let mut left = texts.clone();
    left.retain(|key, _| !joined.contains(key.as_str()));
    left.extend(others);
    check_mentions(&left, &joined)?;
    left.insert(JOINED_MODULES.to_owned(), whole);
    *texts = left;
    Ok(())
}

/// The module at `key` and those that it imports, directly or not: each after those it imports.
fn reached(texts: &Texts, key: &str) -> Result<Vec<String>> {
    fn visit(texts: &Texts, key: &str, above: &mut Vec<String>, found: &mut Vec<String>) -> Result<()> {
        ensure!(!above.iter().any(|one| one == key), "{key} imports itself, by way of {}", above.join(", "));
        // Bindings and vendored files are not of the page.
        let Some(text) = texts.get(key).filter(|_| !found.iter().any(|one| one == key)) else { return Ok(()) };
        above.push(key.to_owned());
        for line in lines_of(key, text)?.iter().filter(|line| !line.is_inside) {
            // What is only passed on is needed, too.
            let is_passed_on = line.text.starts_with("export {") && line.code.contains(" from ");
            if line.text.starts_with("import ") || is_passed_on {
                let from =
                    line.text.rsplit_once(" from \"").and_then(|(_, from)| resolve(key, from.strip_suffix("\";")?));
                let from = from.ok_or_else(|| refused(key, line, IMPORT))?;
                ensure!(is_known(texts, &from), refused(key, line, KNOWN));
                visit(texts, &from, above, found)?;
            }
        }
        above.pop();
        found.push(key.to_owned());
        Ok(())
    }
    let mut found = Vec::new();
    visit(texts, key, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Fails if one of the texts mentions a path that is gone: relative to itself, or to the page.
fn check_mentions(texts: &Texts, gone: &BTreeSet<&str>) -> Result<()> {
    // Types are not for the browser, and comments are not for it either.
    for (key, text) in texts.iter().filter(|(key, _)| is_module(key) || key.as_str() == PAGE) {
        let lines = if is_module(key) { lines_of(key, text)? } else { Vec::new() };
        for line in &lines {
            let is_gone = line.strings.iter().any(|(_, string)| is_mentioned(key, string, gone));
            ensure!(!is_gone, refused(key, line, PRESENT));
        }
        for (index, line) in text.lines().enumerate().filter(|_| lines.is_empty()) {
            ensure!(
                !is_mentioned(key, line, gone),
                "{key}, line {}, cannot be joined: expected {PRESENT}: {line}",
                index + 1
            );
        }
    }
    Ok(())
}

/// Whether the text at `key` has a path in it that is among these.
fn is_mentioned(key: &str, text: &str, paths: &BTreeSet<&str>) -> bool {
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let leads = |from: &str, path: &str| resolve(from, path).is_some_and(|path| paths.contains(path.as_str()));
    text.split(|letter| !is_of_path(letter)).any(|path| leads(key, path) || leads("", path))
}

/// Whether there is a file of this path, or will be.
fn is_known(texts: &Texts, path: &str) -> bool {
    texts.contains_key(path) || OTHER_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// The lines of the script at `key`.
fn lines_of<'a>(key: &str, text: &'a str) -> Result<Vec<Line<'a>>> {
    code::lines(text).map_err(|(number, expected)| {
        let line = text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
        anyhow!("{key}, line {number}, cannot be joined: expected {expected}: {line}")
    })
}

/// The page as it is written, and which of its modules are joined.
#[derive(Clone, Copy, Debug)]
struct Page<'a> {
    texts: &'a Texts,
    joined: &'a BTreeSet<&'a str>,
}

impl Page<'_> {
    /// The module with what it imports from joined ones taken from where they are now.
    fn importing_from_joined(&self, key: &str) -> Result<String> {
        let text = &self.texts[key];
        let mut out = String::with_capacity(text.len());
        for line in &lines_of(key, text)? {
            let begins = |word: &str| !line.is_inside && line.text.starts_with(word);
            if !begins("import ") {
                self.check_plain(key, line, begins("export "))?;
                writeln!(out, "{}", line.text)?;
                continue;
            }
            let import = Import::parse(key, line.text).ok_or_else(|| refused(key, line, IMPORT))?;
            ensure!(is_known(self.texts, &import.from), refused(key, line, KNOWN));
            if !self.joined.contains(import.from.as_str()) {
                writeln!(out, "{}", line.text)?;
                continue;
            }
            let pattern = import.pattern().ok_or_else(|| refused(key, line, IMPORT))?;
            let up = "../".repeat(key.matches('/').count());
            let (name, start) = (name_of(&import.from), if up.is_empty() { "./" } else { up.as_str() });
            writeln!(out, "import {{ {name} }} from \"{start}{JOINED_MODULES}\";\nconst {pattern} = {name};")?;
        }
        Ok(out)
    }

    /// Fails unless the line has nothing to do with joined modules. `exports`: its first word is `export`.
    fn check_plain(&self, key: &str, line: &Line<'_>, exports: bool) -> Result<()> {
        ensure!(line.places_of("export").iter().all(|at| exports && *at == 0), refused(key, line, EXPORT));
        for at in line.places_of("import") {
            let follows = &line.code[at + "import".len()..];
            // The address of the module itself.
            if follows.starts_with(".meta") {
                continue;
            }
            let address = line.strings.iter().find(|(quote, _)| *quote == at + "import(".len());
            let address = address.ok_or_else(|| refused(key, line, IMPORT))?;
            // Where a path below the root is put in, it is written somewhere, and must not be of a joined file there.
            if follows.starts_with("(`") && address.1 == "./" && !key.contains('/') {
                continue;
            }
            ensure!(follows.starts_with("(\"\")"), refused(key, line, IMPORT));
            let from = resolve(key, &address.1).filter(|_| is_relative(&address.1));
            let from = from.ok_or_else(|| refused(key, line, KNOWN))?;
            ensure!(is_known(self.texts, &from), refused(key, line, KNOWN));
        }
        let is_gone = line.strings.iter().any(|(_, string)| is_mentioned(key, string, self.joined));
        ensure!(!is_gone, refused(key, line, PRESENT));
        Ok(())
    }
}

/// One `import`.
#[derive(Debug)]
struct Import {
    /// The path below the root.
    from: String,
    /// What is taken from it, as written; empty if it is only passed on.
    clause: String,
}

impl Import {
    fn parse(key: &str, line: &str) -> Option<Self> {
        let (clause, from) = line.strip_prefix("import ")?.split_once(" from \"")?;
        let from = from.strip_suffix("\";").filter(|from| is_relative(from))?;
        Some(Self { from: resolve(key, from)?, clause: clause.to_owned() })
    }

    /// The pattern that takes the same from an object.
    fn pattern(&self) -> Option<String> {
        match self.clause.strip_prefix("{ ").and_then(|rest| rest.strip_suffix(" }")) {
            Some(names) => Some(format!("{{ {} }}", names.replace(" as ", ": "))),
            None => is_name(&self.clause).then(|| format!("{{ default: {} }}", self.clause)),
        }
    }
}

/// One module, in lines.
#[derive(Debug, Default)]
struct Module {
    imports: Vec<Import>,
    /// What it exports: a name, and the expression that is its value in the end.
    exports: Vec<(String, String)>,
    body: String,
}

impl Module {
    fn parse(page: &Page<'_>, key: &str) -> Result<Self> {
        let mut module = Self::default();
        // Whether an exported `const` has not come to its end yet.
        let mut is_declaring = false;
        let lines = lines_of(key, &page.texts[key])?;
        for line in &lines {
            ensure!(!line.has_outer_await, refused(key, line, "no `await` outside of async functions"));
            is_declaring |= !line.is_inside && line.text.starts_with("export const ");
            if is_declaring {
                let (declared, is_ended) =
                    line.outer.split_once(';').map_or((line.outer.as_str(), false), |(one, _)| (one, true));
                ensure!(!declared.contains(','), refused(key, line, "one name for each `export const`"));
                is_declaring = !is_ended;
            }
            module.take(page, key, line)?;
        }
        ensure!(!is_declaring, "{key}, line {}, cannot be joined: expected `;` after an `export const`", lines.len());
        Ok(module)
    }

    /// Takes the next line in.
    fn take(&mut self, page: &Page<'_>, key: &str, line: &Line<'_>) -> Result<()> {
        if !line.is_inside && line.text.starts_with("import ") {
            let import = Import::parse(key, line.text).ok_or_else(|| refused(key, line, IMPORT))?;
            ensure!(import.pattern().is_some(), refused(key, line, IMPORT));
            ensure!(is_known(page.texts, &import.from), refused(key, line, KNOWN));
            self.imports.push(import);
            return Ok(());
        }
        let exported = line.text.strip_prefix("export ").filter(|_| !line.is_inside);
        // What is passed on names a file that may be joined.
        if exported.is_none_or(|exported| !exported.starts_with('{')) {
            page.check_plain(key, line, exported.is_some())?;
        }
        // Addresses below the root would lead elsewhere.
        let is_bound = key.contains('/') && !line.places_of("import").is_empty();
        ensure!(!is_bound, refused(key, line, "nothing that depends on the folder of the file"));
        match exported {
            Some(exported) => self.export(key, exported).ok_or_else(|| refused(key, line, EXPORT)),
            None => Ok(writeln!(self.body, "{}", line.text)?),
        }
    }

    /// Takes in what follows `export `.
    fn export(&mut self, key: &str, exported: &str) -> Option<()> {
        if let Some(listed) = exported.strip_prefix("{ ") {
            let (names, rest) = listed.split_once(" }")?;
            let from = match rest.strip_prefix(" from \"") {
                Some(from) => Some(resolve(key, from.strip_suffix("\";").filter(|from| is_relative(from))?)?),
                None => (rest == ";").then_some(None)?,
            };
            for name in names.split(", ") {
                let value = from.as_ref().map_or_else(|| name.to_owned(), |from| format!("{}.{name}", name_of(from)));
                self.exports.push((is_name(name).then(|| name.to_owned())?, value));
            }
            self.imports.extend(from.map(|from| Import { from, clause: String::new() }));
            return Some(());
        }
        if let Some(value) = exported.strip_prefix("default ") {
            let value = value.strip_suffix(';').filter(|value| is_name(value))?;
            self.exports.push(("default".to_owned(), value.to_owned()));
            return Some(());
        }
        // What may change afterwards, such as a `let`, would not be seen to.
        let kinds = [("const ", " = "), ("function ", "("), ("async function ", "("), ("class ", " ")];
        let declared = |(kind, after): (&str, &str)| {
            let declared = exported.strip_prefix(kind)?;
            let (name, rest) = declared.split_at(declared.find(|letter| !is_of_name(letter))?);
            (is_name(name) && rest.starts_with(after)).then_some(name)
        };
        let name = kinds.into_iter().find_map(declared)?;
        self.exports.push((name.to_owned(), name.to_owned()));
        writeln!(self.body, "{exported}").ok()
    }

    /// Writes it as a function that is called at once; what that returns has the module's name.
    fn write_wrapped(&self, key: &str, out: &mut String) -> Result<()> {
        writeln!(out, "const {} = (() => {{", name_of(key))?;
        for import in self.imports.iter().filter(|import| !import.clause.is_empty()) {
            let pattern = import.pattern().context("the form of an import was checked before")?;
            writeln!(out, "const {pattern} = {};", name_of(&import.from))?;
        }
        out.push_str(&self.body);
        let exports = self
            .exports
            .iter()
            .map(|(name, value)| if name == value { name.clone() } else { format!("{name}: {value}") });
        writeln!(out, "return {{ {} }};\n}})();", exports.collect::<Vec<_>>().join(", "))?;
        Ok(())
    }
}

/// What is expected of a line that is refused.
const IMPORT: &str =
    "`import name from \"./file.js\";`, `import { name as other } from \"./file.js\";` or `import(\"./file.js\")`";
const EXPORT: &str =
    "`export` at the left edge before one const, function or class, a list of names, or `default` and a name";
const KNOWN: &str = "the relative path of a file that is there";
const PRESENT: &str = "no path of a file that is joined";

fn refused(key: &str, line: &Line<'_>, expected: &str) -> Error {
    anyhow!("{key}, line {}, cannot be joined: expected {expected}: {}", line.number, line.text)
}

fn is_module(key: &str) -> bool {
    key.strip_suffix(".js").is_some()
}

/// The name of a module within the joined one.
fn name_of(key: &str) -> String {
    let name = key.strip_suffix(".js").unwrap_or(key);
    format!("${}", name.replace(|letter| !is_of_name(letter), "_"))
}

/// Where a relative address leads to, from the file at `key`; none out of the page.
fn resolve(key: &str, address: &str) -> Option<String> {
    let mut folders: Vec<&str> = key.split('/').collect();
    folders.pop();
    for part in address.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(folders.pop()?),
            _ => folders.push(part),
        }
    }
    Some(folders.join("/"))
}

fn is_relative(address: &str) -> bool {
    address.starts_with("./") || address.starts_with("../")
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

#[cfg(test)]
mod tests;
