//! Advice of a running server about its own store: its usage record and its rules are the needs, its series are the
//! inventory. Dashboards are known only as far as their queries are in the usage record.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use varve_advise::usage::{Entry, Snapshot};
use varve_query::usage::LabelSet;
use varve_rules::RuleSet;
use varve_rules::file::RuleKind;
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{Db, Matcher, QueryContext, TimeRange};

use super::drops::{BYTES_PER_SAMPLE, SCRAPE_INTERVAL};
use super::findings::{self, Findings};
use super::inventory::Stored;
use super::needs::{Consumer, Location, Need, Needs, Selector};
use super::relabel_rules::{self, Dialect};
use super::{rules, template};

/// What to advise on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Series with a sample in this range exist.
    pub(crate) range: TimeRange,
    /// Queries before this time do not count.
    pub(crate) used_since_ms: i64,
    /// Also find unused labels.
    pub(crate) labels: bool,
    pub(crate) retention: Duration,
    pub(crate) dialect: Dialect,
}

/// The unused metrics and labels of a store, and the rules that drop them.
#[derive(Debug, Clone)]
pub(crate) struct Advice {
    pub(crate) findings: Findings,
    /// Relabel rules in dry run, as YAML.
    pub(crate) rules: String,
    pub(crate) n_rules: usize,
    /// Number of expressions that were compared.
    pub(crate) n_expressions: usize,
}

/// Compares the series of a store with the usage record and the rules of its server.
///
/// # Errors
/// The errors of [`Db::select`].
pub(crate) fn advise(
    db: &Db,
    ctx: &QueryContext,
    usage: &Snapshot,
    rules: &RuleSet,
    options: Options,
) -> Result<Advice> {
    let mut needs = Needs::default();
    let is_recent = |entry: &&Entry| entry.last_ms >= options.used_since_ms;
    usage.metrics.iter().filter(is_recent).for_each(|entry| needs.add(used_metric(entry)));
    usage.selectors.iter().filter(is_recent).for_each(|entry| needs.add(used_selector(entry)));
    add_rules(rules, &mut needs);
    let stats = db.stats();
    let measured = stats.blocks_size_bytes as f64 / stats.blocks_samples as f64;
    let mut inventory = Stored::new(db, ctx, options.range, SCRAPE_INTERVAL);
    let findings = findings::find(
        &needs,
        &mut inventory,
        findings::Options {
            by_job: false,
            ignore_nameless: false,
            labels: options.labels,
            bytes_per_sample: if measured.is_finite() { measured } else { BYTES_PER_SAMPLE },
            retention: options.retention,
        },
    )?;
    let printed = relabel_rules::Options { dialect: options.dialect, enforce: false, labels: options.labels };
    Ok(Advice {
        rules: relabel_rules::print(&findings, printed),
        n_rules: relabel_rules::count(&findings, options.labels),
        n_expressions: needs.len(),
        findings,
    })
}

fn location(file: &str, within: String) -> Location {
    Location { file: Rc::from(file), within }
}

fn used_metric(entry: &Entry) -> Need {
    let labels = if entry.all_labels {
        LabelSet::all()
    } else {
        LabelSet::Only(entry.matched.iter().chain(&entry.grouped).map(|name| (**name).to_owned()).collect())
    };
    let selectors = vec![Selector { matchers: vec![Matcher::equal(METRIC_NAME, &entry.text)], labels }];
    Need { location: location("usage record", format!("metric {}", entry.text)), consumer: Consumer::Reader, selectors }
}

fn used_selector(entry: &Entry) -> Need {
    let selectors = template::read_plain(&entry.text).selectors;
    Need {
        location: location("usage record", format!("selector {}", entry.text)),
        consumer: Consumer::Reader,
        selectors,
    }
}

fn add_rules(set: &RuleSet, needs: &mut Needs) {
    for group in set.groups() {
        for rule in &group.rules {
            let rule = &rule.definition;
            let mut selectors = template::read_plain(&rule.expr.text).selectors;
            selectors.extend(rules::template_selectors(rule.labels.values()));
            let consumer = match &rule.kind {
                RuleKind::Recording => Consumer::Record(rule.name.clone()),
                RuleKind::Alerting(alerting) => {
                    selectors.extend(rules::template_selectors(alerting.annotations.values()));
                    Consumer::Reader
                }
            };
            let location = location(&group.file, format!("group {}, rule {}", group.name(), rule.name));
            needs.add(Need { location, consumer, selectors });
        }
    }
}
