//! Columns of integers: a base, and the small differences (residuals) of each integer, or of each
//! step between two integers, from the base.
//!
//! Used by rows of values and by timestamps.
//!
//! ```text
//! head     bits 0..6  width of the residuals: 0 to 56, or 63 for 64 bits
//!          bit  6     the residuals belong to the steps, one fewer than integers
//!          bit  7     divisor and patches exist
//! first    zigzag varint: the base, or the first integer if the residuals are of steps
//! base     zigzag varint: the smallest usual step, divided by the divisor; only with bit 6
//! divisor  varint, not zero; only with bit 7
//! patches  their number, varint; then for each a byte: in the high nibble the gap, which is the number of residuals
//!          between it and the patch before, in the low nibble the code of the value above the packed bits: 0, 1, 2, 3
//!          for 1, -1, 2, -2 and so on. The excess over a nibble of 15 follows as varint, first that of the gap; only
//!          with bit 7
//! packed   the low bits of all residuals (see `bitpack`)
//! ```
//! An integer is first + divisor * residual, or the integer before + divisor * (base + residual).
//! All arithmetic wraps, so that any integers can be encoded. An empty column takes no bytes.

mod bitpack;
mod plan;

use plan::{BYTE, Plan};

use crate::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64, unzigzag, zigzag};

const WIDTH_MASK: u8 = 0x3f;
const WIDTH_CODE_FULL: u8 = 63;
const STEPS: u8 = 0x40;
const EXTENDED: u8 = 0x80;
/// Gaps and codes of patches from this value on continue in a varint.
const NIBBLE_MAX: u64 = 15;

/// Encodes columns of integers. Reuses its buffers.
#[derive(Debug, Default)]
pub struct IntegerEncoder {
    /// The differences from the first integer, divided by their common divisor.
    quotients: Vec<i64>,
    /// The differences between neighboring quotients.
    steps: Vec<i64>,
}

impl IntegerEncoder {
    /// Appends a column of integers. Their number is not stored.
    pub fn encode(&mut self, integers: &[i64], dst: &mut Vec<u8>) {
        let Some((&first, rest)) = integers.split_first() else {
            return;
        };
        let divisor = common_divisor(first, rest);
        self.divide(first, integers, divisor);
        let direct = Plan::new(&self.quotients);
        let stepwise = Plan::new(&self.steps);
        // A column of steps stores its first integer in addition to the base.
        if stepwise.cost + BYTE < direct.cost {
            encode_column(
                first,
                Some(stepwise.base),
                divisor,
                &stepwise,
                &mut self.steps,
                dst,
            );
        } else {
            let base = first.wrapping_add(direct.base.wrapping_mul(divisor));
            encode_column(base, None, divisor, &direct, &mut self.quotients, dst);
        }
    }

    fn divide(&mut self, first: i64, integers: &[i64], divisor: i64) {
        let differences = integers.iter().map(|integer| integer.wrapping_sub(first));
        self.quotients.clear();
        match divisor {
            1 => self.quotients.extend(differences),
            // Shifting is much faster than dividing, and most divisors are memory sizes.
            power if (power as u64).is_power_of_two() => {
                self.quotients
                    .extend(differences.map(|difference| difference >> power.trailing_zeros()));
            }
            _ => self
                .quotients
                .extend(differences.map(|difference| difference.wrapping_div(divisor))),
        }
        self.steps.clear();
        self.steps.extend(
            self.quotients
                .windows(2)
                .map(|pair| pair[1].wrapping_sub(pair[0])),
        );
    }
}

/// Returns the greatest common divisor of all differences from the first integer, or 1 if all are
/// zero.
fn common_divisor(first: i64, rest: &[i64]) -> i64 {
    let mut divisor = 0_u64;
    for integer in rest {
        let mut other = integer.wrapping_sub(first).unsigned_abs();
        if other == 0 || divisor != 0 && other.is_multiple_of(divisor) {
            continue;
        }
        while other != 0 {
            (divisor, other) = (other, divisor % other);
        }
        if divisor == 1 {
            break;
        }
    }
    divisor.max(1).cast_signed()
}

/// Appends a column. `residuals` still contain the base of the plan.
fn encode_column(
    first: i64,
    base: Option<i64>,
    divisor: i64,
    plan: &Plan,
    residuals: &mut [i64],
    dst: &mut Vec<u8>,
) {
    for residual in &mut *residuals {
        *residual = residual.wrapping_sub(plan.base);
    }
    let extended = divisor != 1 || plan.n_patches > 0;
    let width = plan.width;
    let mut head = if width == bitpack::WIDTH_FULL {
        WIDTH_CODE_FULL
    } else {
        width as u8
    };
    head |= if base.is_some() { STEPS } else { 0 };
    head |= if extended { EXTENDED } else { 0 };
    dst.push(head);
    put_i64(dst, first);
    if let Some(base) = base {
        put_i64(dst, base);
    }
    if extended {
        put_u64(dst, divisor.cast_unsigned());
        put_u64(dst, plan.n_patches as u64);
        encode_patches(residuals, width, dst);
    }
    bitpack::pack(residuals, width, dst);
}

