//! Unused metrics, buckets and labels, and their cost.
//!
//! A metric is unused if no selector matches its name. With [`Options::by_job`], it is also unused
//! in the jobs that none of its selectors match. A histogram bucket is unused if its metric is
//! used, but only with other values of `le`. A label is unused if the metric's selectors use other
//! labels only. The results of recording rules, series that the server creates (`up`, `scrape_*`,
//! `ALERTS`) and `target_info`, which joins read without naming it, are never unused. The series of
//! the server itself are ignored: relabel rules do not apply to them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varve_promql::decimal::open_metrics;
use varve_promql::number::parse_float;
use varve_query::usage::LabelSet;

use crate::inventory::{Inventory, MetricId, MetricSize};
use crate::keep::Keep;
use crate::needs::{Nameless, Needs, Selector};

/// Options of the analysis.
#[derive(Debug, Clone)]
pub struct Options {
    /// The job of the server's own series, which are ignored.
    pub own_job: &'static str,
    /// Respect matchers on `job`.
    pub by_job: bool,
    /// Which selectors without a metric name count as uses.
    pub nameless: Nameless,
    /// Unused metrics that are kept.
    pub keep: Keep,
    /// Find unused labels, which takes two passes over the series per label.
    pub labels: bool,
    /// Bytes per sample on disk.
    pub bytes_per_sample: f64,
    /// The retention.
    pub retention: Duration,
}

/// The result of the analysis.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// The sizes of everything and of what is unused.
    pub totals: Totals,
    /// Unused metrics, buckets and labels, most expensive first.
    pub unused: Vec<Finding>,
    /// Unused metrics that are kept, most expensive first.
    pub kept: Vec<Kept>,
    /// Metrics that only recording rules with unread results need.
    pub unread: Vec<Finding>,
    /// Used buckets of classic histograms that the job also exposes as native histograms. Queries of
    /// the native histogram can replace those of the buckets, which can then be dropped.
    pub classic_beside_native: Vec<Finding>,
    /// Selectors without a metric name of rules and dashboards, and with [`Nameless::All`] also of
    /// recorded queries.
    pub nameless: Vec<String>,
    /// Selectors without a metric name of recorded queries, unless they count as uses.
    pub exploration: Vec<String>,
}

/// Total and unused sizes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Metrics, counted per job.
    pub metrics: u64,
    /// Their series.
    pub series: u64,
    /// Their samples per second.
    pub samples_per_second: f64,
    /// Unused metrics, counted per job.
    pub unused_metrics: u64,
    /// Their series.
    pub unused_metric_series: u64,
    /// Series of unused metrics and buckets.
    pub unused_series: u64,
    /// Samples per second of these series.
    pub unused_samples_per_second: f64,
    /// Bytes of these series on disk over the retention.
    pub unused_bytes: f64,
}

/// An unused metric, set of buckets, or label.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What is unused.
    pub kind: Kind,
    /// The job of the metric.
    pub job: String,
    /// The metric name.
    pub metric: String,
    /// The label of [`Kind::Label`].
    pub label: String,
    /// The values of `le` of [`Kind::Buckets`].
    pub buckets: Vec<String>,
    /// Series that would disappear if it were dropped.
    pub series: u64,
    /// Samples per second of these series.
    pub samples_per_second: f64,
    /// Bytes on disk over the retention.
    pub bytes: f64,
    /// `true` if a relabel rule can drop it without changing a query result.
    pub droppable: bool,
}

/// An unused metric on the keep list.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The metric and its size.
    pub finding: Finding,
    /// The preset, or the regular expression, that keeps it.
    pub kept_by: String,
}

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// All series of a metric in a job.
    Metric,
    /// Buckets of a classic histogram.
    Buckets,
    /// A label of a metric.
    Label,
}

/// Labels that are never reported, because they identify series beyond queries.
const PROTECTED_LABELS: [&str; 5] = ["__name__", "instance", "job", "le", "quantile"];

/// How often the texts of a finding are in memory at once: in the finding, in the relabel rule that
/// drops it, in the text of all rules and in the report.
const COPIES: usize = 5;
/// Memory of a bound of buckets besides its text.
const BOUND_SIZE: usize = 64;

/// Charges a finding about a metric, with `size` bytes of further texts.
fn charge_finding<I: Inventory>(
    metric: &MetricId,
    size: usize,
    inventory: &mut I,
) -> Result<(), I::Error> {
    let texts = metric.job.len() + metric.name.len() + size;
    inventory.charge(COPIES * (size_of::<Finding>() + texts))
}

