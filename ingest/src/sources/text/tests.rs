use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use varve_model::metadata::MetricType;
use varve_model::{Matcher, SampleColumns, TimeRange};
use varve_tsdb::{Db, Options, ReadContext};

use super::lines::LINE_SIZE_MAX;
use super::openmetrics2::CurrentFamily;
use super::*;
use crate::admission::{Amounts, Budgets};
use crate::limits::Limits;

/// Prints a parsed line.
fn print(text: &str, format: TextFormat) -> String {
    match format.parse(text, &mut CurrentFamily::default()) {
        Err(refused) => format!("! {refused}"),
        Ok(Line::Nothing) => "-".to_owned(),
        Ok(Line::Metadata(line)) => format!("{line:?}")
            .replace("Borrowed(", "")
            .replace("Owned(", "")
            .replace(')', ""),
        Ok(Line::Series(line)) => format!("{line:?}"),
        Ok(Line::Composite(line)) => format!("{line:?}"),
        Ok(Line::Sample(sample)) => {
            let pairs = |pairs: &line::Pairs<'_>| {
                pairs
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let mut out = format!("{} {}", pairs(&sample.labels), sample.value);
            sample
                .timestamp_ms
                .iter()
                .for_each(|time| write!(out, " @{time}").unwrap());
            for exemplar in sample.exemplars {
                write!(
                    out,
                    " # {} {} {:?}",
                    pairs(&exemplar.labels),
                    exemplar.value,
                    exemplar.timestamp_ms
                )
                .unwrap();
            }
            out
        }
    }
}

