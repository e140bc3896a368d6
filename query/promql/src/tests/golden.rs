//! Compares trees, printed queries and errors with those of Prometheus for thousands of queries.

use serde_json::Value;

use super::*;

/// Queries for which Prometheus 3.14 differs from 3.5, the version of the golden files. The second
/// string is the result of 3.14.
const SINCE_3_5: [(&str, &str); 2] = [
    // printer.go: names in `on` and `group_left` are quoted if necessary. In 3.5, the printed text
    // could not be parsed.
    (
        r#"x * on ("a.b") group_left ("c.d") y"#,
        r#"x * on ("a.b") group_left ("c.d") y"#,
    ),
    // generated_parser.y: the message lists the allowed calls.
    (
        "x offset",
        "1:9: parse error: unexpected end of input in offset, expected number, duration, step(), or range()",
    ),
];

#[test]
fn every_print_and_error_is_that_of_prometheus() {
    let Some(golden) = shared("promql-golden/format.json") else {
        return;
    };
    let golden: Value = serde_json::from_str(&golden).unwrap();
    for entry in golden["queries"].as_array().unwrap() {
        let query = entry["query"].as_str().unwrap();
        let newer = SINCE_3_5
            .iter()
            .find(|(changed, _)| *changed == query)
            .map(|(_, text)| *text);
        let expect = newer
            .or(entry["format"].as_str())
            .or(entry["error"].as_str())
            .unwrap();
        let found =
            parse(query, &features()).map_or_else(|e| e.to_string(), |expr| prettify(&expr));
        assert_eq!(found, expect, "{query}");
    }
}

#[test]
fn every_tree_is_that_of_prometheus() {
    let Some(golden) = shared("promql-golden/ast.jsonl") else {
        return;
    };
    for line in golden.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let query = entry["query"].as_str().unwrap();
        let expr = parse(query, &features()).unwrap_or_else(|e| panic!("{query}: {e}"));
        let mut tree: Value = serde_json::from_str(&to_json(&expr)).unwrap();
        remove_new_fields(&mut tree);
        assert_eq!(tree, entry["ast"], "{query}");
    }
}

/// Removes the fields that Prometheus 3.5 does not have in its trees, if the query does not use
/// them.
fn remove_new_fields(tree: &mut Value) {
    match tree {
        Value::Object(fields) => {
            let unused = |value: &Value| {
                value
                    .as_object()
                    .is_some_and(|sides| sides.values().all(Value::is_null))
            };
            fields.retain(|key, value| match key.as_str() {
                "rangeExpr" | "offsetExpr" | "stepExpr" => false,
                "anchored" | "smoothed" => value != false,
                "fillValues" => !unused(value),
                _ => true,
            });
            fields.values_mut().for_each(remove_new_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_new_fields),
        _ => {}
    }
}

#[test]
fn printed_text_parses_to_the_same_tree() {
    let Some(golden) = shared("promql-golden/ast.jsonl") else {
        return;
    };
    for line in golden.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let expr = parse(entry["query"].as_str().unwrap(), &features()).unwrap();
        let again = |text: String| {
            canonical(&parse(&text, &features()).unwrap_or_else(|e| panic!("{text}: {e}")))
        };
        assert_eq!(again(print(&expr)), canonical(&expr));
        assert_eq!(again(prettify(&expr)), canonical(&expr));
    }
}

#[test]
fn every_query_of_prometheus_test_scripts_parses() {
    let Some(folder) = varve_oracle::shared("promqltest") else {
        return;
    };
    let scripts = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "test"));
    let mut n_queries = 0;
    for script in scripts {
        for query in std::fs::read_to_string(&script)
            .unwrap()
            .lines()
            .filter_map(query_of)
        {
            n_queries += 1;
            if let Err(e) = parse(query, &features()) {
                panic!("{}: {query}: {e}", script.display());
            }
        }
    }
    assert!(n_queries >= 1998, "only {n_queries} queries found");
}

/// Returns the query of an `eval` line.
fn query_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (command, rest) = line.split_once(char::is_whitespace)?;
    if !command.starts_with("eval") {
        return None;
    }
    let mut words = rest.split_whitespace();
    let words_before = match words.next()? {
        "instant" => 3, // instant at T
        _ => 7,         // range from T to T step D
    };
    let query = words.nth(words_before - 1)?;
    // The query starts with this word.
    Some(line[query.as_ptr() as usize - line.as_ptr() as usize..].trim_end())
}

#[test]
fn every_expression_of_kube_prometheus_parses_without_optional_features() {
    let Some(expressions) = shared("kube-prometheus/expressions.json") else {
        return;
    };
    let expressions: Value = serde_json::from_str(&expressions).unwrap();
    for expression in expressions["expressions"].as_array().unwrap() {
        let query = expression["expr"].as_str().unwrap();
        let expr = parse(query, &Features::default()).unwrap_or_else(|e| panic!("{query}: {e}"));
        assert_eq!(
            canonical(&parse(&print(&expr), &Features::default()).unwrap()),
            canonical(&expr),
            "{query}"
        );
    }
}
