//! The documents of a file: JSON, and YAML with any number of documents.

use serde::Deserialize as _;
use serde_json::Value;

/// Maximum depth of lists of Kubernetes objects.
const LIST_DEPTH_MAX: usize = 8;

/// Parses JSON or YAML and returns all documents, and the items of lists of Kubernetes objects.
///
/// # Errors
/// The parser's error.
pub(super) fn parse(text: &str) -> Result<Vec<Value>, String> {
    // The YAML parser is slow with large JSON.
    if let Ok(value) = serde_json::from_str(text) {
        let mut objects = Vec::new();
        flatten(value, 0, &mut objects);
        return Ok(objects);
    }
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        flatten(
            Value::deserialize(document).map_err(|error| error.to_string())?,
            0,
            &mut objects,
        );
    }
    Ok(objects)
}

fn flatten(value: Value, depth: usize, objects: &mut Vec<Value>) {
    match value {
        Value::Array(items) if depth < LIST_DEPTH_MAX => {
            for item in items {
                flatten(item, depth + 1, objects);
            }
        }
        Value::Object(mut object) if depth < LIST_DEPTH_MAX && kind(&object).ends_with("List") => {
            let items = object.remove("items").unwrap_or_default();
            flatten(items, depth + 1, objects);
        }
        Value::Null => {}
        value => objects.push(value),
    }
}

fn kind(object: &serde_json::Map<String, Value>) -> &str {
    object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_and_list_items_are_returned_one_by_one() {
        assert_eq!(
            parse("a: 1\n---\n# nothing\n---\n[{b: 2}, {c: 3}]\n").unwrap(),
            [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]
        );
        let list = "{\"kind\": \"PrometheusRuleList\", \"items\": [{\"kind\": \"List\", \"items\": [1]}, 2]}";
        assert_eq!(parse(list).unwrap(), [json!(1), json!(2)]);
        assert!(parse("a: [").unwrap_err().contains("line 2"));
    }
}
