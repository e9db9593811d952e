//! The settings of a pipeline by number: the table in `pipeline.ts` gives them their names, units and ranges.

use tidegate_core::pipeline::{AdaptiveRowGroups, PipelineConfig, PolicyChoice};
use tidegate_core::task::BoundedBorrowConfig;
use tidegate_core::time::Duration;

/// Sets the setting of that number. What is out of a setting's range is refused by the core when the pipeline starts.
pub(super) fn set(config: &mut PipelineConfig, setting: u32, value: f64) -> bool {
    let some = (!value.is_nan()).then_some(value);
    let whole = value as u32;
    let span = Duration::from_nanos((value * 1e6) as u64);
    match setting {
        0 => config.row_group_size = whole,
        1 => config.row_groups = whole,
        2 => config.submission_limit = whole,
        3 => config.retries = whole,
        4 => config.shutdown_window = whole,
        5 => config.shutdown_rate = some,
        6 => config.rate_limit_patience = some.map(|_| span),
        7 => config.degraded_window = whole,
        8 => config.degraded_rate = some,
        9 => config.degraded_pause = span,
        10 => config.retry_floor = span,
        11 => config.retry_ceiling = span,
        12 => config.yield_while_waiting = value > 0.0,
        13 => config.pre_batch_hook = value > 0.0,
        14 => config.post_batch_hook = value > 0.0,
        15 => adaptive(config).initial = whole,
        16 => adaptive(config).max_admitted_rows = some.map(|rows| rows as u64),
        17 => adaptive(config).shrink_after = whole,
        18 => config.policy = PolicyChoice::StrictFair,
        19 => borrowing(config, |policy| policy.default_ceiling = some.map(|_| whole)),
        20 => borrowing(config, |policy| policy.reserve_fraction = value),
        21 => borrowing(config, |policy| policy.max_reserved = whole),
        _ => return false,
    }
    true
}

fn adaptive(config: &mut PipelineConfig) -> &mut AdaptiveRowGroups {
    config.adaptive.get_or_insert_with(AdaptiveRowGroups::default)
}

/// The settings of bounded borrowing, which is the policy that has some.
fn borrowing(config: &mut PipelineConfig, change: impl FnOnce(&mut BoundedBorrowConfig)) {
    if !matches!(config.policy, PolicyChoice::BoundedBorrow(_)) {
        config.policy = PolicyChoice::default();
    }
    if let PolicyChoice::BoundedBorrow(borrowing) = &mut config.policy {
        change(borrowing);
    }
}
