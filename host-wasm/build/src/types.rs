//! The TypeScript types of the plain objects that the modules read and write, from the JSON Schemas of the Rust types.
//!
//! The schemas know what serde does: names, optional fields, null and unions. They also have the comments of the Rust types.
//! What JavaScript passes in is declared as it is deserialized: a field with a default is optional. What JavaScript receives
//! is declared as it is serialized.
//!
//! `json-schema-to-typescript` drops the comments of fields whose type has a name, and declares such types twice. `ts-rs` has
//! no optional fields for defaults, and `tsify` no comments inside of unions. So the schemas are written here. What has no
//! type here is an error, never `any`.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};
use tidegate_core::budget::{BudgetSource, Dimension};
use tidegate_core::lease::ReleaseResult;
use tidegate_core::limit::RetryAfterStops;
use tidegate_core::pipeline::{DiscardReason, FailureKind, Hook, RetryKind, RowGroupBlock, RunReport};
use tidegate_core::request::{DenialReason, Outcome, RequestPressure, UnavailableCause};
use tidegate_core::sim::report::Report;
use tidegate_core::sim::scenario::{Intervention, Scenario};
use tidegate_core::sim::sharing::{SharingChange, SharingEvent, SharingEventKind, SharingSample};
use tidegate_core::sim::world::{Sample, Why, WhySubject};
use tidegate_core::task::TaskDenialReason;

use crate::Module;

/// Where the schemas refer to.
const DEFINITIONS: &str = "#/$defs/";

/// The longest line of a comment.
const WIDTH: usize = 110;

/// The types that have another name in JavaScript.
const NAMES: [(&str, &str); 7] = [
    ("CallbackSpec", "Answering"),
    ("Dimension", "BudgetDimension"),
    ("Instant", "Nanos"),
    ("RequestPressure", "Pressure"),
    ("RunProgress", "RunSoFar"),
    ("TaskDenialReason", "TaskDenial"),
    ("WhySubject", "About"),
];

/// Returns the declarations of the core's types that a module refers to, in the order of their names.
pub(crate) fn declarations(module: Module) -> Result<String> {
    let mut read = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut written = SchemaSettings::draft2020_12().for_serialize().into_generator();
    match module {
        Module::Live => {
            read.subschema_for::<Dimension>();
            read.subschema_for::<RetryAfterStops>();
            written.subschema_for::<BudgetSource>();
            written.subschema_for::<DenialReason>();
            written.subschema_for::<DiscardReason>();
            written.subschema_for::<FailureKind>();
            written.subschema_for::<Hook>();
            written.subschema_for::<Outcome>();
            written.subschema_for::<ReleaseResult>();
            written.subschema_for::<RequestPressure>();
            written.subschema_for::<RetryKind>();
            written.subschema_for::<RowGroupBlock>();
            written.subschema_for::<TaskDenialReason>();
            written.subschema_for::<UnavailableCause>();
        }
        Module::Machines => {
            read.subschema_for::<SharingChange>();
            written.subschema_for::<SharingEvent>();
            written.subschema_for::<SharingEventKind>();
            written.subschema_for::<SharingSample>();
        }
        Module::Sim | Module::Playground | Module::Files => {
            read.subschema_for::<Scenario>();
            read.subschema_for::<Intervention>();
            read.subschema_for::<WhySubject>();
            written.subschema_for::<Report>();
            written.subschema_for::<RunReport>();
            written.subschema_for::<Sample>();
            written.subschema_for::<Why>();
        }
    }
    Types::new(read, written)?.text()
}

/// Returns the declaration of one type that JavaScript receives.
pub(crate) fn declaration_of<T: JsonSchema>() -> Result<String> {
    let mut written = SchemaSettings::draft2020_12().for_serialize().into_generator();
    written.subschema_for::<T>();
    Types::new(SchemaGenerator::default(), written)?.text()
}

/// Returns the names of the variants of an enum, in the order of their declaration, which is that of their
/// numbers.
pub(crate) fn variant_names<T: JsonSchema>() -> Result<Vec<String>> {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let name_of = |variant: &Value| variant.get("const").and_then(Value::as_str).map(str::to_owned);
    let names = variants(schema.as_value()).and_then(|variants| variants.iter().map(name_of).collect());
    names.with_context(|| format!("a variant of `{}` has fields or no documentation", T::schema_name()))
}

/// The schemas of named types.
struct Types {
    schemas: Map<String, Value>,
    /// A link of the documentation: ``[text](target)`` or ``[`item`]``.
    link: Regex,
}

impl Types {
    fn new(mut read: SchemaGenerator, mut written: SchemaGenerator) -> Result<Self> {
        let mut schemas = read.take_definitions(true);
        for (name, schema) in written.take_definitions(true) {
            let is_other = schemas.get(&name).is_some_and(|read| *read != schema);
            ensure!(!is_other, "`{name}` is read in another form than it is written: it needs two types");
            schemas.insert(name, schema);
        }
        Ok(Self { schemas, link: Regex::new(r"\[([^\]]+)\]\([^)]*\)|\[(`[^\]]+`)\]")? })
    }

