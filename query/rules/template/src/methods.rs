//! The methods that values have in Go: those of times and durations, and `String`.

use super::print;
use super::time::{Duration, MONTHS, SECOND, Time, WEEKDAYS};
use super::value::{Type, Value};

const DAY_SECONDS: i64 = 86_400;
/// From the first instant of the year 1 to the epoch, in seconds.
const EPOCH_SECONDS: i128 = 62_135_596_800;
/// Maximum of years, months and days to add.
const DATE_MAX: i64 = 1_000_000;

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
        _ => Ok(Value::string(print::sprint(std::slice::from_ref(receiver)))),
    }
}

impl Time {
    fn value(nanos: i128) -> Value {
        Value::Time(Self {
            nanos,
            is_pointer: false,
        })
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
