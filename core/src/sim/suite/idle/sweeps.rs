//! The sweeps: one pipeline, of which each sweep varies one property.
//!
//! ```text
//! seed (from scratch, no time) --> heavy_i (3 ms) --> fast_i (0.3 ms)      i in 0..fanout, cell by cell
//! ```
//!
//! Heavy and fast tasks are local work. Each holds one unit of the task resource `model`, whose limit is half
//! of the workers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{IdleCase, Target};
use crate::pipeline::{AdaptiveRowGroups, Strategy};
use crate::sim::scenario::{Scenario, ScenarioColumn};
use crate::task::GroupKind;
use crate::time::Duration;

/// The task resource of the model in the sweeps.
pub(super) const MODEL: &str = "model";

/// A variation of the pipeline.
#[derive(Clone, Debug)]
struct Shape {
    rows: u64,
    /// The number of rows in a row group.
    buffer: u32,
    row_groups: u32,
    /// The number of workers.
    capacity: u32,
    /// The number of pairs of columns.
    fanout: u32,
    heavy: Duration,
    /// The weight of the model's fairness group. `None` is the model's limit.
    weight: Option<u32>,
    adaptive: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            rows: 512,
            buffer: 64,
            row_groups: 4,
            capacity: 8,
            fanout: 4,
            heavy: Duration::from_millis(3),
            weight: None,
            adaptive: false,
        }
    }
}

impl Shape {
    /// Returns row groups of one row, and one pair of columns. The work for the model then depends only on
    /// the number of row groups in progress.
    fn one_row_one_pair() -> Self {
        Self { buffer: 1, fanout: 1, ..Self::default() }
    }

    fn scenario(&self) -> Scenario {
        let limit = (self.capacity / 2).max(1);
        let weight = self.weight.unwrap_or(limit);
        let column = |name: String, after: String, local| ScenarioColumn {
            after: [after].into(),
            holds: BTreeMap::from([(MODEL.to_string(), 1)]),
            group: Some(MODEL.to_string()),
            kind: Some(GroupKind::CustomModel),
            weight: f64::from(weight),
            admitted_limit: Some((2 * weight).min(limit)),
            local,
            ..ScenarioColumn::new(&name, Strategy::Cell)
        };
        let seed = ScenarioColumn::new("seed", Strategy::FromScratch);
        let pairs = (0..self.fanout).flat_map(|i| {
            let heavy = column(format!("heavy_{i}"), "seed".to_string(), self.heavy);
            let fast = column(format!("fast_{i}"), format!("heavy_{i}"), Duration::from_micros(300));
            [heavy, fast]
        });
        Scenario {
            rows: self.rows,
            row_group_size: self.buffer,
            row_groups: self.row_groups,
            submission_limit: self.capacity,
            resources: BTreeMap::from([(MODEL.to_string(), limit)]),
            columns: core::iter::once(seed).chain(pairs).collect(),
            adaptive: self.adaptive.then(AdaptiveRowGroups::default),
            ..Scenario::default()
        }
    }
}

/// Returns the cases of the sweeps, in display order.
pub(super) fn cases() -> Vec<IdleCase> {
    let mut cases = Vec::new();
    let mut sweep = |sweep: &'static str, quick: bool, title: &str, shapes: Shapes| {
        for (name, shape, targets) in shapes {
            let case = IdleCase::new(sweep, &name, title, shape.scenario()).about(MODEL);
            cases.push(IdleCase { targets, is_quick: quick, ..case });
        }
    };
    sweep("row-scale", false, "More rows", row_scale());
    sweep("row-group-concurrency", true, "More row groups at once, each of one row", row_group_concurrency());
    sweep("buffer-size", false, "Larger row groups", buffer_size());
    sweep("llm-capacity", false, "More workers, half of them for the model", llm_capacity());
    sweep("custom-model-weight", true, "The weight of the model's fairness group", custom_model_weight());
    sweep("stress-shape", true, "Few long tasks at a time, and many", stress_shape());
    sweep("adaptive-row-groups", true, "Who chooses how many row groups are in work", adaptive_row_groups());
    cases
}

/// The cases of a sweep: the name of each, its pipeline and its targets.
type Shapes = Vec<(String, Shape, Vec<Target>)>;

/// Returns a case without targets for each value, named after it.
fn named<T: ToString>(name: &str, values: &[T], shape: impl Fn(&T) -> Shape) -> Shapes {
    values.iter().map(|value| (format!("{name}-{}", value.to_string()), shape(value), Vec::new())).collect()
}

fn row_scale() -> Shapes {
    named("rows", &[64, 128, 256, 512, 1_024], |rows| Shape { rows: *rows, ..Shape::default() })
}

fn row_group_concurrency() -> Shapes {
    named("row-groups", &[1, 2, 4, 8], |row_groups| Shape { row_groups: *row_groups, ..Shape::one_row_one_pair() })
}

fn buffer_size() -> Shapes {
    let mut shapes = named("buffer", &[1, 4, 16, 64, 256], |buffer| Shape { buffer: *buffer, ..Shape::default() });
    shapes[0].2 = [Target::Utilisation { at_least_ppm: 970_000 }].into();
    shapes
}

fn llm_capacity() -> Shapes {
    named("capacity", &[4, 8, 16], |capacity| Shape { capacity: *capacity, ..Shape::one_row_one_pair() })
}

fn custom_model_weight() -> Shapes {
    // 4 is the model's limit.
    named("weight", &[1, 4], |weight| Shape { weight: Some(*weight), ..Shape::default() })
}

fn stress_shape() -> Shapes {
    let base = Shape { rows: 1_024, heavy: Duration::from_millis(6), capacity: 16, ..Shape::default() };
    let narrow = Shape { buffer: 1, row_groups: 1, fanout: 1, ..base.clone() };
    let wide = Shape { buffer: 64, row_groups: 16, fanout: 4, ..base };
    let busy = Target::Utilisation { at_least_ppm: 980_000 };
    [("narrow".to_string(), narrow, [].into()), ("wide".to_string(), wide, [busy].into())].into()
}

fn adaptive_row_groups() -> Shapes {
    let base = Shape { rows: 1_024, heavy: Duration::from_millis(6), capacity: 16, ..Shape::one_row_one_pair() };
    let fixed = |row_groups| Shape { row_groups, ..base.clone() };
    let adaptive = Shape { row_groups: 8, adaptive: true, ..base.clone() };
    let targets = [
        Target::Utilisation { at_least_ppm: 950_000 },
        Target::AsBusyAs { case: "adaptive-row-groups/fixed-high", within_ppm: 30_000 },
    ];
    [
        ("fixed-low".to_string(), fixed(1), [].into()),
        ("fixed-high".to_string(), fixed(8), [].into()),
        ("adaptive".to_string(), adaptive, targets.into()),
    ]
    .into()
}
