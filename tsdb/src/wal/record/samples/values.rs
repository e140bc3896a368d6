//! The values of a samples record: one value for each of many series, in request order.
//!
//! Neighboring values belong to different series, so each value is encoded independently: a prefix
//! code for a symbol (the kind of the value), a prefix code for the number of bits, then the bits.
//! Decimals are converted to exact integers first. Neighboring values are often of the same kind,
//! so the code of a symbol depends on the previous symbol.
//!
//! ```text
//! symbol  value                                                    followed by
//! 0       the value of the previous sample (0 before the first)
//! 1       0
//! 2       the value of the sample D positions before, in this record    D
//! 3       the last integer plus D                                  D
//! 4       an integer                                               itself
//! 5, 6    an integer times 4096, times 1000                        the integer
//! 6 + E   an integer divided by 10^E, E from 1 to 15               the integer
//! 22      minus an integer divided by 10^E, E from 0 to 15         the integer, then E in 4 bits
//! 23      any other double                                         its 64 bits
//! ```
//! An integer after symbols 2 to 22 is from 1 to 2^54 - 1: its number of bits, in the code for its
//! kind, then all bits except the highest. "The last integer" is the integer of the last value with
//! symbol 1, with symbols 3 to 6, or with symbol 22 and E = 0 (0 before the first). Symbols 0 and 3
//! are for cumulative histogram buckets.
//!
//! The code lengths are part of the format. They were trained on the synthetic fleet of the
//! benchmarks and on scrapes of real exporters. Codes per record would save less than they cost for
//! the few hundred samples of a record.

use varve_codec::bits::{BitReader, BitWriter, TAKE_MAX};
use varve_codec::prefix_code;
use varve_model::Sample;

const SAME: u8 = 0;
const ZERO: u8 = 1;
const REPETITION: u8 = 2;
const INCREASE: u8 = 3;
const INTEGER: u8 = 4;
const PAGES: u8 = 5;
const THOUSANDS: u8 = 6;
/// Symbol 6 + E of a decimal less E. E = 0 does not occur.
const DECIMAL: u8 = 6;
const NEGATIVE: u8 = 22;
const RAW: u8 = 23;
const N_SYMBOLS: usize = 24;

/// Maximum number of bits of an encoded integer.
const INTEGER_BITS_MAX: u32 = 54;
const EXPONENT_MAX: usize = 15;
/// Integers up to this magnitude are exact as doubles.
const INTEGER_MAX: i64 = 1 << 53;
const PAGE: i64 = 4096;
const THOUSAND: i64 = 1000;
/// Powers of ten; exact as doubles up to 10^22.
const POWERS: [f64; EXPONENT_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Context of each symbol. It selects the code of the next symbol.
const CONTEXTS: [u8; N_SYMBOLS] = [
    0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9, 10, 11,
];
const N_CONTEXTS: usize = 12;
/// Number of codes for the number of bits, by context less [`REPETITION`]. The last context, of
/// [`RAW`], has no code.
const N_SIZES: usize = 9;

/// Last positions of values, by a hash of their bits. Reused for all records.
#[derive(Debug)]
pub(super) struct Seen {
    /// Position in the record plus one, from this record or an earlier one.
    positions: Box<[u32; N_POSITIONS]>,
}

const SEEN_BITS: u32 = 10;
const N_POSITIONS: usize = 1 << SEEN_BITS;

impl Default for Seen {
    fn default() -> Self {
        Self {
            positions: Box::new([0; N_POSITIONS]),
        }
    }
}

impl Seen {
    /// Returns the distance to the previous sample with the same value, if known, and records this
    /// one.
    #[inline]
    fn find(&mut self, samples: &[Sample], position: usize) -> Option<u64> {
        let bits = samples[position].value.to_bits();
        let hash = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SEEN_BITS);
        // Records have at most 65,536 samples.
        let seen =
            std::mem::replace(&mut self.positions[hash as usize], position as u32 + 1) as usize;
        let before = seen
            .checked_sub(1)
            .filter(|&before| samples[before].value.to_bits() == bits)?;
        Some((position - before) as u64)
    }
}

