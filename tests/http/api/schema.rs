//! A validator for the subset of JSON schema that the OpenAPI documents use.

use serde_json::Value;

use crate::harness::Answer;

/// An OpenAPI document.
#[derive(Debug)]
pub(super) struct Description {
    document: Value,
    /// The prefix of the paths.
    prefix: &'static str,
}

/// An operation with the texts that it takes.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) path: String,
    /// In upper case.
    pub(super) method: String,
    /// Names of the parameters in the path, in the URL's query or in the form.
    parameters: Vec<String>,
    /// The media type of the body.
    pub(super) body: Option<String>,
}

impl Operation {
    /// Returns `true` if the body is a form.
    pub(super) fn is_form(&self) -> bool {
        self.body.as_deref() == Some("application/x-www-form-urlencoded")
    }

    /// Returns the number of parameters, or 1 for a body that is no form.
    pub(super) fn n_parts(&self) -> usize {
        match &self.body {
            Some(_) if !self.is_form() => 1,
            _ => self.parameters.len(),
        }
    }

    /// Returns the maximum size of a text in bytes: servers bound URLs.
    pub(super) fn size_max(&self) -> usize {
        if self.body.is_some() { 2 << 20 } else { 20_000 }
    }

    /// Returns path and parameters with an escaped text as the given parameter, and valid texts as
    /// the others.
    pub(super) fn with_text(&self, part: usize, text: &str) -> (String, String) {
        let mut path = self.path.clone();
        let mut pairs = Vec::new();
        for (i, name) in self.parameters.iter().enumerate() {
            let value = if i == part { text } else { valid(name) };
            let in_path = format!("{{{name}}}");
            if path.contains(&in_path) {
                path = path.replace(&in_path, value);
            } else if !value.is_empty() {
                pairs.push(format!("{name}={value}"));
            }
        }
        (path, pairs.join("&"))
    }
}

/// Returns a valid, escaped value of a parameter, or nothing if the parameter may be omitted.
fn valid(name: &str) -> &'static str {
    match name {
        "query" | "match[]" | "metric" => "up",
        "name" | "label" => "job",
        "series" => "%7Ba%3D%22b%22%7D",
        "start" => "1700000000",
        "end" | "time" => "1700000300",
        "step" => "15",
        "rules" => {
            "groups%3A%20%5B%7Bname%3A%20g%2C%20rules%3A%20%5B%7Bexpr%3A%20up%2C%20record%3A%20r%7D%5D%7D%5D"
        }
        "alert" | "id" | "labels" | "scrapePool" => "1",
        _ => "",
    }
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParameterKind {
    pub(super) is_required: bool,
    /// An integer or a boolean.
    is_number: bool,
    /// A time or a duration.
    is_time: bool,
}

impl ParameterKind {
    /// Returns `true` if some strings are not valid values.
    pub(super) fn is_checked(self) -> bool {
        self.is_number || self.is_time
    }
}

/// The supported keywords; an unknown one fails the validation.
const KNOWN: &str = "type properties required additionalProperties items prefixItems minItems maxItems anyOf oneOf enum const \
                     minimum maximum format description example $ref";

impl Description {
    /// Reads Prometheus' document; prints a message and returns `None` if it is not available.
    pub(super) fn of_prometheus() -> Option<Self> {
        let path = varve_oracle::shared("api/openapi_3.1.yaml")?;
        let yaml = std::fs::read_to_string(&path).expect("read the description");
        Some(Self::parse(&yaml, "/api/v1"))
    }

    pub(super) fn parse(yaml: &str, prefix: &'static str) -> Self {
        Self {
            document: serde_yaml_ng::from_str(yaml).expect("the description is YAML"),
            prefix,
        }
    }