    fn text(&self) -> Result<String> {
        let mut schemas: Vec<_> = self.schemas.iter().map(|(name, schema)| (name_of(name), schema)).collect();
        schemas.sort_by_key(|(name, _)| *name);
        let mut text = String::new();
        for (name, schema) in schemas {
            let is_interface = schema.get("properties").is_some() && variants(schema).is_none();
            let (keyword, equals, end) = if is_interface { ("interface", "", "") } else { ("type", " =", ";") };
            let type_ = self.type_of(schema, 0).with_context(|| format!("`{name}` has no TypeScript type"))?;
            // The variants of a union begin on a line of their own.
            let gap = if type_.starts_with('\n') { "" } else { " " };
            writeln!(text, "{}export {keyword} {name}{equals}{gap}{type_}{end}\n", self.comment(schema, 0))?;
        }
        Ok(text)
    }

    /// Returns the type of a schema. Lines after its first are indented by `indent` spaces.
    fn type_of(&self, schema: &Value, indent: usize) -> Result<String> {
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let name = target.strip_prefix(DEFINITIONS).with_context(|| format!("an unknown reference: {target}"))?;
            return Ok(name_of(name).to_owned());
        }
        if let Some(value) = schema.get("const") {
            return Ok(value.to_string());
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return Ok(values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | "));
        }
        match (variants(schema), schema.get("properties")) {
            (Some(flattened), Some(_)) => {
                let fields = self.fields(schema, indent)?;
                return Ok(format!("{fields} & {}", self.union_named(flattened)?));
            }
            (Some(variants), None) => return self.union(variants, indent),
            (None, _) => {}
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.simple(name, schema, indent),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                let types: Vec<_> = names.map(|name| self.simple(name, schema, indent)).collect::<Result<_>>()?;
                Ok(types.join(" | "))
            }
            _ => bail!("a schema of no known form: {schema}"),
        }
    }

    /// Returns what JSON Schema calls the type `name`.
    fn simple(&self, name: &str, schema: &Value, indent: usize) -> Result<String> {
        Ok(match name {
            "null" | "string" | "boolean" => name.to_owned(),
            "number" | "integer" => "number".to_owned(),
            "array" => {
                let item = self.type_of(schema.get("items").context("an array of unknown items")?, indent)?;
                let is_name = item.chars().all(char::is_alphanumeric);
                if is_name { format!("{item}[]") } else { format!("({item})[]") }
            }
            "object" if schema.get("properties").is_some() => self.fields(schema, indent)?,
            "object" => {
                let values = schema.get("additionalProperties").context("an object of unknown fields")?;
                format!("Record<string, {}>", self.type_of(values, indent)?)
            }
            _ => bail!("an unknown type: {name}"),
        })
    }

    /// Returns an object type: the required fields in the order of definition, then the optional ones in that of their names.
    fn fields(&self, schema: &Value, indent: usize) -> Result<String> {
        let properties = schema.get("properties").and_then(Value::as_object).context("an object without fields")?;
        let required: Vec<&str> = array(schema, "required").iter().filter_map(Value::as_str).collect();
        let optional = properties.keys().map(String::as_str).filter(|name| !required.contains(name));
        let mut text = String::from("{\n");
        let inner = indent + 2;
        for name in required.iter().copied().chain(optional) {
            let field = properties.get(name).with_context(|| format!("the field `{name}` has no schema"))?;
            let mark = if required.contains(&name) { "" } else { "?" };
            let type_ = self.type_of(field, inner).with_context(|| format!("the field `{name}`"))?;
            writeln!(text, "{}{:inner$}{name}{mark}: {type_};", self.comment(field, inner), "")?;
        }
        write!(text, "{:indent$}}}", "")?;
        Ok(text)
    }

    /// Returns a union: in one line, unless a variant has a comment or fields.
    fn union(&self, variants: &[Value], indent: usize) -> Result<String> {
        let is_short = |one: &Value| one.get("description").is_none() && one.get("properties").is_none();
        if variants.iter().all(is_short) {
            let types: Vec<_> = variants.iter().map(|one| self.type_of(one, indent)).collect::<Result<_>>()?;
            return Ok(types.join(" | "));
        }
        let inner = indent + 2;
        let mut text = String::new();
        for variant in variants {
            let comment = self.comment(variant, inner);
            write!(text, "\n{comment}{:inner$}| {}", "", self.type_of(variant, inner + 2)?)?;
        }
        Ok(text)
    }

    /// Returns the name of the union that has these variants. A schema with a flattened union repeats its variants, and lets
    /// them have other fields.
    fn union_named(&self, flattened: &[Value]) -> Result<&str> {
        let is_same = |schema: &Value| variants(schema).is_some_and(|own| open(own) == open(flattened));
        let named = self.schemas.iter().find(|(_, schema)| schema.get("properties").is_none() && is_same(schema));
        named.map(|(name, _)| name_of(name)).context("a flattened union that has no name")
    }

    /// Returns the comment of a type or field, with the texts of its links, as lines that end with a line end.
    fn comment(&self, schema: &Value, indent: usize) -> String {
        let Some(text) = schema.get("description").and_then(Value::as_str) else { return String::new() };
        // What Rust calls `None` is null here.
        let text = self.link.replace_all(text, "$1$2").replace("`None`", "`null`");
        let spaces = " ".repeat(indent);
        let one_line = format!("{spaces}/** {text} */\n");
        if !text.contains('\n') && one_line.len() <= WIDTH + 1 {
            return one_line;
        }
        let lines = text.lines().map(|line| match line.trim_end() {
            "" => format!("{spaces} *\n"),
            line => format!("{spaces} * {line}\n"),
        });
        format!("{spaces}/**\n{}{spaces} */\n", lines.collect::<String>())
    }
}

