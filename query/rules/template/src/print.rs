//! Values as text: Go's `fmt.Sprint` and `Sprintln`, and how a verb prints a value.

use varve_promql::decimal::{General, Scientific};
use varve_promql::quote::{code_point, quoted, quoted_char};
use varve_query::VectorSample;

use super::limits::SIZE_MAX;
use super::value::{Basic, Value};

/// Maximum number of digits of a float. All further digits are zeros.
const FLOAT_DIGITS_MAX: usize = 1100;

/// Formats values one after the other, with spaces between those that are not strings. Stops after
/// [`SIZE_MAX`] bytes: no value may be that large.
pub(crate) fn sprint(values: &[Value]) -> String {
    let mut printer = Printer::default();
    let mut after_string = true;
    for (i, value) in values.iter().enumerate() {
        if printer.is_full() {
            break;
        }
        let is_string = value.basic() == Some(Basic::String);
        if i > 0 && !is_string && !after_string {
            printer.out.push(' ');
        }
        printer.value(value, 'v', 0);
        after_string = is_string;
    }
    printer.out
}

/// Formats values with spaces between them and a new line at the end.
pub(crate) fn sprintln(values: &[Value]) -> String {
    let mut printer = Printer::default();
    for (i, value) in values.iter().enumerate() {
        if printer.is_full() {
            break;
        }
        printer.out.push_str(if i > 0 { " " } else { "" });
        printer.value(value, 'v', 0);
    }
    printer.out.push('\n');
    printer.out
}

/// Formats a float with a number of significant digits: `%.4g`.
pub(crate) fn significant(value: f64, n_digits: usize) -> String {
    let text = float(value, 'g', Some(n_digits));
    if value.is_infinite() {
        text
    } else {
        text.trim_start_matches('+').to_owned()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) sharp: bool,
    pub(super) zero: bool,
    pub(super) plus: bool,
    pub(super) minus: bool,
    pub(super) space: bool,
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
}