fn encode_patches(residuals: &[i64], width: u32, dst: &mut Vec<u8>) {
    if width == bitpack::WIDTH_FULL {
        return;
    }
    let mut gap = 0;
    for residual in residuals {
        let above = residual >> width;
        if above == 0 {
            gap += 1;
        } else {
            put_patch(gap, patch_code(above), dst);
            gap = 0;
        }
    }
}

/// Maps 1, -1, 2, -2 to 0, 1, 2, 3: a patch is never zero.
fn patch_code(above: i64) -> u64 {
    zigzag(if above > 0 { above - 1 } else { above })
}

fn patch_of_code(code: u64) -> i64 {
    let above = unzigzag(code);
    above.wrapping_add(i64::from(above >= 0))
}

/// Appends a byte with gap and code, and their excess.
fn put_patch(gap: u64, code: u64, dst: &mut Vec<u8>) {
    let gap_nibble = gap.min(NIBBLE_MAX);
    let code_nibble = code.min(NIBBLE_MAX);
    dst.push((gap_nibble << 4 | code_nibble) as u8);
    if gap_nibble == NIBBLE_MAX {
        put_u64(dst, gap - NIBBLE_MAX);
    }
    if code_nibble == NIBBLE_MAX {
        put_u64(dst, code - NIBBLE_MAX);
    }
}

/// Decodes gap and code of a patch from the front of `src`.
fn take_patch(src: &mut &[u8]) -> Option<(u64, u64)> {
    let (&byte, rest) = src.split_first()?;
    *src = rest;
    let mut gap = u64::from(byte >> 4);
    let mut code = u64::from(byte) & NIBBLE_MAX;
    if gap == NIBBLE_MAX {
        gap = gap.checked_add(take_u64(src)?)?;
    }
    if code == NIBBLE_MAX {
        code = code.checked_add(take_u64(src)?)?;
    }
    Some((gap, code))
}

/// Decodes a column of `dst.len()` integers from the front of `src`. Returns `None` if it is
/// damaged. The contents of `dst` are unspecified then.
pub fn decode_integers(src: &mut &[u8], dst: &mut [i64]) -> Option<()> {
    if dst.is_empty() {
        return Some(());
    }
    let (&head, rest) = src.split_first()?;
    *src = rest;
    let width = match u32::from(head & WIDTH_MASK) {
        width @ 0..=bitpack::WIDTH_MAX => width,
        width if width == u32::from(WIDTH_CODE_FULL) => bitpack::WIDTH_FULL,
        _ => return None,
    };
    let first = take_i64(src)?;
    let base = if head & STEPS != 0 {
        Some(take_i64(src)?)
    } else {
        None
    };
    let mut divisor = 1;
    let mut patches = *src;
    let mut n_patches = 0;
    if head & EXTENDED != 0 {
        divisor = take_u64(src).filter(|&divisor| divisor != 0)?.cast_signed();
        n_patches = take_u64(src).filter(|&n| n <= dst.len() as u64)?;
        patches = *src;
        skip_patches(src, n_patches)?;
    }
    let residuals = if base.is_some() {
        &mut dst[1..]
    } else {
        &mut *dst
    };
    let packed = *src;
    take_bytes(src, bitpack::packed_size(residuals.len(), width)?)?;
    bitpack::unpack(packed, width, residuals);
    if n_patches > 0 {
        apply_patches(&mut patches, n_patches, width, residuals)?;
    }
    match base {
        None => add_base(dst, first, divisor),
        Some(base) => add_steps(dst, first, base.wrapping_mul(divisor), divisor),
    }
    Some(())
}

/// Skips patches, which are stored before the packed bits but applied after them.
fn skip_patches(src: &mut &[u8], n_patches: u64) -> Option<()> {
    for _ in 0..n_patches {
        take_patch(src)?;
    }
    Some(())
}

fn apply_patches(src: &mut &[u8], n_patches: u64, width: u32, residuals: &mut [i64]) -> Option<()> {
    let mut unpatched = residuals;
    for _ in 0..n_patches {
        let (gap, code) = take_patch(src)?;
        let (patched, rest) = unpatched
            .get_mut(usize::try_from(gap).ok()?..)?
            .split_first_mut()?;
        *patched |= patch_of_code(code).checked_shl(width)?;
        unpatched = rest;
    }
    Some(())
}

fn add_base(residuals: &mut [i64], base: i64, divisor: i64) {
    // Fast path: additions compile to vector instructions, multiplications of 64 bits do not.
    if divisor == 1 {
        for residual in residuals {
            *residual = residual.wrapping_add(base);
        }
    } else {
        for residual in residuals {
            *residual = residual.wrapping_mul(divisor).wrapping_add(base);
        }
    }
}

