//! Version 2 of the log, as far as reading it goes: its samples record. The rest is as in version 3.
//!
//! ```text
//! varint   n, the number of samples, from 1 to 65,536
//! byte     bits 0-4: K of the refs; bit 5: 1 if all timestamps are equal; bit 6: the table of the values; bit 7: 0
//! varint   first ref
//! zigzag   first timestamp
//!          unless all are equal: the steps to the following timestamps as runs ([`super::times`])
//! bits     n - 1 refs, each its distance to the one before ([`super::refs`]), then n values
//!
//! symbol    value                                                      plain bits behind it
//! 0         that of the sample before (0 before the first)
//! 1         0
//! 1 + L     an integer of L bits, 1 to 54                              L - 1: all but its highest
//! 55 + L    the last integer plus one of L bits, 1 to 40               L - 1
//! 95 + E    an integer of L bits divided by 10^E, E from 1 to 15       6: L - 1; then L - 1
//! 111       a negative integer divided by 10^E, E from 0 to 15         4: E; 6: L - 1; then L - 1
//! 112       any other double                                           64
//! ```

use super::bits::BitReader;
use super::prefix;
use super::record::SampleColumn;
use super::refs::decode_distance;
use super::samples::RECORD_SAMPLES_MAX;
use super::times::decode_steps;
use super::values::{INTEGER_BITS_MAX, INTEGER_MAX, POWERS, take_below};
use crate::head::SeriesRef;
use crate::sample::Sample;
use crate::varint::{take_bytes, take_i64, take_u64};

const K_MASK: u8 = 0x1f;
const TIMESTAMPS_EQUAL: u8 = 0x20;
const VALUES_QUIET: u8 = 0x40;
const ZERO_BIT: u8 = 0x80;

const SAME: u8 = 0;
const ZERO: u8 = 1;
const INTEGER: u8 = 1;
const INCREASE: u8 = 55;
const DECIMAL: u8 = 95;
const NEGATIVE: u8 = 111;
const N_SYMBOLS: usize = 113;

/// Decodes samples into `out`, which is emptied first; `None` if the record is damaged.
pub(super) fn decode_samples(mut src: &[u8], out: &mut SampleColumn) -> Option<()> {
    let src = &mut src;
    out.clear();
    let n_samples = usize::try_from(take_u64(src)?).ok().filter(|n| (1..=RECORD_SAMPLES_MAX).contains(n))?;
    let flags = take_bytes(src, 1)?[0];
    if flags & ZERO_BIT != 0 {
        return None;
    }
    let mut series = take_u64(src)?;
    let first = Sample { timestamp_ms: take_i64(src)?, value: 0.0 };
    if flags & TIMESTAMPS_EQUAL != 0 {
        out.samples.resize(n_samples, first);
    } else {
        out.samples.push(first);
        decode_steps(src, n_samples, &mut out.samples)?;
    }
    let mut reader = BitReader::new(src);
    out.refs.push(SeriesRef(series));
    for _ in 1..n_samples {
        series = series.wrapping_add(decode_distance(&mut reader, u32::from(flags & K_MASK)));
        out.refs.push(SeriesRef(series));
    }
    decode_values(&mut reader, usize::from(flags & VALUES_QUIET != 0), &mut out.samples)?;
    reader.finish()
}

#[expect(clippy::match_overlapping_arm, reason = "each arm begins where the one before it ends")]
fn decode_values(reader: &mut BitReader<'_>, table: usize, samples: &mut [Sample]) -> Option<()> {
    let symbols = &SYMBOLS[table];
    let (mut before, mut last_integer) = (0.0, 0_i64);
    for sample in samples {
        let (symbol, length) = symbols[reader.peek() as usize % N_CODES];
        reader.skip(u32::from(length));
        before = match symbol {
            SAME => before,
            ZERO => {
                last_integer = 0;
                0.0
            }
            ..=INCREASE => {
                last_integer = take_below(reader, u32::from(symbol - INTEGER - 1)) as i64;
                last_integer as f64
            }
            ..=DECIMAL => {
                last_integer += take_below(reader, u32::from(symbol - INCREASE - 1)) as i64;
                if last_integer > INTEGER_MAX {
                    return None;
                }
                last_integer as f64
            }
            ..NEGATIVE => take_integer(reader)? as f64 / POWERS[usize::from(symbol - DECIMAL)],
            NEGATIVE => {
                let exponent = reader.take(4) as usize;
                let magnitude = take_integer(reader)?;
                if exponent == 0 {
                    last_integer = -(magnitude as i64);
                }
                -(magnitude as f64) / POWERS[exponent]
            }
            _ => f64::from_bits(reader.take_64()),
        };
        sample.value = before;
    }
    Some(())
}

#[inline]
fn take_integer(reader: &mut BitReader<'_>) -> Option<u64> {
    let n_bits = reader.take(6) as u32;
    (n_bits < INTEGER_BITS_MAX).then(|| take_below(reader, n_bits))
}

/// The longest code has 11 bits.
const N_CODES: usize = 1 << 11;

/// What the next bits begin with, by table.
static SYMBOLS: [[(u8, u8); N_CODES]; 2] = [prefix::symbols(&LENGTHS[0]), prefix::symbols(&LENGTHS[1])];

/// Lengths of the codes by table and symbol, in bits. Each table is a complete prefix code.
const LENGTHS: [[u8; N_SYMBOLS]; 2] = [
    [
        5, 3, // as before, zero
        3, 7, 7, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 5, 5, 4, 5, 8, 7, 6, 11, 11,
        11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, // integers
        11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9, 8, 8,
        11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, // increases
        4, 4, 4, 11, 11, 11, 11, 11, 11, 11, 11, 8, 5, 9, 11, // decimals
        11, 6, // negative, raw
    ],
    [
        1, 4, // as before, zero
        4, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8, 7, 8, 7, 7, 8, 7, 8, 8, 8, 8, 8, 6, 7, 8, 8, 9, 10, 8, 6, 9, 10, 11, 10,
        11, 10, 9, 11, 10, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, // integers
        7, 8, 8, 8, 9, 8, 8, 10, 10, 10, 10, 10, 10, 10, 10, 11, 10, 10, 10, 11, 11, 10, 10, 11, 11, 11, 11, 11, 11,
        11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, // increases
        9, 7, 9, 10, 8, 5, 11, 9, 5, 11, 11, 11, 11, 11, 11, // decimals
        10, 7, // negative, raw
    ],
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_samples(&bytes, &mut SampleColumn::default());
        }
    }
}
