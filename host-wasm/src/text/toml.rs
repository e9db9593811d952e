//! TOML text to nodes and back.

use std::fmt::Write;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Key, Mistake, Node, Value};

/// Reads a TOML document.
pub(crate) fn parse(text: &str) -> Result<Node, Mistake> {
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Mistake::new(["this is not TOML: ", error.message()].concat(), at)
    })?;
    table(document.get_ref(), 0)
}

fn table(table: &DeTable<'_>, at: usize) -> Result<Node, Mistake> {
    let entries = table.iter().map(|(key, value)| {
        let name = key.get_ref().to_string();
        Ok((Key { at: key.span().start, name }, node(value)?))
    });
    Ok(Node { at, value: Value::Table(entries.collect::<Result<_, Mistake>>()?) })
}

fn node(value: &Spanned<DeValue<'_>>) -> Result<Node, Mistake> {
    let at = value.span().start;
    let no_number = || Mistake::new("this number is too large", at);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(yes) => Value::Bool(*yes),
        DeValue::Integer(number) => {
            Value::Whole(i128::from_str_radix(number.as_str(), number.radix()).map_err(|_| no_number())?)
        }
        DeValue::Float(number) => Value::Decimal(number.as_str().parse().map_err(|_| no_number())?),
        DeValue::Datetime(_) => return Err(Mistake::new("a date has no meaning here", at)),
        DeValue::Array(items) => Value::List(items.iter().map(node).collect::<Result<_, _>>()?),
        DeValue::Table(inner) => return table(inner, at),
    };
    Ok(Node { at, value })
}

/// Writes a table as a TOML document: `[section]` and `[[list]]` for tables that hold tables, and one line for what is
/// smaller. What is null is left out.
pub(crate) fn write(node: &Node) -> String {
    let mut text = String::new();
    if let Value::Table(entries) = &node.value {
        section(&mut text, "", entries);
    }
    text
}

/// Whether a value gets a heading of its own.
fn is_section(value: &Value, is_outermost: bool) -> bool {
    match value {
        Value::Table(entries) => {
            let holds_tables = entries.iter().any(|(_, node)| matches!(node.value, Value::Table(_)));
            !entries.is_empty() && (is_outermost || holds_tables)
        }
        Value::List(items) => {
            is_outermost && !items.is_empty() && items.iter().all(|item| matches!(item.value, Value::Table(_)))
        }
        _ => false,
    }
}

fn section(text: &mut String, path: &str, entries: &[(Key, Node)]) {
    let is_outermost = path.is_empty();
    let entries = || entries.iter().filter(|(_, node)| node.value != Value::Null);
    for (Key { name, .. }, node) in entries().filter(|(_, node)| !is_section(&node.value, is_outermost)) {
        key(text, name);
        text.push_str(" = ");
        inline(text, &node.value);
        text.push('\n');
    }
    for (Key { name, .. }, node) in entries().filter(|(_, node)| is_section(&node.value, is_outermost)) {
        let mut path = if is_outermost { String::new() } else { [path, "."].concat() };
        key(&mut path, name);
        match &node.value {
            Value::Table(inner) => {
                let _ = writeln!(text, "\n[{path}]");
                section(text, &path, inner);
            }
            Value::List(items) => {
                for item in items {
                    let _ = writeln!(text, "\n[[{path}]]");
                    if let Value::Table(inner) = &item.value {
                        section(text, &path, inner);
                    }
                }
            }
            _ => {}
        }
    }
}

fn key(text: &mut String, name: &str) {
    let is_bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare { text.push_str(name) } else { string(text, name) }
}

fn inline(text: &mut String, value: &Value) {
    let _ = match value {
        // Only a list could have one, and no scenario has such a list.
        Value::Null => Ok(()),
        Value::Bool(yes) => write!(text, "{yes}"),
        Value::Whole(number) => write!(text, "{number}"),
        // With a point, always: TOML tells 1 from 1.0.
        Value::Decimal(number) => write!(text, "{number:?}"),
        Value::Text(words) => {
            string(text, words);
            Ok(())
        }
        Value::List(items) => {
            text.push('[');
            for (nth, item) in items.iter().enumerate() {
                text.push_str(if nth > 0 { ", " } else { "" });
                inline(text, &item.value);
            }
            text.push(']');
            Ok(())
        }
        Value::Table(entries) => {
            let mut separator = "{ ";
            for (Key { name, .. }, node) in entries.iter().filter(|(_, node)| node.value != Value::Null) {
                text.push_str(separator);
                separator = ", ";
                key(text, name);
                text.push_str(" = ");
                inline(text, &node.value);
            }
            text.push_str(if separator == ", " { " }" } else { "{}" });
            Ok(())
        }
    };
}

/// A basic string, with what it must not hold escaped.
fn string(text: &mut String, words: &str) {
    text.push('"');
    for c in words.chars() {
        let _ = match c {
            '"' | '\\' => write!(text, "\\{c}"),
            '\n' => write!(text, "\\n"),
            '\t' => write!(text, "\\t"),
            '\r' => write!(text, "\\r"),
            '\0'..='\u{1f}' | '\u{7f}' => write!(text, "\\u{:04X}", u32::from(c)),
            _ => {
                text.push(c);
                Ok(())
            }
        };
    }
    text.push('"');
}