/// Finds unused metrics, buckets and labels.
///
/// # Errors
/// If the inventory cannot be read.
pub fn find<I: Inventory>(
    needs: &Needs,
    inventory: &mut I,
    options: Options,
) -> Result<Findings, I::Error> {
    let metrics = inventory.metrics()?;
    let mut nameless = needs.nameless(false);
    let mut exploration = needs.nameless(true);
    if options.nameless == Nameless::All {
        nameless.append(&mut exploration);
    }
    let mut search = Search {
        recorded: needs.recorded(),
        read: needs.which_are_read(options.nameless, || inventory.check())?,
        needs,
        options,
        found: Findings {
            totals: Totals::default(),
            unused: Vec::new(),
            kept: Vec::new(),
            unread: Vec::new(),
            classic_beside_native: Vec::new(),
            nameless: nameless.into_iter().collect(),
            exploration: exploration.into_iter().collect(),
        },
    };
    for (metric, size) in &metrics {
        search.check_metric(metric, *size, inventory)?;
        if has_native(metric, &metrics) {
            charge_finding(metric, 0, inventory)?;
            search.note_classic(metric, *size);
        }
    }
    Ok(search.finish())
}

/// Returns `true` for buckets of a classic histogram if the job has a metric of the histogram's
/// name, too. Only a native histogram has that name: classic ones have suffixes, and an exporter
/// has no two metrics of one name.
fn has_native(metric: &MetricId, metrics: &BTreeMap<MetricId, MetricSize>) -> bool {
    metric.name.strip_suffix("_bucket").is_some_and(|name| {
        ["", "_count", "_sum"].iter().all(|suffix| {
            metrics.contains_key(&MetricId {
                job: metric.job.clone(),
                name: format!("{name}{suffix}"),
            })
        })
    })
}

struct Search<'a> {
    needs: &'a Needs,
    recorded: BTreeSet<&'a str>,
    read: Vec<bool>,
    options: Options,
    found: Findings,
}

