//! Times and durations, with Go's methods and formats. All times are in UTC.

use varve_query::date::Civil;

use super::value::{Type, Value};

/// A time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Time {
    /// Nanoseconds since the epoch.
    pub(crate) nanos: i128,
    /// `true` where Go has a pointer to the time.
    pub(crate) is_pointer: bool,
}

/// A duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Duration {
    pub(crate) nanos: i64,
    /// `true` where Go has a pointer to the duration.
    pub(crate) is_pointer: bool,
}

const SECOND: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
/// From the first instant of the year 1 to the epoch, in seconds.
const EPOCH_SECONDS: i128 = 62_135_596_800;
/// Maximum of years, months and days to add.
const DATE_MAX: i64 = 1_000_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Returns the parameters of a method of a value.
pub(crate) fn method(receiver: &Value, name: &str) -> Option<&'static [Type]> {
    match (receiver, name) {
        (Value::Time(_), "Format") => Some(&[Type::String]),
        (Value::Time(_), "Add" | "Round" | "Truncate") => Some(&[Type::Duration]),
        (Value::Time(_), "Sub" | "After" | "Before" | "Equal" | "Compare") => Some(&[Type::Time]),
        (Value::Time(_), "AddDate") => Some(&[Type::Int, Type::Int, Type::Int]),
        (
            Value::Time(_),
            "Unix" | "UnixMilli" | "UnixMicro" | "UnixNano" | "Year" | "Month" | "Day" | "Hour"
            | "Minute" | "Second" | "Nanosecond" | "YearDay" | "Weekday" | "IsZero" | "UTC"
            | "Local",
        ) => Some(&[]),
        (Value::Duration(_), "Round" | "Truncate") => Some(&[Type::Duration]),
        (
            Value::Duration(_),
            "Hours" | "Minutes" | "Seconds" | "Milliseconds" | "Microseconds" | "Nanoseconds"
            | "Abs",
        ) => Some(&[]),
        (
            Value::Time(_) | Value::Duration(_) | Value::Named { .. } | Value::Histogram(_),
            "String",
        ) => Some(&[]),
        _ => None,
    }
}

/// Calls a method that [`method`] knows, with arguments of its types.
///
/// # Errors
/// A date is too far away.
pub(crate) fn call(receiver: &Value, name: &str, args: &[Value]) -> Result<Value, String> {
    match receiver {
        Value::Time(time) => time.call(name, args),
        Value::Duration(duration) => Ok(duration.call(name, args)),
        _ => Ok(Value::string(super::print::sprint(std::slice::from_ref(
            receiver,
        )))),
    }
}

impl Time {
    fn value(nanos: i128) -> Value {
        Value::Time(Self {
            nanos,
            is_pointer: false,
        })
    }

    fn seconds(self) -> i64 {
        self.nanos.div_euclid(SECOND) as i64
    }

    fn nanosecond(self) -> i64 {
        self.nanos.rem_euclid(SECOND) as i64
    }

    fn civil(self) -> Civil {
        Civil::of_seconds(self.seconds())
    }

    fn call(self, name: &str, args: &[Value]) -> Result<Value, String> {
        let civil = self.civil();
        let since = |unit: i128| Value::Int64(self.nanos.div_euclid(unit) as i64);
        let nanos = args.first().and_then(Value::as_int).unwrap_or(0);
        let other = if let Some(Value::Time(other)) = args.first() {
            *other
        } else {
            self
        };
        Ok(match name {
            "Format" => Value::string(self.format(args[0].as_str().unwrap_or_default())),
            "String" => Value::string(self.to_string()),
            "Unix" => since(SECOND),
            "UnixMilli" => since(1_000_000),
            "UnixMicro" => since(1000),
            "UnixNano" => since(1),
            "Year" => Value::Int(civil.year),
            "Month" => named("time.Month", &MONTHS, civil.month - 1, civil.month),
            "Day" => Value::Int(civil.day),
            "Hour" => Value::Int(civil.hour),
            "Minute" => Value::Int(civil.minute),
            "Second" => Value::Int(civil.second),
            "Nanosecond" => Value::Int(self.nanosecond()),
            "YearDay" => Value::Int(civil.year_day),
            "Weekday" => named("time.Weekday", &WEEKDAYS, civil.weekday, civil.weekday),
            "IsZero" => Value::Bool(self.nanos == -EPOCH_SECONDS * SECOND),
            "Add" => Self::value(self.nanos + i128::from(nanos)),
            "Sub" => {
                let difference = (self.nanos - other.nanos).clamp(i64::MIN.into(), i64::MAX.into());
                Value::Duration(Duration {
                    nanos: difference as i64,
                    is_pointer: false,
                })
            }
            "After" => Value::Bool(self.nanos > other.nanos),
            "Before" => Value::Bool(self.nanos < other.nanos),
            "Equal" => Value::Bool(self.nanos == other.nanos),
            "Compare" => Value::Int(self.nanos.cmp(&other.nanos) as i64),
            "Round" | "Truncate" if nanos > 0 => {
                let past = (self.nanos + EPOCH_SECONDS * SECOND).rem_euclid(nanos.into());
                let up = if name == "Round" && 2 * past >= i128::from(nanos) {
                    i128::from(nanos)
                } else {
                    0
                };
                Self::value(self.nanos - past + up)
            }
            "AddDate" => self.add_date(args)?,
            _ => Self::value(self.nanos),
        })
    }

