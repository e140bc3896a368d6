//! Known differences from the releases of Prometheus that the test queries: the table in
//! docs/promql.md. Varve follows 3.16.

use super::compare::{Outcome, Sameness, compare, compare_responses, compare_values};
use super::generator::Question;
use crate::harness::{Release, Releases};

/// A known difference.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) releases: Releases,
    pub(super) effect: Effect,
}

pub(super) enum Effect {
    /// Annotations differ in parts that `compare` removes.
    Annotations,
    /// Calls have other values: the smallest part of the query that differs calls one of the
    /// functions, and `pair` accepts all pairs of values that differ.
    Values {
        functions: &'static [&'static str],
        pair: fn(&str, &str) -> bool,
    },
    /// As `Values`, for native histograms.
    Histograms {
        functions: &'static [&'static str],
        pair: fn(&str, &str) -> bool,
    },
    /// Calls of these functions count other numbers of samples.
    Samples { functions: &'static [&'static str] },
    /// Functions of subqueries count other numbers of samples.
    Subqueries,
    /// Queries with one of these parts have other warnings that contain the text.
    Warnings {
        parts: &'static [&'static str],
        text: &'static str,
    },
    /// A call has another result.
    Anything { function: &'static str },
    /// One side fails with this error, the other does not.
    Error {
        ours: Option<&'static str>,
        theirs: Option<&'static str>,
    },
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "sort-warning",
        releases: Releases::Older,
        effect: Effect::Annotations,
    },
    Known {
        name: "annotation-details",
        releases: Releases::Older,
        effect: Effect::Annotations,
    },
    Known {
        name: "annotation-place",
        releases: Releases::Older,
        effect: Effect::Annotations,
    },
    Known {
        name: "fraction-of-first-bucket",
        releases: Releases::Older,
        effect: Effect::Values {
            functions: &["histogram_fraction"],
            pair: |ours, theirs| ours != "NaN" && theirs == "NaN",
        },
    },
    Known {
        name: "mad-of-nan",
        releases: Releases::Older,
        // One response may have this difference and `infinity-at-exact-ranks`.
        effect: Effect::Values {
            functions: &["mad_over_time"],
            pair: |ours, theirs| (ours == "NaN") != (theirs == "NaN"),
        },
    },
    Known {
        name: "infinity-at-exact-ranks",
        releases: Releases::Older,
        effect: Effect::Values {
            functions: &[
                "quantile",
                "quantile ",
                "quantile by ",
                "quantile without ",
                "quantile_over_time",
                "mad_over_time",
            ],
            pair: |ours, theirs| ours != "NaN" && theirs == "NaN",
        },
    },
    Known {
        name: "info-of-gaps",
        releases: Releases::Older,
        effect: Effect::Anything { function: "info" },
    },
    Known {
        name: "matches-of-comparisons",
        releases: Releases::Older,
        effect: Effect::Error {
            ours: Some("multiple matches for labels: "),
            theirs: None,
        },
    },
    Known {
        name: "negated-names",
        releases: Releases::Older,
        effect: Effect::Error {
            ours: None,
            theirs: Some("vector cannot contain metrics with the same labelset"),
        },
    },
    Known {
        name: "zero-of-histograms",
        releases: Releases::Older,
        effect: Effect::Histograms {
            functions: &["rate", "increase"],
            // All buckets, as well as count and sum, are multiplied by less.
            pair: |ours, theirs| match (ours.parse::<f64>(), theirs.parse::<f64>()) {
                (Ok(ours), Ok(theirs)) => {
                    ours.abs() < theirs.abs() && ours.signum() == theirs.signum()
                }
                _ => false,
            },
        },
    },
    Known {
        name: "mean-of-infinite-histograms",
        releases: Releases::Older,
        effect: Effect::Histograms {
            functions: &["avg", "avg by ", "avg without ", "avg_over_time"],
            pair: |ours, theirs| matches!(ours, "+Inf" | "-Inf") && theirs == "NaN",
        },
    },
    Known {
        name: "samples-of-totals",
        releases: Releases::Older,
        effect: Effect::Samples {
            functions: OF_TOTALS,
        },
    },
    Known {
        name: "samples-of-subqueries",
        releases: Releases::Older,
        effect: Effect::Subqueries,
    },
    Known {
        name: "samples-of-presence",
        releases: Releases::Older,
        effect: Effect::Samples {
            functions: &["absent", "timestamp"],
        },
    },
    Known {
        name: "overflow-of-rad",
        releases: Releases::Older,
        effect: Effect::Values {
            functions: &["rad"],
            pair: |ours, theirs| {
                ours.parse().is_ok_and(f64::is_finite) && matches!(theirs, "+Inf" | "-Inf")
            },
        },
    },
    Known {
        name: "resets-of-totals",
        releases: Releases::Older,
        effect: Effect::Warnings {
            parts: &[
                "histogram_count",
                "histogram_sum",
                "histogram_avg",
                "absent",
                "timestamp",
            ],
            text: "conflicting counter resets",
        },
    },
    Known {
        name: "gauges-of-differences",
        releases: Releases::Older,
        effect: Effect::Warnings {
            parts: &["-"],
            text: "this native histogram metric is not a",
        },
    },
    Known {
        name: "zero-of-custom",
        releases: Releases::All,
        effect: Effect::Error {
            ours: None,
            theirs: Some("histograms with custom buckets have no zero bucket"),
        },
    },
    Known {
        name: "mixes-of-three",
        releases: Releases::All,
        effect: Effect::Warnings {
            parts: &["sum", "avg"],
            text: "a mix of histograms",
        },
    },
    Known {
        name: "steps-of-subqueries",
        releases: Releases::Older,
        effect: Effect::Warnings {
            parts: &[":"],
            text: "quantile value should be between 0 and 1",
        },
    },
];