impl Search<'_> {
    fn check_metric<I: Inventory>(
        &mut self,
        metric: &MetricId,
        size: MetricSize,
        inventory: &mut I,
    ) -> Result<(), I::Error> {
        if metric.job == self.options.own_job {
            return Ok(());
        }
        let totals = &mut self.found.totals;
        totals.metrics += 1;
        totals.series += size.n_series;
        totals.samples_per_second += size.n_series as f64 * size.samples_per_second;
        if self.is_protected(&metric.name) {
            return Ok(());
        }
        let used: Vec<_> = self
            .needs
            .of_metric(&metric.name, self.options.nameless)
            .filter(|(_, selector)| self.applies(selector, &metric.job))
            .collect();
        let kept_by = self.options.keep.kept_by(&metric.name);
        if used.is_empty() {
            charge_finding(metric, kept_by.map_or(0, str::len), inventory)?;
            let finding = self.finding(Kind::Metric, metric, size, size.n_series);
            match kept_by {
                Some(kept_by) => self.found.kept.push(Kept {
                    finding,
                    kept_by: kept_by.to_owned(),
                }),
                None => self.found.unused.push(finding),
            }
            return Ok(());
        }
        let is_kept = kept_by.is_some();
        if !used.iter().any(|(need, _)| self.read[*need]) {
            charge_finding(metric, 0, inventory)?;
            let finding = self.finding(Kind::Metric, metric, size, size.n_series);
            self.found.unread.push(finding);
        }
        if is_kept {
            return Ok(());
        }
        let selectors: Vec<_> = used.into_iter().map(|(_, selector)| selector).collect();
        self.check_buckets(metric, size, &selectors, inventory)?;
        if self.options.labels {
            self.check_labels(metric, size, &selectors, inventory)
        } else {
            Ok(())
        }
    }

    /// Notes used buckets beside a native histogram.
    fn note_classic(&mut self, metric: &MetricId, size: MetricSize) {
        let is_used = self
            .needs
            .of_metric(&metric.name, self.options.nameless)
            .any(|(_, selector)| self.applies(selector, &metric.job));
        if is_used && metric.job != self.options.own_job {
            let finding = self.finding(Kind::Metric, metric, size, size.n_series);
            self.found.classic_beside_native.push(finding);
        }
    }

    /// Returns `true` if a selector uses metrics of a job.
    fn applies(&self, selector: &Selector, job: &str) -> bool {
        let by_job = self.options.by_job || selector.is_nameless();
        !by_job || selector.may_match("job", job)
    }

    fn is_protected(&self, name: &str) -> bool {
        let is_generated = matches!(name, "up" | "ALERTS" | "ALERTS_FOR_STATE" | "target_info")
            || name.starts_with("scrape_");
        // By convention, only recording rules write names with colons.
        is_generated || name.contains(':') || self.recorded.contains(name)
    }

    fn check_buckets<I: Inventory>(
        &mut self,
        metric: &MetricId,
        size: MetricSize,
        selectors: &[&Selector],
        inventory: &mut I,
    ) -> Result<(), I::Error> {
        let all_match_buckets = selectors
            .iter()
            .all(|selector| selector.matchers.iter().any(|test| test.name() == "le"));
        if !metric.name.ends_with("_bucket") || !all_match_buckets {
            return Ok(());
        }
        let mut buckets = inventory.buckets(metric)?;
        buckets.retain(|bound, _| {
            // A histogram without its last bucket is useless.
            if bound == "+Inf" {
                return false;
            }
            let spellings = spellings(bound);
            !selectors.iter().any(|selector| {
                spellings
                    .iter()
                    .any(|bound| selector.may_match("le", bound))
            })
        });
        let n_series = buckets.values().sum();
        if n_series > 0 {
            let bounds = buckets.keys().map(|bound| BOUND_SIZE + bound.len());
            charge_finding(metric, bounds.sum(), inventory)?;
            let finding = self.finding(Kind::Buckets, metric, size, n_series);
            self.found.unused.push(Finding {
                buckets: buckets.into_keys().collect(),
                ..finding
            });
        }
        Ok(())
    }

    fn check_labels<I: Inventory>(
        &mut self,
        metric: &MetricId,
        size: MetricSize,
        selectors: &[&Selector],
        inventory: &mut I,
    ) -> Result<(), I::Error> {
        if selectors
            .iter()
            .any(|selector| selector.labels == LabelSet::all())
        {
            return Ok(());
        }
        let unused: Vec<_> = inventory
            .labels(metric)?
            .into_iter()
            .filter(|label| {
                !PROTECTED_LABELS.contains(&label.as_str())
                    && !selectors
                        .iter()
                        .any(|selector| selector.labels.contains(label))
            })
            .collect();
        let mut removed: Vec<&str> = Vec::new();
        for label in &unused {
            let n_left = inventory.n_series_without(metric, &[label.as_str()])?;
            // Labels can be removed together only if no two series become equal.
            removed.push(label);
            let is_removable = inventory.n_series_without(metric, &removed)? == size.n_series;
            if !is_removable {
                removed.pop();
            }
            charge_finding(metric, label.len(), inventory)?;
            let finding = self.finding(
                Kind::Label,
                metric,
                size,
                size.n_series.saturating_sub(n_left),
            );
            self.found.unused.push(Finding {
                label: label.clone(),
                droppable: is_removable,
                ..finding
            });
        }
        Ok(())
    }

    fn finding(&self, kind: Kind, metric: &MetricId, size: MetricSize, n_series: u64) -> Finding {
        let samples_per_second = n_series as f64 * size.samples_per_second;
        Finding {
            kind,
            job: metric.job.clone(),
            metric: metric.name.clone(),
            label: String::new(),
            buckets: Vec::new(),
            series: n_series,
            samples_per_second,
            bytes: samples_per_second
                * self.options.retention.as_secs_f64()
                * self.options.bytes_per_sample,
            droppable: true,
        }
    }

    fn finish(mut self) -> Findings {
        let totals = &mut self.found.totals;
        for finding in self
            .found
            .unused
            .iter()
            .filter(|finding| finding.kind != Kind::Label)
        {
            totals.unused_series += finding.series;
            totals.unused_samples_per_second += finding.samples_per_second;
            totals.unused_bytes += finding.bytes;
            if finding.kind == Kind::Metric {
                totals.unused_metrics += 1;
                totals.unused_metric_series += finding.series;
            }
        }
        let found = &mut self.found;
        for list in [
            &mut found.unused,
            &mut found.unread,
            &mut found.classic_beside_native,
        ] {
            list.sort_by(most_expensive_first);
        }
        found
            .kept
            .sort_by(|a, b| most_expensive_first(&a.finding, &b.finding));
        self.found
    }
}

