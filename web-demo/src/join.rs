//! Puts the small files of the page together that a first load needs at once: each one by itself costs its headers, and
//! compresses worse.
//!
//! The style sheets that the page names become one. So do the modules that its script imports, each in a function that
//! returns what the module exports; views that come later import them from there, so that every module still runs once.
//!
//! This does not read JavaScript: it knows `import` and `export` by their lines. That is enough because it is strict. Each
//! has to begin at the left edge, stand on one line and have one of the forms below; whatever else looks like either is an
//! error that names the file and the line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

/// The texts of the page, by path.
pub(crate) type Texts = BTreeMap<String, String>;

/// The page, its script, and the script that runs beside it: what the latter imports stays by itself, for both.
const PAGE: &str = "index.html";
const SCRIPT: &str = "app.js";
const WORKER: &str = "worker.js";
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
    texts.insert(JOINED_SHEETS.to_owned(), joined);
    Ok(())
}

/// Joins the modules that the page's script imports, directly or not, into one.
pub(crate) fn modules(texts: &mut Texts) -> Result<()> {
    let of_worker = reached(texts, WORKER)?;
    let mut order = reached(texts, SCRIPT)?;
    order.retain(|key| key != SCRIPT && !of_worker.contains(key));
    let joined: BTreeSet<&str> = order.iter().map(String::as_str).collect();
    let (mut bodies, mut outside) = (String::new(), BTreeSet::new());
    for key in &order {
        let module = Module::parse(key, &texts[key])?;
        outside.extend(
            module.imports.iter().map(|import| import.from.clone()).filter(|from| !joined.contains(from.as_str())),
        );
        module.write_wrapped(key, &mut bodies)?;
    }
    let mut whole = String::new();
    for key in &outside {
        writeln!(whole, "import * as {} from \"./{key}\";", name_of(key))?;
    }
    let names: Vec<_> = order.iter().map(|key| name_of(key)).collect();
    writeln!(whole, "{bodies}export {{ {} }};", names.join(", "))?;
    for (key, text) in texts.iter_mut().filter(|(key, _)| is_module(key) && !joined.contains(key.as_str())) {
        *text = importing_from_joined(key, text, &joined)?;
    }
    texts.retain(|key, _| !joined.contains(key.as_str()));
    texts.insert(JOINED_MODULES.to_owned(), whole);
    Ok(())
}