/// A value as symbol and integer.
#[derive(Debug, Clone, Copy)]
struct Token {
    symbol: u8,
    /// From 1 to 2^54 - 1 for symbols from [`REPETITION`] to [`NEGATIVE`]; the bits of the double
    /// for [`RAW`].
    integer: u64,
    /// E for [`NEGATIVE`].
    exponent: u8,
}

impl Token {
    fn new(symbol: u8, integer: u64) -> Self {
        Self {
            symbol,
            integer,
            exponent: 0,
        }
    }

    /// Returns the encoded size in bits after a symbol with `context`.
    #[inline]
    fn size(self, context: u8) -> u32 {
        let code = u32::from(SYMBOL_LENGTHS[usize::from(context)][usize::from(self.symbol)]);
        match self.symbol {
            SAME | ZERO => code,
            RAW => code + 64,
            symbol => {
                let n_bits = n_bits(self.integer);
                code + u32::from(BIT_LENGTHS[size_code(symbol)][n_bits as usize - 1]) + n_bits - 1
            }
        }
    }
}

/// Appends the values of at most 65,536 samples.
pub(super) fn encode_values(writer: &mut BitWriter<'_>, samples: &[Sample], seen: &mut Seen) {
    seen.positions.fill(0);
    let mut before = 0_u64;
    let mut last_integer = 0;
    let mut context = CONTEXTS[usize::from(SAME)];
    for (position, sample) in samples.iter().enumerate() {
        let bits = sample.value.to_bits();
        let token = if bits == before {
            Token::new(SAME, 0)
        } else {
            before = bits;
            let mut integer = last_integer;
            let token = token_of(sample.value, &mut integer);
            let size = token.size(context);
            // Fast path: a repetition would not be smaller.
            let repeated = if size < REPETITION_SIZE_MIN {
                None
            } else {
                seen.find(samples, position)
            };
            match repeated.map(|distance| Token::new(REPETITION, distance)) {
                Some(repetition) if repetition.size(context) < size => repetition,
                _ => {
                    last_integer = integer;
                    token
                }
            }
        };
        put(writer, context, token);
        context = CONTEXTS[usize::from(token.symbol)];
    }
}

/// A repetition takes more bits than this.
const REPETITION_SIZE_MIN: u32 = 8;

#[inline]
fn token_of(value: f64, last_integer: &mut i64) -> Token {
    // A double outside the range of i64 saturates: then the conversion back differs, or the integer
    // exceeds the bound.
    let integer = value as i64;
    if (integer as f64).to_bits() == value.to_bits() && integer.unsigned_abs() <= INTEGER_MAX as u64
    {
        let last = std::mem::replace(last_integer, integer);
        return integer_token(integer, last);
    }
    match decimal(value) {
        Some((mantissa, exponent)) if value > 0.0 => Token::new(DECIMAL + exponent as u8, mantissa),
        Some((mantissa, exponent)) => Token {
            symbol: NEGATIVE,
            integer: mantissa,
            exponent: exponent as u8,
        },
        None => Token::new(RAW, value.to_bits()),
    }
}

#[inline]
fn integer_token(integer: i64, last: i64) -> Token {
    let magnitude = integer.unsigned_abs();
    if integer <= 0 {
        return Token::new(if integer == 0 { ZERO } else { NEGATIVE }, magnitude);
    }
    let token = if integer % PAGE == 0 {
        Token::new(PAGES, (integer / PAGE) as u64)
    } else if integer % THOUSAND == 0 {
        Token::new(THOUSANDS, (integer / THOUSAND) as u64)
    } else {
        Token::new(INTEGER, magnitude)
    };
    let increase = integer.saturating_sub(last);
    // The rarer symbol pays off if it saves two bits.
    if increase > 0 && n_bits(increase as u64) + 1 < n_bits(token.integer) {
        return Token::new(INCREASE, increase as u64);
    }
    token
}