#[test]
fn lines_of_both_formats_are_read() {
    use TextFormat::{OpenMetrics as Open, Prometheus as Text};
    for (format, text, expect) in [
        (Text, "up 1", "__name__=up 1"),
        (
            Text,
            "  up\t1 1700000000000\r",
            "__name__=up 1 @1700000000000",
        ),
        (
            Text,
            r#"a:b{c="d",e="f\"\\\n\x"} -1.5e3"#,
            "__name__=a:b,c=d,e=f\"\\\n\\x -1500",
        ),
        (Text, r#"a { b = "c" , } NaN -5"#, "__name__=a,b=c NaN @-5"),
        (Text, r#"{"a.b", "c.d"="e"} +Inf"#, "__name__=a.b,c.d=e inf"),
        (Text, r#"a{le="}"} 1"#, "__name__=a,le=} 1"),
        (Text, "", "-"),
        (Text, "# anything", "-"),
        (Text, "#HELP a b", "-"),
        (Text, r"# HELP a  b\nc\\d", "Help(\"a\", \"b\\nc\\\\d\""),
        (Text, "# HELP a", "Help(\"a\", \"\""),
        (Text, "# HELP", "-"),
        (Text, "# \t TYPE", "-"),
        (Text, "# HELP ", "! metadata without a metric name"),
        (Open, "# HELP", "! metadata without a metric name"),
        (Text, "#\tTYPE a counter", "Type(\"a\", Counter"),
        (Text, "# TYPE a untyped", "Type(\"a\", Unknown"),
        (Text, "# TYPE a thing", "! invalid metric type \"thing\""),
        (Text, "# UNIT a s", "-"),
        (Text, "a", "! invalid value \"\" of a sample"),
        (Text, "a 1 2 3", "! expected the end of the line, got \"3\""),
        (Text, "a 1 1.5", "! invalid timestamp \"1.5\" of a sample"),
        (Text, "a 1e400", "! invalid value \"1e400\" of a sample"),
        (Text, "a -nan", "! invalid value \"-nan\" of a sample"),
        (Text, "a 0x1p1", "! invalid value \"0x1p1\" of a sample"),
        (Text, "1a 1", "! expected a metric name, got \"1a 1\""),
        (
            Text,
            "a{b} 1",
            "! expected = after a label name, got \"} 1\"",
        ),
        (Text, "a{b=c} 1", "! expected a quoted string, got \"c} 1\""),
        (Text, r#"a{b="c} 1"#, "! unterminated quoted string"),
        (
            Text,
            r#"a{b="c" d="e"f="g""h.i"="j"} 1"#,
            "__name__=a,b=c,d=e,f=g,h.i=j 1",
        ),
        (
            Text,
            r#"a{b="c" d="e"; f="g"} 1"#,
            "! expected a label name, got \"; f=\\\"g\\\"} 1\"",
        ),
        (
            Text,
            r#"{"a" b="c"} 1"#,
            "! expected , or } after a label, got \"b=\\\"c\\\"} 1\"",
        ),
        (
            Open,
            r#"a{b="c" d="e"} 1"#,
            "! expected , or } after a label, got \"d=\\\"e\\\"} 1\"",
        ),
        (
            Text,
            r#"a{"b"} 1"#,
            "! expected = after a label name, got \"} 1\"",
        ),
        (Open, "a 1 1.5", "__name__=a 1 @1500"),
        (
            Open,
            "# UNIT a_seconds seconds",
            "Unit(\"a_seconds\", \"seconds\"",
        ),
        (
            Open,
            r#"a_total 5 1.5 # {trace_id="x"} 0.5 1.25"#,
            "__name__=a_total 5 @1500 # trace_id=x 0.5 Some(1250)",
        ),
        (Open, r#"a_total 5 # {} 1"#, "__name__=a_total 5 #  1 None"),
        (Open, "a 1 NaN", "! invalid timestamp \"NaN\" of a sample"),
        (Open, "", "! expected a metric name, got \"\""),
        (Open, "# comment", "! invalid comment \" comment\""),
        // Version 2.0 has these.
        (
            Open,
            "a 1 2 st@1",
            "! expected the end of the line, got \"st@1\"",
        ),
        (
            Open,
            "a 1 # {} 1 # {} 2",
            "! expected the end of the line, got \"# {} 2\"",
        ),
        (
            Open,
            "a {count:1,sum:1,bucket:[+Inf:1]}",
            "! expected = after a label name, got \":1,sum:1,bucket:[+Inf:1]}\"",
        ),
    ] {
        assert_eq!(print(text, format), expect, "{text:?}");
    }
}

/// The values are those that Prometheus 3.16 stores after a scrape.
#[test]
fn bounds_and_quantiles_are_normalized_below_their_type() {
    let values = [
        ("1", "1.0"),
        ("0.5", "0.5"),
        ("-0", "0.0"),
        ("+Inf", "+Inf"),
        ("inf", "+Inf"),
        ("nan", "NaN"),
        ("00.10", "0.1"),
        ("100000", "100000.0"),
        ("1000000", "1e+06"),
        ("123456789", "1.23456789e+08"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1e400", "1e400"),
        ("x", "x"),
        ("", ""),
    ];
    let read = |kind: &str, label: &str, value: &str| {
        let text = format!("# TYPE a {kind}\na{{{label}=\"{value}\"}} 1\n");
        let mut reader = LineReader::new(text.as_bytes(), TextFormat::Prometheus);
        assert!(matches!(reader.read(), Ok(Some(Line::Metadata(_)))));
        match reader.read() {
            Ok(Some(Line::Sample(sample))) => sample.labels[1].1.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for (value, expect) in values {
        assert_eq!(read("histogram", "le", value), expect, "{value:?}");
        assert_eq!(read("summary", "quantile", value), expect, "{value:?}");
        for (kind, label) in [
            ("histogram", "quantile"),
            ("summary", "le"),
            ("gauge", "le"),
            ("gaugehistogram", "le"),
        ] {
            assert_eq!(read(kind, label, value), value, "{kind} {label}");
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z#{}\"\\\\=, .0-9é\t]{0,40}") {
        for format in [
            TextFormat::Prometheus,
            TextFormat::OpenMetrics,
            TextFormat::OpenMetrics2,
        ] {
            let _either = format.parse(&text, &mut CurrentFamily::default());
        }
    }
}

struct Fixture {
    receiver: Receiver,
    db: Arc<Db>,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Limits::for_tests())
    }

    fn with(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Arc::new(
            Db::open(
                dir.path(),
                Options {
                    shards: 1,
                    ..Options::default()
                },
            )
            .unwrap(),
        );
        Self {
            receiver: Receiver::new(Arc::clone(&db), limits),
            db,
            _dir: dir,
        }
    }

    fn try_import(&self, text: &str) -> Result<Written, WriteError> {
        self.receiver
            .import(&Origin::default(), text.as_bytes(), &import())
    }

    fn import(
        &self,
        text: &str,
        format: TextFormat,
        extra: &[(&str, &str)],
    ) -> Result<Written, String> {
        let extra_labels = extra
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let import = Import {
            format,
            extra_labels,
            ..import()
        };
        self.receiver
            .import(&Origin::default(), text.as_bytes(), &import)
            .map_err(|error| error.to_string())
    }

    /// Series with the timestamps of their samples.
    fn contents(&self) -> Vec<String> {
        const ALL: &[Matcher] = &[];
        let mut columns = SampleColumns::default();
        let found = self
            .db
            .select(&ReadContext::unbounded(), ALL, TimeRange::ALL)
            .unwrap();
        let print = |series: varve_tsdb::Result<varve_tsdb::select::Series>| {
            let series = series.unwrap();
            columns.clear();
            series.read(&mut columns).unwrap();
            let samples: Vec<_> = columns
                .iter()
                .map(|exemplar| format!("{}@{}", exemplar.value, exemplar.timestamp_ms))
                .collect();
            format!("{} {}", series.labels(), samples.join(" "))
        };
        found.map(print).collect()
    }
}

fn import() -> Import {
    let format = TextFormat::Prometheus;
    let compression = Compression::Identity;
    Import {
        format,
        compression,
        default_timestamp_ms: NOW_MS,
        extra_labels: Vec::new(),
        nan: None,
        timeout: Duration::from_secs(600),
    }
}

const NOW_MS: i64 = 1_700_000_000_000;

#[test]
fn samples_metadata_and_exemplars_are_stored_with_extra_labels() {
    let fixture = Fixture::new();
    let text = "# HELP a Help.\n# TYPE a counter\n# UNIT a s\na_total{job=\"x\",b=\"1\"} 1 # {t=\"u\"} 0.5\nb 2 1699999999.5\n# EOF\n";
    let written = fixture
        .import(
            text,
            TextFormat::OpenMetrics,
            &[("job", "import"), ("z", "")],
        )
        .unwrap();
    assert_eq!((written.stored.total, written.exemplars.stored), (2, 1));
    assert!(written.rejections.is_empty(), "{}", written.rejections);
    assert_eq!(
        fixture.contents(),
        [
            r#"{__name__="a_total", b="1", job="import"} 1@1700000000000"#,
            r#"{__name__="b", job="import"} 2@1699999999500"#
        ]
    );
    let metadata = &fixture.db.metadata()["a"];
    assert_eq!(
        (&*metadata.kind, &*metadata.help, &*metadata.unit),
        ("counter", "Help.", "s")
    );
}

/// Returns the histograms of a store, with the start timestamps of all samples.
fn histograms_and_starts(db: &Db) -> Vec<String> {
    const ALL: &[Matcher] = &[];
    let mut columns = SampleColumns::default();
    let found = db
        .select(&ReadContext::unbounded(), ALL, TimeRange::ALL)
        .unwrap();
    let mut lines = Vec::new();
    for series in found {
        let series = series.unwrap();
        columns.clear();
        series.read(&mut columns).unwrap();
        for idx in 0..columns.len() {
            let histogram = columns.histogram(idx).map(|histogram| &histogram.counts);
            let start_ms = columns.start_ms(idx);
            lines.push(format!("{} {histogram:?} st@{start_ms}", series.labels()));
        }
    }
    lines
}

#[test]
fn histograms_of_openmetrics_2_are_stored_with_start_timestamps_and_exemplars() {
    let fixture = Fixture::new();
    let text = "# TYPE c counter\nc 5 st@1699999000 # {t=\"u\"} 0.5 1699999999 # {t=\"v\"} 0.5 1699999999.5\n\
        # TYPE h histogram\n# HELP h Both.\n\
        h{job=\"x\"} {count:3,sum:2.5,schema:0,zero_threshold:0,zero_count:3,bucket:[1:2,+Inf:3]} 1699999999.5 st@1699999000.25 # {t=\"w\"} 5 1699999999\n\
        # TYPE s summary\ns {count:1,sum:2,quantile:[0.5:2]}\n# EOF\n";
    let written = fixture
        .import(text, TextFormat::OpenMetrics2, &[("job", "import")])
        .unwrap();
    assert!(written.rejections.is_empty(), "{}", written.rejections);
    let stored = (written.stored.total, written.stored.histograms);
    assert_eq!((stored, written.exemplars.stored), ((9, 1), 4));
    assert_eq!(
        fixture.contents(),
        [
            r#"{__name__="c", job="import"} 5@1700000000000"#,
            r#"{__name__="h", job="import"} 2.5@1699999999500"#,
            r#"{__name__="h_bucket", job="import", le="+Inf"} 3@1699999999500"#,
            r#"{__name__="h_bucket", job="import", le="1.0"} 2@1699999999500"#,
            r#"{__name__="h_count", job="import"} 3@1699999999500"#,
            r#"{__name__="h_sum", job="import"} 2.5@1699999999500"#,
            r#"{__name__="s", job="import", quantile="0.5"} 2@1700000000000"#,
            r#"{__name__="s_count", job="import"} 1@1700000000000"#,
            r#"{__name__="s_sum", job="import"} 2@1700000000000"#,
        ]
    );
    let counts = "Some(Integer { count: 3, zero_count: 3, positive: [], negative: [] })";
    assert_eq!(
        histograms_and_starts(&fixture.db)[..3],
        [
            r#"{__name__="c", job="import"} None st@1699999000000"#.to_owned(),
            format!(r#"{{__name__="h", job="import"}} {counts} st@1699999000250"#),
            r#"{__name__="h_bucket", job="import", le="+Inf"} None st@1699999000250"#.to_owned(),
        ]
    );
    let metadata = &fixture.db.metadata()["h"];
    assert_eq!((&*metadata.kind, &*metadata.help), ("histogram", "Both."));

    let refused = fixture
        .import(
            "a 1\n# TYPE h histogram\nh 1\n# EOF\n",
            TextFormat::OpenMetrics2,
            &[],
        )
        .unwrap_err();
    let reason = "line 3: a histogram without a composite value; nothing of the body is stored";
    assert!(refused.ends_with(reason), "{refused}");
}

/// Ten thousand histograms of a megabyte each would be one batch.
#[test]
fn the_numbers_of_histograms_count_as_samples_of_a_batch() {
    let fixture = Fixture::with(Limits {
        bytes_in_flight_max: 16 << 20,
        ..Limits::for_tests()
    });
    let n_buckets = 20_000;
    let buckets = "1,".repeat(n_buckets);
    let mut text = "# TYPE h histogram\n".to_owned();
    for i in 0..200 {
        writeln!(text, "h{{i=\"{i}\"}} {{count:{n_buckets},sum:1,schema:0,zero_threshold:0,zero_count:0,positive_spans:[0:{n_buckets}],positive_buckets:[{buckets}]}}").unwrap();
    }
    text.push_str("# EOF\n");
    let written = fixture
        .import(&text, TextFormat::OpenMetrics2, &[])
        .unwrap();
    assert_eq!(written.stored.histograms, 200);
}

#[test]
fn the_error_of_an_invalid_line_has_its_number_and_the_samples_stored_before() {
    let fixture = Fixture::new();
    let refused = fixture
        .import("a 1\nb x\n", TextFormat::Prometheus, &[])
        .unwrap_err();
    assert_eq!(
        refused,
        "malformed write request: line 2: invalid value \"x\" of a sample; nothing of the body is stored"
    );
    assert!(fixture.contents().is_empty());
    let many: String = (0..BATCH_SAMPLES_MAX + 1)
        .map(|i| format!("a{{i=\"{i}\"}} 1\n"))
        .collect();
    let refused = fixture
        .import(&(many + "b x\n"), TextFormat::Prometheus, &[])
        .unwrap_err();
    let expect = "line 10002: invalid value \"x\" of a sample; the first 10000 samples of the body are stored";
    assert!(refused.ends_with(expect), "{refused}");
    assert_eq!(fixture.contents().len(), BATCH_SAMPLES_MAX);
    for (text, reason) in [
        ("a 1\n", "line 2: data does not end with # EOF"),
        ("a 1\n# EOF\nb 1\n", "line 2: unexpected data after # EOF"),
    ] {
        let refused = fixture
            .import(text, TextFormat::OpenMetrics, &[])
            .unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn the_size_of_a_line_is_bounded() {
    let fixture = Fixture::new();
    let text = format!("a 1\nb{{c=\"{}\"}} 1\n", "x".repeat(LINE_SIZE_MAX));
    let refused = fixture
        .import(&text, TextFormat::Prometheus, &[])
        .unwrap_err();
    assert!(
        refused.contains("line 2: longer than 2097152 bytes"),
        "{refused}"
    );
}

/// A body of 16 kB that decompresses to 512 MiB of line breaks took 16 seconds of CPU time.
#[test]
fn the_work_for_a_body_is_bounded() {
    let fixture = Fixture::with(Limits {
        decompressed_size_max: 200_000,
        ..Limits::for_tests()
    });
    let check = |text: &str, compression, timeout, expect: &str| {
        let body = match compression {
            Compression::Zstd => zstd::encode_all(text.as_bytes(), 0).unwrap(),
            _ => text.as_bytes().to_vec(),
        };
        let import = Import {
            compression,
            timeout,
            ..import()
        };
        let refused = fixture
            .receiver
            .import(&Origin::default(), &body, &import)
            .unwrap_err();
        assert!(
            matches!(refused.cause(), WriteError::TooLarge { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(expect), "{refused}");
    };
    let minute = Duration::from_secs(60);
    check(
        &"\n".repeat(1 << 20),
        Compression::Zstd,
        minute,
        "decompressed size in bytes of",
    );
    check(
        &format!("a 1 {NOW_MS}\n").repeat(40_000),
        Compression::Zstd,
        minute,
        "samples, are stored: retry",
    );
    check(
        &"\n".repeat(1_000_001),
        Compression::Identity,
        minute,
        "lines without a sample of 1000001 exceeds the limit",
    );
    let slow = format!("a 1 {NOW_MS}\n").repeat(64);
    check(
        &slow,
        Compression::Identity,
        Duration::ZERO,
        "duration of the import in ms of",
    );
    // As many comments as samples are no attack.
    let text = "# HELP a A\n# TYPE a gauge\na 1\n".repeat(100);
    assert_eq!(
        fixture
            .import(&text, TextFormat::Prometheus, &[])
            .unwrap()
            .stored
            .total,
        100
    );
}

#[test]
fn an_invalid_series_rejects_that_series_only() {
    let fixture = Fixture::new();
    let written = fixture
        .import("a{b=\"1\",b=\"2\"} 1\nc 1\n", TextFormat::Prometheus, &[])
        .unwrap();
    assert_eq!(
        written.rejections.to_string(),
        "duplicate label name: 1 series with 1 sample, e.g. series {__name__=\"a\", b=\"1\", b=\"2\"}"
    );
    assert_eq!(fixture.contents().len(), 1);
}

#[test]
fn scrapes_of_real_exporters_are_read_completely() {
    let Some(folder) = varve_oracle::shared("exposition") else {
        return;
    };
    let files = std::fs::read_dir(folder).unwrap();
    let fixture = Fixture::new();
    let mut n_files = 0;
    for path in files.map(|file| file.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let format = if name.ends_with(".openmetrics.txt") {
            TextFormat::OpenMetrics
        } else {
            TextFormat::Prometheus
        };
        if !name.ends_with(".prom") && format == TextFormat::Prometheus {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let n_samples = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
            .count();
        let written = fixture
            .import(&text, format, &[("file", &name)])
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(
            written.stored.total + written.rejections.n_samples(),
            n_samples as u64,
            "{name}: {}",
            written.rejections
        );
        n_files += 1;
    }
    eprintln!("{n_files} files");
}

#[test]
fn lines_are_read_one_by_one() {
    let body = "# TYPE a counter\na_total{b=\"c\"} 1 2.5\n# EOF\n";
    let mut reader = LineReader::new(body.as_bytes(), TextFormat::OpenMetrics);
    assert!(
        matches!(reader.read(), Ok(Some(Line::Metadata(MetadataLine::Type(name, MetricType::Counter)))) if name == "a")
    );
    let Ok(Some(Line::Sample(sample))) = reader.read() else {
        panic!("the second line is a sample")
    };
    assert_eq!(
        (sample.value, sample.timestamp_ms, sample.labels.len()),
        (1.0, Some(2500), 2)
    );
    assert_eq!(reader.read(), Ok(None));
    let mut reader = LineReader::new("a 1\nb\n".as_bytes(), TextFormat::Prometheus);
    assert!(reader.read().is_ok());
    assert_eq!(
        reader.read().unwrap_err().to_string(),
        "line 2: invalid value \"\" of a sample"
    );
}

#[test]
fn a_throttled_import_says_what_is_stored_and_may_be_retried() {
    let fixture = Fixture::with(Limits {
        queue_timeout: Duration::ZERO,
        ..Limits::for_tests()
    });
    let budget = |new_series| Budgets {
        total: Amounts {
            new_series_per_second: new_series,
            ..Amounts::default()
        },
        ..Budgets::default()
    };
    // The first batch leaves the bucket in debt, so that the next one is throttled.
    fixture.receiver.set_budgets(budget(Some(1)));
    let known = "known 1 1699999999000\n";
    fixture.import(known, TextFormat::Prometheus, &[]).unwrap();
    let n_samples = BATCH_SAMPLES_MAX + 5;
    let mut text = "# HELP m A comment is a line, too.\n".to_owned();
    for i in 0..n_samples {
        if i < BATCH_SAMPLES_MAX {
            writeln!(text, "known {i} {}", NOW_MS + i as i64).unwrap()
        } else {
            writeln!(text, "m{{i=\"{i}\"}} 1 {NOW_MS}").unwrap()
        }
    }
    let cut = fixture.try_import(&text).unwrap_err();
    assert!(
        matches!(cut.cause(), WriteError::Throttled { .. }),
        "{cut:?}"
    );
    let message = cut.to_string();
    let n_lines = BATCH_SAMPLES_MAX + 1;
    let expect = format!(
        "the first {n_lines} lines of the body, {BATCH_SAMPLES_MAX} samples, are stored: retry with all lines"
    );
    assert!(message.contains(&expect), "{message}");
    assert_eq!(
        fixture
            .receiver
            .stats()
            .requests_throttled
            .values()
            .sum::<u64>(),
        1
    );

    fixture.receiver.set_budgets(budget(None));
    let again = fixture.try_import(&text).unwrap();
    assert_eq!(
        (again.stored.total, again.rejections.is_empty()),
        (n_samples as u64, true)
    );
    let samples: Vec<_> = fixture
        .contents()
        .iter()
        .map(|exemplar| exemplar.matches('@').count())
        .collect();
    assert_eq!(
        (samples.len(), samples.iter().sum::<usize>()),
        (6, n_samples + 1),
        "nothing is lost, and nothing twice"
    );
}