fn most_expensive_first(a: &Finding, b: &Finding) -> Ordering {
    b.series
        .cmp(&a.series)
        .then_with(|| a.kind.cmp(&b.kind))
        .then_with(|| a.job.cmp(&b.job))
        .then_with(|| a.metric.cmp(&b.metric))
        .then_with(|| a.label.cmp(&b.label))
}

impl Totals {
    /// Returns the share of unused series in percent.
    #[must_use]
    pub fn unused_percent(&self) -> f64 {
        percent(self.unused_series, self.series)
    }

    /// Returns the share of series of unused metrics in percent.
    #[must_use]
    pub fn unused_metric_percent(&self) -> f64 {
        percent(self.unused_metric_series, self.series)
    }
}

/// Returns the spellings of a bucket bound, sorted: Prometheus 3 stores `5.0` and `1e+06` where
/// exporters write `5` and `1000000`.
pub(crate) fn spellings(bound: &str) -> Vec<String> {
    let mut spellings = vec![bound.to_owned()];
    if let Some(value) = parse_float(bound)
        .ok()
        .filter(|value| value.abs() < SPELLED_OUT_MAX)
    {
        spellings.extend([value.to_string(), open_metrics(value)]);
    }
    spellings.sort();
    spellings.dedup();
    spellings
}

/// Bounds from here on have too many digits to be written without an exponent.
const SPELLED_OUT_MAX: f64 = 1e21;

/// Groups findings by job and keeps their order.
pub(crate) fn by_job<'a>(
    findings: impl IntoIterator<Item = &'a Finding>,
) -> BTreeMap<&'a str, Vec<&'a Finding>> {
    let mut jobs: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        jobs.entry(&finding.job).or_default().push(finding);
    }
    jobs
}