/// Returns `m` and the smallest `e >= 1` with `|value| == m / 10^e` exactly, or `None` if there are
/// none.
fn decimal(value: f64) -> Option<(u64, usize)> {
    let magnitude = value.abs();
    for (exponent, power) in POWERS.iter().enumerate().skip(1) {
        let scaled = magnitude * power;
        // Also for NaN and infinities.
        if scaled.is_nan() || scaled >= INTEGER_MAX as f64 {
            return None;
        }
        let mantissa = (scaled + 0.5) as u64;
        // The product has at most two rounding errors, so most candidates need no division.
        let near = (scaled - mantissa as f64).abs() <= scaled * (2.0 * f64::EPSILON);
        if near && mantissa > 0 && (mantissa as f64 / power).to_bits() == magnitude.to_bits() {
            return Some((mantissa, exponent));
        }
    }
    None
}

#[inline]
fn put(writer: &mut BitWriter<'_>, context: u8, token: Token) {
    let context = usize::from(context);
    let symbol = usize::from(token.symbol);
    let code = SYMBOL_CODES[context][symbol];
    let length = SYMBOL_LENGTHS[context][symbol];
    writer.put(u64::from(code), u32::from(length));
    match token.symbol {
        SAME | ZERO => {}
        RAW => writer.put(token.integer, 64),
        _ => {
            let sizes = size_code(token.symbol);
            let n_below = n_bits(token.integer) - 1;
            let code = BIT_CODES[sizes][n_below as usize];
            let length = u32::from(BIT_LENGTHS[sizes][n_below as usize]);
            let below = token.integer & !(1 << n_below);
            // At most 9 and 53 bits.
            writer.put(u64::from(code) | below << length, length + n_below);
            if token.symbol == NEGATIVE {
                writer.put(token.exponent.into(), 4);
            }
        }
    }
}

/// Decodes the values into `samples`. Returns `None` if [`encode_values`] cannot have written the
/// bits.
pub(super) fn decode_values(reader: &mut BitReader<'_>, samples: &mut [Sample]) -> Option<()> {
    let mut before = 0.0;
    let mut last_integer = 0_i64;
    let mut context = CONTEXTS[usize::from(SAME)];
    for position in 0..samples.len() {
        // These bits are enough for both codes and for most integers.
        let word = reader.peek();
        let (symbol, length) = SYMBOLS[usize::from(context)][word as usize % N_SYMBOL_CODES];
        let word = word >> length;
        let length = u32::from(length);
        context = CONTEXTS[usize::from(symbol)];
        before = match symbol {
            SAME => {
                reader.skip(length);
                before
            }
            ZERO => {
                reader.skip(length);
                last_integer = 0;
                0.0
            }
            RAW => {
                reader.skip(length);
                f64::from_bits(reader.take_64())
            }
            _ => {
                let (n_below, size_length) = BITS[size_code(symbol)][word as usize % N_BIT_CODES];
                let n_below = u32::from(n_below);
                let size_length = u32::from(size_length);
                reader.skip(length + size_length);
                let integer = if n_below <= PEEKED_BITS_MAX {
                    reader.skip(n_below);
                    1 << n_below | word >> size_length & ((1 << n_below) - 1)
                } else {
                    take_below(reader, n_below)
                } as i64;
                match symbol {
                    REPETITION => {
                        samples[usize::try_from(integer)
                            .ok()
                            .and_then(|back| position.checked_sub(back))?]
                        .value
                    }
                    INCREASE..=THOUSANDS => {
                        last_integer = match symbol {
                            INCREASE => last_integer + integer,
                            PAGES => integer.checked_mul(PAGE)?,
                            THOUSANDS => integer.checked_mul(THOUSAND)?,
                            _ => integer,
                        };
                        if last_integer > INTEGER_MAX {
                            return None;
                        }
                        last_integer as f64
                    }
                    ..NEGATIVE => integer as f64 / POWERS[usize::from(symbol - DECIMAL)],
                    _ => {
                        let exponent = reader.take(4) as usize;
                        if exponent == 0 {
                            last_integer = -integer;
                        }
                        -(integer as f64) / POWERS[exponent]
                    }
                }
            }
        };
        samples[position].value = before;
    }
    Some(())
}

