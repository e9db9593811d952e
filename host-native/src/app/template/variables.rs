//! The variables by which templates read columns: a column may have any name, but a template can spell only
//! some.

use std::borrow::Cow;
use std::collections::BTreeSet;

use unicode_normalization::{UnicodeNormalization as _, is_nfc};

/// What templates take for a function, a constant or an operator.
const RESERVED: [&str; 16] = [
    "dict",
    "namespace",
    "range",
    "true",
    "false",
    "none",
    "True",
    "False",
    "None",
    "not",
    "and",
    "or",
    "in",
    "is",
    "if",
    "else",
];

/// Returns the variable of each column of `names`, in their order.
///
/// The variable is the name, if templates can spell it: letters and digits of any script and `_`, without a
/// digit at the start. Otherwise each character that they cannot spell is replaced by `_`: `full_name` for
/// `full name`, and `_2024` for `2024`. A name that has another meaning has `_` after it: `range_`. If that
/// is the variable of a column with another name, too, the column keeps its name, which templates cannot
/// spell.
///
/// A variable is in the [normal form](normal_form). The name of a column may be in another form, for example
/// with accents apart from their letters, which looks the same.
#[must_use]
pub fn variables_of<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    // A name that is written in two forms is one name.
    let normal_names: BTreeSet<Cow<'_, str>> = names.clone().map(normal_form).collect();
    let mut taken: BTreeSet<String> = normal_names.iter().map(ToString::to_string).collect();
    let mut repeated = BTreeSet::new();
    for name in normal_names.iter().filter(|name| !is_variable(name)) {
        let variable = variable_for(name);
        if !taken.insert(variable.clone()) {
            repeated.insert(variable);
        }
    }
    let variable = |name: &str| {
        let variable = variable_for(name);
        if repeated.contains(&variable) && !is_variable(&normal_form(name)) { name.to_string() } else { variable }
    };
    names.map(variable).collect()
}

/// Returns those of `names` that templates spell as `variable`, each once, in whatever form of Unicode. If
/// there are several, a template cannot say which of them it reads.
#[must_use]
pub fn names_spelled<'a>(names: impl Iterator<Item = &'a str>, variable: &str) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names.filter(|name| variable_for(name) == variable) {
        if !found.iter().any(|known| is_same_name(known, name)) {
            found.push(name);
        }
    }
    found
}

/// Returns whether the names are the same, in whatever form of Unicode each is written.
#[must_use]
pub fn is_same_name(one: &str, other: &str) -> bool {
    normal_form(one) == normal_form(other)
}

/// Returns `name` in the form NFC of Unicode, in which names are compared.
#[must_use]
pub fn normal_form(name: &str) -> Cow<'_, str> {
    if is_nfc(name) { Cow::Borrowed(name) } else { Cow::Owned(name.nfc().collect()) }
}

/// Returns whether `name`, in the [normal form](normal_form), is the variable that templates spell it by.
fn is_variable(name: &str) -> bool {
    name.starts_with(is_start) && name.chars().all(is_part) && !RESERVED.contains(&name)
}

fn variable_for(name: &str) -> String {
    let name = &*normal_form(name);
    let start = if name.starts_with(is_start) || !name.starts_with(is_part) { "" } else { "_" };
    let parts = name.chars().map(|c| if is_part(c) { c } else { '_' });
    let end = if RESERVED.contains(&name) { "_" } else { "" };
    start.chars().chain(parts).chain(end.chars()).collect()
}

fn is_start(c: char) -> bool {
    c == '_' || unicode_ident::is_xid_start(c)
}

/// Returns whether `c` may be part of a name that templates can spell.
#[must_use]
pub fn is_part(c: char) -> bool {
    c == '_' || unicode_ident::is_xid_continue(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(names: &[&str]) -> Vec<String> {
        variables_of(names.iter().copied())
    }

    #[test]
    fn a_name_that_templates_can_spell_is_its_own_variable() {
        for name in ["note", "_note_2", "prénom", "名前", "имя"] {
            assert_eq!(variables(&[name]), [name]);
        }
    }

    #[test]
    fn what_templates_cannot_spell_is_an_underscore() {
        let names = ["full name", "customer-id", "2024", "größe (cm)", "", "?", "²x", "range", "in"];
        let expected = ["full_name", "customer_id", "_2024", "größe__cm_", "", "_", "_x", "range_", "in_"];
        assert_eq!(variables(&names), expected);
    }

    #[test]
    fn a_name_with_accents_apart_from_their_letters_has_the_variable_that_looks_the_same() {
        assert_eq!(variables(&["pre\u{301}nom", "gro\u{308}\u{df}e (cm)"]), ["pr\u{e9}nom", "gr\u{f6}\u{df}e__cm_"]);
        let both = ["pre\u{301}nom", "pr\u{e9}nom"];
        assert_eq!(variables(&both), ["pr\u{e9}nom", "pr\u{e9}nom"], "it is the same name");
        assert_eq!(names_spelled(both.into_iter(), "pr\u{e9}nom"), both[..1]);
        assert_eq!(variables(&["e\u{301} b", "e\u{301}_b"]), ["e\u{301} b", "\u{e9}_b"]);
    }

    #[test]
    fn a_variable_never_stands_for_two_columns() {
        assert_eq!(variables(&["a b", "a_b"]), ["a b", "a_b"]);
        assert_eq!(variables(&["a b", "a-b", "c d"]), ["a b", "a-b", "c_d"]);
    }
}
