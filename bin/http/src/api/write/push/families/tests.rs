use prost::bytes::Bytes;
use varve_wire::prometheus::pushed::{PushedBucket, PushedQuantile};

use super::*;

/// Returns the text of a family with one metric, which has the label `l`.
fn text(name: &str, kind: i32, metric: PushedMetric) -> String {
    let body = body(name, kind, metric);
    let memory = MemoryBudget::new(Limit::Other("test"), 1 << 30);
    let text = to_text(&body, TEXT_SIZE_MAX, &memory).unwrap();
    assert!(text.charge.size() >= text.text.capacity());
    String::from_utf8(text.bytes().to_vec()).unwrap()
}

const TEXT_SIZE_MAX: usize = 64 << 20;

fn body(name: &str, kind: i32, metric: PushedMetric) -> Vec<u8> {
    let label = vec![LabelMessage {
        name: Some("l".to_owned()),
        value: Some("a\"b\\c\n".to_owned()),
    }];
    let metric = PushedMetric { label, ..metric };
    let family = PushedFamily {
        name: name.to_owned(),
        help: String::new(),
        kind,
        metric: vec![Bytes::from(metric.encode_to_vec())],
        unit: String::new(),
    };
    family.encode_length_delimited_to_vec()
}

fn value(value: f64) -> Option<PushedValue> {
    Some(PushedValue { value })
}

fn check(kind: i32, metric: PushedMetric, expect_kind: &str, expect: &str) {
    let expect = format!("# TYPE m {expect_kind}\nm{{l=\"a\\\"b\\\\c\\n\"}} {expect}\n# EOF\n");
    assert_eq!(text("m", kind, metric), expect);
}

#[test]
fn each_type_is_a_line() {
    let counter = PushedMetric {
        counter: value(3.0),
        timestamp_ms: Some(1_500),
        ..PushedMetric::default()
    };
    check(0, counter, "counter", "3.0 1.5");
    let gauge = PushedMetric {
        gauge: value(f64::NEG_INFINITY),
        ..PushedMetric::default()
    };
    check(1, gauge, "gauge", "-Inf");
    let untyped = PushedMetric {
        untyped: value(f64::NAN),
        ..PushedMetric::default()
    };
    check(3, untyped, "unknown", "NaN");
    let summary = PushedSummary {
        sample_count: 3,
        sample_sum: 4.5,
        quantile: vec![
            PushedQuantile {
                quantile: 0.5,
                value: 1.0,
            },
            PushedQuantile {
                quantile: 0.9,
                value: 2.0,
            },
        ],
    };
    let summary = PushedMetric {
        summary: Some(summary),
        ..PushedMetric::default()
    };
    check(
        2,
        summary,
        "summary",
        "{count:3,sum:4.5,quantile:[0.5:1.0,0.9:2.0]}",
    );
}

fn histogram(histogram: PushedHistogram) -> PushedMetric {
    PushedMetric {
        histogram: Some(histogram),
        ..PushedMetric::default()
    }
}

#[test]
fn histograms_have_classic_and_native_buckets() {
    let bucket = |upper_bound: f64, cumulative_count: u64| PushedBucket {
        upper_bound,
        cumulative_count,
        cumulative_count_float: 0.0,
    };
    let classic = PushedHistogram {
        sample_count: 3,
        sample_sum: 4.5,
        bucket: vec![bucket(0.1, 1), bucket(1.0, 2)],
        ..PushedHistogram::default()
    };
    let expect = "{count:3,sum:4.5,bucket:[0.1:1,1.0:2,+Inf:3]}";
    check(4, histogram(classic.clone()), "histogram", expect);
    let expect = "{gcount:3,gsum:4.5,bucket:[0.1:1,1.0:2,+Inf:3]}";
    check(5, histogram(classic.clone()), "gaugehistogram", expect);
    let with_infinite = PushedHistogram {
        bucket: vec![bucket(f64::INFINITY, 3)],
        ..classic
    };
    let expect = "{count:3,sum:4.5,bucket:[+Inf:3]}";
    check(4, histogram(with_infinite), "histogram", expect);
    let empty = histogram(PushedHistogram::default());
    check(4, empty, "histogram", "{count:0,sum:0.0,bucket:[+Inf:0]}");

    let native = PushedHistogram {
        sample_count: 6,
        sample_sum: 12.5,
        schema: -4,
        zero_threshold: 0.001,
        zero_count: 2,
        positive_span: vec![SpanMessage {
            offset: -1,
            length: 2,
        }],
        positive_delta: vec![2, -1],
        negative_span: vec![SpanMessage {
            offset: 0,
            length: 1,
        }],
        negative_delta: vec![1],
        ..PushedHistogram::default()
    };
    let expect = "{count:6,sum:12.5,schema:-4,zero_threshold:0.001,zero_count:2,\
                  negative_spans:[0:1],negative_buckets:[1],\
                  positive_spans:[-1:2],positive_buckets:[2,1]}";
    check(4, histogram(native.clone()), "histogram", expect);
    let floats = PushedHistogram {
        sample_count_float: 6.0,
        zero_count_float: 2.5,
        positive_delta: Vec::new(),
        positive_count: vec![2.0, 1.5],
        negative_span: Vec::new(),
        ..native
    };
    let expect = "{count:6.0,sum:12.5,schema:-4,zero_threshold:0.001,zero_count:2.5,\
                  positive_spans:[-1:2],positive_buckets:[2.0,1.5]}";
    check(4, histogram(floats), "histogram", expect);
}

