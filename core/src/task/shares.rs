//! The share of a group in a resource, by weight.
//!
//! ```text
//! share = round(limit x weight / competing), at least 1, at most the admitted limit and the resource's limit
//! ```
//!
//! `competing` is the sum of the weights of all groups that compete for the resource, the group's own
//! included.
//!
//! Weights are integers, in *units* of 2^-72. In these units every double from 2^-20 to 2^20 is an integer.
//! Sums of weights are therefore exact, whatever was added and removed before. The comparison of a share with
//! a count is exact too: `limit x weight` stays below 2^124.

/// How a share that is not an integer is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ShareRounding {
    /// To the next larger integer.
    #[default]
    Up,
    /// To the next smaller integer.
    Down,
}

/// 2^72.
const UNITS: f64 = 4_722_366_482_869_645_213_696.0;

/// Converts a weight from 2^-20 to 2^20 to units of 2^-72.
pub(super) fn units(weight: f64) -> u128 {
    // A power of two scales exactly, and the product is below 2^93.
    (weight * UNITS) as u128
}

/// Returns `limit x weight / competing`, rounded, at most `limit`. `competing` includes the weight itself.
pub(super) fn share(limit: u32, weight: u128, competing: u128, rounding: ShareRounding) -> u32 {
    let weighted_limit = u128::from(limit) * weight;
    let competing = competing.max(1);
    let share = match rounding {
        ShareRounding::Up => weighted_limit.div_ceil(competing),
        ShareRounding::Down => weighted_limit / competing,
    };
    share.min(u128::from(limit)) as u32
}

/// Returns the largest competing weight at which the share of `weight` is still at least `wanted`. `wanted`
/// is at least 2, because a share is never below 1.
pub(super) fn most_competing(limit: u32, weight: u128, wanted: u32, rounding: ShareRounding) -> u128 {
    let weighted_limit = u128::from(limit) * weight;
    match rounding {
        ShareRounding::Down => weighted_limit / u128::from(wanted.max(1)),
        // The share is above `wanted - 1`, so the competing weight is below `weighted_limit / (wanted - 1)`.
        ShareRounding::Up => weighted_limit.div_ceil(u128::from(wanted.max(2) - 1)).saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_in_range_is_a_whole_number_of_units() {
        let smallest = 1.0 / 1_048_576.0;
        assert_eq!(units(smallest), 1 << 52);
        assert_eq!(units(smallest * (1.0 + f64::EPSILON)), (1 << 52) + 1);
        assert_eq!(units(1_048_576.0), 1 << 92);
    }

    #[test]
    fn the_most_that_may_compete_is_where_the_share_drops() {
        for rounding in [ShareRounding::Up, ShareRounding::Down] {
            for (limit, weight, wanted) in [(8, 1.0, 2), (8, 3.0, 5), (7, 0.1, 7), (1024, 0.3, 100), (u32::MAX, 1e6, 9)]
            {
                let weight = units(weight);
                let most = most_competing(limit, weight, wanted, rounding);
                assert!(share(limit, weight, most, rounding) >= wanted, "{limit} {wanted} {rounding:?}");
                assert!(share(limit, weight, most + 1, rounding) < wanted, "{limit} {wanted} {rounding:?}");
            }
        }
    }
}
