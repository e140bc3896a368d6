//! What nobody needs, and what it costs.
//!
//! A metric is unused if no selector takes its name; with [`Options::by_job`] also in the jobs that no selector of it takes.
//! A histogram bucket is unused if its metric is used and every selector of that asks for other values of `le`. A label is
//! unused if every selector of its metric uses others only. What a recording rule writes, what a server makes by itself
//! (`up`, `scrape_*`, `ALERTS`) and `target_info`, which joins read without naming it, are never found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use varve_query::usage::LabelSet;

use super::inventory::{Amount, Inventory, MetricId};
use super::needs::{Needs, Selector};

/// How findings are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Matchers on `job` count.
    pub(super) by_job: bool,
    /// Selectors without a metric's name do not count.
    pub(super) ignore_nameless: bool,
    /// What a sample takes on the disk.
    pub(super) bytes_per_sample: f64,
    /// How long samples are kept.
    pub(super) retention: Duration,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Findings {
    pub(super) totals: Totals,
    /// What nobody needs, the most expensive first.
    pub(super) unused: Vec<Finding>,
    /// Metrics that only recording rules need whose results nobody reads.
    pub(super) unread: Vec<Finding>,
    /// Selectors without a metric's name, each of which keeps all that it may select.
    pub(super) nameless: Vec<String>,
}

/// How much there is, and how much of it is of metrics that nobody needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub(super) struct Totals {
    pub(super) metrics: u64,
    pub(super) series: u64,
    pub(super) samples_per_second: f64,
    pub(super) unused_metrics: u64,
    pub(super) unused_metric_series: u64,
    /// Series of metrics, or buckets, that nobody needs.
    pub(super) unused_series: u64,
    pub(super) unused_samples_per_second: f64,
    pub(super) unused_bytes: f64,
}

/// Something that nobody needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) job: String,
    pub(super) metric: String,
    /// The label of [`Kind::Label`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) label: String,
    /// The values of `le` of [`Kind::Buckets`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) buckets: Vec<String>,
    /// Series that would not be there without it.
    pub(super) series: u64,
    pub(super) samples_per_second: f64,
    /// On the disk, over the time that samples are kept.
    pub(super) bytes: f64,
    /// A relabelling rule can take it away and change no answer.
    pub(super) droppable: bool,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Metric,
    Buckets,
    Label,
}

/// Labels that tell series apart for more than those who ask: nobody is advised to take them away.
const KEPT_LABELS: [&str; 5] = ["__name__", "instance", "job", "le", "quantile"];

/// Finds what nobody needs.
///
/// # Errors
/// If the inventory cannot be read.
pub(super) fn find(needs: &Needs, inventory: &mut dyn Inventory, options: Options) -> Result<Findings> {
    let metrics = inventory.metrics()?;
    let nameless = needs.nameless().map(|(place, _)| place.to_string()).collect::<BTreeSet<_>>();
    let mut search = Search {
        recorded: needs.recorded(),
        read: needs.read(),
        needs,
        options,
        found: Findings {
            totals: Totals::default(),
            unused: Vec::new(),
            unread: Vec::new(),
            nameless: nameless.into_iter().collect(),
        },
    };
    for (metric, amount) in &metrics {
        search.look_at(metric, *amount, inventory)?;
    }
    Ok(search.finish())
}

struct Search<'a> {
    needs: &'a Needs,
    recorded: BTreeSet<&'a str>,
    read: Vec<bool>,
    options: Options,
    found: Findings,
}