/// Returns the name of a type in JavaScript.
pub(crate) fn name_of(name: &str) -> &str {
    NAMES.iter().find(|(rust, _)| *rust == name).map_or(name, |(_, own)| own)
}

/// Returns the variants of a union.
fn variants(schema: &Value) -> Option<&[Value]> {
    ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key)?.as_array()).map(Vec::as_slice)
}

fn array<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the variants without the rule that they have no other fields.
fn open(variants: &[Value]) -> Vec<Value> {
    let mut variants = variants.to_vec();
    for variant in variants.iter_mut().filter_map(Value::as_object_mut) {
        variant.remove("additionalProperties");
    }
    variants
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MODULES: [Module; 5] = [Module::Live, Module::Sim, Module::Playground, Module::Files, Module::Machines];

    /// Returns the declaration that begins with `begin`, up to the next one.
    fn declaration<'a>(text: &'a str, begin: &str) -> &'a str {
        let start = text.find(begin).unwrap_or_else(|| panic!("there is no `{begin}`"));
        let rest = &text[start..];
        &rest[..rest.find("\n\n").unwrap_or(rest.len())]
    }

    #[test]
    fn every_name_that_a_type_refers_to_is_declared_once() {
        let declared = Regex::new(r"(?m)^export (?:type|interface) (\w+)").expect("it is valid");
        let not_code = Regex::new(r#"(?s)/\*\*.*?\*/|"[^"]*""#).expect("it is valid");
        let name = Regex::new(r"\b[A-Z]\w+").expect("it is valid");
        for module in MODULES {
            let text = declarations(module).expect("every type has a declaration");
            let names: Vec<&str> = declared.captures_iter(&text).map(|found| found.extract::<1>().1[0]).collect();
            let known: BTreeSet<&str> = names.iter().copied().chain(["Record"]).collect();
            assert_eq!(known.len(), names.len() + 1, "{module:?} declares a type twice");
            let code = not_code.replace_all(&text, "");
            for used in name.find_iter(&code) {
                assert!(known.contains(used.as_str()), "{module:?} does not declare {}", used.as_str());
            }
        }
    }

    #[test]
    fn what_is_read_may_lack_a_field_with_a_default_and_what_is_written_has_every_field() {
        let text = declarations(Module::Sim).expect("every type has a declaration");
        let scenario = declaration(&text, "export interface Scenario {");
        assert!(scenario.starts_with(
            "export interface Scenario {\n  /** The short name, as on a command line. */\n  name: string;\n"
        ));
        for field in ["  models?: Model[];", "  adaptive?: AdaptiveRowGroups | null;", "  recheck_ms?: Millis | null;"]
        {
            assert!(scenario.contains(field), "{field} is missing in {scenario}");
        }
        assert!(scenario.contains("  outage_patience_ms?: Millis | \"never\";"), "{scenario}");
        assert!(scenario.contains("  resources?: Record<string, number>;"), "{scenario}");
        let sample = declaration(&text, "export interface ProviderSample {");
        assert!(sample.contains("  cooldown_until: Nanos | null;") && !sample.contains("?:"), "{sample}");
    }

    #[test]
    fn a_union_keeps_the_comments_of_its_variants_and_of_their_fields() {
        let text = declarations(Module::Sim).expect("every type has a declaration");
        let slow = "  /**\n   * Multiplies the latency of calls that arrive at the model's provider for some time.\n   */\n  | {\n";
        let short =
            "  /** Multiplies the latency of calls that arrive at the model's provider for some time. */\n  | {\n";
        let union = declaration(&text, "export type Intervention =\n");
        assert!(union.contains(slow) || union.contains(short), "{union}");
        assert!(
            union.contains("      set: \"slow\";\n") && union.contains("      /** The factor, 0.001 to 1000. */\n"),
            "{union}"
        );
        let change = declaration(&text, "export type Change = {");
        assert!(change.contains("  at_ms: Millis;\n} & Intervention;"), "{change}");
        assert!(!text.contains("](") && !text.contains("[`"), "a link of the documentation is left");
    }

    #[test]
    fn a_schema_that_has_no_type_is_an_error() {
        let types = Types::new(SchemaGenerator::default(), SchemaGenerator::default()).expect("there is none");
        for schema in
            [serde_json::json!(true), serde_json::json!({ "type": "object" }), serde_json::json!({ "not": {} })]
        {
            assert!(types.type_of(&schema, 0).is_err(), "{schema}");
        }
    }
}