/// Returns the index of the code for the number of bits after a symbol from [`REPETITION`] to
/// [`NEGATIVE`].
#[inline]
fn size_code(symbol: u8) -> usize {
    usize::from(CONTEXTS[usize::from(symbol)] - REPETITION)
}

#[inline]
fn n_bits(integer: u64) -> u32 {
    u64::BITS - integer.leading_zeros()
}

/// Reads an integer of `n_bits` bits without its highest bit, at most 53 bits.
#[inline]
fn take_below(reader: &mut BitReader<'_>, n_bits: u32) -> u64 {
    1 << n_bits | reader.take(n_bits)
}

const SYMBOL_LENGTH_MAX: usize = 8;
const N_SYMBOL_CODES: usize = 1 << SYMBOL_LENGTH_MAX;
const BIT_LENGTH_MAX: usize = 9;
const N_BIT_CODES: usize = 1 << BIT_LENGTH_MAX;
/// Bits available after the codes of a symbol and of a number of bits.
const PEEKED_BITS_MAX: u32 = TAKE_MAX - (SYMBOL_LENGTH_MAX + BIT_LENGTH_MAX) as u32;

/// Code lengths of symbols in bits, by context. Each row is a complete prefix code.
const SYMBOL_LENGTHS: [[u8; N_SYMBOLS]; N_CONTEXTS] = [
    [
        1, 4, 5, 8, 2, 6, 7, 6, 7, 6, 8, 8, 6, 8, 8, 6, 8, 8, 8, 8, 8, 8, 8, 6,
    ], // same value
    [
        1, 8, 5, 8, 2, 5, 6, 7, 4, 7, 8, 7, 5, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    ], // zero
    [
        3, 3, 3, 7, 2, 3, 6, 7, 3, 6, 8, 8, 7, 8, 7, 6, 8, 8, 8, 8, 8, 8, 8, 7,
    ], // a repetition
    [
        2, 3, 4, 3, 2, 5, 6, 8, 7, 5, 8, 8, 7, 8, 8, 6, 8, 8, 8, 8, 8, 8, 8, 5,
    ], // an increase
    [
        4, 3, 5, 4, 1, 4, 5, 8, 6, 6, 8, 8, 5, 8, 8, 7, 8, 8, 8, 8, 8, 8, 8, 7,
    ], // an integer
    [
        7, 4, 5, 8, 2, 1, 8, 8, 7, 5, 8, 7, 5, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 6,
    ], // pages
    [
        8, 3, 4, 6, 1, 3, 8, 6, 5, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    ], // thousands
    [
        8, 3, 4, 6, 2, 3, 5, 4, 2, 6, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7,
    ], // 1 to 3 positions
    [
        8, 4, 6, 8, 1, 4, 7, 8, 8, 8, 7, 5, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    ], // 4 to 7 positions
    [
        7, 4, 5, 6, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 1, 8, 8, 8, 8, 8, 8, 8, 7,
    ], // 8 to 15 positions
    [
        6, 6, 6, 6, 1, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5,
    ], // negative
    [
        4, 2, 3, 5, 2, 4, 8, 8, 8, 6, 8, 8, 7, 8, 8, 6, 8, 8, 8, 8, 8, 8, 8, 3,
    ], // any other double
];

