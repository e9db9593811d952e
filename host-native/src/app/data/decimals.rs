//! Numbers with a fixed count of decimals.

/// Returns the first and the last number from `low` to `high` with this many decimals, in units of the last
/// decimal.
///
/// The first is above the last if there is no such number. Returns `None` if the numbers are too large to be
/// exact.
pub(crate) fn grid(low: f64, high: f64, decimals: u32) -> Option<(i64, i64)> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let scale = scale(decimals);
    let nearest = |bound: f64| Some((bound * scale).round()).filter(|steps| steps.abs() < EXACT);
    let (first, last) = (nearest(low)?, nearest(high)?);
    // The comparison uses the resulting numbers, so that a bound such as 0.07 is in its own range.
    let first = if first / scale < low { first + 1.0 } else { first };
    let last = if last / scale > high { last - 1.0 } else { last };
    Some((first as i64, last as i64))
}

/// Returns 10 to the power of `decimals`, at most 9.
pub(crate) fn scale(decimals: u32) -> f64 {
    f64::from(10_u32.pow(decimals))
}
