//! What is wrong with a template whatever it is rendered with, found by walking its syntax tree: filters and tests that
//! do not exist, methods, which no value has, and fields that a value of a known shape never has.
//!
//! Rendering alone would not do: it sees only the branches that the values of some rows lead to, and stops at the first error.

use std::collections::BTreeMap;

use minijinja::machinery::ast::{Call, CallArg, CallType, Expr, Filter, Stmt, Test};
use minijinja::machinery::{Span, parse};
use minijinja::{Environment, ErrorKind};

use super::TemplateFault;
use super::shape::{Field, Shape};

/// The filters, as far as they are worth suggesting.
const FILTERS: &[&str] = &[
    "abs",
    "batch",
    "capitalize",
    "default",
    "dictsort",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "zip",
];

/// The tests, as far as they are worth suggesting.
const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "even",
    "float",
    "ge",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "undefined",
    "upper",
];

/// What Python calls what a filter does.
const METHODS: &[(&str, &str)] = &[("strip", "trim"), ("splitlines", "lines"), ("get", "default"), ("keys", "list")];

/// The faults of a template that compiles, in the order of its text.
pub(super) fn find<'s>(
    environment: &Environment<'_>,
    text: &str,
    shape: &dyn Fn(&str) -> Option<Shape<'s>>,
) -> Vec<TemplateFault> {
    let Ok(template) = parse(text, "template", environment.syntax().clone()) else { return Vec::new() };
    let mut walker = Walker {
        environment,
        text,
        shape,
        scopes: vec![BTreeMap::new()],
        conditions: 0,
        guarded: Vec::new(),
        faults: Vec::new(),
    };
    walker.statement(&template);
    let Walker { guarded, mut faults, .. } = walker;
    // Who asks whether a field is there knows that it may be missing.
    faults.retain(|fault| text.get(fault.span.clone()).is_none_or(|text| !guarded.contains(&text)));
    faults.sort_by_key(|fault| fault.span.start);
    faults
}

/// What a name stands for.
#[derive(Clone)]
struct Binding<'s> {
    shape: Shape<'s>,
    /// Whether it is a value of the row, or made from one; else it may be a macro, a loop, a namespace.
    is_value: bool,
}

impl Binding<'_> {
    /// Something about which nothing is known.
    const UNKNOWN: Self = Self { shape: Shape::Any, is_value: false };
}

struct Walker<'e, 't, 's> {
    environment: &'e Environment<'e>,
    text: &'t str,
    shape: &'e dyn Fn(&str) -> Option<Shape<'s>>,
    /// What the template itself has named, the innermost last.
    scopes: Vec<BTreeMap<&'t str, Binding<'s>>>,
    /// How many conditions the place that is looked at stands under.
    conditions: u32,
    /// The fields that are asked for by `is defined`, or have a default.
    guarded: Vec<&'t str>,
    faults: Vec<TemplateFault>,
}

