//! Times and durations, and Go's formats of them. All times are in UTC.

use varve_query::date::Civil;

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

pub(super) const SECOND: i128 = 1_000_000_000;
pub(super) const MONTHS: [&str; 12] = [
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
pub(super) const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl Time {
    pub(super) fn seconds(self) -> i64 {
        self.nanos.div_euclid(SECOND) as i64
    }

    pub(super) fn nanosecond(self) -> i64 {
        self.nanos.rem_euclid(SECOND) as i64
    }

    pub(super) fn civil(self) -> Civil {
        Civil::of_seconds(self.seconds())
    }

    /// Formats by an example: Go's layout of 2 January 2006, 15:04:05.
    pub(super) fn format(self, layout: &str) -> String {
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