    /// Returns paths with their methods in upper case.
    pub(super) fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"]
            .as_object()
            .expect("a description has paths");
        let of_path = |(path, operations): (&String, &Value)| {
            let path = format!("{}{path}", self.prefix);
            let operations = operations.as_object().expect("a path has operations");
            operations
                .keys()
                .map(|method| (path.clone(), method.to_uppercase()))
                .collect::<Vec<_>>()
        };
        paths.iter().flat_map(of_path).collect()
    }

    /// Returns the operations that take a text.
    pub(super) fn texts(&self) -> Vec<Operation> {
        let mut all = Vec::new();
        for (path, method) in self.operations() {
            let (_, operation) = self
                .operation(&method, &path)
                .expect("the operation is described");
            let content = operation["requestBody"]["content"].as_object();
            let body = content.and_then(|content| content.keys().next()).cloned();
            let schema = content.and_then(|content| content.values().next());
            let in_form = schema.and_then(|schema| schema["schema"]["properties"].as_object());
            let in_url = operation["parameters"].as_array().into_iter().flatten();
            let mut parameters: Vec<_> = in_url
                .filter_map(|parameter| parameter["name"].as_str())
                .map(str::to_owned)
                .collect();
            parameters.extend(in_form.into_iter().flat_map(|form| form.keys().cloned()));
            all.push(Operation {
                path,
                method,
                parameters,
                body,
            });
        }
        all
    }

    /// Returns the query parameters of an operation.
    pub(super) fn parameters(&self, method: &str, path: &str) -> Vec<(String, ParameterKind)> {
        let (_, operation) = self
            .operation(method, path)
            .expect("the operation is described");
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let kind = |parameter: &Value| {
            let schema = &parameter["schema"];
            let is_number = ["integer", "boolean"]
                .iter()
                .any(|kind| schema["type"] == *kind);
            ParameterKind {
                is_required: parameter["required"] == true,
                is_number,
                is_time: schema.get("oneOf").is_some(),
            }
        };
        let in_query = parameters.filter(|parameter| parameter["in"] == "query");
        in_query
            .map(|p| {
                (
                    p["name"]
                        .as_str()
                        .expect("a parameter has a name")
                        .to_owned(),
                    kind(p),
                )
            })
            .collect()
    }

    /// Returns `true` if this is Prometheus' document.
    pub(super) fn is_of_prometheus(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Returns the operation of a path, and the path in the document.
    fn operation(&self, method: &str, path: &str) -> Option<(&str, &Value)> {
        let path = path.strip_prefix(self.prefix)?;
        let paths = self.document["paths"].as_object()?;
        let fits = |template: &str| {
            let (template, path): (Vec<_>, Vec<_>) =
                (template.split('/').collect(), path.split('/').collect());
            template.len() == path.len()
                && template
                    .iter()
                    .zip(&path)
                    .all(|(t, p)| t == p || t.starts_with('{'))
        };
        // An exact path precedes one with parameters.
        let found = paths
            .get_key_value(path)
            .or_else(|| paths.iter().find(|(template, _)| fits(template)));
        let (template, operations) = found?;
        Some((template, operations.get(method.to_lowercase())?))
    }

    /// Validates a response. Returns the path in the document; `None` if the document does not
    /// describe the request or its response.
    pub(super) fn check_answer(
        &self,
        method: &str,
        path: &str,
        answer: &Answer,
    ) -> Result<Option<String>, String> {
        let Some((template, operation)) = self.operation(method, path) else {
            return Ok(None);
        };
        let template = format!("{}{template}", self.prefix);
        match answer
            .header("content-type")
            .split(';')
            .next()
            .unwrap_or_default()
        {
            "application/json" => self
                .validate(method, path, answer.status, &answer.json())
                .map(|()| Some(template)),
            // Empty responses, and errors outside of the API such as 405, are not described.
            "" if answer.body.is_empty() => Ok(None),
            "text/plain" if answer.status != 200 => Ok(None),
            media_type
                if response(operation, answer.status)["content"]
                    .get(media_type)
                    .is_some() =>
            {
                Ok(Some(template))
            }
            other => Err(format!("{} is described without {other}", answer.status)),
        }
    }

    /// Validates a JSON response, if the document describes it.
    fn validate(
        &self,
        method: &str,
        path: &str,
        status: u16,
        answer: &Value,
    ) -> Result<(), String> {
        let Some((_, operation)) = self.operation(method, path) else {
            return Ok(());
        };
        match response(operation, status)["content"]["application/json"].get("schema") {
            Some(schema) => self.check(schema, answer, "$"),
            None => Err(format!("{status} has no content in JSON")),
        }
    }

    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let Some(words) = schema.as_object() else {
            return Ok(());
        };
        if let Some(unknown) = words
            .keys()
            .find(|word| !KNOWN.split(' ').any(|known| known == *word))
        {
            return Err(format!("{at}: the validator does not know {unknown}"));
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference
                .strip_prefix('#')
                .expect("references stay inside the document");
            let target = self
                .document
                .pointer(pointer)
                .ok_or_else(|| format!("{at}: {reference} leads nowhere"))?;
            return self.check(target, value, at);
        }
        check_type(schema, value, at)?;
        for (word, most) in [("anyOf", usize::MAX), ("oneOf", 1)] {
            if let Some(choices) = schema[word].as_array() {
                let refusals: Vec<_> = choices
                    .iter()
                    .filter_map(|s| self.check(s, value, at).err())
                    .collect();
                let n_fitting = choices.len() - refusals.len();
                if !(1..=most).contains(&n_fitting) {
                    return Err(format!("{at}: {n_fitting} of {word} fit: {refusals:?}"));
                }
            }
        }
        if let Some(object) = value.as_object() {
            self.check_object(schema, object, at)?;
        }
        value
            .as_array()
            .map_or(Ok(()), |list| self.check_list(schema, list, at))
    }

    fn check_object(
        &self,
        schema: &Value,
        object: &serde_json::Map<String, Value>,
        at: &str,
    ) -> Result<(), String> {
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(name) {
                return Err(format!("{at}: {name} is missing"));
            }
        }
        for (name, value) in object {
            let at = format!("{at}.{name}");
            match (
                schema["properties"].get(name),
                &schema["additionalProperties"],
            ) {
                (Some(property), _) => self.check(property, value, &at)?,
                (None, Value::Bool(false)) => return Err(format!("{at} is not described")),
                (None, rest) => self.check(rest, value, &at)?,
            }
        }
        Ok(())
    }

    fn check_list(&self, schema: &Value, list: &[Value], at: &str) -> Result<(), String> {
        let bound = |word: &str| schema[word].as_u64();
        let len = list.len() as u64;
        if bound("minItems").is_some_and(|min| len < min)
            || bound("maxItems").is_some_and(|max| len > max)
        {
            return Err(format!("{at}: {len} elements"));
        }
        let first = schema["prefixItems"].as_array();
        for (i, value) in list.iter().enumerate() {
            let schema = first
                .and_then(|first| first.get(i))
                .unwrap_or(&schema["items"]);
            self.check(schema, value, &format!("{at}[{i}]"))?;
        }
        Ok(())
    }
}

