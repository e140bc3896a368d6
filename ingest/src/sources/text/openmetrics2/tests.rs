use std::fmt::Write;

use proptest::prelude::*;
use varve_model::histogram::{
    BucketSpan, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint,
};

use super::super::line::{CompositeSample, CompositeSeries, CompositeValue};
use super::super::lines::{LineReader, TextFormat};
use super::*;

/// Reads the lines of a body before its end, and prints their samples, one per line.
fn read(lines: &str) -> String {
    let body = format!("{lines}\n# EOF\n");
    let mut reader = LineReader::new(body.as_bytes(), TextFormat::OpenMetrics2);
    let mut out = String::new();
    loop {
        match reader.read() {
            Ok(None) => return out,
            Ok(Some(Line::Sample(sample))) => print(&mut out, &sample),
            Ok(Some(Line::Composite(line))) => {
                if let Some(histogram) = &line.value.histogram {
                    writeln!(out, "{histogram:?}").unwrap();
                    print_exemplars(&mut out, &line.exemplars);
                }
                for sample in line.samples() {
                    print(&mut out, &sample);
                }
            }
            Ok(Some(_)) => {}
            Err(invalid) => return format!("! {invalid}"),
        }
    }
}

fn pairs(labels: &Pairs<'_>) -> String {
    let pairs: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(",")
}

fn print(out: &mut String, sample: &SampleLine<'_>) {
    write!(out, "{} {}", pairs(&sample.labels), sample.value).unwrap();
    if let Some(timestamp_ms) = sample.timestamp_ms {
        write!(out, " @{timestamp_ms}").unwrap();
    }
    if sample.start_ms != 0 {
        write!(out, " st@{}", sample.start_ms).unwrap();
    }
    out.push('\n');
    print_exemplars(out, &sample.exemplars);
}

