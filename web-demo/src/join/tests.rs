use super::*;

fn texts(files: &[(&str, &str)]) -> Texts {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn what_the_script_imports_becomes_one_module_in_which_each_comes_after_what_it_needs() {
    let mut page = texts(&[
        ("app.js", "import { go as start } from \"./parts/go.js\";\nimport { say } from \"./say.js\";\nstart(say);\n"),
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

/// The error for a page whose script imports a part of these lines, beside which there are other files.
fn refusal_of(part: &str, others: &[(&str, &str)]) -> String {
    let files = [("app.js", "import { a } from \"./parts/part.js\";\n"), ("parts/part.js", part), ("worker.js", "")];
    let mut page = texts(&files);
    page.extend(texts(others));
    modules(&mut page).expect_err(part).to_string()
}

#[test]
fn a_form_that_is_not_known_is_an_error_that_names_the_file_and_the_line() {
    let forms = [
        "import {\n  a,\n} from \"./b.js\";",
        "import a, { b } from \"./b.js\";",
        "import \"./b.js\";",
        "import { b } from \"./prat.js\";",
        "import { b } from \"parts/b.js\";",
        "import * as b from \"./b.js\";",
        "export let count = 0;",
        "export { a as b };",
        "export { b } from \"./prat.js\";",
        "export * from \"./b.js\";",
        "export default class {}",
        "export const { a } = b;",
        "export const a = 1, b = 2;",
        "export const a = [1, 2], b = \"a, b\";",
        "export const a$b = 1;",
        "export function* a() {}",
        "  export const a = 1;",
        "const b = 1; export const a = 1;",
        "await a;",
        "const text = `\nexport const a = 1;\n`;",
        "const later = () => import(\"./b.js\");",
        "const later = (name) => import(`./${name}.js`);",
        "const here = import.meta.url;",
        "const path = new URL(\"./part.js\", base);",
        "const path = \"parts/part.js?again\";",
        "if (b) {}}",
    ];
    for form in forms {
        let error = refusal_of(&format!("// A part.\n{form}\n"), &[("parts/b.js", "export const b = 1;\n")]);
        let line = error.strip_prefix("parts/part.js, line 2, cannot be joined: expected ");
        assert!(line.is_some_and(|rest| rest.ends_with(form.lines().next().unwrap_or_default())), "{form}: {error}");
    }
    let error = refusal_of("export const a = {\n  b,\n}, c = 2;\n", &[]);
    assert!(error.starts_with("parts/part.js, line 3, cannot be joined: expected one name"), "{error}");
    let error = refusal_of("export const a = 1\n", &[]);
    assert!(error.starts_with("parts/part.js, line 1, cannot be joined: expected `;`"), "{error}");
}

#[test]
fn no_file_may_mention_one_that_is_joined_but_by_an_import_of_a_known_form() {
    let part = "// See ./part.js.\nexport const a = 1;\n";
    let forms = [
        "export { a } from \"../parts/part.js\";",
        "import \"../parts/part.js\";",
        "import {\n  a,\n} from \"../parts/part.js\";",
        "const { a } = await import(\"../parts/part.js\");",
        "const later = import(`../parts/${name}.js`);",
        "const later = import(path);",
        "const later = import(`./${path}`);",
        "import * as a from \"../parts/part.js\";",
        "import { b } from \"./prat.js\";",
        "const later = import(\"./prat.js\");",
        "const path = \"../parts/part.js#a\";",
        "const path = \"parts/part.js\";",
    ];
    for form in forms {
        let view = format!("// A view.\n{form}\n");
        let error = refusal_of(part, &[("late/view.js", &view)]);
        assert!(error.starts_with("late/view.js, line 2, cannot be joined: expected "), "{form}: {error}");
    }
    let page = "<head>\n<script src=\"parts/part.js\"></script>\n";
    let error = refusal_of(part, &[("index.html", page)]);
    assert!(error.starts_with("index.html, line 2, cannot be joined: expected no path"), "{error}");
}

#[test]
fn a_name_that_the_other_file_does_not_export_is_an_error_that_names_both_files() {
    let part = "export const a = 1;\nexport function b() {}\n";
    let own = "export let count = 0;\nexport { count as all };\nexport default count;\nexport function* each() {}\n";
    let forms = [
        ("import { c } from \"../parts/part.js\";", "parts/part.js", "c"),
        ("import { a, c as b } from \"../parts/part.js\";", "parts/part.js", "c"),
        ("import part from \"../parts/part.js\";", "parts/part.js", "default"),
        ("import { none } from \"./own.js\";", "late/own.js", "none"),
        ("import own, { number } from \"./own.js\";", "late/own.js", "number"),
        ("export { number } from \"./own.js\";", "late/own.js", "number"),
    ];
    for (form, from, name) in forms {
        let view = format!("// A view.\n{form}\n");
        let error = refusal_of(part, &[("late/view.js", &view), ("late/own.js", own)]);
        let expected = format!(
            "late/view.js, line 2, cannot be joined: expected a name that {from} exports, which `{name}` is not: {form}"
        );
        assert_eq!(error, expected);
    }
    let joined =
        refusal_of("import { c } from \"../c.js\";\nexport const a = c;\n", &[("c.js", "export const d = 1;\n")]);
    assert!(
        joined.starts_with("parts/part.js, line 1,") && joined.contains("c.js exports, which `c` is not"),
        "{joined}"
    );
    let passed_on = refusal_of("export { a } from \"../c.js\";\n", &[("c.js", "export const d = 1;\n")]);
    assert!(passed_on.starts_with("parts/part.js, line 1,") && passed_on.contains("`a` is not"), "{passed_on}");
    let unknown = refusal_of(part, &[("late/own.js", "export * from \"./view.js\";\n"), ("late/view.js", "")]);
    assert!(unknown.starts_with("late/own.js, line 1, cannot be joined: expected `export`"), "{unknown}");
}

#[test]
fn a_name_may_be_taken_in_every_form_in_which_it_is_exported() {
    let own =
        "export let count = 0;\nexport { count as all };\nexport default count;\nexport async function* each() {}\n";
    let view = "import own, { all as every, count } from \"./own.js\";\nimport { each } from \"./own.js\";\nimport * as whole from \"./own.js\";\n\
                import { anything } from \"../pkg/run.js\";\nexport { all } from \"./own.js\";\n";
    let mut page = texts(&[("app.js", ""), ("worker.js", ""), ("late/view.js", view), ("late/own.js", own)]);
    modules(&mut page).expect("every name is there");
}

#[test]
fn files_that_are_not_joined_may_import_each_other_in_every_form() {
    let view = "import init, { run } from \"../pkg/run.js\";\nimport { own } from \"./own.js\";\n\
                export { own };\nexport let count = 0;\nawait import(\"./own.js\");\n\
                /** @type {import(\"../parts/part.js\").A} */ (own).b(import.meta.url);\n";
    let mut page = texts(&[
        ("app.js", "import { a } from \"./parts/part.js\";\nawait import(`./${a}?again`);\n"),
        ("parts/part.js", "import chart from \"../vendor/chart.js\";\nexport const a = 1;\n"),
        ("worker.js", ""),
        ("late/view.js", view),
        ("late/own.js", "export const own = 1;\n"),
    ]);
    modules(&mut page).expect("every form is known");
    assert_eq!(page["late/view.js"], view);
    assert!(page["app.parts.js"].starts_with("import * as $vendor_chart from \"./vendor/chart.js\";\n"));
}

#[test]
fn modules_whose_names_would_be_the_same_cannot_be_joined() {
    let mut page = texts(&[
        ("app.js", "import { a } from \"./x-y.js\";\nimport { b } from \"./x/y.js\";\n"),
        ("x-y.js", "export const a = 1;\n"),
        ("x/y.js", "export const b = 1;\n"),
        ("worker.js", ""),
    ]);
    let error = modules(&mut page).expect_err("both are $x_y").to_string();
    assert!(error.starts_with("x-y.js and x/y.js would both be $x_y"), "{error}");
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

#[test]
fn no_file_may_mention_a_style_sheet_that_is_joined() {
    let mut page = texts(&[
        ("index.html", "<link rel=\"stylesheet\" href=\"a.css\" />\n"),
        ("a.css", "a {}\n"),
        ("late/view.js", "\nconst sheet = \"a.css\";\n"),
    ]);
    let error = style_sheets(&mut page).expect_err("the sheet is gone").to_string();
    assert!(error.starts_with("late/view.js, line 2,"), "{error}");
}
