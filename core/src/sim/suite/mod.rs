//! Suites: scenarios as data, with what must come of them.
//!
//! | suite | its question |
//! | --- | --- |
//! | [`idle`] | is capacity ever idle without need? |

pub mod idle;
