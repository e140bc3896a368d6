//! How to pack a column of integers: base, width, and number of patches.
//!
//! Costs are estimated from a histogram of widths; nothing is encoded to find out.

use crate::block::values::bitpack::{WIDTH_FULL, WIDTH_MAX};

/// A way to pack residuals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// What is subtracted from each integer.
    pub(super) base: i64,
    /// Packed bits per residual.
    pub(super) width: u32,
    /// Residuals with more bits.
    pub(super) n_patches: usize,
    /// Estimated size of the column without its head, for comparison with other plans.
    pub(super) cost: usize,
}

/// The cost of a byte.
pub(super) const BYTE: usize = 56;

/// Integers examined to find the usual ones.
const PROBES: usize = 16;

/// If at most one integer in this many is an outlier, the base ignores the outliers.
const OUTLIER_SHARE: usize = 8;

impl Plan {
    /// Finds the plan for these integers: the base is the smallest, or the smallest usual one if few lie far below.
    pub(super) fn new(integers: &[i64]) -> Self {
        let Some(&min) = integers.iter().min() else { return Self { base: 0, width: 0, n_patches: 0, cost: 0 } };
        let plan = Self::with_base(integers, min);
        match usual_min(integers).filter(|&usual| usual > min && plan.width > 0) {
            // Counter resets fall far below all other steps.
            Some(usual) => std::cmp::min_by_key(plan, Self::with_base(integers, usual), |plan| plan.cost),
            None => plan,
        }
    }

    fn with_base(integers: &[i64], base: i64) -> Self {
        let mut widths = Widths { above: [0; 65], below: [0; 65] };
        for &integer in integers {
            let residual = integer.wrapping_sub(base);
            let width = 64 - (residual ^ (residual >> 63)).leading_zeros();
            let counts = if residual >= 0 { &mut widths.above } else { &mut widths.below };
            counts[width as usize] += 1;
        }
        widths.plan(integers.len(), base)
    }
}

/// The number of residuals per bit width.
struct Widths {
    above: [u32; 65],
    /// Negative residuals, by bits without the sign.
    below: [u32; 65],
}

// Costs are counted in 56ths of a byte, so that eighths (bits) and sevenths (bits in varints) are integers.
const BIT: usize = BYTE / 8;
/// Fixed cost of patches: two more bytes of the head.
const PATCHES: usize = 2 * BYTE;
/// A patch of one bit: its position, on average less than a byte.
const PATCH: usize = 8 * PATCH_BIT;
/// A further bit of a patch.
const PATCH_BIT: usize = BYTE / 7;

impl Widths {
    fn plan(&self, n: usize, base: i64) -> Plan {
        let mut n_patches = self.below.iter().sum::<u32>() as usize;
        let mut best = Plan { base, width: WIDTH_FULL, n_patches: 0, cost: n * BIT * WIDTH_FULL as usize };
        let widest = |counts: &[u32; 65]| counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        // Number of residuals wider than `width`, and their excess bits in total.
        let (mut n_wider, mut excess) = (0, 0);
        for width in (0..=widest(&self.above).max(widest(&self.below))).rev() {
            if width < 64 {
                n_patches += self.above[width + 1] as usize;
                n_wider += (self.above[width + 1] + self.below[width + 1]) as usize;
                excess += n_wider;
            }
            let patches = if n_patches > 0 { PATCHES + n_patches * PATCH + excess * PATCH_BIT } else { 0 };
            // Narrower widths only need more patches.
            if patches >= best.cost {
                break;
            }
            let cost = n * BIT * width + patches;
            if cost < best.cost && width <= WIDTH_MAX as usize {
                best = Plan { base, width: width as u32, n_patches, cost };
            }
        }
        best
    }
}

/// Returns the smallest integer that is not far below nearly all others, judging by a few of them.
fn usual_min(integers: &[i64]) -> Option<i64> {
    let mut probes = [0; PROBES];
    let stride = integers.len().div_ceil(PROBES);
    let n_probes = integers.len().div_ceil(stride);
    for (probe, &integer) in probes.iter_mut().zip(integers.iter().step_by(stride)) {
        *probe = integer;
    }
    let probes = &mut probes[..n_probes];
    probes.sort_unstable();
    let (low, high) = (probes[n_probes / OUTLIER_SHARE], probes[n_probes - 1 - n_probes / OUTLIER_SHARE]);
    let spread = high.checked_sub(low)?;
    let threshold = low.checked_sub(spread.checked_mul(2)?)?;
    integers.iter().copied().filter(|&integer| integer >= threshold).min()
}
