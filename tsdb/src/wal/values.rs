//! The values of a samples record: neighbouring series of one moment, each value for itself.
//!
//! A value is a symbol in a prefix code and a few plain bits. What there is to say about a value is mostly how large it
//! is, so that is what the symbols say; decimals become exact integers first.
//!
//! ```text
//! symbol    value                                                      plain bits behind it
//! 0         that of the sample before (0 before the first)
//! 1         0
//! 1 + L     an integer of L bits, 1 to 54                              L - 1: all but its highest
//! 55 + L    the last integer plus one of L bits, 1 to 40               L - 1
//! 95 + E    an integer of L bits divided by 10^E, E from 1 to 15       6: L - 1; then L - 1
//! 111       a negative integer divided by 10^E, E from 0 to 15         4: E; 6: L - 1; then L - 1
//! 112       any other double                                           64
//! ```
//! Integers are at most 2^53 in magnitude; "the last integer" is that of the last sample whose value was written as one
//! with E = 0 (0 before the first). Cumulative histogram buckets are what 0 and 55 + L are for.
//!
//! Two tables of code lengths are part of the format: one learnt from busy counters, one from idle exporters. A record
//! uses the one that suits it better. Tables made for each record would save 1 to 2 % and cost more than that for the
//! 31 samples that a request leaves in each of 64 shards.

use super::bits::{BitReader, BitWriter};
use crate::sample::Sample;

const SAME: u8 = 0;
const ZERO: u8 = 1;
const INTEGER: u8 = 1;
const INCREASE: u8 = 55;
const DECIMAL: u8 = 95;
const NEGATIVE: u8 = 111;
const RAW: u8 = 112;
const N_SYMBOLS: usize = 113;

const INTEGER_BITS_MAX: u32 = 54;
const INCREASE_BITS_MAX: u32 = 40;
const EXPONENT_MAX: usize = 15;
/// Integers up to this magnitude are doubles without loss.
const INTEGER_MAX: i64 = 1 << 53;
/// Exact as doubles up to 10^22.
const POWERS: [f64; EXPONENT_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Which table of code lengths a record uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// Learnt from counters of up to 30 bits and gauges.
    Busy,
    /// Learnt from the pages of idle exporters.
    Quiet,
}

/// A value, taken apart. The plain bits never fill all 64 but for [`RAW`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    symbol: u8,
    n_bits: u8,
    bits: u64,
}

/// Takes values apart into `tokens`, which is emptied first, and returns the table that suits them.
pub(super) fn tokenize(samples: &[Sample], tokens: &mut Vec<Token>) -> Table {
    tokens.clear();
    let (mut before, mut last_integer) = (0_f64.to_bits(), 0);
    let mut sizes = [0_u64; 2];
    for sample in samples {
        let bits = sample.value.to_bits();
        let token = if bits == before {
            Token { symbol: SAME, n_bits: 0, bits: 0 }
        } else {
            token_of(sample.value, &mut last_integer)
        };
        before = bits;
        for (size, lengths) in sizes.iter_mut().zip(&LENGTHS) {
            *size += u64::from(lengths[usize::from(token.symbol)]);
        }
        tokens.push(token);
    }
    if sizes[0] <= sizes[1] { Table::Busy } else { Table::Quiet }
}

#[inline]
fn token_of(value: f64, last_integer: &mut i64) -> Token {
    // A double outside the range of i64 saturates and does not come back equal, or is above the bound.
    let integer = value as i64;
    if (integer as f64).to_bits() == value.to_bits() && integer.unsigned_abs() <= INTEGER_MAX as u64 {
        let last = std::mem::replace(last_integer, integer);
        return integer_token(integer, last);
    }
    match decimal(value) {
        Some((mantissa, exponent)) if value > 0.0 => {
            let (n_bits, rest) = below_top(mantissa);
            let bits = u64::from(n_bits) | rest << 6;
            Token { symbol: DECIMAL + exponent as u8, n_bits: n_bits + 6, bits }
        }
        Some((mantissa, exponent)) => negative_token(mantissa, exponent),
        None => Token { symbol: RAW, n_bits: 64, bits: value.to_bits() },
    }
}