impl Search<'_> {
    fn look_at(&mut self, metric: &MetricId, amount: Amount, inventory: &mut dyn Inventory) -> Result<()> {
        let totals = &mut self.found.totals;
        totals.metrics += 1;
        totals.series += amount.n_series;
        totals.samples_per_second += amount.n_series as f64 * amount.samples_per_second;
        if self.is_kept(&metric.name) {
            return Ok(());
        }
        let asks = |selector: &Selector| match selector.is_nameless() {
            true => !self.options.ignore_nameless && selector.passes("job", &metric.job),
            false => !self.options.by_job || selector.passes("job", &metric.job),
        };
        let used: Vec<_> = self.needs.of_metric(&metric.name).filter(|(_, selector)| asks(selector)).collect();
        if used.is_empty() {
            let finding = self.finding(Kind::Metric, metric, amount, amount.n_series);
            self.found.unused.push(finding);
            return Ok(());
        }
        if !used.iter().any(|(need, _)| self.read[*need]) {
            let finding = self.finding(Kind::Metric, metric, amount, amount.n_series);
            self.found.unread.push(finding);
        }
        let selectors: Vec<_> = used.into_iter().map(|(_, selector)| selector).collect();
        self.look_at_buckets(metric, amount, &selectors, inventory)?;
        self.look_at_labels(metric, amount, &selectors, inventory)
    }

    fn is_kept(&self, name: &str) -> bool {
        let is_made =
            matches!(name, "up" | "ALERTS" | "ALERTS_FOR_STATE" | "target_info") || name.starts_with("scrape_");
        // By custom, only recording rules write names with colons.
        is_made || name.contains(':') || self.recorded.contains(name)
    }

    fn look_at_buckets(
        &mut self,
        metric: &MetricId,
        amount: Amount,
        selectors: &[&Selector],
        inventory: &mut dyn Inventory,
    ) -> Result<()> {
        let tests_bound = |selector: &&Selector| selector.tests.iter().any(|test| test.name() == "le");
        if !metric.name.ends_with("_bucket") || !selectors.iter().all(tests_bound) {
            return Ok(());
        }
        let mut buckets = inventory.buckets(metric)?;
        let passes = |bound: &str| selectors.iter().any(|selector| selector.passes("le", bound));
        // Without its last bucket a histogram says nothing any more, should somebody ask again.
        buckets.retain(|bound, _| bound != "+Inf" && !spellings(bound).iter().any(|bound| passes(bound)));
        let n_series = buckets.values().sum();
        if n_series > 0 {
            let finding = self.finding(Kind::Buckets, metric, amount, n_series);
            self.found.unused.push(Finding { buckets: buckets.into_keys().collect(), ..finding });
        }
        Ok(())
    }

    fn look_at_labels(
        &mut self,
        metric: &MetricId,
        amount: Amount,
        selectors: &[&Selector],
        inventory: &mut dyn Inventory,
    ) -> Result<()> {
        if selectors.iter().any(|selector| selector.labels == LabelSet::all()) {
            return Ok(());
        }
        let is_used = |label: &str| {
            KEPT_LABELS.contains(&label) || selectors.iter().any(|selector| selector.labels.contains(label))
        };
        let unused: Vec<_> = inventory.labels(metric)?.into_iter().filter(|label| !is_used(label)).collect();
        let mut taken: Vec<&str> = Vec::new();
        for label in &unused {
            let n_left = inventory.n_series_without(metric, &[label.as_str()])?;
            // Labels may be taken away together only if no two series become one by it.
            taken.push(label);
            let is_free = inventory.n_series_without(metric, &taken)? == amount.n_series;
            if !is_free {
                taken.pop();
            }
            let finding = self.finding(Kind::Label, metric, amount, amount.n_series.saturating_sub(n_left));
            self.found.unused.push(Finding { label: label.clone(), droppable: is_free, ..finding });
        }
        Ok(())
    }

    fn finding(&self, kind: Kind, metric: &MetricId, amount: Amount, n_series: u64) -> Finding {
        let samples_per_second = n_series as f64 * amount.samples_per_second;
        Finding {
            kind,
            job: metric.job.clone(),
            metric: metric.name.clone(),
            label: String::new(),
            buckets: Vec::new(),
            series: n_series,
            samples_per_second,
            bytes: samples_per_second * self.options.retention.as_secs_f64() * self.options.bytes_per_sample,
            droppable: true,
        }
    }

    fn finish(mut self) -> Findings {
        let totals = &mut self.found.totals;
        for finding in self.found.unused.iter().filter(|finding| finding.kind != Kind::Label) {
            totals.unused_series += finding.series;
            totals.unused_samples_per_second += finding.samples_per_second;
            totals.unused_bytes += finding.bytes;
            if finding.kind == Kind::Metric {
                totals.unused_metrics += 1;
                totals.unused_metric_series += finding.series;
            }
        }
        for list in [&mut self.found.unused, &mut self.found.unread] {
            list.sort_by(|a, b| {
                let names = |finding: &Finding| (finding.job.clone(), finding.metric.clone(), finding.label.clone());
                b.series.cmp(&a.series).then_with(|| (a.kind, names(a)).cmp(&(b.kind, names(b))))
            });
        }
        self.found
    }
}

impl Totals {
    /// Returns the share of series that nobody needs, in percent.
    pub(super) fn unused_percent(&self) -> f64 {
        if self.series == 0 { 0.0 } else { 100.0 * self.unused_series as f64 / self.series as f64 }
    }
}

/// Returns how the bound of a bucket may be written: Prometheus 3 writes `5.0` where exporters write `5`.
pub(super) fn spellings(bound: &str) -> Vec<String> {
    let is_whole = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match bound.strip_suffix(".0") {
        Some(whole) if is_whole(whole) => vec![whole.to_owned(), bound.to_owned()],
        None if is_whole(bound) => vec![bound.to_owned(), format!("{bound}.0")],
        _ => vec![bound.to_owned()],
    }
}

