//! The names of enum variants in the order of their numbers, for values that cross the boundary as numbers.
//!
//! `tidegate_names.js` has a list for each of these enums. The module passes `variant as u32`, and the package looks
//! the name up.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::budget::Dimension;
use tidegate_core::lease::ReleaseResult;
use tidegate_core::pipeline::event::SchedulerEventKind;
use tidegate_core::pipeline::{FailureKind, RetryKind};
use tidegate_core::request::event::RequestEventKind;
use tidegate_core::request::{DenialReason, Outcome, UnavailableCause};

use crate::types::{name_of, variant_names};
use crate::write_script;

/// Writes the script with the lists, and its types, into a folder.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let mut lists = Lists::default();
    lists.add::<DenialReason>("DENIAL_REASONS")?;
    lists.add::<Dimension>("DIMENSIONS")?;
    lists.add::<FailureKind>("FAILURE_KINDS")?;
    lists.add::<Outcome>("OUTCOMES")?;
    lists.add::<ReleaseResult>("RELEASE_RESULTS")?;
    lists.add::<RetryKind>("RETRY_KINDS")?;
    lists.add::<UnavailableCause>("UNAVAILABLE_CAUSES")?;
    lists.add_kinds("RequestEventKind", "REQUEST_EVENT_KINDS", RequestEventKind::ALL)?;
    lists.add_kinds("SchedulerEventKind", "SCHEDULER_EVENT_KINDS", SchedulerEventKind::ALL)?;
    write_script(folder, "tidegate_names", &lists.script, &lists.types)
}

#[derive(Default)]
struct Lists {
    script: String,
    types: String,
}

impl Lists {
    /// Adds the list of an enum whose type the declarations of the module have.
    fn add<T: JsonSchema>(&mut self, list: &str) -> Result<()> {
        let of = T::schema_name();
        writeln!(self.types, "import type {{ {0} }} from \"./tidegate.js\";", name_of(&of))?;
        self.declare(list, name_of(&of), &variant_names::<T>()?)
    }

    /// Adds the list of the kinds of an event, and their type.
    fn add_kinds<K: Serialize>(&mut self, of: &str, list: &str, kinds: &[K]) -> Result<()> {
        let names = kinds.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        writeln!(self.types, "export type {of} = {};", names.join(" | "))?;
        self.declare(list, of, kinds)
    }

    fn declare<T: Serialize>(&mut self, list: &str, of: &str, names: &[T]) -> Result<()> {
        writeln!(self.types, "export const {list}: readonly {of}[];")?;
        writeln!(self.script, "export const {list} = {};", serde_json::to_string(names)?)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of all values, as they are serialized.
    fn names<T: Serialize>(all: &[T]) -> serde_json::Value {
        serde_json::to_value(all).expect("they are names")
    }

    #[test]
    fn a_list_has_every_variant_in_the_order_of_the_numbers() {
        assert_eq!(names(&variant_names::<Dimension>().unwrap()), names(&Dimension::ALL));
        assert_eq!(names(&variant_names::<FailureKind>().unwrap()), names(&FailureKind::ALL));
        assert_eq!(names(&variant_names::<Outcome>().unwrap()), names(&Outcome::ALL));
        assert_eq!(names(&variant_names::<RetryKind>().unwrap()), names(&RetryKind::ALL));
        let reasons = variant_names::<DenialReason>().unwrap();
        assert_eq!(reasons[DenialReason::Paused as usize], "paused");
        assert_eq!(reasons.len(), DenialReason::Paused as usize + 1);
        assert_eq!(reasons[DenialReason::Cancelled as usize], "cancelled");
        let results = variant_names::<ReleaseResult>().unwrap();
        assert_eq!(results[ReleaseResult::UnknownLease as usize], "unknown_lease");
        let causes = variant_names::<UnavailableCause>().unwrap();
        assert_eq!(causes[UnavailableCause::TlsFailed as usize], "tls_failed");
    }
}
