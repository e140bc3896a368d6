//! Planner of the patched frame-of-reference encoding (PFOR): base, bit width and number of patches
//! of an integer column.
//!
//! Costs are estimated from a histogram of widths; there is no trial encoding.

use super::bitpack::{WIDTH_FULL, WIDTH_MAX};

/// Parameters for packing the residuals of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The base: an integer less the base is its residual.
    pub(super) base: i64,
    /// Packed bits per residual.
    pub(super) width: u32,
    /// Number of residuals that do not fit in `width` bits.
    pub(super) n_patches: usize,
    /// Estimated size of the column without its head, for comparison with other plans.
    pub(super) cost: usize,
}

/// Cost units per byte. 56 makes the cost of a bit (1/8) and of a varint bit (1/7) integers.
pub(super) const BYTE: usize = 56;

/// Number of integers sampled to estimate the usual range.
const PROBES: usize = 16;

/// The base ignores outliers if at most one integer in `OUTLIER_SHARE` is an outlier.
const OUTLIER_SHARE: usize = 8;

impl Plan {
    /// Returns the cheaper of two plans: with the smallest integer as base, or with the smallest
    /// one that is not an outlier.
    pub(super) fn new(integers: &[i64]) -> Self {
        let Some(&min) = integers.iter().min() else {
            return Self {
                base: 0,
                width: 0,
                n_patches: 0,
                cost: 0,
            };
        };
        let plan = Self::with_base(integers, min);
        match usual_min(integers).filter(|&usual| usual > min && plan.width > 0) {
            // Counter resets are low outliers among the steps of a counter.
            Some(usual) => {
                std::cmp::min_by_key(plan, Self::with_base(integers, usual), |plan| plan.cost)
            }
            None => plan,
        }
    }

    fn with_base(integers: &[i64], base: i64) -> Self {
        let mut widths = Widths {
            non_negative: [0; 65],
            negative: [0; 65],
        };
        for &integer in integers {
            let residual = integer.wrapping_sub(base);
            let width = 64 - (residual ^ (residual >> 63)).leading_zeros();
            let counts = if residual >= 0 {
                &mut widths.non_negative
            } else {
                &mut widths.negative
            };
            counts[width as usize] += 1;
        }
        widths.plan(integers.len(), base)
    }
}

/// The number of residuals per bit width.
struct Widths {
    non_negative: [u32; 65],
    /// Negative residuals, by bits without the sign.
    negative: [u32; 65],
}

/// Cost of a packed bit.
const BIT: usize = BYTE / 8;
/// Fixed cost of patches: two more bytes of the head.
const PATCHES_COST: usize = 2 * BYTE;
/// Cost of a patch without its excess bits: position and code, about one byte.
const PATCH_COST: usize = 8 * PATCH_BIT_COST;
/// Cost of each excess bit of a patch.
const PATCH_BIT_COST: usize = BYTE / 7;

impl Widths {
    fn plan(&self, n: usize, base: i64) -> Plan {
        let mut n_patches = self.negative.iter().sum::<u32>() as usize;
        let mut best = Plan {
            base,
            width: WIDTH_FULL,
            n_patches: 0,
            cost: n * BIT * WIDTH_FULL as usize,
        };
        let widest = widest(&self.non_negative).max(widest(&self.negative));
        // Number of residuals wider than `width`, and their excess bits in total.
        let mut n_wider = 0;
        let mut excess = 0;
        for width in (0..=widest).rev() {
            if width < 64 {
                n_patches += self.non_negative[width + 1] as usize;
                n_wider += (self.non_negative[width + 1] + self.negative[width + 1]) as usize;
                excess += n_wider;
            }
            let patches_cost = if n_patches > 0 {
                PATCHES_COST + n_patches * PATCH_COST + excess * PATCH_BIT_COST
            } else {
                0
            };
            // Narrower widths only need more patches.
            if patches_cost >= best.cost {
                break;
            }
            let cost = n * BIT * width + patches_cost;
            if cost < best.cost && width <= WIDTH_MAX as usize {
                best = Plan {
                    base,
                    width: width as u32,
                    n_patches,
                    cost,
                };
            }
        }
        best
    }
}

/// Returns the largest width that a residual has.
fn widest(counts: &[u32; 65]) -> usize {
    counts.iter().rposition(|&count| count > 0).unwrap_or(0)
}

/// Estimates from a sample the smallest integer that is not a low outlier. Returns `None` if the
/// arithmetic overflows.
fn usual_min(integers: &[i64]) -> Option<i64> {
    let mut probes = [0; PROBES];
    let stride = integers.len().div_ceil(PROBES);
    let n_probes = integers.len().div_ceil(stride);
    for (probe, &integer) in probes.iter_mut().zip(integers.iter().step_by(stride)) {
        *probe = integer;
    }
    let probes = &mut probes[..n_probes];
    probes.sort_unstable();
    let low = probes[n_probes / OUTLIER_SHARE];
    let high = probes[n_probes - 1 - n_probes / OUTLIER_SHARE];
    let spread = high.checked_sub(low)?;
    let threshold = low.checked_sub(spread.checked_mul(2)?)?;
    integers
        .iter()
        .copied()
        .filter(|&integer| integer >= threshold)
        .min()
}