fn print_exemplars(out: &mut String, exemplars: &[ExemplarPart<'_>]) {
    for exemplar in exemplars {
        let labels = pairs(&exemplar.labels);
        let timestamp_ms = exemplar.timestamp_ms.unwrap();
        writeln!(out, "  # {labels} {} @{timestamp_ms}", exemplar.value).unwrap();
    }
}

const HISTOGRAM: &str = "# TYPE h histogram\n";
const GAUGES: &str = "# TYPE h gaugehistogram\n";
const SUMMARY: &str = "# TYPE h summary\n";

#[test]
fn plain_lines_are_read() {
    for (lines, expect) in [
        ("un 1", "__name__=un 1\n"),
        (
            "# TYPE c counter\nc 42.0 1000.0 st@500.5",
            "__name__=c 42 @1000000 st@500500\n",
        ),
        ("c 42.0 st@500", "__name__=c 42 st@500000\n"),
        ("c{st=\"st@1\"} 1 st@-1 ", "__name__=c,st=st@1 1 st@-1000\n"),
        (
            "c 17.0 # {id=\"a\"} 1.0 12.5 # {\"my.id\"=\"b\",z=\"\"} NaN 13",
            "__name__=c 17\n  # id=a 1 @12500\n  # my.id=b,z= NaN @13000\n",
        ),
        (
            "c 1 2 st@1 # {} 1.0 12.5",
            "__name__=c 1 @2000 st@1000\n  #  1 @12500\n",
        ),
        (
            "# TYPE \"a.b\" gauge\n{\"a.b\",c=\"d\"} 1",
            "__name__=a.b,c=d 1\n",
        ),
        (
            "# TYPE i_info info\n# UNIT i_info \ni_info{v=\"1\"} 1",
            "__name__=i_info,v=1 1\n",
        ),
        (
            "# TYPE s stateset\ns{s=\"x\"} 1\ns{s=\"y\"} 0",
            "__name__=s,s=x 1\n__name__=s,s=y 0\n",
        ),
        // The unit is no part of the name, and a name has no suffix of its type.
        ("# TYPE c counter\n# UNIT c seconds\nc 1", "__name__=c 1\n"),
        // The name of a metric is that of its family: these have no type.
        (
            "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_count 2",
            "__name__=h_bucket,le=1 1\n__name__=h_count 2\n",
        ),
        ("# TYPE c counter\nd NaN", "__name__=d NaN\n"),
        ("# HELP c first\rsecond\nc 1", "__name__=c 1\n"),
    ] {
        assert_eq!(read(lines), expect, "{lines:?}");
    }
}

#[test]
fn composite_values_become_the_series_of_classic_histograms_and_summaries() {
    for (kind, line, expect) in [
        (
            HISTOGRAM,
            "h{job=\"x\"} {count:3,sum:6.5,bucket:[-Inf:0,0.1:1,1:2,1e6:2.5,+Inf:3]} 5 st@1",
            "__name__=h_count,job=x 3 @5000 st@1000\n__name__=h_sum,job=x 6.5 @5000 st@1000\n\
             __name__=h_bucket,job=x,le=-Inf 0 @5000 st@1000\n\
             __name__=h_bucket,job=x,le=0.1 1 @5000 st@1000\n\
             __name__=h_bucket,job=x,le=1.0 2 @5000 st@1000\n\
             __name__=h_bucket,job=x,le=1e+06 2.5 @5000 st@1000\n\
             __name__=h_bucket,job=x,le=+Inf 3 @5000 st@1000\n",
        ),
        // The order of the fields is free, and empty items are skipped.
        (
            HISTOGRAM,
            "h {bucket:[,1:0,,+Inf:0,],sum:NaN,count:0}",
            "__name__=h_count 0\n__name__=h_sum NaN\n__name__=h_bucket,le=1.0 0\n\
             __name__=h_bucket,le=+Inf 0\n",
        ),
        // Without a schema, the other fields of native buckets mean nothing.
        (
            HISTOGRAM,
            "h {count:1,sum:1.0,zero_threshold:0,zero_count:0,bucket:[+Inf:1]}",
            "__name__=h_count 1\n__name__=h_sum 1\n__name__=h_bucket,le=+Inf 1\n",
        ),
        (
            GAUGES,
            "h {gcount:-1,gsum:-2,bucket:[0:-1,+Inf:-1]}",
            "__name__=h_gcount -1\n__name__=h_gsum -2\n__name__=h_bucket,le=0.0 -1\n\
             __name__=h_bucket,le=+Inf -1\n",
        ),
        (
            SUMMARY,
            "h {count:4,sum:0.5,quantile:[0:1,0.5:NaN,1:2]} 5",
            "__name__=h_count 4 @5000\n__name__=h_sum 0.5 @5000\n\
             __name__=h,quantile=0.0 1 @5000\n__name__=h,quantile=0.5 NaN @5000\n\
             __name__=h,quantile=1.0 2 @5000\n",
        ),
        (
            SUMMARY,
            "h {count:0,sum:0,quantile:[]} # {id=\"of no series\"} 1 2",
            "__name__=h_count 0\n__name__=h_sum 0\n",
        ),
        (
            "# TYPE \"h.é\" histogram\n",
            "{\"h.é\",\"a\\\"k\"=\"x\\\"y\\n\"} {count:1,sum:2,bucket:[+Inf:1]}",
            "__name__=h.é_count,a\"k=x\"y\n 1\n__name__=h.é_sum,a\"k=x\"y\n 2\n\
             __name__=h.é_bucket,a\"k=x\"y\n,le=+Inf 1\n",
        ),
        // Each bucket has the exemplars within it.
        (
            HISTOGRAM,
            "h {count:3,sum:6,bucket:[1:1,2.5:2,+Inf:3]} # {id=\"d\"} 3.8 9 # {id=\"a\"} 1.0 8 # {id=\"n\"} NaN 7 # {id=\"b\"} 0.5 6 # {id=\"c\"} 1.5 5",
            "__name__=h_count 3\n__name__=h_sum 6\n\
             __name__=h_bucket,le=1.0 1\n  # id=b 0.5 @6000\n  # id=a 1 @8000\n\
             __name__=h_bucket,le=2.5 2\n  # id=c 1.5 @5000\n\
             __name__=h_bucket,le=+Inf 3\n  # id=d 3.8 @9000\n  # id=n NaN @7000\n",
        ),
    ] {
        assert_eq!(read(&format!("{kind}{line}")), expect, "{line:?}");
    }
}

fn spans(spans: &[(i32, u32)]) -> Vec<BucketSpan> {
    let spans = spans.iter();
    spans
        .map(|&(offset, length)| BucketSpan { offset, length })
        .collect()
}

#[test]
fn native_buckets_become_a_native_histogram() {
    let integers = HistogramCounts::Integer {
        count: 6,
        zero_count: 2,
        positive: vec![1, 2],
        negative: vec![1],
    };
    let native = Histogram {
        schema: -4,
        zero_threshold: 0.001,
        sum: 12.5,
        counts: integers,
        positive_spans: spans(&[(-1, 1), (2, 1)]),
        negative_spans: spans(&[(0, 1)]),
        ..Histogram::default()
    };
    let gauges = Histogram {
        reset_hint: ResetHint::Gauge,
        ..native.clone()
    };
    let text = "zero_count:2,zero_threshold:0.001,schema:-4,positive_spans:[-1:1,2:1],\
                positive_buckets:[1,2],negative_spans:[0:1],negative_buckets:[1]";
    for (kind, line, histogram) in [
        (HISTOGRAM, format!("h {{count:6,sum:12.5,{text}}}"), &native),
        (GAUGES, format!("h {{gcount:6,gsum:12.5,{text}}}"), &gauges),
    ] {
        assert_eq!(read(&format!("{kind}{line}")), format!("{histogram:?}\n"));
    }

    // Both kinds of buckets are kept, and both have the exemplars.
    let both = format!(
        "{HISTOGRAM}h {{count:6,sum:12.5,{text},bucket:[1:5,+Inf:6]}} # {{}} 2 9 # {{}} 1 8"
    );
    assert_eq!(
        read(&both),
        format!(
            "{native:?}\n  #  1 @8000\n  #  2 @9000\n__name__=h_count 6\n__name__=h_sum 12.5\n\
             __name__=h_bucket,le=1.0 5\n  #  1 @8000\n\
             __name__=h_bucket,le=+Inf 6\n  #  2 @9000\n"
        )
    );
}

/// The cases are those of Prometheus' own test.
#[test]
fn a_native_histogram_with_a_fraction_has_float_counts() {
    let counts = |count: &str, zero_count: &str, buckets: &str| {
        let text = read(&format!(
            "{HISTOGRAM}h {{count:{count},sum:12.5,schema:0,zero_threshold:0.001,zero_count:{zero_count},positive_spans:[0:2],positive_buckets:[{buckets}]}}"
        ));
        (text.contains("Float {"), text.contains("Integer {"))
    };
    let (floats, integers) = ((true, false), (false, true));
    assert_eq!(counts("5", "2", "2,1"), integers);
    assert_eq!(counts("5.0", "2.0", "2,1"), integers);
    assert_eq!(counts("5.5", "2", "2,1"), floats);
    assert_eq!(counts("5", "2.5", "2,1"), floats);
    assert_eq!(counts("5", "2", "2.0,1.0"), floats);
    assert_eq!(counts("5", "2", "1e2,1"), floats);
    assert_eq!(counts("1e20", "2", "2,1"), floats);
    assert_eq!(counts("+Inf", "2", "2,1"), floats);
    assert_eq!(counts("NaN", "2", "2,1"), floats);
    assert_eq!(counts("5", "1e20", "2,1"), floats);
}

#[test]
fn invalid_lines_are_rejected_with_the_reason() {
    let native = "count:1,sum:1,schema:0,zero_threshold:0,zero_count:1";
    let negative =
        "schema:0,zero_threshold:0,zero_count:0,positive_spans:[0:2],positive_buckets:[2,1]";
    for (lines, reason) in [
        ("un", "invalid value \"\" of a sample"),
        ("un 1\r", "unexpected carriage return"),
        ("# TYPE c counter\r", "unexpected carriage return"),
        ("", "expected a metric name"),
        ("# comment", "invalid comment"),
        ("c 1 2 3", "expected the end of the line, got \"3\""),
        (
            "c 1 2 st@1 st@2",
            "expected the end of the line, got \"st@2\"",
        ),
        ("c 1 st@2 1", "expected the end of the line, got \"1\""),
        ("c 1 st@", "invalid start timestamp \"\""),
        ("c 1 st@NaN", "invalid start timestamp \"NaN\""),
        ("c 1 # {a=\"b\"} 1", "an exemplar without a timestamp"),
        (
            "c 1 # {a=\"b\"} 1 # {a=\"b\"} 1 2",
            "an exemplar without a timestamp",
        ),
        (
            "c 1 # {a=\"b\"} 1 NaN",
            "invalid timestamp \"NaN\" of a exemplar",
        ),
        ("c{\"\"=\"b\"} 1", "expected a label name"),
        ("# TYPE \"\" counter", "metadata without a metric name"),
        (
            "# TYPE b info",
            "the name \"b\" of an info does not end with _info",
        ),
        (
            "# UNIT b_info s\n# TYPE b_info info",
            "a metric of type info has a unit",
        ),
        (
            "# TYPE s stateset\n# UNIT s seconds",
            "a metric of type stateset has a unit",
        ),
        ("# TYPE c counter\nc NaN", "a counter is NaN"),
        (
            "# TYPE b_info info\nb_info 2",
            "the value 2 of an info is not 1",
        ),
        (
            "# TYPE s stateset\ns{s=\"x\"} 2",
            "the value 2 of a stateset is not 0 or 1",
        ),
        (
            "# TYPE s stateset\ns{t=\"x\"} 1",
            "a stateset without the label \"s\"",
        ),
        ("h {count:1,sum:1,bucket:[+Inf:1]}", "the type is unknown"),
        (
            "# TYPE h counter\nh {count:1,sum:1,bucket:[+Inf:1]}",
            "the type is counter",
        ),
        // A line of another metric ends the family.
        (
            "# TYPE h histogram\na 1\nh {count:1,sum:1,bucket:[+Inf:1]}",
            "line 3: a composite value needs # TYPE",
        ),
        (
            "# TYPE h histogram\nh 5",
            "a histogram without a composite value",
        ),
        (
            "# TYPE h summary\nh 5",
            "a summary without a composite value",
        ),
    ] {
        let printed = read(lines);
        assert!(printed.starts_with("! line "), "{lines:?}: {printed}");
        assert!(printed.contains(reason), "{lines:?}: {printed}");
    }
    for (kind, value, reason) in [
        (HISTOGRAM, "", "no field count"),
        (HISTOGRAM, "sum:1,bucket:[+Inf:1]", "no field count"),
        (HISTOGRAM, "count:1,bucket:[+Inf:1]", "no field sum"),
        (HISTOGRAM, "count:1,sum:1", "no field bucket"),
        (HISTOGRAM, "gcount:1", "unknown field \"gcount\""),
        (HISTOGRAM, "buckets:[1:1]", "unknown field \"buckets\""),
        (HISTOGRAM, "count:1,", "unknown field \"\""),
        (HISTOGRAM, "count:1,count:1", "second field count"),
        (HISTOGRAM, "count:1 ,sum:1", "expected , of the next field"),
        (HISTOGRAM, "count: 1,sum:1", "field count has no value"),
        (HISTOGRAM, "count,sum:1", "expected : of count"),
        (
            HISTOGRAM,
            "count:x,sum:1,bucket:[+Inf:1]",
            "invalid count \"x\"",
        ),
        (
            HISTOGRAM,
            "count:1,sum:0x1p1,bucket:[+Inf:1]",
            "invalid sum",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[+Inf:1",
            "unterminated list bucket",
        ),
        (HISTOGRAM, "count:1,sum:1,bucket:1", "bucket is not a list"),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[]",
            "bucket does not end with +Inf",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[1:1]",
            "bucket does not end with +Inf",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[+Inf]",
            "invalid bucket \"+Inf\"",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[a:1,+Inf:1]",
            "invalid bucket \"a:1\"",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[NaN:1,+Inf:1]",
            "invalid bucket \"NaN:1\"",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[1:1, +Inf:1]",
            "invalid bucket \" +Inf:1\"",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[2:1,1:1,+Inf:1]",
            "bucket 1 follows 2",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[1:1,1.0:1,+Inf:1]",
            "bucket 1 follows 1",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,bucket:[1:-1,+Inf:1]",
            "negative count -1 of bucket 1",
        ),
        (GAUGES, "count:1", "unknown field \"count\""),
        (GAUGES, "gcount:1,gsum:1", "no field bucket"),
        (SUMMARY, "count:1,sum:1", "no field quantile"),
        (SUMMARY, "count:1,quantile:[]", "no field sum"),
        (
            SUMMARY,
            "count:1,sum:1,quantiles:[]",
            "unknown field \"quantiles\"",
        ),
        (
            SUMMARY,
            "count:1,sum:1,quantile:[1.5:1]",
            "quantile 1.5 is not within 0 and 1",
        ),
        (
            SUMMARY,
            "count:1,sum:1,quantile:[-0.5:1]",
            "quantile -0.5 is not within",
        ),
        (
            SUMMARY,
            "count:1,sum:1,quantile:[0.9:1,0.5:1]",
            "quantile 0.5 follows 0.9",
        ),
        (
            SUMMARY,
            "count:1,sum:1,bucket:[+Inf:1]",
            "unknown field \"bucket\"",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,schema:0,zero_count:0",
            "no field zero_threshold",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,schema:0,zero_threshold:0",
            "no field zero_count",
        ),
        (
            HISTOGRAM,
            "sum:1,schema:9,zero_threshold:0",
            "schema is \"9\", not -4 to 8",
        ),
        (HISTOGRAM, "schema:-5", "schema is \"-5\""),
        (HISTOGRAM, "schema:4294967296", "schema is \"4294967296\""),
        (
            HISTOGRAM,
            "count:1,sum:1,schema:0,zero_threshold:-1,zero_count:1",
            "zero threshold that is negative or not finite: -1",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,schema:0,zero_threshold:NaN,zero_count:1",
            "zero threshold that is negative or not finite: NaN",
        ),
        (
            HISTOGRAM,
            "count:1,sum:1,schema:0,zero_threshold:0,zero_count:-1",
            "negative zero_count -1",
        ),
        (
            HISTOGRAM,
            &format!("count:-1,sum:NaN,{negative}"),
            "negative count -1",
        ),
        (
            GAUGES,
            &format!("gcount:-1,gsum:NaN,{negative}"),
            "negative gcount -1",
        ),
        (
            HISTOGRAM,
            &format!("count:4,sum:1,{negative}"),
            "should equal the number of observations found in the buckets",
        ),
        (
            HISTOGRAM,
            &format!("{native},positive_spans:[0:1]"),
            "spans specify different number of buckets",
        ),
        (
            HISTOGRAM,
            &format!("{native},positive_spans:[0]"),
            "invalid span \"0\"",
        ),
        (
            HISTOGRAM,
            &format!("{native},positive_spans:[0:-1]"),
            "invalid span \"0:-1\" of positive_spans",
        ),
        (
            HISTOGRAM,
            &format!("{native},negative_spans:[0:1],negative_buckets:[-1]"),
            "bucket whose observation count is negative",
        ),
        (
            HISTOGRAM,
            &format!("{native},negative_spans:[0:1],negative_buckets:[x]"),
            "invalid count \"x\" of negative_buckets",
        ),
        // The classic buckets beside native ones are checked, too.
        (
            HISTOGRAM,
            &format!("{native},bucket:[1:1]"),
            "bucket does not end with +Inf",
        ),
    ] {
        let printed = read(&format!("{kind}h {{{value}}}"));
        assert!(printed.starts_with("! line 2: "), "{value:?}: {printed}");
        assert!(printed.contains(reason), "{value:?}: {printed}");
    }
}

#[test]
fn the_parts_of_a_line_are_bounded() {
    let exemplars = |n: usize| format!("c 1{}", " # {} 1 2".repeat(n));
    assert!(!read(&exemplars(EXEMPLARS_MAX)).starts_with('!'));
    let refused = read(&exemplars(EXEMPLARS_MAX + 1));
    assert_eq!(
        refused,
        "! line 1: 1025 exemplars or more, the limit is 1024"
    );

    let quantiles = |n: usize| {
        let items: Vec<_> = (0..n)
            .map(|i| format!("{}:1", i as f64 / n as f64))
            .collect();
        format!(
            "{SUMMARY}h {{count:1,sum:1,quantile:[{}]}}",
            items.join(",")
        )
    };
    assert!(!read(&quantiles(HISTOGRAM_BUCKETS_MAX)).starts_with('!'));
    assert_eq!(
        read(&quantiles(HISTOGRAM_BUCKETS_MAX + 1)),
        "! line 2: quantile has 65537 items, the limit is 65536"
    );

    let native = |n_positive: usize| {
        let positive = "0,".repeat(n_positive);
        format!(
            "{HISTOGRAM}h {{count:0,sum:0,schema:0,zero_threshold:0,zero_count:0,positive_spans:[0:{n_positive}],positive_buckets:[{positive}],negative_spans:[0:1],negative_buckets:[0]}}"
        )
    };
    assert!(!read(&native(HISTOGRAM_BUCKETS_MAX - 1)).starts_with('!'));
    assert_eq!(
        read(&native(HISTOGRAM_BUCKETS_MAX)),
        "! line 2: the histogram has 65537 buckets and 2 spans, the limit of each is 65536"
    );
}

#[test]
fn a_nan_has_the_meaning_that_the_importer_gives_it() {
    use super::super::nan::NanMeaning;
    let text = "h {count:1,sum:NaN,quantile:[0.5:NaN,0.9:1]}";
    let values = |nan: NanMeaning| {
        let mut family = CurrentFamily {
            name: "h".to_owned(),
            kind: MetricType::Summary,
            has_unit: false,
        };
        let Line::Composite(line) = parse(text, &mut family).unwrap().with_nan(nan) else {
            panic!("the line has a composite value")
        };
        let bits = line.value.samples.iter();
        bits.map(|sample| sample.value.to_bits())
            .collect::<Vec<_>>()
    };
    let one = 1_f64.to_bits();
    let marker = varve_model::staleness::STALE_NAN_BITS;
    assert_eq!(values(NanMeaning::Marker), [one, marker, marker, one]);
    assert_eq!(values(NanMeaning::Skip), [one, one]);
}

/// Prints a list of pairs.
fn list<A: std::fmt::Display, B: std::fmt::Display>(
    pairs: impl IntoIterator<Item = (A, B)>,
) -> String {
    let pairs: Vec<_> = pairs
        .into_iter()
        .map(|(one, two)| format!("{one}:{two}"))
        .collect();
    pairs.join(",")
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(
        kind in "(counter|histogram|gaugehistogram|summary|info|stateset)",
        text in "h( ?\\{[a-z_]{0,9}(:|\")[0-9eN:,\\[\\]\\-+. ]{0,9}){0,3}[a-z#{}\"\\\\=,:. \\[\\]@0-9é\t]{0,20}",
    ) {
        let mut family = CurrentFamily::default();
        let _metadata = parse(&format!("# TYPE h {kind}"), &mut family);
        let _either = parse(&text, &mut family);
    }

    /// What is printed is read, bit for bit.
    #[test]
    fn composite_values_survive_a_round_trip(
        bounds in prop::collection::btree_map(-1_000_i32..1_000, 0_u32..100, 0..20),
        native in prop::option::of((-4_i8..=8, prop::collection::vec((0_i32..5, prop::collection::vec(0_u32..1_000, 1..4)), 0..5))),
        sum in any::<f64>().prop_filter("NaN has no bits in text", |sum| !sum.is_nan()),
        times in (any::<i32>(), any::<i32>()),
        exemplars in prop::collection::vec((any::<f32>(), any::<i32>()), 0..5),
    ) {
        let mut samples = Vec::new();
        let mut fields = Vec::new();
        let mut histogram = None;
        let mut count = 7_u64;
        if let Some((schema, runs)) = &native {
            let lengths = runs.iter().map(|(offset, counts)| (offset, counts.len()));
            fields.push(format!("positive_spans:[{}]", list(lengths)));
            let buckets: Vec<u64> = runs
                .iter()
                .flat_map(|(_, counts)| counts.iter().map(|count| u64::from(*count)))
                .collect();
            let printed: Vec<_> = buckets.iter().map(u64::to_string).collect();
            fields.push(format!("positive_buckets:[{}]", printed.join(",")));
            fields.push(format!("schema:{schema},zero_threshold:0.25,zero_count:7"));
            count += buckets.iter().sum::<u64>();
            let runs = runs.iter();
            histogram = Some(Histogram {
                schema: *schema,
                zero_threshold: 0.25,
                sum,
                counts: HistogramCounts::Integer {
                    count,
                    zero_count: 7,
                    positive: buckets,
                    negative: Vec::new(),
                },
                positive_spans: runs
                    .map(|(offset, counts)| BucketSpan {
                        offset: *offset,
                        length: counts.len() as u32,
                    })
                    .collect(),
                ..Histogram::default()
            });
        }
        if native.is_none() || !bounds.is_empty() {
            let mut buckets: Vec<(f64, f64)> = Vec::new();
            for (bound, value) in &bounds {
                buckets.push((f64::from(*bound) / 8.0, f64::from(*value)));
            }
            fields.push(format!("bucket:[{},+Inf:{count}]", list(buckets.clone())));
            buckets.push((f64::INFINITY, count as f64));
            samples.push(CompositeSample { series: CompositeSeries::Count, value: count as f64 });
            samples.push(CompositeSample { series: CompositeSeries::Sum, value: sum });
            for (bound, value) in buckets {
                samples.push(CompositeSample { series: CompositeSeries::Bucket(bound), value });
            }
        }
        let mut line = format!("h {{{},count:{count},sum:{sum}}} {} st@{}", fields.join(","), times.0, times.1);
        for (value, time) in &exemplars {
            write!(line, " # {{t=\"{time}\"}} {value} {time}").unwrap();
        }

        let mut family = CurrentFamily::default();
        parse("# TYPE h histogram", &mut family).unwrap();
        let Line::Composite(parsed) = parse(&line, &mut family).unwrap() else {
            panic!("the line has a composite value")
        };
        prop_assert!(parsed.value == CompositeValue { histogram, samples }, "{line}\n{parsed:?}");
        prop_assert_eq!(parsed.timestamp_ms, Some(i64::from(times.0) * 1_000));
        prop_assert_eq!(parsed.start_ms, i64::from(times.1) * 1_000);
        prop_assert_eq!(parsed.exemplars.len(), exemplars.len());
        if !parsed.value.samples.is_empty() {
            let n_given: usize = parsed.samples().map(|sample| sample.exemplars.len()).sum();
            prop_assert_eq!(n_given, exemplars.len());
        }
    }
}