/// Findings by job, in the order of jobs; within one in the order of the findings.
pub(super) fn by_job<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> BTreeMap<&'a str, Vec<&'a Finding>> {
    let mut jobs: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        jobs.entry(&finding.job).or_default().push(finding);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::super::inventory::Scrapes;
    use super::super::rules;
    use super::*;

    /// Finds what of a scrape of job `j` the rules of a group do not need: `kind metric label series droppable`.
    fn found(scrape: &str, exprs: &[&str], by_job: bool) -> Findings {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), scrape).unwrap();
        let mut scrapes = Scrapes::new(Duration::from_secs(10), BTreeMap::new(), [("j".to_owned(), 2)].into());
        scrapes.add("j", file.path()).unwrap();
        let (mut needs, mut problems) = (Needs::default(), Vec::new());
        let rule = |expr: &&str| match expr.split_once(" = ") {
            Some((record, expr)) => serde_json::json!({"record": record, "expr": expr}),
            None => serde_json::json!({"alert": "a", "expr": expr}),
        };
        let groups =
            serde_json::json!({"groups": [{"name": "g", "rules": exprs.iter().map(rule).collect::<Vec<_>>()}]});
        rules::read(&"file".into(), &groups.to_string(), &mut needs, &mut problems);
        assert_eq!(problems, []);
        let options =
            Options { by_job, ignore_nameless: false, bytes_per_sample: 2.0, retention: Duration::from_secs(100) };
        find(&needs, &mut scrapes, options).unwrap()
    }

    fn check(scrape: &str, exprs: &[&str], expect: &[&str]) {
        let print = |f: &Finding| {
            let of_kind = if f.kind == Kind::Label { f.label.clone() } else { f.buckets.join(",") };
            let rule = if f.droppable { "" } else { " no rule" };
            format!("{} {of_kind} {}{rule}", f.metric, f.series)
        };
        let found = found(scrape, exprs, false);
        assert_eq!(found.unused.iter().map(print).collect::<Vec<_>>(), expect, "{exprs:?}");
    }

    #[test]
    fn metrics_that_no_selector_takes_are_found_with_their_cost() {
        check("a{x=\"1\"} 1\na{x=\"2\"} 1\nb 1\nup 1\nscrape_x 1\nr 1\nc:d 1\n", &["r = b"], &["a  4"]);
        check("a 1\nab 1\n", &["{__name__=~\"a.+\"}"], &["a  2"]);
        check("a 1\nb 1\n", &["{job=\"j\"}"], &[]);
        check("a 1\nb 1\n", &["{job=\"other\"}"], &["a  2", "b  2"]);
        let found = found("a 1\n", &["b"], false);
        let finding = &found.unused[0];
        assert_eq!((finding.series, finding.samples_per_second, finding.bytes), (2, 0.2, 40.0));
        assert_eq!((found.totals.unused_series, found.totals.unused_percent()), (2, 100.0));
    }

    #[test]
    fn jobs_count_only_when_they_are_asked_to() {
        let unused = |by_job| found("a 1\n", &["a{job=\"other\"}"], by_job).unused.len();
        assert_eq!((unused(false), unused(true)), (0, 1));
    }

    #[test]
    fn what_only_unread_rules_need_is_marked() {
        let found = found("a 1\nb 1\n", &["r = a", "s = b", "s > 0"], false);
        assert_eq!(found.unread.iter().map(|f| f.metric.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(found.unused, []);
    }

    #[test]
    fn buckets_that_no_selector_takes_are_found() {
        let scrape = "h_bucket{le=\"1\"} 1\nh_bucket{le=\"5.0\"} 1\nh_bucket{le=\"10\"} 1\nh_bucket{le=\"+Inf\"} 1\n";
        check(scrape, &["h_bucket{le=\"1.0\"} > 0"], &["h_bucket 10,5.0 4"]);
        check(scrape, &["h_bucket{le=~\"5|10\"} > 0", "h_bucket{le=\"+Inf\"}"], &["h_bucket 1 2"]);
        check(scrape, &["h_bucket{le=\"1\"} > 0", "histogram_quantile(0.9, h_bucket)"], &[]);
    }

    #[test]
    fn labels_that_no_expression_uses_are_found() {
        let scrape = "a{x=\"1\",y=\"1\",z=\"0\"} 1\na{x=\"2\",y=\"1\",z=\"0\"} 1\n";
        check(scrape, &["sum by (y) (a)"], &["a x 2 no rule", "a z 0"]);
        check(scrape, &["a"], &[]);
        check(scrape, &["sum by (x) (a{z=\"0\"})"], &["a y 0"]);
        // Each of the two tells the series apart, so only one of them may go.
        check("a{x=\"1\",y=\"1\"} 1\na{x=\"2\",y=\"2\"} 1\n", &["sum(a)"], &["a x 0", "a y 0 no rule"]);
    }

    #[test]
    fn bounds_are_spelled_in_two_ways() {
        assert_eq!(
            (spellings("5"), spellings("5.0")),
            (vec!["5".into(), "5.0".into()], vec!["5".into(), "5.0".into()])
        );
        assert_eq!((spellings("0.5"), spellings("+Inf")), (vec!["0.5".to_owned()], vec!["+Inf".to_owned()]));
    }
}
