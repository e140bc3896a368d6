//! The report of `varve advise verify`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use varve_advise::counted;
use varve_advise::needs::{Problem, Reader};

use crate::advise::report::{Unparsed, list};
use crate::report::time;

/// What was found about a rule, a panel or a variable, the best first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// It selects nothing that the relabel rules drop or change.
    Unaffected,
    /// It selects the same series with other labels, and its result is the same at the time of the
    /// evaluation.
    Same,
    /// Why it is not verified.
    Unknown(String),
    /// Why its result may change.
    Changed(String),
}

/// The report.
#[derive(Debug)]
pub(super) struct Report<'a> {
    time_ms: i64,
    n_unaffected: usize,
    n_same: usize,
    /// Places by expression and reason.
    changed: BTreeMap<Listed, Vec<String>>,
    unknown: BTreeMap<Listed, Vec<String>>,
    problems: &'a [Problem],
    notes: Vec<String>,
}

/// What several places have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// The expression, or empty if it is not known.
    expr: String,
    reason: String,
}

/// The report in JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JsonReport<'a> {
    /// When expressions were evaluated, in milliseconds.
    time_ms: i64,
    unaffected: usize,
    same: usize,
    may_change: Vec<JsonListed<'a>>,
    not_verified: Vec<JsonListed<'a>>,
    problems: Vec<Unparsed<'a>>,
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct JsonListed<'a> {
    expr: &'a str,
    reason: &'a str,
    places: &'a [String],
}

impl<'a> Report<'a> {
    pub(super) fn new(time_ms: i64, problems: &'a [Problem], notes: Vec<String>) -> Self {
        Self {
            time_ms,
            n_unaffected: 0,
            n_same: 0,
            changed: BTreeMap::new(),
            unknown: BTreeMap::new(),
            problems,
            notes,
        }
    }

    pub(super) fn add(&mut self, reader: Reader<'_>, verdict: Verdict) {
        let expr = reader.exprs().first().cloned().unwrap_or_default();
        let (list, reason) = match verdict {
            Verdict::Unaffected => return self.n_unaffected += 1,
            Verdict::Same => return self.n_same += 1,
            Verdict::Unknown(reason) => (&mut self.unknown, reason),
            Verdict::Changed(reason) => (&mut self.changed, reason),
        };
        list.entry(Listed { expr, reason })
            .or_default()
            .push(reader.place());
    }

    /// Returns `true` if a result may change.
    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns `true` if all expressions were parsed and verified.
    pub(super) fn is_complete(&self) -> bool {
        self.unknown.is_empty() && self.problems.is_empty()
    }

    pub(super) fn json(&self) -> JsonReport<'_> {
        JsonReport {
            time_ms: self.time_ms,
            unaffected: self.n_unaffected,
            same: self.n_same,
            may_change: json(&self.changed),
            not_verified: json(&self.unknown),
            problems: self.problems.iter().map(Unparsed::from).collect(),
            notes: &self.notes,
        }
    }

    /// Prints the report for people, with at most `limit` entries per list.
    pub(super) fn table(&self, limit: usize) -> String {
        let n_changed: usize = self.changed.values().map(Vec::len).sum();
        let n_unknown: usize = self.unknown.values().map(Vec::len).sum();
        let n_all = self.n_unaffected + self.n_same + n_changed + n_unknown;
        let mut out = format!(
            "{}: {n_changed} may have another result, {n_unknown} are not verified.\n\
             {} select nothing that the relabel rules drop or change.\n\
             {} select series with other labels, and have the same result at {}.\n",
            counted(n_all, "expression"),
            self.n_unaffected,
            self.n_same,
            time(self.time_ms)
        );
        list(
            &mut out,
            "May have another result",
            &lines(&self.changed),
            limit,
        );
        list(&mut out, "Not verified", &lines(&self.unknown), limit);
        let problems: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        list(&mut out, "Not read or not parsed", &problems, limit);
        list(&mut out, "Notes", &self.notes, limit);
        out
    }
}

fn json(listed: &BTreeMap<Listed, Vec<String>>) -> Vec<JsonListed<'_>> {
    listed
        .iter()
        .map(|(Listed { expr, reason }, places)| JsonListed {
            expr,
            reason,
            places,
        })
        .collect()
}

fn lines(listed: &BTreeMap<Listed, Vec<String>>) -> Vec<String> {
    listed
        .iter()
        .map(|(Listed { expr, reason }, places)| {
            let mut line = places.first().cloned().unwrap_or_default();
            if places.len() > 1 {
                let _ = write!(line, ", and {} more", places.len() - 1);
            }
            for part in [expr, reason].into_iter().filter(|part| !part.is_empty()) {
                let _ = write!(line, "\n    {}", part.replace('\n', " "));
            }
            line
        })
        .collect()
}