/// Replaces the residuals from the second element on with integers, and the first element with the
/// first integer.
fn add_steps(residuals: &mut [i64], first: i64, step: i64, divisor: i64) {
    let Some((head, rest)) = residuals.split_first_mut() else {
        return;
    };
    *head = first;
    // Fast path: as in `add_base`.
    if divisor == 1 {
        sum_up(rest, first, |residual| residual.wrapping_add(step));
    } else {
        sum_up(rest, first, |residual| {
            residual.wrapping_mul(divisor).wrapping_add(step)
        });
    }
}

/// Replaces each residual with the running sum of the steps, which starts with `sum`.
#[inline(always)]
fn sum_up(residuals: &mut [i64], mut sum: i64, step: impl Fn(i64) -> i64) {
    // Sums within groups of four are independent: the longest chain has a quarter of the additions.
    let (groups, rest) = residuals.as_chunks_mut::<4>();
    for group in groups {
        let [a, b, c, d] = group.map(&step);
        let ab = a.wrapping_add(b);
        let cd = c.wrapping_add(d);
        let abc = ab.wrapping_add(c);
        *group = [a, ab, abc, ab.wrapping_add(cd)].map(|steps| sum.wrapping_add(steps));
        sum = group[3];
    }
    for residual in rest {
        sum = sum.wrapping_add(step(*residual));
        *residual = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes, decodes with other bytes after the column, and returns the size.
    fn check(integers: &[i64]) -> usize {
        let mut bytes = Vec::new();
        IntegerEncoder::default().encode(integers, &mut bytes);
        let size = bytes.len();
        bytes.extend([0xff; 9]);
        let mut src = &bytes[..];
        let mut decoded = vec![7; integers.len()];
        assert_eq!(
            decode_integers(&mut src, &mut decoded),
            Some(()),
            "{integers:?} as {bytes:?}"
        );
        assert_eq!((&decoded[..], src.len()), (integers, 9), "as {bytes:?}");
        size
    }

    #[test]
    fn the_ends_of_the_range_round_trip() {
        let ends = [i64::MIN, i64::MAX, 0, -1, 1, i64::MIN + 1];
        (0..=ends.len()).for_each(|n| _ = check(&ends[..n]));
        check(&[0, i64::MIN, 0, i64::MIN]);
        check(&[&[0; 200][..], &ends].concat());
    }

    #[test]
    fn patches_have_gaps_and_heights_of_any_size() {
        for gap in [0, 1, 14, 15, 16, 17, 200] {
            for above in [1, 7, 8, 9, -1, -7, -8, -9, 1 << 40, i64::MAX, i64::MIN] {
                let column: Vec<_> = (0..900)
                    .map(|i| if i % (gap + 1) == gap { above } else { 0 })
                    .collect();
                check(&column);
            }
        }
        for code in [0, 1, 14, 15, 16, u64::MAX] {
            assert_eq!(patch_code(patch_of_code(code)), code);
        }
    }

    #[test]
    fn a_common_divisor_is_found_and_stored_once() {
        assert!(
            check(
                &(0..100)
                    .map(|i| 5 + 60_000 * (i * i % 16))
                    .collect::<Vec<_>>()
            ) < 60
        );
        assert!(
            check(
                &(0..100)
                    .map(|i| 5 - 4_096 * (i * i % 16))
                    .collect::<Vec<_>>()
            ) < 60
        );
    }

    #[test]
    fn damaged_columns_are_rejected() {
        let check_rejected = |bytes: &[u8]| {
            assert_eq!(
                decode_integers(&mut &bytes[..], &mut [0; 4]),
                None,
                "{bytes:?}"
            )
        };
        check_rejected(&[57, 0, 0, 0]); // a width between 56 and 64
        check_rejected(&[0x80, 0, 0, 0]); // divisor zero
        check_rejected(&[0x80, 0, 1, 5, 0, 0, 0, 0, 0]); // more patches than integers
        check_rejected(&[0x80, 0, 1, 1, 0x40]); // a patch after the end
        check_rejected(&[&[0xbf, 0, 1, 1, 0][..], &[0; 32]].concat()); // a patch above 64 bits
    }

    proptest! {
        #[test]
        fn any_integers_round_trip(
            integers in proptest::collection::vec((any::<i64>(), 0..64_u32), 0..300), shared in 0..64_u32, unit in 1..100_000_i64,
        ) {
            let alike: Vec<_> = integers.iter().map(|(integer, _)| (integer >> shared).wrapping_mul(unit)).collect();
            let strewn: Vec<_> = integers.iter().map(|&(integer, shift)| integer >> shift).collect();
            check(&alike);
            check(&strewn);
        }
    }
}
