//! Rows: up to 960 values of one series, each row in the form that fits its values.
//!
//! Used by the pages of rows. Format: docs/format/block.md, "Rows".
//!
//! ```text
//! tag      bits 0..3  form: 0 constant decimal, 1 constant double, 2 decimals, 3 decimals and ulps, 4 bits of doubles
//!          bit  3     exceptions are stored separately (forms 2 to 4)
//!          bits 4..8  exponent e of forms 0, 2 and 3; code of the double of form 1 (see `exceptions`); else zero
//! n        varint, if bit 3 is set: number of exceptions, which the columns do not contain
//! columns  form 0: zigzag varint m; form 1: 8 bytes if the code is 0; 2: m; 3: m, then ulps; 4: bits (see `integers`)
//! exceptions  n values with their positions, if bit 3 is set
//! ```
//! A decimal is m / 10^e, rounded once. Ulps are the steps from the decimal to the actual double.
//!
//! Invariants
//! 1. Decoding restores every bit: the encoder verifies each decimal with the function that decodes
//!    it.
//! 2. A row is decoded from its bytes and its number of values, and ends on a byte.
//! 3. For any input, decoding appends either exactly that many values or none.

mod decimal;
mod exceptions;
#[cfg(test)]
mod tests;

use decimal::Exponent;
use exceptions::Exception;

use crate::integers::{IntegerEncoder, decode_integers};
use crate::varint::{put_i64, put_u64, take_i64, take_u64};

/// Maximum number of values in a row.
pub const ROW_SAMPLES_MAX: usize = 960;

const CONSTANT_DECIMAL: u8 = 0;
const CONSTANT_DOUBLE: u8 = 1;
const DECIMALS: u8 = 2;
const DECIMALS_AND_ULPS: u8 = 3;
const BITS: u8 = 4;
const FORM_MASK: u8 = 7;
const HAS_EXCEPTIONS: u8 = 8;
const PARAMETER_SHIFT: u32 = 4;

/// Encodes rows. Reuses its buffers.
#[derive(Debug, Default)]
pub struct ValueEncoder {
    integers: IntegerEncoder,
    /// The values of the row that are in the columns.
    regular: Vec<f64>,
    exceptions: Vec<Exception>,
    column: Vec<i64>,
    ulps: Vec<i64>,
}

impl ValueEncoder {
    /// Appends a row of 1 to [`ROW_SAMPLES_MAX`] values in the form that takes the fewest bytes.
    ///
    /// # Panics
    /// If there are no values, or more.
    pub fn encode(&mut self, values: &[f64], dst: &mut Vec<u8>) {
        assert!(
            (1..=ROW_SAMPLES_MAX).contains(&values.len()),
            "a row has 1 to 960 values, not {}",
            values.len()
        );
        let first = values[0].to_bits();
        if values.iter().all(|value| value.to_bits() == first) {
            return encode_constant(values[0], dst);
        }
        exceptions::split(values, &mut self.regular, &mut self.exceptions);
        let exponent = decimal::exact_exponent(&self.regular, &mut self.column);
        match exponent {
            Some(exponent) => {
                put_tag(DECIMALS, exponent.code(), &self.exceptions, dst);
                self.integers.encode(&self.column, dst);
            }
            None => self.encode_doubles(dst),
        }
        exceptions::encode(&self.exceptions, dst);
    }

    /// Appends a column of integers. Their number is not stored.
    pub fn encode_integers(&mut self, integers: &[i64], dst: &mut Vec<u8>) {
        self.integers.encode(integers, dst);
    }

    /// Encodes doubles of many digits: as decimals with rounding errors, or by their bits.
    fn encode_doubles(&mut self, dst: &mut Vec<u8>) {
        let start = dst.len();
        if let Some(exponent) = decimal::nearest_exponent(&self.regular) {
            put_tag(DECIMALS_AND_ULPS, exponent.code(), &self.exceptions, dst);
            exponent.split_ulps(&self.regular, &mut self.column, &mut self.ulps);
            self.integers.encode(&self.column, dst);
            self.integers.encode(&self.ulps, dst);
            // The bits of doubles would take more bytes.
            if dst.len() - start <= 3 * self.regular.len() {
                return;
            }
        }
        let rival = dst.len();
        put_tag(BITS, 0, &self.exceptions, dst);
        self.column.clear();
        self.column.extend(
            self.regular
                .iter()
                .map(|value| value.to_bits().cast_signed()),
        );
        self.integers.encode(&self.column, dst);
        if rival > start && dst.len() - rival >= rival - start {
            dst.truncate(rival);
        } else {
            dst.drain(start..rival);
        }
    }
}

