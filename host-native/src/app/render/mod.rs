//! Tables, charts and HTML, independent of their content.

pub(crate) mod chart;
pub(crate) mod page;
pub(crate) mod table;
