//! Prometheus' JSON, appended to a buffer.
//!
//! It differs from ordinary JSON encoders in two respects. Numbers: sample values are strings in
//! Go's shortest form, times are seconds with up to three decimals. Strings: label names and values
//! escape only what JSON demands, all other strings also `<`, `>`, `&` and the two line separators
//! of JavaScript, as Go's `encoding/json` does.

use std::io::Write as _;

use varve_model::Labels;
use varve_promql::decimal::{self, Plain};
use varve_query::histogram::{Bucket, FloatHistogram};

/// Content type of every JSON response.
pub(crate) const MIME_TYPE: &str = "application/json";

/// Appends JSON, and escapes the characters with a meaning in HTML, which occur only in strings.
pub(crate) fn extend_html_safe(out: &mut Vec<u8>, json: &[u8]) {
    for piece in json.split_inclusive(|byte| matches!(byte, b'<' | b'>' | b'&')) {
        let Some((last, start)) = piece.split_last() else {
            continue;
        };
        out.extend_from_slice(start);
        match last {
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            _ => out.push(*last),
        }
    }
}

/// Appends a label set as an object, sorted by name.
pub(crate) fn write_labels(out: &mut Vec<u8>, labels: &Labels) {
    out.push(b'{');
    for (i, (name, value)) in labels.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write_string(out, value);
    }
    out.push(b'}');
}

/// Appends a point: `[1435781451.781,"1.5"]`.
pub(crate) fn write_point(out: &mut Vec<u8>, timestamp_ms: i64, value: f64) {
    out.push(b'[');
    write_timestamp(out, timestamp_ms);
    out.push(b',');
    write_float(out, value);
    out.push(b']');
}

/// Appends a histogram at a time:
/// `[1435781451.781,{"count":"3","sum":"2.5","buckets":[[0,"1","2","3"]]}]`. The first element of a
/// bucket says which bounds are inclusive: 0 the upper, 1 the lower, 2 neither, 3 both.
pub(crate) fn write_histogram_point(
    out: &mut Vec<u8>,
    timestamp_ms: i64,
    histogram: &FloatHistogram,
) {
    out.push(b'[');
    write_timestamp(out, timestamp_ms);
    out.extend_from_slice(b",{\"count\":");
    write_float(out, histogram.count());
    out.extend_from_slice(b",\"sum\":");
    write_float(out, histogram.sum());
    let mut any = false;
    for Bucket {
        lower,
        upper,
        lower_inclusive,
        upper_inclusive,
        count,
    } in histogram.buckets()
    {
        out.extend_from_slice(if any { b"," } else { b",\"buckets\":[" });
        any = true;
        out.extend_from_slice(match (lower_inclusive, upper_inclusive) {
            (false, true) => b"[0,",
            (true, false) => b"[1,",
            (false, false) => b"[2,",
            (true, true) => b"[3,",
        });
        write_float(out, lower);
        out.push(b',');
        write_float(out, upper);
        out.push(b',');
        write_float(out, count);
        out.push(b']');
    }
    out.extend_from_slice(if any { b"]}]" } else { b"}]" });
}

/// Appends a time in seconds. Whole seconds have no fraction, all others three decimals.
pub(crate) fn write_timestamp(out: &mut Vec<u8>, timestamp_ms: i64) {
    if timestamp_ms < 0 {
        out.push(b'-');
    }
    let ms = timestamp_ms.unsigned_abs();
    out.extend_from_slice(itoa::Buffer::new().format(ms / 1000).as_bytes());
    // Generic formatting of the three digits takes longer than formatting the seconds.
    let fraction = ms % 1000;
    if fraction > 0 {
        let hundreds = b'0' + (fraction / 100) as u8;
        let tens = b'0' + (fraction / 10 % 10) as u8;
        let ones = b'0' + (fraction % 10) as u8;
        out.extend_from_slice(&[b'.', hundreds, tens, ones]);
    }
}