/// Code lengths of numbers of bits, from 1, by kind of value. Each row is a complete prefix code.
const BIT_LENGTHS: [[u8; INTEGER_BITS_MAX as usize]; N_SIZES] = [
    [
        5, 2, 3, 3, 3, 3, 4, 5, 5, 7, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
        9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, // distances
    ],
    [
        4, 5, 4, 4, 5, 6, 6, 6, 5, 4, 4, 5, 5, 4, 4, 4, 4, 5, 5, 5, 6, 7, 6, 6, 7, 7, 7, 7, 8, 9,
        9, 9, 9, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, // increases
    ],
    [
        3, 4, 5, 5, 5, 4, 5, 5, 5, 6, 5, 6, 6, 6, 6, 6, 6, 6, 5, 6, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6,
        6, 7, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, // integers
    ],
    [
        9, 9, 8, 8, 7, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4, 5, 5, 5, 4, 5, 4, 4, 4, 4, 5, 5, 6, 7, 6, 8,
        9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, // pages
    ],
    [
        3, 6, 8, 5, 5, 6, 5, 5, 4, 3, 3, 6, 9, 9, 9, 8, 9, 9, 9, 8, 8, 9, 8, 5, 8, 9, 9, 9, 9, 7,
        3, 3, 6, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, // thousands
    ],
    [
        7, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 5, 5, 4, 5, 5, 5, 5, 5, 6, 8, 9, 9, 9, 9,
        9, 9, 9, 9, 9, 9, 8, 6, 8, 6, 3, 6, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
        9, // 1 to 3 positions
    ],
    [
        9, 9, 9, 9, 9, 9, 8, 8, 7, 7, 7, 7, 7, 7, 6, 7, 6, 4, 4, 5, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4,
        4, 4, 4, 5, 5, 5, 6, 6, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 8, 9, 9,
        9, // 4 to 7 positions
    ],
    [
        9, 9, 9, 9, 9, 9, 9, 9, 8, 8, 6, 7, 5, 4, 4, 3, 3, 3, 4, 5, 5, 5, 5, 6, 7, 7, 8, 7, 8, 8,
        5, 5, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 8, 6, 5, 5,
        8, // 8 to 15 positions
    ],
    [
        9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 3, 1, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
        9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 8, 8, 8, 7, 5, 6, 5, 4,
        7, // negative ones
    ],
];

const SYMBOL_CODES: [[u16; N_SYMBOLS]; N_CONTEXTS] =
    prefix_code::all_codes(&SYMBOL_LENGTHS, SYMBOL_LENGTH_MAX);
const BIT_CODES: [[u16; INTEGER_BITS_MAX as usize]; N_SIZES] =
    prefix_code::all_codes(&BIT_LENGTHS, BIT_LENGTH_MAX);
/// Decoding tables by context: symbol and length of its code word.
static SYMBOLS: [[(u8, u8); N_SYMBOL_CODES]; N_CONTEXTS] =
    prefix_code::all_symbols(&SYMBOL_LENGTHS);
