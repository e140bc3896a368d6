//! Schemas of streamed responses, which have no type.

use serde_json::{Value, json};

use varve_wire::schema::{JsonSchema, Property, Schemas, object};

/// A label name or value.
pub(crate) enum Label {}

/// The result of a query.
pub(crate) enum QueryData {}

/// A series with its exemplars.
pub(crate) enum ExemplarSeries {}

/// Metadata by metric family.
pub(crate) enum MetadataFamilies {}

/// A node of a syntax tree.
pub(crate) enum SyntaxTree {}

/// Any value. The type of the elements of lists that are always empty.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Untyped {}

impl JsonSchema for Label {
    fn schema(schemas: &mut Schemas) -> Value {
        String::schema(schemas)
    }
}

impl JsonSchema for Untyped {
    fn schema(_: &mut Schemas) -> Value {
        json!({})
    }
}

/// Returns the schema of a pair of a time and a value.
fn timed(value: Value) -> Value {
    let time = json!({ "type": "number", "description": "Seconds since the epoch." });
    json!({ "type": "array", "prefixItems": [time, value], "minItems": 2, "maxItems": 2 })
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn labels() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn required(name: &str, schema: Value) -> Property {
    (name.to_owned(), schema, true, "")
}

fn optional(name: &str, schema: Value) -> Property {
    (name.to_owned(), schema, false, "")
}

fn histogram(schemas: &mut Schemas) -> Value {
    schemas.object(
        "Histogram",
        "A native histogram with its populated buckets.",
        |_| {
            let rule =
                "Bounds that belong to the bucket: 0 the upper, 1 the lower, 2 neither, 3 both.";
            let rule =
                json!({ "type": "integer", "minimum": 0, "maximum": 3, "description": rule });
            let bucket = json!({
                "type": "array",
                "prefixItems": [rule, text("Lower bound."), text("Upper bound."), text("Count.")],
                "minItems": 4,
                "maxItems": 4,
            });
            vec![
                required("count", text("Observations.")),
                required("sum", text("Sum of the observations.")),
                optional("buckets", json!({ "type": "array", "items": bucket })),
            ]
        },
    )
}

impl JsonSchema for QueryData {
    fn schema(schemas: &mut Schemas) -> Value {
        let histogram = histogram(schemas);
        let sample = schemas.object("Sample", "A series with its value at a time.", |_| {
            vec![
                required("metric", labels()),
                optional("value", timed(text("A float."))),
                optional("histogram", timed(histogram.clone())),
            ]
        });
        let series = schemas.object("Series", "A series with its values in a range.", |_| {
            vec![
                required("metric", labels()),
                optional("values", list(timed(text("A float.")))),
                optional("histograms", list(timed(histogram))),
            ]
        });
        let mut kinds = Vec::new();
        for (kind, result) in [
            ("scalar", timed(text("A float."))),
            ("string", timed(text("The string."))),
            ("vector", list(sample)),
            ("matrix", list(series)),
        ] {
            let properties = vec![
                required("resultType", json!({ "type": "string", "const": kind })),
                required("result", result),
                optional("stats", json!({ "type": "object" })),
            ];
            kinds.push(object("", properties));
        }
        json!({ "oneOf": kinds })
    }
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

impl JsonSchema for ExemplarSeries {
    fn schema(schemas: &mut Schemas) -> Value {
        let exemplar = schemas.object("Exemplar", "An exemplar.", |_| {
            vec![
                required("labels", labels()),
                required("value", text("A float.")),
                required("timestamp", json!({ "type": "number" })),
            ]
        });
        schemas.object("ExemplarSeries", "The exemplars of a series.", |_| {
            let exemplars = json!({ "type": "array", "items": exemplar });
            vec![
                required("seriesLabels", labels()),
                required("exemplars", exemplars),
            ]
        })
    }
}

impl JsonSchema for MetadataFamilies {
    fn schema(schemas: &mut Schemas) -> Value {
        let metadata = schemas.object("Metadata", "What is known of a metric family.", |_| {
            ["type", "unit", "help"]
                .map(|name| required(name, json!({ "type": "string" })))
                .into()
        });
        json!({ "type": "object", "additionalProperties": { "type": "array", "items": metadata } })
    }
}

impl JsonSchema for SyntaxTree {
    fn schema(_: &mut Schemas) -> Value {
        let kind = json!({ "type": "string", "description": "Which kind of expression this is." });
        json!({ "type": "object", "properties": { "type": kind }, "required": ["type"] })
    }
}
