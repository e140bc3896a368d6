//! Compares two responses to one query.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::harness::Answer;

/// Maximum difference of two values, relative to the larger one.
const TOLERANCE: f64 = 1e-9;

/// How equal two responses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sameness {
    Exact,
    Close,
}

/// Compares two responses: neither may be empty; type, series, timestamps, warnings and infos must be equal, values
/// close.
///
/// # Errors
/// The first difference.
pub(crate) fn compare(ours: &Answer, theirs: &Answer, in_order: bool) -> Result<Sameness, String> {
    if (ours.status, theirs.status) != (200, 200) {
        return Err(format!("varve answers {ours:?}, prometheus {theirs:?}"));
    }
    let (ours, theirs) = (ours.json(), theirs.json());
    for key in ["warnings", "infos"] {
        let texts = |answer: &Value| answer[key].as_array().cloned().unwrap_or_default();
        let set = |answer: &Value| texts(answer).iter().map(Value::to_string).collect::<BTreeSet<_>>();
        equal(key, &set(&ours), &set(&theirs))?;
    }
    let (ours, theirs) = (&ours["data"], &theirs["data"]);
    equal("resultType", &ours["resultType"], &theirs["resultType"])?;
    let mut sameness = Sameness::Exact;
    let points = match theirs["resultType"].as_str() {
        Some("vector" | "matrix") => {
            if in_order {
                equal("order", &metrics(ours), &metrics(theirs))?;
            }
            let (ours, theirs) = (by_series(ours), by_series(theirs));
            equal("series", &ours.keys().collect::<Vec<_>>(), &theirs.keys().collect::<Vec<_>>())?;
            theirs.into_iter().map(|(series, theirs)| (ours[&series].clone(), theirs, series)).collect()
        }
        _ => vec![(vec![ours["result"].clone()], vec![theirs["result"].clone()], "the result".to_owned())],
    };
    if points.is_empty() {
        return Err("the answer is empty".to_owned());
    }
    for (ours, theirs, series) in points {
        equal(&format!("number of points of {series}"), &ours.len(), &theirs.len())?;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            equal(&format!("timestamp of {series}"), &ours[0], &theirs[0])?;
            if ours[1] != theirs[1] {
                sameness = Sameness::Close;
                if !close(&ours[1], &theirs[1]) {
                    return Err(format!("{series}: varve has {ours}, prometheus {theirs}"));
                }
            }
        }
    }
    Ok(sameness)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}: varve has {ours:?}, prometheus {theirs:?}")) }
}

fn metrics(data: &Value) -> Vec<&Value> {
    let result = data["result"].as_array().expect("a vector or matrix is an array");
    result.iter().map(|series| &series["metric"]).collect()
}

/// Returns the points of each series.
fn by_series(data: &Value) -> BTreeMap<String, Vec<Value>> {
    let result = data["result"].as_array().expect("a vector or matrix is an array");
    let points = |series: &Value| match series["values"].as_array() {
        Some(values) => values.clone(),
        None => vec![series["value"].clone()],
    };
    let by_series: BTreeMap<_, _> =
        result.iter().map(|series| (series["metric"].to_string(), points(series))).collect();
    assert_eq!(by_series.len(), result.len(), "a series occurs twice");
    by_series
}

fn close(ours: &Value, theirs: &Value) -> bool {
    let float = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok());
    let (Some(ours), Some(theirs)) = (float(ours), float(theirs)) else { return false };
    (ours - theirs).abs() <= TOLERANCE * ours.abs().max(theirs.abs())
}