/// Appends the time of a scalar or a string, which Prometheus writes as a float: no more decimals
/// than needed.
pub(crate) fn write_float_timestamp(out: &mut Vec<u8>, timestamp_ms: i64) {
    write!(out, "{}", Plain(timestamp_ms as f64 / 1000.0)).expect("writing to a Vec cannot fail");
}

/// Appends a value as a string: the shortest digits that give the same bits, with an exponent below
/// 1e-6 and from 1e21.
pub(crate) fn write_float(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    decimal::write_json(out, value);
    out.push(b'"');
}

/// Appends a scalar result's value as a string: as [`write_float`], never with an exponent.
pub(crate) fn write_scalar(out: &mut Vec<u8>, value: f64) {
    write!(out, "\"{}\"", Plain(value)).expect("writing to a Vec cannot fail");
}

/// Appends a label name or value.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut from = 0;
    // A fold without early exit is vectorized. Few labels need an escape.
    if text.bytes().fold(false, |any, byte| any | is_special(byte)) {
        for (i, byte) in text
            .bytes()
            .enumerate()
            .filter(|&(_, byte)| is_special(byte))
        {
            out.extend_from_slice(&text.as_bytes()[from..i]);
            write_escape(out, byte);
            from = i + 1;
        }
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    out.push(b'"');
}

/// Appends a string that is not a label, safe inside HTML. Each byte that is not UTF-8 becomes an
/// escaped U+FFFD.
pub(crate) fn write_html_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    // Fast path: nothing is escaped.
    if text.iter().all(|&byte| is_plain_in_html(byte)) {
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '<' | '>' | '&' | '"' | '\\' | '\0'..' ' => write_escape(out, c as u8),
                '\u{2028}' => out.extend_from_slice(b"\\u2028"),
                '\u{2029}' => out.extend_from_slice(b"\\u2029"),
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for _ in chunk.invalid() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
    out.push(b'"');
}