    /// Adds years, months and days. A day after the end of its month is in the next month.
    fn add_date(self, args: &[Value]) -> Result<Value, String> {
        let [years, months, days] = [0, 1, 2].map(|i| args[i].as_int().unwrap_or(0));
        if [years, months, days].iter().any(|n| n.abs() > DATE_MAX) {
            return Err(format!("more than {DATE_MAX} years, months or days"));
        }
        let civil = self.civil();
        let months = (civil.year + years) * 12 + civil.month - 1 + months;
        let day =
            days_before(months.div_euclid(12), months.rem_euclid(12) + 1) + civil.day - 1 + days;
        let time_of_day = self.nanos.rem_euclid(i128::from(DAY_SECONDS) * SECOND);
        Ok(Self::value(
            i128::from(day) * i128::from(DAY_SECONDS) * SECOND + time_of_day,
        ))
    }

    /// Formats by an example: Go's layout of 2 January 2006, 15:04:05.
    fn format(self, layout: &str) -> String {
        let civil = self.civil();
        let mut out = String::new();
        let mut rest = layout;
        while let Some(first) = rest.chars().next() {
            if let Some((len, fraction)) = self.fraction(rest) {
                out.push_str(&fraction);
                rest = &rest[len..];
                continue;
            }
            match ELEMENTS
                .iter()
                .find(|(element, _)| starts_with_element(rest, element))
            {
                Some((element, text)) => {
                    out.push_str(&text(&civil));
                    rest = &rest[element.len()..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }

    /// Returns the length and the text of a fraction of a second, `.000` or `.999`, at the start of
    /// a layout.
    fn fraction(self, rest: &str) -> Option<(usize, String)> {
        let point = rest.chars().next().filter(|c| matches!(c, '.' | ','))?;
        let digit = rest[1..]
            .chars()
            .next()
            .filter(|c| matches!(c, '0' | '9'))?;
        let n_digits = rest[1..].len() - rest[1..].trim_start_matches(digit).len();
        if rest[1 + n_digits..].starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let all = format!("{:09}", self.nanosecond());
        let digits = &all[..n_digits.min(9)];
        let digits = if digit == '9' {
            digits.trim_end_matches('0')
        } else {
            digits
        };
        Some((
            1 + n_digits,
            if digits.is_empty() {
                String::new()
            } else {
                format!("{point}{digits}")
            },
        ))
    }
}

/// An element of a layout, and its text for a time.
type Element = (&'static str, fn(&Civil) -> String);

/// Elements of a layout. An element precedes its own prefixes. All times are in UTC.
const ELEMENTS: [Element; 31] = [
    ("January", |civil| month(civil).to_owned()),
    ("Jan", |civil| month(civil)[..3].to_owned()),
    ("Monday", |civil| weekday(civil).to_owned()),
    ("Mon", |civil| weekday(civil)[..3].to_owned()),
    ("MST", |_| "UTC".to_owned()),
    ("2006", |civil| format!("{:04}", civil.year)),
    ("-07:00:00", |_| "+00:00:00".to_owned()),
    ("-07:00", |_| "+00:00".to_owned()),
    ("-070000", |_| "+000000".to_owned()),
    ("-0700", |_| "+0000".to_owned()),
    ("-07", |_| "+00".to_owned()),
    ("Z07:00", |_| "Z".to_owned()),
    ("Z0700", |_| "Z".to_owned()),
    ("Z07", |_| "Z".to_owned()),
    ("002", |civil| format!("{:03}", civil.year_day)),
    ("01", |civil| format!("{:02}", civil.month)),
    ("02", |civil| format!("{:02}", civil.day)),
    ("03", |civil| format!("{:02}", hour12(civil))),
    ("04", |civil| format!("{:02}", civil.minute)),
    ("05", |civil| format!("{:02}", civil.second)),
    ("06", |civil| format!("{:02}", civil.year.rem_euclid(100))),
    ("15", |civil| format!("{:02}", civil.hour)),
    ("__2", |civil| format!("{:3}", civil.year_day)),
    ("_2", |civil| format!("{:2}", civil.day)),
    ("PM", |civil| {
        if civil.hour < 12 { "AM" } else { "PM" }.to_owned()
    }),
    ("pm", |civil| {
        if civil.hour < 12 { "am" } else { "pm" }.to_owned()
    }),
    ("1", |civil| civil.month.to_string()),
    ("2", |civil| civil.day.to_string()),
    ("3", |civil| hour12(civil).to_string()),
    ("4", |civil| civil.minute.to_string()),
    ("5", |civil| civil.second.to_string()),
];

fn month(civil: &Civil) -> &'static str {
    MONTHS[civil.month as usize - 1]
}

fn weekday(civil: &Civil) -> &'static str {
    WEEKDAYS[civil.weekday as usize]
}

fn hour12(civil: &Civil) -> i64 {
    (civil.hour + 11) % 12 + 1
}

fn starts_with_element(layout: &str, element: &str) -> bool {
    let Some(after) = layout.strip_prefix(element) else {
        return false;
    };
    match element {
        // Before a lower-case letter it is a part of a word.
        "Jan" | "Mon" => !after.starts_with(|c: char| c.is_ascii_lowercase()),
        "_2" => !after.starts_with("006"),
        _ => true,
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.format("2006-01-02 15:04:05.999999999 -0700 MST"))
    }
}

impl Duration {
    fn call(self, name: &str, args: &[Value]) -> Value {
        let unit = args.first().and_then(Value::as_int).unwrap_or(0);
        // Whole units and rest are divided separately, as in Go.
        let float = |unit: i64| {
            Value::Float((self.nanos / unit) as f64 + (self.nanos % unit) as f64 / unit as f64)
        };
        match name {
            "Hours" => float(3_600_000_000_000),
            "Minutes" => float(60_000_000_000),
            "Seconds" => float(1_000_000_000),
            "Milliseconds" => Value::Int64(self.nanos / 1_000_000),
            "Microseconds" => Value::Int64(self.nanos / 1000),
            "Nanoseconds" => Value::Int64(self.nanos),
            "Abs" => duration(self.nanos.saturating_abs()),
            "Truncate" if unit > 0 => duration(self.nanos - self.nanos % unit),
            "Round" if unit > 0 => {
                let past = self.nanos % unit;
                let up = if past.abs() >= unit - past.abs() {
                    unit * past.signum()
                } else {
                    0
                };
                duration((self.nanos - past).saturating_add(up))
            }
            "String" => Value::string(self.to_string()),
            _ => duration(self.nanos),
        }
    }
}

fn duration(nanos: i64) -> Value {
    Value::Duration(Duration {
        nanos,
        is_pointer: false,
    })
}

impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        f.write_str(if self.nanos < 0 { "-" } else { "" })?;
        match nanos {
            0 => f.write_str("0s"),
            1..1000 => write!(f, "{nanos}ns"),
            1000..1_000_000 => write!(f, "{}{}µs", nanos / 1000, fraction(nanos, 1000)),
            1_000_000..1_000_000_000 => {
                write!(f, "{}{}ms", nanos / 1_000_000, fraction(nanos, 1_000_000))
            }
            _ => {
                let seconds = nanos / 1_000_000_000;
                match (seconds / 3600, seconds / 60 % 60) {
                    (0, 0) => {}
                    (0, minutes) => write!(f, "{minutes}m")?,
                    (hours, minutes) => write!(f, "{hours}h{minutes}m")?,
                }
                write!(f, "{}{}s", seconds % 60, fraction(nanos, 1_000_000_000))
            }
        }
    }
}

/// Prints the decimals of a number of nanoseconds in a unit.
fn fraction(nanos: u64, unit: u64) -> String {
    let digits = format!("{:0width$}", nanos % unit, width = unit.ilog10() as usize);
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        String::new()
    } else {
        format!(".{digits}")
    }
}

fn named(type_name: &'static str, names: &[&'static str], idx: i64, number: i64) -> Value {
    Value::Named {
        type_name,
        name: names[idx as usize],
        number,
    }
}

/// Returns the number of days from the epoch to the first day of a month.
fn days_before(year: i64, month: i64) -> i64 {
    // Years are counted from March, so that a leap day is the last day of its year.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        - 719_468
}
