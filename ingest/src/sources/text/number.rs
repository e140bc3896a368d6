//! Numbers of the text formats.

use super::nan::NORMAL_NAN_BITS;

/// Parses a float as Go does, but without hexadecimal digits and underscores. A NaN becomes the
/// normal NaN of Prometheus.
pub(super) fn float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    if value.is_nan() {
        // Go has no NaN with a sign.
        return text
            .starts_with(['n', 'N'])
            .then(|| f64::from_bits(NORMAL_NAN_BITS));
    }
    let is_named = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    (value.is_finite() || is_named).then_some(value)
}

/// Prints a float as OpenMetrics wants bounds: like Go's format `g`, and with `.0` behind an
/// integer.
pub(super) fn openmetrics_float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    }
    // Go compares with 0 as well: -0 is `0.0`.
    let value = if value == 0.0 { 0.0 } else { value };
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the format has an exponent");
    match exponent.parse().expect("the exponent is an integer") {
        -4..6 if value.fract() == 0.0 => format!("{value}.0"),
        -4..6 => value.to_string(),
        exponent => format!(
            "{mantissa}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            i32::abs(exponent)
        ),
    }
}

/// Converts a time from seconds. Returns `None` if it is not a time.
pub(super) fn milliseconds(seconds: f64) -> Option<i64> {
    let milliseconds = seconds * 1000.0;
    // The bound keeps the value within the exactly represented integers.
    (milliseconds.abs() < 9.007e15).then_some(milliseconds as i64)
}