#[inline]
fn integer_token(integer: i64, last: i64) -> Token {
    if integer == 0 {
        return Token { symbol: ZERO, n_bits: 0, bits: 0 };
    }
    if integer < 0 {
        return negative_token(integer.unsigned_abs(), 0);
    }
    let (n_bits, bits) = below_top(integer.unsigned_abs());
    if integer > last {
        let (n_increase_bits, increase) = below_top(integer.abs_diff(last));
        // Two bits less pay for the rarer symbol.
        if n_increase_bits + 1 < n_bits && u32::from(n_increase_bits) < INCREASE_BITS_MAX {
            return Token { symbol: INCREASE + 1 + n_increase_bits, n_bits: n_increase_bits, bits: increase };
        }
    }
    Token { symbol: INTEGER + 1 + n_bits, n_bits, bits }
}

fn negative_token(magnitude: u64, exponent: usize) -> Token {
    let (n_bits, rest) = below_top(magnitude);
    Token { symbol: NEGATIVE, n_bits: n_bits + 10, bits: exponent as u64 | u64::from(n_bits) << 4 | rest << 10 }
}

/// Returns how many bits stand below the highest one that is set, and them.
#[inline]
fn below_top(integer: u64) -> (u8, u64) {
    let n_bits = 63 - integer.leading_zeros();
    (n_bits as u8, integer & !(1 << n_bits))
}

/// Returns `m` and `e` with `|value| == m / 10^e` to the last bit, `e` from 1 and the least; `None` if there are none.
fn decimal(value: f64) -> Option<(u64, usize)> {
    let magnitude = value.abs();
    for (exponent, power) in POWERS.iter().enumerate().skip(1) {
        let scaled = magnitude * power;
        // A NaN or an infinity ends here as well.
        if scaled.is_nan() || scaled >= INTEGER_MAX as f64 {
            return None;
        }
        let mantissa = (scaled + 0.5) as u64;
        // The product is off by two roundings at most: most candidates need no division.
        let near = (scaled - mantissa as f64).abs() <= scaled * (2.0 * f64::EPSILON);
        if near && mantissa > 0 && (mantissa as f64 / power).to_bits() == magnitude.to_bits() {
            return Some((mantissa, exponent));
        }
    }
    None
}

/// Appends what [`tokenize`] took apart.
pub(super) fn encode_values(writer: &mut BitWriter<'_>, table: Table, tokens: &[Token]) {
    let codes = &CODES[table as usize];
    let lengths = &LENGTHS[table as usize];
    for token in tokens {
        let symbol = usize::from(token.symbol);
        let (code, length) = (u64::from(codes[symbol]), u32::from(lengths[symbol]));
        let n_bits = u32::from(token.n_bits);
        if length + n_bits <= 64 {
            writer.put(code | token.bits << length, length + n_bits);
        } else {
            writer.put(code, length);
            writer.put(token.bits, n_bits);
        }
    }
}

#[expect(clippy::match_overlapping_arm, reason = "each arm begins where the one before it ends")]
/// Decodes the values of `samples` in place; `None` if the bits are none of [`encode_values`].
pub(super) fn decode_values(reader: &mut BitReader<'_>, table: Table, samples: &mut [Sample]) -> Option<()> {
    let symbols = &SYMBOLS[table as usize];
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

/// Takes the bits below the highest one of an integer.
#[inline]
fn take_below(reader: &mut BitReader<'_>, n_bits: u32) -> u64 {
    1 << n_bits | reader.take(n_bits)
}

#[inline]
fn take_integer(reader: &mut BitReader<'_>) -> Option<u64> {
    let n_bits = reader.take(6) as u32;
    (n_bits < INTEGER_BITS_MAX).then(|| take_below(reader, n_bits))
}

/// The longest code, in bits.
const LENGTH_MAX: usize = 11;
const N_CODES: usize = 1 << LENGTH_MAX;

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

/// Codes by table and symbol, first bit lowest: canonical, ascending with length and then with the symbol.
const CODES: [[u16; N_SYMBOLS]; 2] = [codes(&LENGTHS[0]), codes(&LENGTHS[1])];

/// What the next [`LENGTH_MAX`] bits begin with, by table: the symbol and the length of its code.
static SYMBOLS: [[(u8, u8); N_CODES]; 2] = [symbols(&LENGTHS[0]), symbols(&LENGTHS[1])];

const fn codes(lengths: &[u8; N_SYMBOLS]) -> [u16; N_SYMBOLS] {
    let mut codes = [0; N_SYMBOLS];
    let (mut next, mut length) = (0_u16, 1);
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < N_SYMBOLS {
            if lengths[symbol] as usize == length {
                codes[symbol] = next.reverse_bits() >> (16 - length);
                next += 1;
            }
            symbol += 1;
        }
        assert!(length < LENGTH_MAX || next as usize == N_CODES, "the code is complete");
        next <<= 1;
        length += 1;
    }
    codes
}