/// Returns a part in percent of a whole, which may be 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use varve_promql::parse_selector;

    use super::*;
    use crate::inventory::Scrapes;

    /// Returns the findings for a scrape of job `j` and the rules of one group.
    fn found(scrape: &str, exprs: &[&str], by_job: bool) -> Findings {
        let mut scrapes = Scrapes::new(
            Duration::from_secs(10),
            BTreeMap::new(),
            [("j".to_owned(), 2)].into(),
        );
        for (selector, _) in scrape.lines().filter_map(|line| line.rsplit_once(' ')) {
            let matchers = parse_selector(selector).unwrap();
            let pair = |matcher: &varve_model::Matcher| {
                (matcher.name().to_owned(), matcher.value().to_owned())
            };
            // The series of the server are neither counted nor unused.
            for job in ["j", "own"].iter() {
                scrapes.add(job, matchers.iter().map(pair).collect());
            }
        }
        let mut needs = Needs::default();
        let rule = |expr: &&str| match expr.split_once(" = ") {
            Some((record, expr)) => serde_json::json!({"record": record, "expr": expr}),
            None => serde_json::json!({"alert": "a", "expr": expr}),
        };
        let groups = serde_json::json!({"groups": [{"name": "g", "rules": exprs.iter().map(rule).collect::<Vec<_>>()}]});
        needs.add_rule_file(&"file".into(), &groups.to_string());
        assert_eq!(needs.problems(), []);
        let options = Options {
            own_job: "own",
            by_job,
            nameless: Nameless::default(),
            keep: Keep::presets(),
            labels: true,
            bytes_per_sample: 2.0,
            retention: Duration::from_secs(100),
        };
        let Ok(findings) = find(&needs, &mut scrapes, options);
        findings
    }

    fn check(scrape: &str, exprs: &[&str], expect: &[&str]) {
        let print = |f: &Finding| {
            let of_kind = if f.kind == Kind::Label {
                f.label.clone()
            } else {
                f.buckets.join(",")
            };
            let rule = if f.droppable { "" } else { " no rule" };
            format!("{} {of_kind} {}{rule}", f.metric, f.series)
        };
        let found = found(scrape, exprs, false);
        assert_eq!(
            found.unused.iter().map(print).collect::<Vec<_>>(),
            expect,
            "{exprs:?}"
        );
    }

    #[test]
    fn metrics_without_a_selector_are_found_with_their_cost() {
        check(
            "a{x=\"1\"} 1\na{x=\"2\"} 1\nb 1\nup 1\nscrape_x 1\nr 1\nc:d 1\n",
            &["r = b"],
            &["a  4"],
        );
        check("a 1\nab 1\n", &["{__name__=~\"a.+\"}"], &["a  2"]);
        check("a 1\nb 1\n", &["{job=\"j\"}"], &[]);
        check("a 1\nb 1\n", &["{job=\"other\"}"], &["a  2", "b  2"]);
        let found = found("a 1\n", &["b"], false);
        let finding = &found.unused[0];
        assert_eq!(
            (finding.series, finding.samples_per_second, finding.bytes),
            (2, 0.2, 40.0)
        );
        assert_eq!(
            (found.totals.unused_series, found.totals.unused_percent()),
            (2, 100.0)
        );
    }

    #[test]
    fn metrics_of_the_keep_list_are_no_savings() {
        let found = found("DCGM_FI_DEV_POWER_VIOLATION 1\na 1\n", &["b"], false);
        let unused: Vec<_> = found.unused.iter().map(|found| &*found.metric).collect();
        assert_eq!(unused, ["a"]);
        assert_eq!(
            (found.totals.series, found.totals.unused_series),
            (4, 2),
            "two targets"
        );
        let kept = &found.kept[0];
        assert_eq!(
            (&*kept.finding.metric, kept.finding.series, &*kept.kept_by),
            ("DCGM_FI_DEV_POWER_VIOLATION", 2, "gpu-health")
        );
    }

    #[test]
    fn job_matchers_count_only_with_by_job() {
        let unused = |by_job| found("a 1\n", &["a{job=\"other\"}"], by_job).unused.len();
        assert_eq!((unused(false), unused(true)), (0, 1));
    }

    #[test]
    fn metrics_of_unread_rules_are_listed_separately() {
        let found = found("a 1\nb 1\n", &["r = a", "s = b", "s > 0"], false);
        assert_eq!(
            found
                .unread
                .iter()
                .map(|f| f.metric.as_str())
                .collect::<Vec<_>>(),
            ["a"]
        );
        assert_eq!(found.unused, []);
    }

    #[test]
    fn used_buckets_beside_a_native_histogram_are_listed() {
        let scrape = "h 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_count 1\nh_sum 1\ns3 1\ns3_bucket 1\n";
        let exprs = ["h_bucket", "s3_bucket"];
        let classic = |exprs: &[&str]| -> Vec<_> {
            let listed = found(scrape, exprs, false).classic_beside_native;
            listed.into_iter().map(|f| (f.metric, f.series)).collect()
        };
        assert_eq!(classic(&exprs), [("h_bucket".to_owned(), 4)]);
        // Unused buckets are listed as unused only.
        assert_eq!(classic(&["h", "s3_bucket"]), []);
    }

    #[test]
    fn buckets_without_a_selector_are_found() {
        let scrape = "h_bucket{le=\"1\"} 1\nh_bucket{le=\"5.0\"} 1\nh_bucket{le=\"10\"} 1\nh_bucket{le=\"+Inf\"} 1\n";
        check(
            scrape,
            &["h_bucket{le=\"1.0\"} > 0"],
            &["h_bucket 10,5.0 4"],
        );
        check(
            scrape,
            &["h_bucket{le=~\"5|10\"} > 0", "h_bucket{le=\"+Inf\"}"],
            &["h_bucket 1 2"],
        );
        check(
            scrape,
            &[
                "h_bucket{le=\"1\"} > 0",
                "histogram_quantile(0.9, h_bucket)",
            ],
            &[],
        );
    }

    #[test]
    fn unused_labels_are_found() {
        let scrape = "a{x=\"1\",y=\"1\",z=\"0\"} 1\na{x=\"2\",y=\"1\",z=\"0\"} 1\n";
        check(scrape, &["sum by (y) (a)"], &["a x 2 no rule", "a z 0"]);
        check(scrape, &["a"], &[]);
        check(scrape, &["sum by (x) (a{z=\"0\"})"], &["a y 0"]);
        // Either label distinguishes the series, so only one can be removed.
        check(
            "a{x=\"1\",y=\"1\"} 1\na{x=\"2\",y=\"2\"} 1\n",
            &["sum(a)"],
            &["a x 0", "a y 0 no rule"],
        );
    }

    #[test]
    fn bounds_have_several_spellings() {
        assert_eq!(
            (spellings("5"), spellings("5.0")),
            (
                vec!["5".into(), "5.0".into()],
                vec!["5".into(), "5.0".into()]
            )
        );
        let million = ["1000000".to_owned(), "1e+06".to_owned()];
        assert_eq!(
            (spellings("1000000"), spellings("1e+06")),
            (million.to_vec(), million.to_vec())
        );
        assert_eq!(
            (spellings("0.5"), spellings("+Inf")),
            (vec!["0.5".to_owned()], vec!["+Inf".to_owned()])
        );
    }
}
