//! The report of `varve advise verify`.

use std::fmt::Write as _;

use serde::Serialize;
use varve_advise::needs::Problem;

use crate::advise::report::Unparsed;
use crate::report::time;

/// What was found about an expression.
pub(super) enum Verified {
    /// The rules drop and change nothing that it reads: its result is the same at any time.
    Unaffected,
    /// Its result is the same at the time of the evaluation.
    Same,
    /// Its result may change, and why.
    Changed(String),
    /// Why it could not be verified.
    Not(String),
}

/// The report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    /// Number of different expressions.
    expressions: usize,
    /// Number of expressions that read nothing that the rules drop or change.
    unaffected: usize,
    /// Number of expressions that read changed series and have the same result.
    same: usize,
    /// When they were evaluated, in milliseconds.
    time_ms: i64,
    pub(super) changed: Vec<Listed<'a>>,
    not_verified: Vec<Listed<'a>>,
    /// Inputs that could not be parsed.
    problems: Vec<Unparsed<'a>>,
    notes: Vec<String>,
    #[serde(skip)]
    unparsed: &'a [Problem],
}

/// An expression with its places.
#[derive(Debug, Serialize)]
pub(super) struct Listed<'a> {
    expr: &'a str,
    places: Vec<String>,
    reason: String,
}

impl<'a> Listed<'a> {
    fn new(expr: &'a str, places: Vec<String>, reason: String) -> Self {
        Self {
            expr,
            places,
            reason,
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(time_ms: i64, problems: &'a [Problem], notes: Vec<String>) -> Self {
        Self {
            expressions: 0,
            unaffected: 0,
            same: 0,
            time_ms,
            changed: Vec::new(),
            not_verified: Vec::new(),
            problems: problems.iter().map(Unparsed::from).collect(),
            notes,
            unparsed: problems,
        }
    }

    pub(super) fn add(&mut self, expr: &'a str, places: Vec<String>, verified: Verified) {
        self.expressions += 1;
        match verified {
            Verified::Unaffected => self.unaffected += 1,
            Verified::Same => self.same += 1,
            Verified::Changed(reason) => self.changed.push(Listed::new(expr, places, reason)),
            Verified::Not(reason) => self.not_verified.push(Listed::new(expr, places, reason)),
        }
    }

    /// Returns `true` if all expressions were parsed and verified.
    pub(super) fn is_complete(&self) -> bool {
        self.not_verified.is_empty() && self.problems.is_empty()
    }

    /// Prints the report for people, with at most `limit` entries per list.
    pub(super) fn table(&self, limit: usize) -> String {
        let mut out = format!(
            "{} expressions, {} with another result, {} not verified.\n\
             {} read nothing that the rules drop or change.\n\
             {} read series with other labels, and have the same result at {}.\n",
            self.expressions,
            self.changed.len(),
            self.not_verified.len(),
            self.unaffected,
            self.same,
            time(self.time_ms)
        );
        write_list(&mut out, "Another result", &self.changed, limit);
        write_list(&mut out, "Not verified", &self.not_verified, limit);
        if !self.unparsed.is_empty() {
            out.push_str("\nNot parsed\n");
            for problem in self.unparsed.iter().take(limit) {
                let _ = writeln!(out, "  {problem}");
            }
        }
        for note in &self.notes {
            let _ = writeln!(out, "\nnote: {note}");
        }
        out
    }
}

fn write_list(out: &mut String, title: &str, listed: &[Listed<'_>], limit: usize) {
    if listed.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for Listed {
        expr,
        places,
        reason,
    } in listed.iter().take(limit)
    {
        let first = places.first().map_or("", String::as_str);
        let more = match places.len() {
            0 | 1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        let expr = expr.replace('\n', " ");
        let _ = writeln!(out, "  {first}{more}\n    {expr}\n    {reason}");
    }
    if listed.len() > limit {
        let _ = writeln!(out, "  {} more, --limit {limit}", listed.len() - limit);
    }
}