/// The module at `key` and those that it imports, directly or not: each after those it imports.
fn reached(texts: &Texts, key: &str) -> Result<Vec<String>> {
    fn visit(texts: &Texts, key: &str, above: &mut Vec<String>, found: &mut Vec<String>) -> Result<()> {
        ensure!(!above.iter().any(|one| one == key), "{key} imports itself, by way of {}", above.join(", "));
        // Bindings and vendored files are not of the page.
        let Some(text) = texts.get(key).filter(|_| !found.iter().any(|one| one == key)) else { return Ok(()) };
        above.push(key.to_owned());
        for (index, line) in text.lines().enumerate() {
            // What is only passed on is needed, too.
            let is_passed_on = line.starts_with("export {") && line.contains(" from ");
            if line.starts_with("import ") || is_passed_on {
                let from = line.rsplit_once(" from \"").and_then(|(_, from)| resolve(key, from.strip_suffix("\";")?));
                visit(texts, &from.with_context(|| refusal(key, index, line))?, above, found)?;
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

/// The module with what it imports from joined ones taken from where they are now.
fn importing_from_joined(key: &str, text: &str, joined: &BTreeSet<&str>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        let import = if line.starts_with("import ") { Import::parse(key, line) } else { None };
        match import.filter(|import| joined.contains(import.from.as_str())) {
            Some(import) => {
                let pattern = import.pattern().with_context(|| refusal(key, index, line))?;
                let up = "../".repeat(key.matches('/').count());
                let (name, start) = (name_of(&import.from), if up.is_empty() { "./" } else { up.as_str() });
                writeln!(out, "import {{ {name} }} from \"{start}{JOINED_MODULES}\";\nconst {pattern} = {name};")?;
            }
            None => writeln!(out, "{line}")?,
        }
    }
    Ok(out)
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
        Some(Self { from: resolve(key, from.strip_suffix("\";")?)?, clause: clause.to_owned() })
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
    fn parse(key: &str, text: &str) -> Result<Self> {
        let mut module = Self::default();
        for (index, line) in text.lines().enumerate() {
            module.take(key, line).with_context(|| refusal(key, index, line))?;
        }
        Ok(module)
    }

    /// Takes the next line in; none if it cannot.
    fn take(&mut self, key: &str, line: &str) -> Option<()> {
        if line.starts_with("import ") {
            let import = Import::parse(key, line)?;
            import.pattern()?;
            self.imports.push(import);
            return Some(());
        }
        if let Some(exported) = line.strip_prefix("export ") {
            return self.export(key, exported);
        }
        let trimmed = line.trim_start();
        let is_hidden = trimmed.starts_with("import ") || trimmed.starts_with("export ");
        // Addresses below the root would lead elsewhere.
        let is_bound = key.contains('/') && (line.contains("import.meta") || line.contains("await import("));
        if is_hidden || is_bound {
            return None;
        }
        writeln!(self.body, "{line}").ok()
    }

    /// Takes in what follows `export `.
    fn export(&mut self, key: &str, exported: &str) -> Option<()> {
        if let Some(listed) = exported.strip_prefix("{ ") {
            let (names, rest) = listed.split_once(" }")?;
            let from = match rest.strip_prefix(" from \"") {
                Some(from) => Some(resolve(key, from.strip_suffix("\";")?)?),
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
        let kinds = ["const ", "function ", "async function ", "class "];
        let declared = kinds.iter().find_map(|kind| exported.strip_prefix(kind))?;
        let end = declared.find(|letter| !is_of_name(letter))?;
        let name = declared.get(..end).filter(|name| is_name(name))?;
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

fn refusal(key: &str, index: usize, line: &str) -> String {
    format!("{key}, line {}, has a form that cannot be joined: {line}", index + 1)
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
            "." => {}
            ".." => drop(folders.pop()?),
            _ => folders.push(part),
        }
    }
    Some(folders.join("/"))
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)]) -> Texts {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn what_the_script_imports_becomes_one_module_in_which_each_comes_after_what_it_needs() {
        let mut page = texts(&[
            (
                "app.js",
                "import { go as start } from \"./parts/go.js\";\nimport { say } from \"./say.js\";\nstart(say);\n",
            ),
            (
                "parts/go.js",
                "import loud from \"../loud.js\";\nimport { say } from \"../say.js\";\nexport function go() {}\nexport const A = 1;\n",
            ),
            ("loud.js", "const loud = 1;\nexport default loud;\n"),
            (
                "say.js",
                "export { wordsOf } from \"./words.js\";\nexport { low } from \"./low.js\";\nexport async function say() {}\n",
            ),
            ("low.js", "export const low = 1;\n"),
            ("words.js", "export const wordsOf = 1;\n"),
            ("worker.js", "import init, { run } from \"./pkg/run.js\";\nimport { wordsOf } from \"./words.js\";\n"),
            (
                "late/view.js",
                "// A view.\nimport { say } from \"../say.js\";\nimport { own } from \"./own.js\";\nexport const view = 1;\n",
            ),
            ("late/own.js", "export const own = 1;\n"),
        ]);
        modules(&mut page).expect("every form is known");
        assert_eq!(
            page["app.parts.js"],
            "import * as $words from \"./words.js\";\n\
             const $loud = (() => {\nconst loud = 1;\nreturn { default: loud };\n})();\n\
             const $low = (() => {\nconst low = 1;\nreturn { low };\n})();\n\
             const $say = (() => {\nasync function say() {}\nreturn { wordsOf: $words.wordsOf, low: $low.low, say };\n})();\n\
             const $parts_go = (() => {\nconst { default: loud } = $loud;\nconst { say } = $say;\nfunction go() {}\nconst A = 1;\nreturn { go, A };\n})();\n\
             export { $loud, $low, $say, $parts_go };\n"
        );
        assert_eq!(
            page["app.js"],
            "import { $parts_go } from \"./app.parts.js\";\nconst { go: start } = $parts_go;\n\
             import { $say } from \"./app.parts.js\";\nconst { say } = $say;\nstart(say);\n"
        );
        assert_eq!(
            page["late/view.js"],
            "// A view.\nimport { $say } from \"../app.parts.js\";\nconst { say } = $say;\nimport { own } from \"./own.js\";\nexport const view = 1;\n"
        );
        let left: Vec<_> = page.keys().map(String::as_str).collect();
        assert_eq!(left, ["app.js", "app.parts.js", "late/own.js", "late/view.js", "words.js", "worker.js"]);
    }

    #[test]
    fn a_form_that_is_not_known_is_an_error_that_names_the_file_and_the_line() {
        let forms = [
            "import {\n  a,\n} from \"./b.js\";",
            "import a, { b } from \"./b.js\";",
            "export let count = 0;",
            "export { a as b };",
            "export default class {}",
            "export const { a } = b;",
            "  export const a = 1;",
        ];
        for form in forms {
            let part = format!("// A part.\n{form}\n");
            let mut page = texts(&[
                ("app.js", "import { a } from \"./part.js\";\n"),
                ("part.js", &part),
                ("worker.js", ""),
                ("b.js", ""),
            ]);
            let error = modules(&mut page).expect_err(form);
            assert!(error.to_string().starts_with("part.js, line 2,"), "{form}: {error}");
        }
    }

    #[test]
    fn modules_that_need_each_other_cannot_be_joined() {
        let mut page = texts(&[
            ("app.js", "import { a } from \"./a.js\";\n"),
            ("a.js", "import { b } from \"./b.js\";\nexport const a = 1;\n"),
            ("b.js", "import { a } from \"./a.js\";\nexport const b = 1;\n"),
            ("worker.js", ""),
        ]);
        assert!(modules(&mut page).is_err());
    }

    #[test]
    fn style_sheets_become_one_where_the_first_of_them_stood() {
        let mut page = texts(&[
            (
                "index.html",
                "<head>\n  <link rel=\"stylesheet\" href=\"b.css\" />\n  <link rel=\"stylesheet\" href=\"a.css\" />\n</head>\n",
            ),
            ("a.css", "a {}\n"),
            ("b.css", "b {}\n"),
            ("late/late.css", "c {}\n"),
        ]);
        style_sheets(&mut page).expect("all sheets are there");
        assert_eq!(page["index.html"], "<head>\n<link rel=\"stylesheet\" href=\"page.css\" />\n</head>\n");
        assert_eq!(page["page.css"], "b {}\n\na {}\n\n");
        assert_eq!(page.keys().collect::<Vec<_>>(), ["index.html", "late/late.css", "page.css"]);
    }
}