/// Decoding tables by kind: number of bits less one, and length of its code word.
static BITS: [[(u8, u8); N_BIT_CODES]; N_SIZES] = prefix_code::all_symbols(&BIT_LENGTHS);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(value: f64) -> Sample {
        Sample {
            timestamp_ms: 0,
            value,
        }
    }

    /// Asserts that values round-trip bit for bit. Returns the size in bytes.
    fn check(values: &[f64]) -> usize {
        let samples: Vec<_> = values.iter().map(|&value| sample(value)).collect();
        let mut bytes = Vec::new();
        let mut seen = Seen::default();
        // Positions of an earlier record have no effect.
        seen.positions.fill(1);
        let mut writer = BitWriter::new(&mut bytes);
        encode_values(&mut writer, &samples, &mut seen);
        writer.finish();
        let mut back = vec![sample(0.0); values.len()];
        let mut reader = BitReader::new(&bytes);
        decode_values(&mut reader, &mut back).unwrap();
        reader.finish().unwrap();
        for (value, back) in values.iter().zip(&back) {
            assert_eq!(value.to_bits(), back.value.to_bits(), "{value}");
        }
        bytes.len()
    }

    #[test]
    fn every_kind_of_value_round_trips_bit_for_bit() {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN,
            f64::MAX,
        ];
        check(&special);
        check(&[
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            f64::from_bits(varve_model::staleness::STALE_NAN_BITS),
            f64::from_bits(u64::MAX),
        ]);
        let edge = INTEGER_MAX as f64;
        check(&[
            edge,
            -edge,
            edge - 1.0,
            edge + 2.0,
            -edge - 2.0,
            edge,
            i64::MAX as f64,
            i64::MIN as f64,
            1.0,
            edge,
        ]);
        check(&[
            0.1,
            -0.1,
            0.3,
            1e-15,
            1e15,
            1e-16,
            1.5e-300,
            123_456_789.123_4,
            0.1 + 0.2,
            1e22,
            -3.0,
            5.0,
        ]);
        check(&[
            4096.0,
            1000.0,
            4_096_000.0,
            1e15,
            4096.0 * 1e12,
            4097.0,
            8192.0,
            3000.0,
            1.0,
            4096.0,
        ]);
        for bits in 0..64 {
            check(&[
                (1_u64 << bits) as f64,
                ((1_u64 << bits) - 1) as f64,
                -((1_u64 << bits) as f64),
                0.5,
            ]);
        }
        check(&[]);
    }

    #[test]
    fn common_values_are_small() {
        assert_eq!(check(&[0.0; 800]), 100);
        assert!(check(&[7.25; 800]) <= 104);
        let buckets: Vec<f64> = (0..800).map(|i| 1_000_000.0 + f64::from(i / 3)).collect();
        assert!(check(&buckets) <= 520);
        let two: Vec<f64> = (0..800)
            .map(|i| [0.1 + 0.2, 1_760_001_609.28][i % 2])
            .collect();
        assert!(check(&two) <= 800 + 16, "repetitions");
        let pages: Vec<f64> = (0..800)
            .map(|i| 4096.0 * f64::from(1000 + i % 1000))
            .collect();
        assert!(check(&pages) <= 1610, "twelve bits less each");
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let rejected = |tokens: &[Token]| {
            let mut bytes = Vec::new();
            let mut writer = BitWriter::new(&mut bytes);
            let mut context = 0;
            for &token in tokens {
                put(&mut writer, context, token);
                context = CONTEXTS[usize::from(token.symbol)];
            }
            writer.finish();
            decode_values(
                &mut BitReader::new(&bytes),
                &mut vec![sample(0.0); tokens.len()],
            )
            .is_none()
        };
        let most = (1 << 54) - 1;
        assert!(rejected(&[Token::new(REPETITION, 1)]), "before the first");
        assert!(rejected(&[Token::new(PAGES, most)]) && rejected(&[Token::new(THOUSANDS, most)]));
        assert!(rejected(&[Token::new(INTEGER, most)]) && rejected(&[Token::new(INCREASE, most)]));
        assert!(!rejected(&[
            Token::new(INTEGER, 1 << 53),
            Token::new(REPETITION, 1),
            Token::new(NEGATIVE, most)
        ]));
    }

    proptest! {
        #[test]
        fn any_doubles_round_trip(bits in proptest::collection::vec(any::<u64>(), 0..50), again in 0..50_usize) {
            let mut values: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
            values.extend_from_within(..again.min(values.len()));
            check(&values);
        }

        #[test]
        fn decimals_round_trip(
            numbers in proptest::collection::vec((any::<i64>(), 0..64_u32, 0..18_i32), 0..50),
        ) {
            check(&numbers.iter().map(|&(m, shift, e)| (m >> shift) as f64 / 10_f64.powi(e)).collect::<Vec<_>>());
        }

        #[test]
        fn any_bits_decode_or_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..100), n in 0..200_usize) {
            let _ = decode_values(&mut BitReader::new(&bytes), &mut vec![sample(0.0); n]);
        }
    }
}
