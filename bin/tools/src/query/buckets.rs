//! `varve query analyze`: the number of buckets of histograms, and of populated buckets.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use varve_model::labels::METRIC_NAME;
use varve_system::quantity::print_duration;

use super::args::{QueryAnalyzeArgs, parse_time};
use super::print::{label_set, metric};
use super::response::{Labels, Point, Stream, Value};
use super::server::Server;

const HEADER: &str = "\
Bucket stats for each histogram series over time
------------------------------------------------
First the min, avg, and max number of populated buckets, followed by the total
number of buckets (only if different from the max number of populated buckets
which is typical for classic but not native histograms).";
const FOOTER: &str = "\
Aggregated bucket stats
-----------------------
Each line shows min/avg/max over the series above.";

/// Runs `varve query analyze`.
pub(super) fn analyze(args: &QueryAnalyzeArgs) -> Result<()> {
    let time_s = args
        .time
        .as_deref()
        .map(|time| parse_time(time).context("error parsing time"))
        .transpose()?;
    let mut server = Server::new(&args.server)?;
    println!("{HEADER}\n");
    let mut native = Totals::default();
    let mut classic = Totals::default();
    for selector in &args.selectors {
        let mut params = vec![("query", range_selector(selector, args.duration))];
        params.extend(time_s.map(|time_s| ("time", time_s.to_string())));
        let Value::Matrix(streams) = server.post("/api/v1/query", &params)?.read()? else {
            bail!("query of buckets resulted in non-Matrix");
        };
        let mut classic_buckets: BTreeMap<String, Vec<Stream>> = BTreeMap::new();
        for stream in streams {
            if !stream.values.is_empty() {
                if let Some(name) = classic_name(&stream.metric) {
                    classic_buckets.entry(name).or_default().push(stream);
                }
            } else if let Some(stats) = Stats::of_native(&stream) {
                println!("- {} (native): {stats}", metric(&stream.metric));
                native.add(stats);
            }
        }
        for (name, buckets) in classic_buckets {
            if let Some(stats) = Stats::of_classic(buckets)? {
                println!("- {name} (classic): {stats}");
                classic.add(stats);
            }
        }
    }
    println!("\n{FOOTER}");
    for (kind, totals) in [("Native", native), ("Classic", classic)] {
        if totals.n_series > 0 {
            println!("\n{kind} {totals}");
        }
    }
    Ok(())
}

/// Returns the range selector that `varve query analyze` queries.
fn range_selector(selector: &str, range: Duration) -> String {
    format!("{selector}[{}]", print_duration(range))
}

/// Returns the name of the classic histogram that a bucket belongs to. Returns `None` for other
/// series.
fn classic_name(labels: &Labels) -> Option<String> {
    labels.get("le")?;
    let name = labels
        .get(METRIC_NAME)
        .filter(|name| name.ends_with("_bucket"))?;
    let mut others = labels.clone();
    others.retain(|name, _| name != "le" && name != METRIC_NAME);
    Some(format!("{name}{}", label_set(&others)))
}

/// Returns the upper bound of a bucket of a classic histogram; 0 if it is not a number.
fn upper_bound(bucket: &Stream) -> f64 {
    bucket
        .metric
        .get("le")
        .and_then(|le| le.parse().ok())
        .unwrap_or(0.0)
}

/// Buckets of one histogram: populated buckets per sample, and the total.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stats {
    min: usize,
    avg: f64,
    max: usize,
    total: usize,
}

impl Stats {
    fn of(populated: &[usize], total: usize) -> Self {
        let sum: usize = populated.iter().sum();
        let min = populated.iter().copied().min().unwrap_or(0);
        let max = populated.iter().copied().max().unwrap_or(0);
        Self {
            min,
            avg: sum as f64 / populated.len() as f64,
            max,
            total,
        }
    }

    /// Returns the statistics of a native histogram. Returns `None` if it has fewer than two
    /// samples.
    fn of_native(stream: &Stream) -> Option<Self> {
        if stream.histograms.len() < 2 {
            return None;
        }
        let mut bounds = HashSet::new();
        let mut populated = Vec::with_capacity(stream.histograms.len());
        for point in &stream.histograms {
            populated.push(point.1.buckets.len());
            bounds.extend(
                point
                    .1
                    .buckets
                    .iter()
                    .map(|bucket| (bucket.0, bucket.1.to_bits(), bucket.2.to_bits())),
            );
        }
        Some(Self::of(&populated, bounds.len()))
    }