#[test]
fn names_that_are_not_legacy_are_quoted() {
    let gauge = || PushedMetric {
        gauge: value(1.0),
        ..PushedMetric::default()
    };
    let label = "l=\"a\\\"b\\\\c\\n\"";
    assert_eq!(
        text("a.b\"", 1, gauge()),
        format!("# TYPE \"a.b\\\"\" gauge\n{{\"a.b\\\"\",{label}}} 1.0\n# EOF\n")
    );
    assert_eq!(
        text("a:b1", 1, gauge()),
        format!("# TYPE a:b1 gauge\na:b1{{{label}}} 1.0\n# EOF\n")
    );
}

#[test]
fn bodies_beyond_a_bound_or_malformed_are_errors() {
    let memory = MemoryBudget::new(Limit::Other("test"), 1 << 20);
    let gauge = || PushedMetric {
        gauge: value(1.0),
        ..PushedMetric::default()
    };
    let read = |body: &[u8], size_max: usize| {
        to_text(body, size_max, &memory)
            .map(|text| text.bytes().len())
            .map_err(|error| error.to_string())
    };
    let valid = body("m", 1, gauge());
    assert!(read(&valid, TEXT_SIZE_MAX).is_ok());
    assert!(read(&valid, 100).unwrap_err().contains("pushed text size"));
    let cut = read(&valid[..valid.len() - 1], TEXT_SIZE_MAX).unwrap_err();
    assert!(cut.contains("the body ends before"), "{cut}");
    let garbage = read(&[3, 0xff, 0xff, 0xff], TEXT_SIZE_MAX).unwrap_err();
    assert!(garbage.contains("in the message at byte 0"), "{garbage}");
    let long = body(&"m".repeat(100_000), 1, gauge());
    let memory_error = read(&long, TEXT_SIZE_MAX).unwrap_err();
    assert!(memory_error.contains("test"), "{memory_error}");
    assert_eq!(memory.used(), 0);

    let large = PushedMetric {
        histogram: Some(PushedHistogram {
            positive_delta: vec![1; METRIC_SIZE_MAX],
            ..PushedHistogram::default()
        }),
        ..PushedMetric::default()
    };
    let memory = MemoryBudget::new(Limit::Other("test"), 1 << 30);
    let error = to_text(&body("m", 4, large), TEXT_SIZE_MAX, &memory).unwrap_err();
    assert!(error.to_string().contains("pushed metric size"), "{error}");
}

/// Every cut and every flipped bit of a body is an error or a text, all of whose memory is charged.
#[test]
fn damaged_bodies_do_no_harm() {
    let native = PushedHistogram {
        sample_count: 6,
        schema: 3,
        zero_count: 2,
        positive_span: vec![SpanMessage {
            offset: -1,
            length: 3,
        }],
        positive_delta: vec![i64::MAX, 1, -1],
        negative_count: vec![f64::MIN_POSITIVE, f64::NAN],
        bucket: vec![PushedBucket {
            upper_bound: f64::MAX,
            cumulative_count: u64::MAX,
            cumulative_count_float: 0.5,
        }],
        ..PushedHistogram::default()
    };
    let mut valid = body("m", 4, histogram(native));
    let gauge = PushedMetric {
        gauge: value(1.5),
        timestamp_ms: Some(i64::MIN),
        ..PushedMetric::default()
    };
    valid.extend(body("a.b", 1, gauge));
    let memory = MemoryBudget::new(Limit::Other("test"), 1 << 30);
    let read = |body: &[u8]| {
        if let Ok(text) = to_text(body, TEXT_SIZE_MAX, &memory) {
            assert!(text.charge.size() >= text.text.capacity());
        }
        assert_eq!(memory.used(), 0);
    };
    for cut in 0..=valid.len() {
        read(&valid[..cut]);
    }
    for bit in 0..8 * valid.len() {
        let mut damaged = valid.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        read(&damaged);
    }
}