/// Returns the description of a response of an operation.
fn response(operation: &Value, status: u16) -> &Value {
    let responses = &operation["responses"];
    responses
        .get(status.to_string())
        .unwrap_or(&responses["default"])
}

fn check_type(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let fits = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("null") => value.is_null(),
        Some(other) => {
            return Err(format!(
                "{at}: the validator does not know the type {other}"
            ));
        }
    };
    let listed = schema["enum"]
        .as_array()
        .is_none_or(|values| values.contains(value));
    let same = schema.get("const").is_none_or(|constant| constant == value);
    let number = value.as_f64().unwrap_or_default();
    let above = schema["minimum"].as_f64().is_none_or(|min| number >= min);
    let below = schema["maximum"].as_f64().is_none_or(|max| number <= max);
    if fits && listed && same && above && below {
        Ok(())
    } else {
        Err(format!("{at}: {value} is not {schema}"))
    }
}

#[test]
fn mismatches_are_found() {
    let yaml = "
paths:
  /a/{x}:
    get:
      responses:
        '200': {content: {application/json: {schema: {$ref: '#/components/A'}}}}
components:
  A: {type: object, properties: {n: {type: integer, minimum: 1}, l: {type: array, items: {type: string}}},
      required: [n], additionalProperties: false}
";
    let description = Description::parse(yaml, "/api");
    let check = |json: &str, fits: bool| {
        let value = serde_json::from_str(json).expect("JSON");
        let checked = description.validate("GET", "/api/a/b", 200, &value);
        assert_eq!(checked.is_ok(), fits, "{json}: {checked:?}");
    };
    check(r#"{"n": 1}"#, true);
    check(r#"{"n": 1, "l": ["a"]}"#, true);
    check(r#"{"n": 0}"#, false);
    check(r#"{"n": 1.5}"#, false);
    check(r#"{"l": []}"#, false);
    check(r#"{"n": 1, "l": [1]}"#, false);
    check(r#"{"n": 1, "m": 1}"#, false);
}