const fn symbols(lengths: &[u8; N_SYMBOLS]) -> [(u8, u8); N_CODES] {
    let codes = codes(lengths);
    let mut symbols = [(0, 0); N_CODES];
    let mut symbol = 0;
    while symbol < N_SYMBOLS {
        let mut bits = codes[symbol] as usize;
        while bits < N_CODES {
            symbols[bits] = (symbol as u8, lengths[symbol]);
            bits += 1 << lengths[symbol];
        }
        symbol += 1;
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(value: f64) -> Sample {
        Sample { timestamp_ms: 0, value }
    }

    /// Encodes with both tables, asserts that all bits come back, and returns the size in bits with the chosen one.
    fn check(values: &[f64]) -> usize {
        let samples: Vec<_> = values.iter().map(|&value| sample(value)).collect();
        let mut tokens = Vec::new();
        let chosen = tokenize(&samples, &mut tokens);
        let mut size = 0;
        for table in [Table::Busy, Table::Quiet] {
            let mut bytes = Vec::new();
            let mut writer = BitWriter::new(&mut bytes);
            encode_values(&mut writer, table, &tokens);
            writer.finish();
            let mut back = vec![sample(0.0); values.len()];
            let mut reader = BitReader::new(&bytes);
            decode_values(&mut reader, table, &mut back).unwrap();
            reader.finish().unwrap();
            for (value, back) in values.iter().zip(&back) {
                assert_eq!(value.to_bits(), back.value.to_bits(), "{value}");
            }
            if table == chosen {
                size = bytes.len();
            }
        }
        size
    }

    #[test]
    fn every_kind_of_value_comes_back_bit_for_bit() {
        let special = [0.0, -0.0, 1.0, -1.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN, f64::MAX];
        check(&special);
        check(&[f64::MIN_POSITIVE, f64::from_bits(1), f64::from_bits(crate::STALE_NAN_BITS), f64::from_bits(u64::MAX)]);
        let edge = INTEGER_MAX as f64;
        check(&[edge, -edge, edge - 1.0, edge + 2.0, -edge - 2.0, edge, i64::MAX as f64, i64::MIN as f64, 1.0, edge]);
        check(&[0.1, -0.1, 0.3, 1e-15, 1e15, 1e-16, 1.5e-300, 123_456_789.123_4, 0.1 + 0.2, 1e22, -3.0, 5.0]);
        for bits in 0..64 {
            check(&[(1_u64 << bits) as f64, ((1_u64 << bits) - 1) as f64, -((1_u64 << bits) as f64), 0.5]);
        }
        check(&[]);
    }

    #[test]
    fn what_is_common_is_small() {
        assert_eq!(check(&[0.0; 800]), 100);
        assert!(check(&[7.25; 800]) <= 104);
        let buckets: Vec<f64> = (0..800).map(|i| 1_000_000.0 + f64::from(i / 3)).collect();
        assert!(check(&buckets) <= 400);
    }

    proptest! {
        #[test]
        fn any_doubles_come_back(bits in proptest::collection::vec(any::<u64>(), 0..50)) {
            check(&bits.into_iter().map(f64::from_bits).collect::<Vec<_>>());
        }

        #[test]
        fn decimals_come_back(
            numbers in proptest::collection::vec((any::<i64>(), 0..64_u32, 0..18_i32), 0..50),
        ) {
            check(&numbers.iter().map(|&(m, shift, e)| (m >> shift) as f64 / 10_f64.powi(e)).collect::<Vec<_>>());
        }

        #[test]
        fn any_bits_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), n in 0..200_usize) {
            for table in [Table::Busy, Table::Quiet] {
                let _ = decode_values(&mut BitReader::new(&bytes), table, &mut vec![sample(0.0); n]);
            }
        }
    }
}