/// Functions that read only the totals of native histograms.
const OF_TOTALS: &[&str] = &["histogram_count", "histogram_sum", "histogram_avg"];

/// Maximum number of known differences.
const KNOWN_MAX: usize = 30;

/// Finds the known difference that explains two responses; `question` is the smallest part of the
/// query that differs.
pub(super) fn explain(
    release: &Release,
    question: &Question,
    ours: &Outcome,
    theirs: &Outcome,
) -> Option<&'static str> {
    let calls = |function: &str| {
        let mut places = question
            .query
            .match_indices(function)
            .map(|(at, _)| question.query.split_at(at));
        places.any(|(before, after)| {
            !before.ends_with(['_', ':']) && after[function.len()..].starts_with('(')
        })
    };
    let ranges = question
        .query
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split(']').next());
    let has_subquery = ranges.into_iter().any(|range| range.contains(':'));
    // Older releases count the samples of subqueries in another way.
    let counts_differ = has_subquery && release.is_of(Releases::Older);
    let same_but_for = |pair: fn(&str, &str) -> bool| {
        let same = |a: &str, b: &str| {
            compare_values(a, b).or_else(|| pair(a, b).then_some(Sameness::Close))
        };
        let compared = if counts_differ {
            compare_responses
        } else {
            compare
        };
        compared(&question.query, ours, theirs, &same).is_ok()
    };
    let has_same_result =
        || compare_responses(&question.query, ours, theirs, &compare_values).is_ok();
    let explains = |known: &&Known| match known.effect {
        Effect::Annotations => false,
        Effect::Anything { function } => calls(function),
        Effect::Error { ours: a, theirs: b } => {
            [(a, ours), (b, theirs)]
                .iter()
                .all(|(text, outcome)| match text {
                    Some(text) => outcome.error().starts_with(text),
                    None => !outcome.is_error(),
                })
        }
        Effect::Values { functions, pair } => {
            functions.iter().any(|function| calls(function)) && same_but_for(pair)
        }
        Effect::Histograms { functions, pair } => {
            functions.iter().any(|function| calls(function))
                && ours.has_histograms()
                && same_but_for(pair)
        }
        Effect::Warnings { parts, text } => {
            let [ours, theirs] = [ours, theirs].map(|outcome| outcome.without_warnings(text));
            let same = compare_responses(&question.query, &ours, &theirs, &compare_values).is_ok();
            parts.iter().any(|part| question.query.contains(part)) && same
        }
        Effect::Samples { functions } => {
            functions.iter().any(|function| calls(function)) && has_same_result()
        }
        Effect::Subqueries => has_subquery && has_same_result(),
    };
    KNOWN
        .iter()
        .filter(|known| release.is_of(known.releases))
        .find(explains)
        .map(|known| known.name)
}

#[test]
fn known_differences_are_those_of_the_documentation() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/promql.md")).unwrap();
    let section = page
        .split_once("\n## Differences that the differential test knows")
        .expect("the page has the section")
        .1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let documented: Vec<_> = rows
        .map(|(name, rest)| (name, rest.split(" | ").next().unwrap_or_default()))
        .collect();
    let versions = |known: &Known| match known.releases {
        Releases::All => "all",
        Releases::Older => "before 3.16",
        Releases::Newest => "3.16",
    };
    assert_eq!(
        documented,
        KNOWN
            .iter()
            .map(|known| (known.name, versions(known)))
            .collect::<Vec<_>>()
    );
    assert!(documented.len() <= KNOWN_MAX);
}
