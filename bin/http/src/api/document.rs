//! The OpenAPI document, built from the table of endpoints.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use varve_system::version::NUMBER;

use super::endpoint::{Content, Endpoint};
use crate::openapi::Kind;
use varve_wire::schema::{Schemas, object};

/// The document. Its fields are serialized in this order.
#[derive(Debug, Serialize)]
struct Document {
    openapi: &'static str,
    info: Value,
    servers: Value,
    paths: BTreeMap<String, Map<String, Value>>,
    components: Value,
}

/// Returns the document as YAML, in this version of the specification, for clients that reach the
/// API under the URL `server`.
pub(super) fn describe(endpoints: &[Endpoint], version: &'static str, server: &str) -> String {
    let mut schemas = Schemas::default();
    let string = json!({ "type": "string" });
    let error = schemas.object("Error", "Why a request failed.", |_| {
        let status = json!({ "const": "error" });
        vec![
            ("status".into(), status, true, ""),
            (
                "errorType".into(),
                string.clone(),
                true,
                "The kind of error.",
            ),
            ("error".into(), string, true, "The error message."),
        ]
    });
    let mut paths: BTreeMap<_, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let operations = paths.entry(described_path(endpoint.path)).or_default();
        for method in endpoint.methods {
            operations.insert(
                method.to_lowercase(),
                operation(endpoint, method, &error, &mut schemas),
            );
        }
    }
    let document = Document {
        openapi: version,
        info: json!({
            "title": "Varve API",
            "description": "A Prometheus-compatible metrics store.",
            "version": NUMBER,
        }),
        servers: json!([{ "url": server }]),
        paths,
        components: json!({ "schemas": schemas.all() }),
    };
    serde_yaml_ng::to_string(&document).expect("strings, numbers and arrays are YAML")
}

fn operation(endpoint: &Endpoint, method: &str, error: &Value, schemas: &mut Schemas) -> Value {
    let mut in_form = Vec::new();
    let mut in_url = Vec::new();
    for parameter in &endpoint.parameters {
        if method == "POST" && !matches!(parameter.kind, Kind::Path) {
            in_form.push(parameter);
        } else {
            in_url.push(parameter.to_json());
        }
    }
    let (status, success) = match endpoint.content {
        Content::None => ("204", json!({ "description": "Done." })),
        Content::Json(data) => {
            let data = data(schemas);
            (
                "200",
                json!({ "description": "Success.", "content": { "application/json": { "schema": enveloped(data) } } }),
            )
        }
        Content::Other(media_type) => (
            "200",
            json!({ "description": "Success.", "content": { media_type: {} } }),
        ),
    };
    let failed = json!({ "description": "Failure.", "content": { "application/json": { "schema": error } } });
    let mut operation = json!({
        "operationId": operation_id(endpoint.path, method),
        "tags": [endpoint.tag],
        "summary": endpoint.about,
        "parameters": in_url,
        "responses": { status: success, "default": failed },
    });
    let body = match endpoint.body {
        Some(media_type) => Some(json!({ media_type: {} })),
        None if in_form.is_empty() => None,
        None => {
            let properties = in_form
                .iter()
                .map(|p| (p.name.to_owned(), p.schema(), p.is_required, p.about))
                .collect();
            Some(
                json!({ "application/x-www-form-urlencoded": { "schema": object("", properties) } }),
            )
        }
    };
    if let Some(content) = body {
        operation["requestBody"] = json!({ "content": content });
    }
    operation
}

/// Returns the schema of a whole response.
fn enveloped(data: Value) -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    object(
        "",
        vec![
            ("status".into(), json!({ "const": "success" }), true, ""),
            ("data".into(), data, true, ""),
            (
                "warnings".into(),
                texts.clone(),
                false,
                "What may be missing in the result.",
            ),
            ("infos".into(), texts, false, "Hints about the query."),
        ],
    )
}

/// Returns a path of the router as OpenAPI writes it. OpenAPI has no parameter of several elements.
fn described_path(path: &str) -> String {
    path.replace("{*", "{")
}

/// Returns an id for a path: `get-api-v1-label-name-values`.
fn operation_id(path: &str, method: &str) -> String {
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.fold(method.to_lowercase(), |id, word| id + "-" + word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes::endpoints;

    #[test]
    fn every_endpoint_is_described_once() {
        let yaml = describe(&endpoints(), "3.1.0", "/");
        let document: Value = serde_yaml_ng::from_str(&yaml).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for endpoint in endpoints() {
            for method in endpoint.methods {
                let path = described_path(endpoint.path);
                let operation = &document["paths"][path][method.to_lowercase()];
                assert!(
                    operation["summary"]
                        .as_str()
                        .is_some_and(|about| !about.is_empty()),
                    "{}",
                    endpoint.path
                );
                assert!(
                    ids.insert(operation["operationId"].to_string()),
                    "{operation}"
                );
            }
        }
        assert!(ids.len() > 50, "{}", ids.len());
    }

    #[test]
    fn every_reference_resolves() {
        let yaml = describe(&endpoints(), "3.1.0", "/");
        let document: Value = serde_yaml_ng::from_str(&yaml).unwrap();
        let mut left = vec![&document];
        let mut n = 0;
        while let Some(value) = left.pop() {
            if let Some(reference) = value["$ref"].as_str() {
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(
                    document["components"]["schemas"][name].is_object(),
                    "{reference}"
                );
                n += 1;
            }
            left.extend(value.as_object().into_iter().flat_map(Map::values));
            left.extend(value.as_array().into_iter().flatten());
        }
        assert!(n > 20, "{n}");
    }
}
