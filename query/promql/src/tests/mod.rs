//! Tests of the parser: trees, printed queries and errors of Prometheus, its test scripts, and
//! random text.

mod errors;
mod golden;
mod limits;
mod random;
mod spans;

use super::*;
use crate::json::to_json;

/// Returns the contents of a file in the shared directory. If it does not exist, prints that the
/// test is skipped.
fn shared(path: &str) -> Option<String> {
    let path = varve_oracle::shared(path)?;
    Some(std::fs::read_to_string(path).unwrap())
}

/// Returns the tree as JSON, with matchers in the order of the printer.
fn canonical(expr: &ast::Expr) -> serde_json::Value {
    let mut tree = serde_json::from_str(&to_json(expr)).unwrap();
    sort_matchers(&mut tree);
    tree
}

fn sort_matchers(tree: &mut serde_json::Value) {
    match tree {
        serde_json::Value::Object(fields) => {
            if let Some(matchers) = fields
                .get_mut("matchers")
                .and_then(serde_json::Value::as_array_mut)
            {
                matchers.sort_by_key(ToString::to_string);
            }
            fields.values_mut().for_each(sort_matchers);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(sort_matchers),
        _ => {}
    }
}

/// Returns the features of the language that do not turn errors about names into queries.
fn features() -> Features {
    Features {
        unquoted_utf8_names: false,
        ..Features::all()
    }
}

fn error(text: &str) -> String {
    parse(text, &features()).map_or_else(
        |e| e.to_string(),
        |expr| format!("no error, but {}", print(&expr)),
    )
}
