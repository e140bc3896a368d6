//! Values in templates, with the types that Go gives them.

use std::rc::Rc;
use std::sync::Arc;

use varve_model::Labels;
use varve_query::VectorSample;
use varve_query::histogram::FloatHistogram;

use super::limits::{DEPTH_MAX, SIZE_MAX};
use super::time::{Duration, Time};

/// Bytes of a printed number, or of the name of a printed value.
const PRINTED_SIZE: usize = 32;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Nothing: a nil interface.
    Nil,
    Bool(bool),
    Int(i64),
    /// Nanoseconds and the like.
    Int64(i64),
    /// A byte of a string.
    Byte(u8),
    Float(f64),
    String(Rc<str>),
    /// A string that `safeHtml` has marked as safe.
    Html(Rc<str>),
    Labels(Labels),
    /// The result of `args`.
    Args(Rc<Args>),
    Vector(Rc<[VectorSample]>),
    Sample(Rc<VectorSample>),
    Time(Time),
    Duration(Duration),
    /// A month or a day of the week, by its name and number.
    Named {
        type_name: &'static str,
        name: &'static str,
        number: i64,
    },
    Histogram(Arc<FloatHistogram>),
    /// The initial `.`: labels, external labels, external URL and value.
    Data(Rc<Data>),
}

/// The data of an alert.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) labels: Labels,
    pub(crate) external_labels: Labels,
    pub(crate) external_url: Rc<str>,
    pub(crate) value: Value,
}

/// Values by name: `arg0`, `arg1` and so on.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) values: Box<[Value]>,
    /// Number of these within each other. Bounded, because they are printed and dropped by
    /// recursion.
    depth: usize,
}

impl Args {
    /// # Errors
    /// If there are more than [`DEPTH_MAX`] within each other.
    pub(crate) fn new(values: &[Value]) -> Result<Self, String> {
        let mut depth = 1;
        for value in values {
            if let Value::Args(args) = value {
                depth = depth.max(args.depth + 1);
            }
        }
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} args within each other"));
        }
        Ok(Self {
            values: values.into(),
            depth,
        })
    }
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// `interface {}`.
    Any,
    /// `reflect.Value`.
    Reflect,
    String,
    Vector,
    Sample,
    Int,
    Duration,
    Time,
}

impl Type {
    /// Returns Go's name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Reflect => "reflect.Value",
            Self::String => "string",
            Self::Vector => "template.queryResult",
            Self::Sample => "*template.sample",
            Self::Int => "int",
            Self::Duration => "time.Duration",
            Self::Time => "time.Time",
        }
    }

    /// Returns `true` if nil is a value of the type.
    pub(crate) fn has_nil(self) -> bool {
        matches!(
            self,
            Self::Any | Self::Reflect | Self::Vector | Self::Sample
        )
    }

    /// Converts a value to the type.
    ///
    /// # Errors
    /// Go's message if the value has another type.
    pub(crate) fn convert(self, value: Value) -> Result<Value, String> {
        match (self, value) {
            (Self::Any | Self::Reflect, value) => Ok(value),
            (Self::Vector | Self::Sample, Value::Nil) => Ok(Value::Nil),
            (_, Value::Nil) => Err(format!("invalid value; expected {}", self.name())),
            (Self::String, value @ Value::String(_))
            | (Self::Vector, value @ Value::Vector(_))
            | (Self::Sample, value @ Value::Sample(_))
            | (Self::Int, value @ Value::Int(_)) => Ok(value),
            (Self::Duration, Value::Duration(Duration { nanos, .. })) => {
                Ok(Value::Duration(Duration {
                    nanos,
                    is_pointer: false,
                }))
            }
            (Self::Time, Value::Time(Time { nanos, .. })) => Ok(Value::Time(Time {
                nanos,
                is_pointer: false,
            })),
            (_, value) => {
                let expected = self.name();
                let got = value.type_name();
                Err(format!(
                    "wrong type for value; expected {expected}; got {got}"
                ))
            }
        }
    }
}

/// A kind of types that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basic {
    Bool,
    Int,
    Uint,
    Float,
    String,
}

impl Value {
    pub(crate) fn string(text: impl Into<Rc<str>>) -> Self {
        Self::String(text.into())
    }

    /// Returns the value of a sample: a float or a histogram.
    pub(crate) fn of_sample(sample: &VectorSample) -> Self {
        match &sample.histogram {
            Some(histogram) => Self::Histogram(Arc::clone(histogram)),
            None => Self::Float(sample.point.value),
        }
    }