impl<'t, 's> Walker<'_, 't, 's> {
    fn statements(&mut self, body: &[Stmt<'t>]) {
        for statement in body {
            self.statement(statement);
        }
    }

    fn in_scope(&mut self, body: impl FnOnce(&mut Self)) {
        self.scopes.push(BTreeMap::new());
        body(self);
        self.scopes.pop();
    }

    fn statement(&mut self, statement: &Stmt<'t>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => self.visit(&emit.expr),
            Stmt::ForLoop(each) => {
                let of = self.expression(&each.iter);
                self.in_scope(|walker| {
                    walker.bind(&each.target, &Binding { shape: of.shape.element(), is_value: of.is_value });
                    walker.name("loop", Binding::UNKNOWN);
                    each.filter_expr.iter().for_each(|filter| walker.visit(filter));
                    walker.statements(&each.body);
                });
                self.statements(&each.else_body);
            }
            Stmt::IfCond(branch) => {
                self.visit(&branch.expr);
                self.conditions += 1;
                self.statements(&branch.true_body);
                self.statements(&branch.false_body);
                self.conditions -= 1;
            }
            Stmt::WithBlock(with) => self.in_scope(|walker| {
                for (target, value) in &with.assignments {
                    let value = walker.expression(value);
                    walker.bind(target, &value);
                }
                walker.statements(&with.body);
            }),
            Stmt::Set(set) => {
                let mut value = self.expression(&set.expr);
                if self.conditions > 0 {
                    value.shape = Shape::Any;
                }
                self.bind(&set.target, &value);
            }
            Stmt::SetBlock(set) => {
                set.filter.iter().for_each(|filter| self.visit(filter));
                self.statements(&set.body);
                self.bind(&set.target, &Binding { shape: Shape::Any, is_value: true });
            }
            Stmt::AutoEscape(escape) => {
                self.visit(&escape.enabled);
                self.statements(&escape.body);
            }
            Stmt::FilterBlock(block) => {
                self.visit(&block.filter);
                self.statements(&block.body);
            }
            Stmt::Block(block) => self.statements(&block.body),
            Stmt::Import(import) => self.bind(&import.name, &Binding::UNKNOWN),
            Stmt::FromImport(import) => {
                for (name, alias) in &import.names {
                    self.bind(alias.as_ref().unwrap_or(name), &Binding::UNKNOWN);
                }
            }
            Stmt::EmitRaw(_) | Stmt::Extends(_) | Stmt::Include(_) => {}
            Stmt::Macro(definition) => {
                self.in_scope(|walker| walker.macro_body(&definition.args, &definition.defaults, &definition.body));
                self.name(definition.name, Binding::UNKNOWN);
            }
            Stmt::CallBlock(block) => {
                self.call(&block.call, block.call.span());
                let inner = &block.macro_decl;
                self.in_scope(|walker| walker.macro_body(&inner.args, &inner.defaults, &inner.body));
            }
            Stmt::Do(statement) => {
                self.call(&statement.call, statement.call.span());
            }
        }
    }

    fn macro_body(&mut self, arguments: &[Expr<'t>], defaults: &[Expr<'t>], body: &[Stmt<'t>]) {
        for default in defaults {
            self.visit(default);
        }
        for argument in arguments {
            self.bind(argument, &Binding::UNKNOWN);
        }
        self.name("caller", Binding::UNKNOWN);
        self.statements(body);
    }

    /// Lets the names in `target` stand for `value`, or for parts of it.
    fn bind(&mut self, target: &Expr<'t>, value: &Binding<'s>) {
        match target {
            Expr::Var(variable) => self.name(variable.id, value.clone()),
            Expr::List(list) => self.bind_parts(&list.items, value),
            Expr::Tuple(tuple) => self.bind_parts(&tuple.items, value),
            _ => {}
        }
    }

    fn bind_parts(&mut self, targets: &[Expr<'t>], value: &Binding<'s>) {
        let part = Binding { shape: Shape::Any, is_value: value.is_value };
        for target in targets {
            self.bind(target, &part);
        }
    }

    fn name(&mut self, name: &'t str, value: Binding<'s>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, value);
        }
    }

    fn visit(&mut self, expression: &Expr<'t>) {
        self.expression(expression);
    }

    /// Looks through `expression`, and returns what is known of its value.
    fn expression(&mut self, expression: &Expr<'t>) -> Binding<'s> {
        let value = |shape| Binding { shape, is_value: true };
        match expression {
            Expr::Var(variable) => match self.scopes.iter().rev().find_map(|scope| scope.get(variable.id)) {
                Some(known) => known.clone(),
                None => (self.shape)(variable.id).map_or(Binding::UNKNOWN, value),
            },
            Expr::Const(_) => value(Shape::Any),
            Expr::Slice(slice) => {
                [&slice.start, &slice.stop, &slice.step].into_iter().flatten().for_each(|bound| self.visit(bound));
                self.expression(&slice.expr)
            }
            Expr::UnaryOp(operation) => self.all([&operation.expr]),
            Expr::BinOp(operation) => self.all([&operation.left, &operation.right]),
            Expr::Compare(compare) => {
                self.all([&compare.expr].into_iter().chain(compare.ops.iter().map(|one| &one.expr)))
            }
            Expr::IfExpr(choice) => {
                self.all([&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr));
                Binding::UNKNOWN
            }
            Expr::Filter(filter) => self.filter(filter, filter.span()),
            Expr::Test(test) => self.test(test, test.span()),
            Expr::GetAttr(access) => {
                let of = self.expression(&access.expr);
                self.field(&of, access.name, &access.expr, access.span())
            }
            Expr::GetItem(access) => {
                let of = self.expression(&access.expr);
                self.visit(&access.subscript_expr);
                let subscript = access.subscript_expr.as_const();
                match subscript.as_ref().map(|key| (key.as_str(), key.is_number())) {
                    Some((Some(name), _)) => self.field(&of, name, &access.expr, access.span()),
                    Some((None, true)) => Binding { shape: of.shape.element(), is_value: of.is_value },
                    _ => Binding { shape: Shape::Any, is_value: of.is_value },
                }
            }
            Expr::Call(call) => self.call(call, call.span()),
            Expr::List(list) => self.all(&list.items),
            Expr::Tuple(tuple) => self.all(&tuple.items),
            Expr::Map(map) => self.all(map.keys.iter().chain(&map.values)),
        }
    }

    /// Looks through `parts`, of which a new value is made.
    fn all<'x>(&mut self, parts: impl IntoIterator<Item = &'x Expr<'t>>) -> Binding<'s>
    where
        't: 'x,
    {
        parts.into_iter().for_each(|part| self.visit(part));
        Binding { shape: Shape::Any, is_value: true }
    }

    fn arguments(&mut self, arguments: &[CallArg<'t>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.visit(value),
            }
        }
    }

    fn filter(&mut self, filter: &Filter<'t>, span: Span) -> Binding<'s> {
        let of = filter.expr.as_ref().map_or(Binding::UNKNOWN, |of| self.expression(of));
        self.arguments(&filter.args);
        let known = self.environment.empty_state().apply_filter(filter.name, &[]);
        if known.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter) {
            self.unknown("filter", filter.name, span, FILTERS);
        }
        if let (Some(of), "default" | "d") = (&filter.expr, filter.name) {
            self.guarded.push(self.text_of(of));
        }
        let shape = match filter.name {
            "first" | "last" | "min" | "max" => of.shape.element(),
            "list" | "reverse" | "sort" | "unique" => of.shape,
            _ => Shape::Any,
        };
        Binding { shape, is_value: true }
    }

    fn test(&mut self, test: &Test<'t>, span: Span) -> Binding<'s> {
        self.visit(&test.expr);
        self.arguments(&test.args);
        let known = self.environment.empty_state().perform_test(test.name, &[]);
        if known.is_err_and(|error| error.kind() == ErrorKind::UnknownTest) {
            self.unknown("test", test.name, span, TESTS);
        }
        if let "defined" | "undefined" = test.name {
            self.guarded.push(self.text_of(&test.expr));
        }
        Binding { shape: Shape::Plain("true or false"), is_value: true }
    }

    fn call(&mut self, call: &Call<'t>, span: Span) -> Binding<'s> {
        self.arguments(&call.args);
        match call.identify_call() {
            CallType::Function(_) | CallType::Block(_) => {}
            CallType::Object(of) => self.visit(of),
            CallType::Method(of, name) => {
                let value = self.expression(of);
                if value.is_value {
                    let like = METHODS.iter().find(|(method, _)| *method == name).map_or(name, |(_, filter)| filter);
                    let text = self.text_of(of);
                    let filter = if FILTERS.contains(&like) { like } else { "trim" };
                    self.faults.push(TemplateFault {
                        message: format!("unknown method `{name}`: values have none"),
                        span: start_of(of)..span.end_offset as usize,
                        word: name.to_string(),
                        expected: format!("a filter, such as `{text} | {filter}`"),
                        candidates: Vec::new(),
                    });
                }
            }
        }
        Binding::UNKNOWN
    }

    /// The field `name` of a value, which `of` is and `expression` says.
    fn field(&mut self, of: &Binding<'s>, name: &str, expression: &Expr<'t>, span: Span) -> Binding<'s> {
        let shape = match of.shape.field(name) {
            Field::Possible(shape) => shape,
            Field::Impossible { value, known } => {
                let text = self.text_of(expression);
                let expected = match known.as_slice() {
                    [] if FILTERS.contains(&name) => format!("a filter: `{text} | {name}`"),
                    [] => format!("`{text}` as it is"),
                    known => format!("one of: {}", known.join(", ")),
                };
                self.faults.push(TemplateFault {
                    message: format!("there is no field `{name}`: `{text}` is {value}"),
                    span: start_of(expression)..span.end_offset as usize,
                    word: name.to_string(),
                    expected,
                    candidates: known,
                });
                Shape::Any
            }
        };
        Binding { shape, is_value: of.is_value }
    }

    /// Something called `name`, at the start of `span`, that is none of `known`.
    fn unknown(&mut self, what: &str, name: &str, span: Span, known: &[&str]) {
        let start = span.start_offset as usize;
        self.faults.push(TemplateFault {
            message: format!("unknown {what} `{name}`"),
            span: start..start + name.len(),
            word: name.to_string(),
            expected: format!("a {what} of Jinja, such as {}", known.join(", ")),
            candidates: known.iter().map(ToString::to_string).collect(),
        });
    }

    fn text_of(&self, expression: &Expr<'t>) -> &'t str {
        self.text.get(start_of(expression)..expression.span().end_offset as usize).unwrap_or_default().trim()
    }
}

/// Where `expression` begins. The tree says it only of its innermost part.
fn start_of(expression: &Expr<'_>) -> usize {
    match expression {
        Expr::GetAttr(access) => start_of(&access.expr),
        Expr::GetItem(access) => start_of(&access.expr),
        Expr::Slice(slice) => start_of(&slice.expr),
        Expr::Call(call) => start_of(&call.expr),
        Expr::Test(test) => start_of(&test.expr),
        Expr::Filter(filter) => filter.expr.as_ref().map_or(filter.span().start_offset as usize, start_of),
        inner => inner.span().start_offset as usize,
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::app::template::Templates;

    /// The faults of a template over a text `note`, a list `rows` of objects that have a `note`, and a value `any`, each with the part of
    /// the template that it is about.
    fn faults(text: &str) -> Vec<(String, String)> {
        let mut templates = Templates::new();
        let template = templates.add("t".to_string(), text).unwrap();
        let shape = |name: &str| match name {
            "note" => Some(Shape::Plain("a text")),
            "rows" => Some(Shape::List(Rc::new(Shape::Record(Rc::from([("note", Shape::Any)]))))),
            "any" => Some(Shape::Any),
            _ => None,
        };
        let found = templates.faults(&template, shape).into_iter();
        found.map(|fault| (fault.message, text[fault.span].to_string())).collect()
    }

    fn parts(text: &str) -> Vec<String> {
        faults(text).into_iter().map(|(_, part)| part).collect()
    }

    #[test]
    fn a_fault_is_found_in_every_branch_and_where_it_stands() {
        let text = "{% if any %}{{ any.a | nope }}{% else %}{{ rows[0].x.y | upper | nope(1) }}{% endif %}{{ (any + note.z) is odder }}";
        assert_eq!(parts(text), ["nope", "rows[0].x", "nope", "note.z", "odder"]);
        assert_eq!(parts("{% filter shout %}{{ note }}{% endfilter %}"), ["shout"]);
        assert_eq!(
            parts("{% set x %}{{ note.a }}{% endset %}{% with y = note.b %}{{ y.c }}{% endwith %}"),
            ["note.a", "note.b"]
        );
        assert_eq!(
            parts("{% macro m(v=note.a) %}{{ v.b | nope }}{% endmacro %}{{ m(note.c) }}"),
            ["note.a", "nope", "note.c"]
        );
    }

    #[test]
    fn names_of_the_template_itself_stand_for_what_they_were_given() {
        assert_eq!(
            parts("{% for r in rows %}{{ r.note.x }}{{ r.x }}{{ loop.index }}{{ loop.cycle('a') }}{% endfor %}"),
            ["r.x"]
        );
        assert_eq!(
            parts("{% for r in rows | reverse %}{{ r.x }}{% endfor %}{{ (rows | first).y }}"),
            ["r.x", "rows | first).y"]
        );
        assert_eq!(parts("{% set n = note %}{{ n.x }}{% set n = any %}{{ n.x }}"), ["n.x"]);
        assert_eq!(parts("{% set n = any %}{% if any %}{% set n = note %}{% endif %}{{ n.x }}"), [""; 0]);
        assert_eq!(parts("{% set note = namespace(a=1) %}{{ note.a }}{{ note.b() }}"), [""; 0]);
    }

    #[test]
    fn methods_are_only_those_of_values() {
        assert_eq!(
            faults("{{ note.strip() }}")[0],
            ("unknown method `strip`: values have none".to_string(), "note.strip()".to_string())
        );
        assert_eq!(parts("{{ any.a.items() }} {{ (note | trim).upper() }}"), ["any.a.items()", "note | trim).upper()"]);
        assert_eq!(parts("{{ range(3) | list }} {{ dict(a=1) }}"), [""; 0]);
    }

    #[test]
    fn a_field_that_is_asked_for_may_be_missing() {
        assert_eq!(parts("{{ note.a | default(1) }}{% if note.b is defined %}{{ note.b.c }}{% endif %}"), [""; 0]);
        assert_eq!(parts("{{ note.a is defined }}{{ any.note.a }}{{ rows.a }}"), ["rows.a"]);
    }

    #[test]
    fn every_name_that_is_suggested_is_known() {
        for name in FILTERS.iter().chain(METHODS.iter().map(|(_, filter)| filter)) {
            assert_eq!(parts(&format!("{{{{ note | {name} }}}}")), [""; 0]);
        }
        for name in TESTS {
            assert_eq!(parts(&format!("{{{{ note is {name} }}}}")), [""; 0]);
        }
    }
}
