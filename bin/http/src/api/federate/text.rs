//! The text format 0.0.4. Histograms with custom buckets are written as classic ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

use varve_promql::decimal::General;
use varve_wire::exposition::{write_metric_name, write_series};

use super::classic_histogram::to_classic;
use super::format::Format;
use super::latest::{Kind, Latest};

/// Appends the head of a family.
pub(super) fn write_head(out: &mut Vec<u8>, name: &str, kind: Kind) {
    out.extend_from_slice(b"# TYPE ");
    write_metric_name(out, name);
    out.extend_from_slice(if kind == Kind::Untyped {
        b" untyped\n"
    } else {
        b" histogram\n"
    });
}

/// Appends a sample as one line, or as the lines of a classic histogram.
pub(super) fn write_sample(
    out: &mut Vec<u8>,
    latest: &Latest,
    external: &BTreeMap<String, String>,
    format: Format,
) {
    let name = format.escape(latest.labels.metric_name());
    let mut line = |suffix: &str, bound: Option<f64>, value: f64| {
        let labels = latest
            .labels(external)
            .map(|(name, value)| (format.escape(name), Cow::Borrowed(value)));
        let bound = bound.map(|bound| {
            let bound = Cow::Owned(printed_float(bound));
            (Cow::Borrowed("le"), bound)
        });
        write_series(out, &format!("{name}{suffix}"), labels.chain(bound));
        let value = printed_float(value);
        writeln!(out, " {value} {}", latest.timestamp_ms).expect("writing to a Vec cannot fail");
    };
    let Some(histogram) = &latest.histogram else {
        return line("", None, latest.value);
    };
    let classic = to_classic(histogram);
    for &(bound, count) in &classic.buckets {
        line("_bucket", Some(bound), count);
    }
    if classic
        .buckets
        .last()
        .is_none_or(|(bound, _)| *bound != f64::INFINITY)
    {
        line("_bucket", Some(f64::INFINITY), classic.count);
    }
    line("_sum", None, histogram.sum);
    line("_count", None, classic.count);
}

fn printed_float(value: f64) -> String {
    // A negative zero is written as 0.
    let value = if value == 0.0 { 0.0 } else { value };
    General(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use varve_model::Labels;
    use varve_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts};

    fn written(pairs: &[(&str, &str)], value: f64, histogram: Option<Histogram>) -> String {
        let labels = Labels::from_pairs(pairs.iter().copied()).unwrap();
        let latest = Latest {
            labels,
            timestamp_ms: 1_700,
            value,
            histogram: histogram.map(Arc::new),
        };
        let external = [("instance", ""), ("cluster", "c\"1")]
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .into();
        let mut out = Vec::new();
        write_sample(&mut out, &latest, &external, Format::utf8());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn samples_are_written_with_missing_external_labels() {
        let line = written(
            &[("__name__", "up"), ("job", "a\\\n"), ("instance", "x")],
            1e6,
            None,
        );
        assert_eq!(
            line,
            "up{instance=\"x\",job=\"a\\\\\\n\",cluster=\"c\\\"1\"} 1e+06 1700\n"
        );
        let line = written(&[("__name__", "with.dots"), ("a b", "1")], -0.0, None);
        assert_eq!(
            line,
            "{\"with.dots\",\"a b\"=\"1\",cluster=\"c\\\"1\",instance=\"\"} 0 1700\n"
        );
        // A colon is legal in a metric name only.
        let line = written(&[("__name__", "a:b"), ("c:d", "1")], 1.0, None);
        assert_eq!(
            line,
            "a:b{\"c:d\"=\"1\",cluster=\"c\\\"1\",instance=\"\"} 1 1700\n"
        );
    }

    #[test]
    fn histograms_with_custom_buckets_become_classic_ones() {
        let histogram = Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            sum: 2.5,
            counts: HistogramCounts::Integer {
                count: 6,
                zero_count: 0,
                positive: vec![1, 3, 2],
                negative: vec![],
            },
            positive_spans: vec![
                BucketSpan {
                    offset: 0,
                    length: 1,
                },
                BucketSpan {
                    offset: 1,
                    length: 2,
                },
            ],
            custom_bounds: vec![0.5, 1.0, 2.0],
            ..Histogram::default()
        };
        let lines = written(&[("__name__", "h")], 2.5, Some(histogram));
        let labels = "cluster=\"c\\\"1\",instance=\"\"";
        let mut expect = String::new();
        for (le, count) in [("0.5", 1), ("1", 1), ("2", 4), ("+Inf", 6)] {
            expect += &format!("h_bucket{{{labels},le=\"{le}\"}} {count} 1700\n");
        }
        assert_eq!(
            lines,
            expect + &format!("h_sum{{{labels}}} 2.5 1700\nh_count{{{labels}}} 6 1700\n")
        );
    }
}