    /// Returns the statistics of a classic histogram. Returns `None` if it has fewer than two
    /// samples.
    fn of_classic(mut buckets: Vec<Stream>) -> Result<Option<Self>> {
        buckets.sort_by(|a, b| upper_bound(a).total_cmp(&upper_bound(b)));
        let n_samples = buckets.first().map_or(0, |bucket| bucket.values.len());
        if n_samples < 2 {
            return Ok(None);
        }
        let mut populated = Vec::with_capacity(n_samples);
        for i in 0..n_samples {
            let mut n_populated = 0;
            let mut count_before = 0.0;
            let mut aligned_time_s = None;
            // A bucket with fewer samples ends the count.
            for Point(time_s, count) in buckets.iter().map_while(|bucket| bucket.values.get(i)) {
                if *aligned_time_s.get_or_insert(time_s) != time_s {
                    bail!("matrix result is not time aligned");
                }
                n_populated += usize::from((count - count_before).trunc() != 0.0);
                count_before = *count;
            }
            populated.push(n_populated);
        }
        Ok(Some(Self::of(&populated, buckets.len())))
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            min,
            avg,
            max,
            total,
        } = self;
        write!(f, "{min}/{avg:.3}/{max}")?;
        if max == total {
            Ok(())
        } else {
            write!(f, "/{total}")
        }
    }
}

/// Minimum, average and maximum of a statistic over all histograms.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    min: usize,
    max: usize,
    sum: usize,
    n: usize,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            min: usize::MAX,
            max: 0,
            sum: 0,
            n: 0,
        }
    }
}

impl Spread {
    fn add(&mut self, value: usize) {
        let Self { min, max, sum, n } = *self;
        *self = Self {
            min: min.min(value),
            max: max.max(value),
            sum: sum + value,
            n: n + 1,
        };
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{:.3}/{}",
            self.min,
            self.sum as f64 / self.n as f64,
            self.max
        )
    }
}

/// Statistics over all histograms.
#[derive(Debug, Default)]
struct Totals {
    n_series: usize,
    min: Spread,
    avg: Spread,
    max: Spread,
    total: Spread,
}

impl Totals {
    fn add(&mut self, stats: Stats) {
        self.n_series += 1;
        self.min.add(stats.min);
        self.avg.add(stats.avg as usize);
        self.max.add(stats.max);
        self.total.add(stats.total);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            n_series,
            min,
            avg,
            max,
            total,
        } = self;
        write!(
            f,
            "histogram series ({n_series} in total):\n- min populated: {min}\n- avg populated: {avg}\n"
        )?;
        write!(f, "- max populated: {max}")?;
        if max == total {
            Ok(())
        } else {
            write!(f, "\n- total: {total}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(le: &str, values: &[f64]) -> Stream {
        let metric = [(METRIC_NAME, "a_bucket"), ("le", le), ("job", "b")];
        Stream {
            metric: metric
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            values: values
                .iter()
                .zip(1..)
                .map(|(&value, i)| Point(f64::from(i), value))
                .collect(),
            histograms: Vec::new(),
        }
    }

    #[test]
    fn populated_buckets_of_classic_histograms_are_counted() {
        let buckets = || {
            vec![
                stream("+Inf", &[3.0, 5.0]),
                stream("1", &[1.0, 1.0]),
                stream("2", &[1.0, 4.0]),
            ]
        };
        assert_eq!(
            classic_name(&buckets()[0].metric).unwrap(),
            "a_bucket{job=\"b\"}"
        );
        let stats = Stats::of_classic(buckets()).unwrap().unwrap();
        assert_eq!(
            stats,
            Stats {
                min: 2,
                avg: 2.5,
                max: 3,
                total: 3
            }
        );
        assert_eq!(stats.to_string(), "2/2.500/3");
        let mut totals = Totals::default();
        totals.add(stats);
        assert!(
            totals
                .to_string()
                .ends_with("- avg populated: 2/2.000/2\n- max populated: 3/3.000/3"),
            "{totals}"
        );
        assert_eq!(Stats::of_classic(vec![stream("1", &[1.0])]).unwrap(), None);
        let mut shifted = buckets();
        shifted[1].values[0].0 = 9.0;
        assert!(Stats::of_classic(shifted).is_err());
    }

    #[test]
    fn a_range_is_printed_as_a_duration() {
        assert_eq!(range_selector("up", Duration::from_secs(3600)), "up[1h]");
    }

    #[test]
    fn other_series_are_not_classic_histograms() {
        let mut labels = stream("1", &[]).metric;
        labels.insert(METRIC_NAME.to_owned(), "a_sum".to_owned());
        assert_eq!(classic_name(&labels), None);
    }
}
