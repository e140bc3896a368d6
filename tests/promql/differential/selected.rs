//! Series that match given selectors: data for queries about components that are not scraped.

use std::collections::BTreeMap;

use varve_model::{MatchOp, Matcher};
use varve_promql::quote::quoted;

/// Labels and their values.
pub(super) type Labels = BTreeMap<String, String>;

/// Labels that targets and pods have in common, so that series of different names join.
const COMMON: [(&str, &str); 7] = [
    ("cluster", "synthetic"),
    ("namespace", "monitoring"),
    ("pod", "pod-0"),
    ("container", "main"),
    ("node", "node-0"),
    ("job", "synthetic"),
    ("instance", "10.1.0.1:9090"),
];

/// Bounds of the buckets of a classic histogram.
const BOUNDS: [&str; 4] = ["0.1", "1.0", "10.0", "+Inf"];

/// Formats a selector.
pub(super) fn print(matchers: &[Matcher]) -> String {
    let print = |matcher: &Matcher| {
        format!(
            "{}{}{}",
            matcher.name(),
            matcher.op().as_str(),
            quoted(matcher.value())
        )
    };
    format!(
        "{{{}}}",
        matchers.iter().map(print).collect::<Vec<_>>().join(",")
    )
}

/// Creates series that a selector matches; none if no value is found that a regular expression
/// matches.
pub(super) fn series(matchers: &[Matcher]) -> Vec<Labels> {
    let mut labels: Labels = COMMON
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    for matcher in matchers {
        let value = labels.get(matcher.name()).map_or("", String::as_str);
        if !matcher.matches(value) {
            labels.insert(matcher.name().to_owned(), value_for(matcher));
        }
    }
    labels.retain(|_, value| !value.is_empty());
    let is_selected = |labels: &Labels| {
        matchers
            .iter()
            .all(|matcher| matcher.matches(labels.get(matcher.name()).map_or("", String::as_str)))
    };
    let is_bucket = labels
        .get("__name__")
        .is_some_and(|name| name.ends_with("_bucket"));
    let with_bounds = |bound: &str| {
        let mut labels = labels.clone();
        labels.insert("le".to_owned(), bound.to_owned());
        labels
    };
    let all = if is_bucket {
        BOUNDS.map(with_bounds).to_vec()
    } else {
        vec![labels.clone()]
    };
    let selected: Vec<_> = all.into_iter().filter(is_selected).collect();
    // The selector may match a bound that is not in the list.
    if selected.is_empty() && is_selected(&labels) {
        vec![labels]
    } else {
        selected
    }
}

/// Returns the index of a bucket in its histogram; later buckets have higher counts.
pub(super) fn rank(labels: &Labels) -> Option<usize> {
    BOUNDS
        .iter()
        .position(|bound| labels.get("le").is_some_and(|le| le == bound))
}

/// Returns a value that a matcher accepts; any value if none is found.
fn value_for(matcher: &Matcher) -> String {
    match matcher.op() {
        MatchOp::Equal => matcher.value().to_owned(),
        MatchOp::NotEqual | MatchOp::NotRegexp => "other".to_owned(),
        MatchOp::Regexp => {
            let parts = matcher
                .value()
                .split(['|', '(', ')', '^', '$'])
                .map(literal);
            parts
                .chain(["any".to_owned()])
                .find(|value| matcher.matches(value))
                .unwrap_or_default()
        }
    }
}

/// Returns a string that simple regular expressions match: their literal part.
fn literal(regexp: &str) -> String {
    let simpler = regexp
        .replace(".*", "")
        .replace(".+", "x")
        .replace("[0-9]", "0")
        .replace("[a-z]+", "x");
    simpler
        .replace("\\.", "\0")
        .replace('.', "0")
        .replace('\0', ".")
        .replace('\\', "")
}