    /// Returns Go's name of the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Byte(_) => "uint8",
            Self::Float(_) => "float64",
            Self::String(_) => "string",
            Self::Html(_) => "template.HTML",
            Self::Labels(_) => "map[string]string",
            Self::Args(_) => "map[string]interface {}",
            Self::Vector(_) => "template.queryResult",
            Self::Sample(_) => "*template.sample",
            Self::Time(Time {
                is_pointer: true, ..
            }) => "*time.Time",
            Self::Time(_) => "time.Time",
            Self::Duration(Duration {
                is_pointer: true, ..
            }) => "*time.Duration",
            Self::Duration(_) => "time.Duration",
            Self::Named { type_name, .. } => type_name,
            Self::Histogram(_) => "*histogram.FloatHistogram",
            Self::Data(_) => {
                "struct { Labels map[string]string; ExternalLabels map[string]string; ExternalURL string; Value interface {} }"
            }
        }
    }

    /// Returns `false` for zero, nothing and empty values.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(number) | Self::Int64(number) | Self::Named { number, .. } => *number != 0,
            Self::Byte(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::String(text) | Self::Html(text) => !text.is_empty(),
            Self::Labels(labels) => !labels.is_empty(),
            Self::Args(args) => !args.values.is_empty(),
            Self::Vector(samples) => !samples.is_empty(),
            Self::Duration(duration) => duration.is_pointer || duration.nanos != 0,
            Self::Sample(_) | Self::Time(_) | Self::Histogram(_) | Self::Data(_) => true,
        }
    }

    /// Returns the type for comparisons, and `None` if the value is not of a basic type.
    pub(crate) fn basic(&self) -> Option<Basic> {
        match self {
            Self::Bool(_) => Some(Basic::Bool),
            Self::Int(_) | Self::Int64(_) | Self::Named { .. } => Some(Basic::Int),
            Self::Duration(duration) if !duration.is_pointer => Some(Basic::Int),
            Self::Byte(_) => Some(Basic::Uint),
            Self::Float(_) => Some(Basic::Float),
            Self::String(_) | Self::Html(_) => Some(Basic::String),
            _ => None,
        }
    }

    /// Returns the number of an integer type.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) | Self::Int64(number) | Self::Named { number, .. } => Some(*number),
            Self::Byte(number) => Some(i64::from(*number)),
            Self::Duration(duration) => Some(duration.nanos),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) | Self::Html(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a key of a map. A missing key has the zero value of the map's type.
    pub(crate) fn entry(&self, key: &str) -> Option<Self> {
        match self {
            Self::Labels(labels) => Some(Self::string(labels.get(key).unwrap_or(""))),
            Self::Args(args) => {
                let idx = key
                    .strip_prefix("arg")
                    .and_then(|idx| idx.parse::<usize>().ok());
                let idx = idx.filter(|idx| format!("arg{idx}") == key);
                Some(
                    idx.and_then(|idx| args.values.get(idx))
                        .cloned()
                        .unwrap_or(Self::Nil),
                )
            }
            _ => None,
        }
    }

    /// Returns the bytes of a string, and 0 for other values.
    pub(crate) fn text_size(&self) -> usize {
        self.as_str().map_or(0, str::len)
    }

    /// Returns about the bytes that the value has when it is printed. Counts nested values only up
    /// to [`SIZE_MAX`], as [`sprint`](super::print::sprint) prints them.
    pub(crate) fn printed_size(&self) -> usize {
        let mut size = PRINTED_SIZE + self.text_size();
        match self {
            Self::Labels(labels) => size += labels.size(),
            Self::Sample(sample) => size += sample.labels.size(),
            Self::Data(data) => {
                size += data.labels.size() + data.external_labels.size() + data.external_url.len();
            }
            Self::Vector(samples) => {
                for sample in samples.iter() {
                    size += PRINTED_SIZE + sample.labels.size();
                    if size > SIZE_MAX {
                        break;
                    }
                }
            }
            Self::Args(args) => {
                for value in &args.values {
                    size += PRINTED_SIZE + value.printed_size();
                    if size > SIZE_MAX {
                        break;
                    }
                }
            }
            _ => {}
        }
        size
    }

    /// Returns the memory that a new value needs.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::String(text) | Self::Html(text) => text.len(),
            Self::Args(args) => size_of_val(&*args.values),
            Self::Vector(samples) => size_of_val(&**samples),
            _ => 0,
        }
    }
}