impl Flags {
    pub(super) fn set(&mut self, flag: char) {
        match flag {
            '#' => self.sharp = true,
            '0' => self.zero = true,
            '+' => self.plus = true,
            '-' => self.minus = true,
            _ => self.space = true,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Printer {
    pub(super) out: String,
    pub(super) flags: Flags,
}

impl Printer {
    /// Returns `true` if no value may be larger.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() > SIZE_MAX
    }

    pub(super) fn value(&mut self, value: &Value, verb: char, depth: usize) {
        match (value, verb) {
            (_, 'T') => self.pad(value.type_name()),
            (Value::Nil, 'v') => self.pad("<nil>"),
            (Value::Bool(value), 't' | 'v') => self.pad(&value.to_string()),
            (Value::Float(value), 'v' | 'g' | 'G' | 'e' | 'E' | 'f' | 'F') => {
                self.float(*value, verb)
            }
            (Value::String(text) | Value::Html(text), 'v' | 's' | 'q' | 'x' | 'X') => {
                self.string(text, verb)
            }
            (Value::Time(time), 'v' | 's' | 'q' | 'x' | 'X') => {
                self.string(&time.to_string(), verb)
            }
            (Value::Duration(duration), 'v' | 's' | 'q' | 'x' | 'X') => {
                self.string(&duration.to_string(), verb)
            }
            (Value::Named { name, .. }, 'v' | 's' | 'q' | 'x' | 'X') => self.string(name, verb),
            (Value::Histogram(histogram), 'v' | 's' | 'q' | 'x' | 'X') => {
                self.string(&histogram.to_string(), verb)
            }
            (Value::Labels(labels), _) => {
                let entries = labels
                    .iter()
                    .map(|(name, text)| (name.to_owned(), Value::string(text)));
                self.map(entries.collect(), verb, depth);
            }
            (Value::Args(args), _) => {
                let entries = args
                    .values
                    .iter()
                    .enumerate()
                    .map(|(i, value)| (format!("arg{i}"), value.clone()));
                let mut entries: Vec<_> = entries.collect();
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                self.map(entries, verb, depth);
            }
            (Value::Vector(samples), _) => {
                self.out.push('[');
                for (i, sample) in samples.iter().enumerate() {
                    self.out.push_str(if i > 0 { " " } else { "" });
                    self.sample(sample, verb, depth + 1);
                    if self.is_full() {
                        break;
                    }
                }
                self.out.push(']');
            }
            (Value::Sample(sample), _) => {
                self.out.push_str(if depth == 0 { "&" } else { "" });
                self.sample(sample, verb, depth);
            }
            (Value::Data(data), _) => {
                let fields = [
                    Value::Labels(data.labels.clone()),
                    Value::Labels(data.external_labels.clone()),
                    Value::String(data.external_url.clone()),
                    data.value.clone(),
                ];
                self.fields(&fields, verb, depth);
            }
            _ => match value.as_int() {
                Some(number) if "vdboOxXcqU".contains(verb) => self.int(number, verb),
                _ => self.bad_verb(value, verb),
            },
        }
    }

    fn bad_verb(&mut self, value: &Value, verb: char) {
        self.out.push_str(&format!("%!{verb}("));
        match value {
            Value::Nil => self.out.push_str("<nil>"),
            value => {
                self.out.push_str(&format!("{}=", value.type_name()));
                // Here a duration prints as a number.
                let number = value.as_int().map(Value::Int64);
                self.value(number.as_ref().unwrap_or(value), 'v', 0);
            }
        }
        self.out.push(')');
    }

    fn map(&mut self, entries: Vec<(String, Value)>, verb: char, depth: usize) {
        self.out.push_str("map[");
        for (i, (key, value)) in entries.iter().enumerate() {
            if self.is_full() {
                break;
            }
            self.out.push_str(if i > 0 { " " } else { "" });
            self.value(&Value::string(key.as_str()), verb, depth + 1);
            self.out.push(':');
            self.value(value, verb, depth + 1);
        }
        self.out.push(']');
    }

    fn fields(&mut self, fields: &[Value], verb: char, depth: usize) {
        self.out.push('{');
        for (i, field) in fields.iter().enumerate() {
            self.out.push_str(if i > 0 { " " } else { "" });
            self.value(field, verb, depth + 1);
        }
        self.out.push('}');
    }

    fn sample(&mut self, sample: &VectorSample, verb: char, depth: usize) {
        self.fields(
            &[
                Value::Labels(sample.labels.clone()),
                Value::of_sample(sample),
            ],
            verb,
            depth,
        );
    }

    fn pad(&mut self, text: &str) {
        let n_missing = self
            .flags
            .width
            .unwrap_or(0)
            .saturating_sub(text.chars().count());
        let fill = if self.flags.zero && !self.flags.minus {
            "0"
        } else {
            " "
        }
        .repeat(n_missing);
        let (before, after) = if self.flags.minus {
            ("", fill.as_str())
        } else {
            (fill.as_str(), "")
        };
        self.out.push_str(&[before, text, after].concat());
    }

    /// Pads with spaces only.
    fn pad_spaces(&mut self, text: &str) {
        let zero = std::mem::take(&mut self.flags.zero);
        self.pad(text);
        self.flags.zero = zero;
    }

    fn string(&mut self, text: &str, verb: char) {
        if matches!(verb, 'x' | 'X') {
            let n_bytes = self.flags.precision.unwrap_or(text.len()).min(text.len());
            let mut hex = String::new();
            for (i, byte) in text.as_bytes()[..n_bytes].iter().enumerate() {
                if i > 0 && self.flags.space {
                    hex.push(' ');
                }
                if self.flags.sharp && (i == 0 || self.flags.space) {
                    hex.push_str("0x");
                }
                for digit in [byte >> 4, byte & 0xf] {
                    hex.extend(char::from_digit(u32::from(digit), 16));
                }
            }
            if verb == 'X' {
                hex.make_ascii_uppercase();
            }
            return self.pad(&hex);
        }
        let end = self
            .flags
            .precision
            .and_then(|n_chars| text.char_indices().nth(n_chars));
        let text = &text[..end.map_or(text.len(), |(end, _)| end)];
        match verb {
            'q' if self.flags.sharp && !text.contains(['`', '\n', '\r']) => {
                self.pad(&format!("`{text}`"))
            }
            'q' if self.flags.plus => self.pad(&ascii(&quoted(text))),
            'q' => self.pad(&quoted(text)),
            'v' if self.flags.sharp => self.pad(&quoted(text)),
            _ => self.pad(text),
        }
    }

    fn int(&mut self, number: i64, verb: char) {
        let code = u32::try_from(number)
            .ok()
            .and_then(char::from_u32)
            .unwrap_or(char::REPLACEMENT_CHARACTER);
        match verb {
            'c' => return self.pad(&code.to_string()),
            'q' => return self.pad(&quoted_char(Some(code))),
            'U' if self.flags.sharp => return self.pad_spaces(&code_point(code)),
            'U' => return self.pad_spaces(&format!("U+{number:04X}")),
            _ => {}
        }
        let unsigned = number.unsigned_abs();
        let (mut digits, prefix) = match verb {
            'b' => (format!("{unsigned:b}"), "0b"),
            'o' => (format!("{unsigned:o}"), "0"),
            'O' => (format!("{unsigned:o}"), "0o"),
            'x' => (format!("{unsigned:x}"), "0x"),
            'X' => (format!("{unsigned:X}"), "0X"),
            _ => (unsigned.to_string(), ""),
        };
        let sign = match (number < 0, self.flags.plus && verb != 'v', self.flags.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        let zeros = match (self.flags.precision, self.flags.width) {
            (Some(0), _) if number == 0 => return self.pad_spaces(""),
            (Some(precision), _) => precision,
            (None, Some(width)) if self.flags.zero && !self.flags.minus => {
                width.saturating_sub(sign.len())
            }
            _ => 0,
        };
        digits = "0".repeat(zeros.saturating_sub(digits.len())) + &digits;
        let has_prefix =
            (self.flags.sharp && !(verb == 'o' && digits.starts_with('0'))) || verb == 'O';
        self.pad_spaces(&[sign, if has_prefix { prefix } else { "" }, &digits].concat());
    }

    fn float(&mut self, value: f64, verb: char) {
        let precision = self.flags.precision.or(if matches!(verb, 'v' | 'g' | 'G') {
            None
        } else {
            Some(6)
        });
        let text = float(value, verb, precision);
        let shows_plus = self.flags.plus && verb != 'v';
        let (sign, digits) = match text.split_at(1) {
            ("-", digits) => ("-", digits),
            ("+", digits) if shows_plus || (value.is_infinite() && !self.flags.space) => {
                ("+", digits)
            }
            ("+", digits) if self.flags.space => (" ", digits),
            ("+", digits) => ("", digits),
            _ => ("", text.as_str()),
        };
        if !value.is_finite() {
            return self.pad_spaces(&[sign, digits].concat());
        }
        let width = self.flags.width.unwrap_or(0);
        if self.flags.zero && !self.flags.minus {
            let zeros = "0".repeat(width.saturating_sub(sign.len() + digits.len()));
            return self.out.push_str(&[sign, &zeros, digits].concat());
        }
        self.pad(&[sign, digits].concat());
    }
}

/// Formats a float as Go's `strconv.FormatFloat(value, 'e', -1, 64)`.
#[must_use]
pub fn scientific(value: f64) -> String {
    if value.is_finite() {
        Scientific(value).to_string()
    } else {
        float(value, 'e', None).replace("+NaN", "NaN")
    }
}

/// Returns a number without zeros at the end of its decimals.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// Formats a float as Go's `strconv`, with a sign. Without a precision, `e` and `f` have 6 digits
/// after the point, other verbs as many as necessary.
fn float(value: f64, verb: char, precision: Option<usize>) -> String {
    let magnitude = value.abs();
    let sign = if value.is_sign_negative() && !value.is_nan() {
        "-"
    } else {
        "+"
    };
    if !value.is_finite() {
        return if value.is_nan() {
            "+NaN".to_owned()
        } else {
            format!("{sign}Inf")
        };
    }
    let precision = precision.map(|precision| precision.min(FLOAT_DIGITS_MAX));
    let text = match (verb.to_ascii_lowercase(), precision) {
        ('e', precision) => with_exponent(&format!("{magnitude:.*e}", precision.unwrap_or(6))),
        ('f', precision) => format!("{magnitude:.*}", precision.unwrap_or(6)),
        (_, None) => General(magnitude).to_string(),
        (_, Some(precision)) => {
            let n_digits = precision.max(1);
            let scientific = format!("{magnitude:.*e}", n_digits - 1);
            let (mantissa, exponent) = scientific
                .split_once('e')
                .expect("the format has an exponent");
            let exponent: i32 = exponent.parse().expect("the exponent is a number");
            if exponent < -4 || exponent >= n_digits as i32 {
                with_exponent(&format!("{}e{exponent}", without_zeros(mantissa)))
            } else {
                let n_decimals = (n_digits as i32 - 1 - exponent) as usize;
                without_zeros(&format!("{magnitude:.n_decimals$}")).to_owned()
            }
        }
    };
    let text = if matches!(verb, 'E' | 'G') {
        text.to_uppercase()
    } else {
        text
    };
    [sign, &text].concat()
}

/// Escapes characters outside of ASCII.
fn ascii(text: &str) -> String {
    text.chars()
        .map(|c| match u32::from(c) {
            0..0x80 => c.to_string(),
            code @ 0x80..0x1_0000 => format!("\\u{code:04x}"),
            code => format!("\\U{code:08x}"),
        })
        .collect()
}

/// Gives the exponent a sign and at least two digits.
fn with_exponent(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').expect("the text has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    format!(
        "{mantissa}e{}{:02}",
        if exponent < 0 { '-' } else { '+' },
        exponent.unsigned_abs()
    )
}