/// Returns `true` if a byte of a label needs an escape.
fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// Returns `true` if a byte is ASCII and needs no escape, not even inside HTML.
fn is_plain_in_html(byte: u8) -> bool {
    byte.is_ascii() && !is_special(byte) && !matches!(byte, b'<' | b'>' | b'&')
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => write!(out, "\\u{byte:04x}").expect("writing to a Vec cannot fail"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn check_float(value: f64, expect: &str) {
        assert_eq!(
            written(|out| write_float(out, value)),
            format!("\"{expect}\"")
        );
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        check_float(0.0, "0");
        check_float(-0.0, "-0");
        check_float(1.0, "1");
        check_float(-42.0, "-42");
        check_float(0.1, "0.1");
        check_float(1.5e-6, "0.0000015");
        check_float(0.000001, "0.000001");
        check_float(9.99e-7, "9.99e-07");
        check_float(5e-324, "5e-324");
        check_float(-1e-100, "-1e-100");
        check_float(9007199254740993.0, "9007199254740992");
        check_float(123456789012345680000.0, "123456789012345680000");
        check_float(1e20, "100000000000000000000");
        check_float(1e21, "1e+21");
        check_float(-1.5e21, "-1.5e+21");
        check_float(f64::MAX, "1.7976931348623157e+308");
        check_float(f64::INFINITY, "+Inf");
        check_float(f64::NEG_INFINITY, "-Inf");
        check_float(
            f64::from_bits(varve_model::staleness::STALE_NAN_BITS),
            "NaN",
        );
        check_float(1.0 / 3.0, "0.3333333333333333");
    }

    #[test]
    fn histograms_are_written_with_their_populated_buckets() {
        let mut stored = varve_model::histogram::Histogram {
            zero_threshold: 0.25,
            sum: 34_593.34,
            counts: varve_model::histogram::HistogramCounts::Integer {
                count: 42,
                zero_count: 3,
                positive: vec![12, 0, 6],
                negative: vec![1],
            },
            positive_spans: vec![varve_model::histogram::BucketSpan {
                offset: 1,
                length: 3,
            }],
            negative_spans: vec![varve_model::histogram::BucketSpan {
                offset: 0,
                length: 1,
            }],
            ..varve_model::histogram::Histogram::default()
        };
        let point = |stored: &varve_model::histogram::Histogram| {
            written(|out| write_histogram_point(out, 1_500, &FloatHistogram::from(stored)))
        };
        let buckets =
            r#"[[1,"-1","-0.5","1"],[3,"-0.25","0.25","3"],[0,"1","2","12"],[0,"4","8","6"]]"#;
        let expect = format!(r#"[1.500,{{"count":"42","sum":"34593.34","buckets":{buckets}}}]"#);
        assert_eq!(point(&stored), expect);
        stored.counts = varve_model::histogram::HistogramCounts::default();
        assert_eq!(point(&stored), r#"[1.500,{"count":"0","sum":"34593.34"}]"#);
    }

    #[test]
    fn a_scalar_never_has_an_exponent() {
        assert_eq!(
            written(|out| write_scalar(out, 1e21)),
            "\"1000000000000000000000\""
        );
        assert_eq!(written(|out| write_scalar(out, 1.5e-7)), "\"0.00000015\"");
        assert_eq!(written(|out| write_scalar(out, f64::INFINITY)), "\"+Inf\"");
    }

    fn check_time(timestamp_ms: i64, expect: &str) {
        assert_eq!(written(|out| write_timestamp(out, timestamp_ms)), expect);
    }

    #[test]
    fn times_are_seconds_with_three_decimals_or_none() {
        check_time(0, "0");
        check_time(1_435_781_451_781, "1435781451.781");
        check_time(1_435_781_451_000, "1435781451");
        check_time(1_050, "1.050");
        check_time(7, "0.007");
        check_time(-1, "-0.001");
        check_time(-1_500, "-1.500");
        check_time(i64::MIN, "-9223372036854775.808");
    }

    #[test]
    fn times_of_scalars_have_no_more_decimals_than_needed() {
        for (timestamp_ms, expect) in [
            (0, "0"),
            (1_050, "1.05"),
            (-1_500, "-1.5"),
            (7, "0.007"),
            (2_000, "2"),
        ] {
            assert_eq!(
                written(|out| write_float_timestamp(out, timestamp_ms)),
                expect
            );
        }
    }

    #[test]
    fn labels_escape_only_what_json_demands() {
        let labels = Labels::from_pairs([
            ("__name__", "a"),
            ("b<", "x&\"\\\n\t\r\u{1}\u{7f}é\u{2028}"),
        ])
        .unwrap();
        let expect = "{\"__name__\":\"a\",\"b<\":\"x&\\\"\\\\\\n\\t\\r\\u0001\u{7f}é\u{2028}\"}";
        assert_eq!(written(|out| write_labels(out, &labels)), expect);
        assert_eq!(written(|out| write_labels(out, &Labels::empty())), "{}");
    }

    #[test]
    fn other_texts_are_safe_in_html_and_always_utf8() {
        let text = b"<a href=\"x\">&\xff\xe2\x82 \xe2\x80\xa8\xe2\x80\xa9\x0c\n";
        let expect = r#""\u003ca href=\"x\"\u003e\u0026\ufffd\ufffd\ufffd \u2028\u2029\u000c\n""#;
        assert_eq!(written(|out| write_html_string(out, text)), expect);
    }

    proptest! {
        #[test]
        fn any_float_comes_back_bit_for_bit(bits: u64) {
            let value = f64::from_bits(bits);
            for text in [written(|out| write_float(out, value)), written(|out| write_scalar(out, value))] {
                let back: f64 = text.trim_matches('"').parse().unwrap();
                prop_assert!(back.to_bits() == bits || back.is_nan() && value.is_nan(), "{}", text);
            }
        }

        #[test]
        fn any_text_is_valid_json(text: String) {
            for written in [written(|out| write_string(out, &text)), written(|out| write_html_string(out, text.as_bytes()))] {
                prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text.clone());
            }
        }
    }
}
