//! Schemas of response types for the OpenAPI document.
//!
//! [`schema`](crate::schema!) defines a response type together with its schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A type of response data.
pub trait JsonSchema {
    /// Returns the JSON schema of the type. A named type is added to `schemas` and referenced.
    fn schema(schemas: &mut Schemas) -> Value;
}

/// The named schemas.
#[derive(Debug, Default)]
pub struct Schemas(BTreeMap<String, Value>);

/// A property of an object: its name, its schema, whether it is required, its description.
pub type Property = (String, Value, bool, &'static str);

impl Schemas {
    /// Returns all schemas by name.
    pub fn all(self) -> BTreeMap<String, Value> {
        self.0
    }

    /// Adds an object with these properties unless it exists, and returns a reference to it.
    pub fn object(
        &mut self,
        name: &str,
        about: &str,
        properties: impl FnOnce(&mut Self) -> Vec<Property>,
    ) -> Value {
        if !self.0.contains_key(name) {
            // For types that refer to themselves.
            self.0.insert(name.to_owned(), Value::Null);
            let schema = object(about, properties(self));
            self.0.insert(name.to_owned(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }
}

/// Returns the schema of an unnamed object with exactly these properties.
pub fn object(about: &str, properties: Vec<Property>) -> Value {
    let mut required = Vec::new();
    let mut schemas = Map::new();
    for (name, mut schema, is_required, about) in properties {
        if is_required {
            required.push(json!(name));
        }
        if let Some(schema) = schema.as_object_mut()
            && !about.is_empty()
        {
            schema.insert("description".into(), json!(about.trim()));
        }
        schemas.insert(name, schema);
    }
    json!({
        "type": "object",
        "description": about.trim(),
        "properties": schemas,
        "required": required,
        "additionalProperties": false,
    })
}

/// Returns the name of a property: the given one, or the field's in camel case.
pub fn property_name(field: &str, name: &[&str]) -> String {
    if let [name] = name {
        return (*name).to_owned();
    }
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        name + &initial.to_ascii_uppercase() + rest
    })
}

/// Defines a struct of response data and its schema. A field may have another name in JSON:
/// `cores = "GOMAXPROCS": usize`.
#[macro_export]
macro_rules! schema {
    ($(#[doc = $about:literal])* $vis:vis struct $Type:ident {
        $( $(#[doc = $doc:literal])* $field:ident $(= $name:literal)? : $Kind:ty ),* $(,)?
    }) => {
        $(#[doc = $about])*
        #[allow(missing_docs, reason = "documentation is part of the API, where the names of some fields suffice")]
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        $vis struct $Type {
            $( $(#[doc = $doc])* $(#[serde(rename = $name)])? $vis $field: $Kind, )*
        }

        impl $crate::schema::JsonSchema for $Type {
            fn schema(schemas: &mut $crate::schema::Schemas) -> serde_json::Value {
                schemas.object(stringify!($Type), concat!($($about),*), |schemas| vec![$((
                    $crate::schema::property_name(stringify!($field), &[$($name)?]),
                    <$Kind as $crate::schema::JsonSchema>::schema(schemas),
                    true,
                    concat!($($doc),*),
                )),*])
            }
        }
    };
}

impl JsonSchema for String {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "string" })
    }
}

impl JsonSchema for bool {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "boolean" })
    }
}

impl JsonSchema for u64 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "integer", "format": "int64", "minimum": 0 })
    }
}

impl JsonSchema for i64 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "integer", "format": "int64" })
    }
}

impl JsonSchema for f64 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "number" })
    }
}

impl<T: JsonSchema> JsonSchema for Vec<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(schemas) })
    }
}

impl<T: JsonSchema> JsonSchema for BTreeMap<String, T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "object", "additionalProperties": T::schema(schemas) })
    }
}

impl<T: JsonSchema> JsonSchema for Option<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "anyOf": [T::schema(schemas), { "type": "null" }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    schema! {
        /// A thing.
        struct Thing {
            /// The name of the thing.
            long_name: String,
            /// The number of things.
            n = "COUNT": u64,
            parts: Vec<Thing>,
        }
    }

    #[test]
    fn a_type_is_described_as_it_is_serialized() {
        let mut schemas = Schemas::default();
        assert_eq!(
            Thing::schema(&mut schemas),
            json!({ "$ref": "#/components/schemas/Thing" })
        );
        let schema = &schemas.0["Thing"];
        let thing = Thing {
            long_name: "x".into(),
            n: 1,
            parts: Vec::new(),
        };
        let serialized = serde_json::to_value(&thing).unwrap();
        let names = |value: &Value| {
            value
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&schema["properties"]), names(&serialized));
        assert_eq!(schema["required"], json!(["longName", "COUNT", "parts"]));
        assert_eq!(
            schema["properties"]["longName"],
            json!({ "type": "string", "description": "The name of the thing." })
        );
        assert_eq!(
            schema["properties"]["parts"]["items"],
            json!({ "$ref": "#/components/schemas/Thing" })
        );
    }
}