fn encode_constant(value: f64, dst: &mut Vec<u8>) {
    if let Some((exponent, integer)) = decimal::as_decimal(value) {
        dst.push(CONSTANT_DECIMAL | exponent.code() << PARAMETER_SHIFT);
        put_i64(dst, integer);
    } else {
        let (code, bytes) = exceptions::code(value.to_bits());
        dst.push(CONSTANT_DOUBLE | code << PARAMETER_SHIFT);
        dst.extend(bytes.into_iter().flatten());
    }
}

fn put_tag(form: u8, parameter: u8, exceptions: &[Exception], dst: &mut Vec<u8>) {
    let flag = if exceptions.is_empty() {
        0
    } else {
        HAS_EXCEPTIONS
    };
    dst.push(form | flag | parameter << PARAMETER_SHIFT);
    if flag != 0 {
        put_u64(dst, exceptions.len() as u64);
    }
}

/// Decodes a row of `n` values from the front of `src` and appends them to `dst`.
///
/// Returns `None`, and `dst` is unchanged, if the bytes are not such a row or `n` is not in
/// 1..=[`ROW_SAMPLES_MAX`].
#[must_use]
pub fn decode_values(src: &mut &[u8], n: usize, dst: &mut Vec<f64>) -> Option<()> {
    if !(1..=ROW_SAMPLES_MAX).contains(&n) {
        return None;
    }
    let start = dst.len();
    let decoded = decode_row(src, n, dst);
    if decoded.is_none() {
        dst.truncate(start);
    }
    decoded
}

/// Returns `true` if a row may have values that are NaN, by its first byte.
#[must_use]
pub fn may_have_nan(row: &[u8]) -> bool {
    let tag = row.first().copied().unwrap_or(HAS_EXCEPTIONS);
    tag & HAS_EXCEPTIONS != 0 || tag & FORM_MASK == CONSTANT_DOUBLE
}

fn decode_row(src: &mut &[u8], n: usize, dst: &mut Vec<f64>) -> Option<()> {
    let (&tag, rest) = src.split_first()?;
    *src = rest;
    let parameter = tag >> PARAMETER_SHIFT;
    match tag & (FORM_MASK | HAS_EXCEPTIONS) {
        CONSTANT_DECIMAL => {
            let value = Exponent::from_code(parameter).double(take_i64(src)?);
            dst.resize(dst.len() + n, value);
        }
        CONSTANT_DOUBLE => {
            let value = f64::from_bits(exceptions::take_bits(src, parameter)?);
            dst.resize(dst.len() + n, value);
        }
        // Fast path: no exceptions.
        form @ (DECIMALS | DECIMALS_AND_ULPS | BITS) => {
            decode_columns(src, form, parameter, n, dst)?
        }
        form if form & HAS_EXCEPTIONS != 0 => {
            let n_exceptions = usize::try_from(take_u64(src)?)
                .ok()
                .filter(|n_exceptions| (1..=n).contains(n_exceptions))?;
            let mut regular = Vec::with_capacity(n - n_exceptions);
            decode_columns(
                src,
                form & FORM_MASK,
                parameter,
                n - n_exceptions,
                &mut regular,
            )?;
            exceptions::merge(src, &regular, n_exceptions, dst)?;
        }
        _ => return None,
    }
    Some(())
}

/// Appends the `n` values in the columns of a form.
fn decode_columns(
    src: &mut &[u8],
    form: u8,
    parameter: u8,
    n: usize,
    dst: &mut Vec<f64>,
) -> Option<()> {
    // Zeroing a buffer of 960 integers costs more than decoding 20 integers.
    match n {
        0..=64 => decode_into(src, form, parameter, &mut [0; 64][..n], dst),
        65..=128 => decode_into(src, form, parameter, &mut [0; 128][..n], dst),
        129..=256 => decode_into(src, form, parameter, &mut [0; 256][..n], dst),
        _ => decode_into(src, form, parameter, &mut [0; ROW_SAMPLES_MAX][..n], dst),
    }
}

fn decode_into(
    src: &mut &[u8],
    form: u8,
    parameter: u8,
    column: &mut [i64],
    dst: &mut Vec<f64>,
) -> Option<()> {
    decode_integers(src, column)?;
    match form {
        DECIMALS => Exponent::from_code(parameter).append_doubles(column, dst),
        DECIMALS_AND_ULPS => {
            let start = dst.len();
            Exponent::from_code(parameter).append_doubles(column, dst);
            decode_integers(src, column)?;
            decimal::add_ulps(&mut dst[start..], column);
        }
        BITS if parameter == 0 => dst.extend(
            column
                .iter()
                .map(|&bits| f64::from_bits(bits.cast_unsigned())),
        ),
        _ => return None,
    }
    Some(())
}
