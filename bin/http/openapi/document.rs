//! The OpenAPI document.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Kind, Parameter, Schemas, object};
use crate::http::App;
use crate::http::api::endpoint::{Content, Endpoint};
use crate::http::api::routes;
use crate::http::params::Form;

/// The order of its fields is that of the document.
#[derive(Debug, Serialize)]
struct Document {
    openapi: &'static str,
    info: Value,
    servers: Value,
    paths: BTreeMap<&'static str, Map<String, Value>>,
    components: Value,
}

/// GET /api/v1/openapi.yaml, in version 3.1 of the specification, or 3.2 with `openapi_version=3.2`.
pub(crate) async fn serve(State(_): State<Arc<App>>, form: Form) -> Response {
    let version = if matches!(form.first("openapi_version"), "3.2" | "3.2.0") { "3.2.0" } else { "3.1.0" };
    let yaml = describe(&routes::endpoints(), version);
    let headers = [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
    ];
    (headers, yaml).into_response()
}

fn describe(endpoints: &[Endpoint], version: &'static str) -> String {
    let mut schemas = Schemas::default();
    let string = || json!({ "type": "string" });
    let error = schemas.object("Error", "Why a call failed.", |_| {
        vec![
            ("status".into(), json!({ "const": "error" }), true, ""),
            ("errorType".into(), string(), true, "The kind of error."),
            ("error".into(), string(), true, "What went wrong, in words."),
        ]
    });
    let mut paths: BTreeMap<_, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let operations = paths.entry(endpoint.path()).or_default();
        for method in endpoint.methods() {
            operations.insert(method.to_lowercase(), operation(endpoint, method, &error, &mut schemas));
        }
    }
    let document = Document {
        openapi: version,
        info: json!({
            "title": "Varve API",
            "description": "A Prometheus-compatible metrics store.",
            "version": env!("CARGO_PKG_VERSION"),
        }),
        servers: json!([{ "url": "/" }]),
        paths,
        components: json!({ "schemas": schemas.0 }),
    };
    serde_yaml_ng::to_string(&document).expect("texts, numbers and lists are YAML")
}

fn operation(endpoint: &Endpoint, method: &str, error: &Value, schemas: &mut Schemas) -> Value {
    let is_in_form = |parameter: &&Parameter| method == "POST" && !matches!(parameter.kind, Kind::Path);
    let (in_form, in_url): (Vec<&Parameter>, Vec<&Parameter>) = endpoint.parameters().iter().partition(is_in_form);
    let in_url: Vec<_> = in_url.into_iter().map(|parameter| parameter.to_json()).collect();
    let (status, success) = match endpoint.content() {
        Content::None => ("204", json!({ "description": "Done." })),
        Content::Json(data) => {
            let data = data(schemas);
            (
                "200",
                json!({ "description": "Success.", "content": { "application/json": { "schema": enveloped(data) } } }),
            )
        }
        Content::Other(media_type) => ("200", json!({ "description": "Success.", "content": { media_type: {} } })),
    };
    let failed = json!({ "description": "Failure.", "content": { "application/json": { "schema": error } } });
    let mut operation = json!({
        "operationId": operation_id(endpoint.path(), method),
        "tags": [endpoint.tag()],
        "summary": endpoint.summary(),
        "parameters": in_url,
        "responses": { status: success, "default": failed },
    });
    let body = match endpoint.body() {
        Some(media_type) => Some(json!({ media_type: {} })),
        None if in_form.is_empty() => None,
        None => {
            let properties = in_form.iter().map(|p| (p.name.to_owned(), p.schema(), p.is_required, p.about)).collect();
            Some(json!({ "application/x-www-form-urlencoded": { "schema": object("", properties) } }))
        }
    };
    if let Some(content) = body {
        operation["requestBody"] = json!({ "content": content });
    }
    operation
}

/// Returns the schema of a whole answer.
fn enveloped(data: Value) -> Value {
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    object(
        "",
        vec![
            ("status".into(), json!({ "const": "success" }), true, ""),
            ("data".into(), data, true, ""),
            ("warnings".into(), texts(), false, "What the result may lack."),
            ("infos".into(), texts(), false, "What the query may not have meant."),
        ],
    )
}

/// Makes a name of a path: `get-api-v1-label-name-values`.
fn operation_id(path: &str, method: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(method.to_lowercase(), |id, word| id + "-" + word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_described_once() {
        let yaml = describe(&routes::endpoints(), "3.1.0");
        let document: Value = serde_yaml_ng::from_str(&yaml).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for endpoint in routes::endpoints() {
            for method in endpoint.methods() {
                let operation = &document["paths"][endpoint.path()][method.to_lowercase()];
                assert!(operation["summary"].as_str().is_some_and(|about| !about.is_empty()), "{}", endpoint.path());
                assert!(ids.insert(operation["operationId"].to_string()), "{operation}");
            }
        }
        assert!(ids.len() > 50, "{}", ids.len());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let yaml = describe(&routes::endpoints(), "3.1.0");
        let document: Value = serde_yaml_ng::from_str(&yaml).unwrap();
        let mut left = vec![&document];
        let mut n = 0;
        while let Some(value) = left.pop() {
            if let Some(reference) = value["$ref"].as_str() {
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(document["components"]["schemas"][name].is_object(), "{reference}");
                n += 1;
            }
            left.extend(value.as_object().into_iter().flat_map(Map::values));
            left.extend(value.as_array().into_iter().flatten());
        }
        assert!(n > 20, "{n}");
    }
}
