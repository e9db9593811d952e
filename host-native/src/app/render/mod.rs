//! Text, tables, charts and pages: how anything is shown, and nothing of what is shown.

pub(crate) mod chart;
pub(crate) mod table;
