//! Parameters of requests and their schemas.

use serde_json::{Value, json};

/// A parameter of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_required: bool,
    pub(crate) about: &'static str,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Any string.
    Text,
    /// A parameter that may be repeated.
    Texts,
    /// Seconds since the epoch, or RFC 3339.
    Time,
    /// Seconds, or a duration like `1h30m`.
    Duration,
    Integer,
    Boolean,
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// A part of the path.
    Path,
}

pub(crate) const fn required(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        is_required: true,
        about,
    }
}

pub(crate) const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        is_required: false,
        about,
    }
}

impl Parameter {
    /// Returns the description of a URL parameter.
    pub(crate) fn to_json(self) -> Value {
        let location = if matches!(self.kind, Kind::Path) {
            "path"
        } else {
            "query"
        };
        json!({
            "name": self.name,
            "in": location,
            "description": self.about,
            "required": self.is_required,
            "schema": self.schema(),
        })
    }

    /// Returns the schema of its value.
    pub(crate) fn schema(self) -> Value {
        match self.kind {
            Kind::Text | Kind::Path => json!({ "type": "string" }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::Time => {
                json!({ "oneOf": [{ "type": "string", "format": "date-time" }, { "type": "number" }] })
            }
            Kind::Duration => {
                json!({ "oneOf": [{ "type": "string", "format": "duration" }, { "type": "number" }] })
            }
            Kind::Integer => json!({ "type": "integer" }),
            Kind::Boolean => json!({ "type": "boolean" }),
            Kind::OneOf(values) => json!({ "type": "string", "enum": values }),
        }
    }
}
