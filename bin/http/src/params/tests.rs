use std::time::Duration;

use varve_context::{Limit, QueryContext};
use varve_promql::QUERY_SIZE_MAX;
use varve_query::Steps;
use varve_system::excerpt::QUOTED_SIZE_MAX;
use varve_wire::time::{self, parse_time, to_ms};

use super::form::{PARAMETERS_MAX, grouped};
use super::*;
use crate::error::{ApiError, ErrorKind, Result};

fn form(encoded: &str) -> Form {
    let mut form = Form::default();
    form.add(encoded.as_bytes()).unwrap();
    form
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().message
}

#[test]
fn forms_are_parsed_as_in_go() {
    let form = form("query=up%7Bjob%3D%22a+b%22%7D&&match[]=a&match%5B%5D=b&flag&e=%C3%A9&bad=%ff");
    assert_eq!(form.first("query"), "up{job=\"a b\"}");
    assert_eq!(form.all("match[]").collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(
        (form.first("flag"), form.first("e"), form.first("bad")),
        ("", "é", "\u{fffd}")
    );
    assert_eq!((form.first("none"), form.damage.as_deref()), ("", None));
}

#[test]
fn an_invalid_pair_is_skipped_and_reported() {
    assert_eq!(
        form("a=%zz&b=1").damage.as_deref(),
        Some("invalid URL escape \"%zz\"")
    );
    assert_eq!(form("a=%zz&b=1").first("b"), "1");
    assert_eq!(
        form("a=1%2").damage.as_deref(),
        Some("invalid URL escape \"%2\"")
    );
    assert_eq!(
        form("a=1;b=2").damage.as_deref(),
        Some("invalid semicolon separator in query")
    );
}

#[test]
fn too_many_parameters_are_rejected() {
    let rejected = Form::default().add("a&".repeat(PARAMETERS_MAX + 1).as_bytes());
    assert_eq!(message(rejected), "more than 10000 parameters");
}

fn check_limit(encoded: &str, expect: Result<Option<usize>, &str>) {
    assert_eq!(
        form(encoded).limit().map_err(|rejected| rejected.message),
        expect.map_err(str::to_owned),
        "{encoded}"
    );
}

#[test]
fn limits_are_integers_and_zero_means_no_limit() {
    check_limit("", Ok(None));
    check_limit("limit=0", Ok(None));
    check_limit("limit=7", Ok(Some(7)));
    check_limit(
        "limit=-1",
        Err("invalid parameter \"limit\": limit must be non-negative"),
    );
    check_limit(
        "limit=x",
        Err("invalid parameter \"limit\": strconv.Atoi: parsing \"x\": invalid syntax"),
    );
    let range = "invalid parameter \"limit\": strconv.Atoi: parsing \"99999999999999999999\": value out of range";
    check_limit("limit=99999999999999999999", Err(range));
}

fn check_time(text: &str, expect_ms: Option<i64>) {
    let expect = expect_ms.ok_or_else(|| format!("cannot parse {text:?} to a valid timestamp"));
    assert_eq!(parse_time(text).map(to_ms), expect);
}

#[test]
fn times_are_unix_seconds_or_rfc3339() {
    check_time("0", Some(0));
    check_time("1435781451.781", Some(1_435_781_451_781));
    check_time("123.1234", Some(123_123));
    check_time("-1.5", Some(-1_500));
    check_time("1e3", Some(1_000_000));
    check_time("1e300", Some(i64::MAX));
    check_time("2015-06-03T13:21:58.555Z", Some(1_433_337_718_555));
    check_time("2015-06-03T14:21:58.555+01:00", Some(1_433_337_718_555));
    check_time("2015-06-03T14:21:58.5559999+01:00", Some(1_433_337_718_555));
    check_time(time::TIME_MIN, Some(i64::MIN));
    check_time(time::TIME_MAX, Some(i64::MAX));
    for bad in [
        "",
        "30s",
        "foo",
        "2015-06-03 14:21:58Z",
        "2015-06-03T14:21:58",
        "2015-13-03T14:21:58Z",
        "NaN",
        "Inf",
    ] {
        check_time(bad, None);
    }
    for bad in [
        "2015-06-03T14:21:58+0100",
        "2015-06-03T14:21:60Z",
        "2015-06-03T14:21:58.Z",
        "2015-06-03t14:21:58z",
    ] {
        check_time(bad, None);
    }
    let rejected = form("time=x").optional_time_ms("time");
    assert_eq!(
        message(rejected),
        "invalid parameter \"time\": invalid time value for 'time': cannot parse \"x\" to a valid timestamp"
    );
}

fn check_steps(encoded: &str, expect: Result<(i64, i64, i64), &str>) {
    let expect = expect.map(|(start_ms, end_ms, step_ms)| Steps::range(start_ms, end_ms, step_ms));
    let got = form(encoded)
        .steps(11_000)
        .map_err(|rejected| rejected.message);
    assert_eq!(got, expect.map_err(str::to_owned), "{encoded}");
}

#[test]
fn steps_are_validated_in_the_order_and_words_of_prometheus() {
    check_steps("start=0&end=2&step=1", Ok((0, 2_000, 1_000)));
    check_steps("start=0&end=11000&step=1s", Ok((0, 11_000_000, 1_000)));
    check_steps("start=1&end=1&step=0.001", Ok((1_000, 1_000, 1)));
    check_steps(
        "start=1&end=1&step=0.0005",
        Err("step of 0.0005s is below the minimum of 1ms"),
    );
    check_steps(
        "",
        Err("invalid parameter \"start\": cannot parse \"\" to a valid timestamp"),
    );
    check_steps(
        "start=0&end=x",
        Err("invalid parameter \"end\": cannot parse \"x\" to a valid timestamp"),
    );
    check_steps(
        "start=2&end=1",
        Err("invalid parameter \"end\": end timestamp must not be before start time"),
    );
    check_steps(
        "start=0&end=1",
        Err("invalid parameter \"step\": cannot parse \"\" to a valid duration"),
    );
    let overflow =
        "invalid parameter \"step\": cannot parse \"1e10\" to a valid duration. It overflows int64";
    check_steps("start=0&end=1&step=1e10", Err(overflow));
    let zero = "invalid parameter \"step\": \
                zero or negative query resolution step widths are not accepted. Try a positive integer";
    check_steps("start=0&end=1&step=0", Err(zero));
    check_steps("start=0&end=1&step=-1", Err(zero));
    let fine = "exceeded maximum resolution of 11,000 points per timeseries. \
                Try decreasing the query resolution (?step=XX)";
    check_steps("start=0&end=11001&step=1", Err(fine));
    check_steps("start=-9e18&end=9e18&step=1", Err(fine));
    for (number, printed) in [
        (7, "7"),
        (999, "999"),
        (1_000, "1,000"),
        (1_048_575, "1,048,575"),
    ] {
        assert_eq!(grouped(number), printed);
    }
}

#[test]
fn durations_may_be_floats_or_units() {
    assert_eq!(
        form("timeout=1.5").timeout(),
        Ok(Some(Duration::from_millis(1_500)))
    );
    assert_eq!(
        form("timeout=200ms").timeout(),
        Ok(Some(Duration::from_millis(200)))
    );
    for (text, reason) in [
        ("0", "timeout must be positive, got 0s"),
        ("-1", "timeout must be positive, got -1s"),
        (
            "NaN",
            "cannot parse \"NaN\" to a valid duration. It overflows int64",
        ),
        // 2^63 nanoseconds, one more than fit.
        (
            "9223372036.854775808",
            "cannot parse \"9223372036.854775808\" to a valid duration. It overflows int64",
        ),
    ] {
        let expect = format!("invalid parameter \"timeout\": {reason}");
        assert_eq!(message(form(&format!("timeout={text}")).timeout()), expect);
    }
    assert_eq!(form("").timeout(), Ok(None));
    assert_eq!(
        message(form("timeout=soon").timeout()),
        "invalid parameter \"timeout\": cannot parse \"soon\" to a valid duration"
    );
    assert_eq!(
        form("lookback_delta=1m").lookback_delta_ms(),
        Ok(Some(60_000))
    );
    assert_eq!(form("lookback_delta=0").lookback_delta_ms(), Ok(None));
    assert_eq!(form("lookback_delta=-1").lookback_delta_ms(), Ok(None));
    assert_eq!(
        form("lookback_delta=0.0005").lookback_delta_ms(),
        Ok(Some(1))
    );
    assert_eq!(
        message(form("lookback_delta=x").lookback_delta_ms()),
        "error parsing lookback delta duration: cannot parse \"x\" to a valid duration"
    );
}

fn check_selectors(texts: &[&str], expect: Result<usize, &str>) {
    let texts: Vec<String> = texts.iter().map(|&text| text.into()).collect();
    let parsed = parse_selectors(&QueryContext::unbounded(), &texts, ApiError::bad_data);
    let parsed = parsed.map(|sets| sets.len()).map_err(|error| error.message);
    assert_eq!(parsed, expect.map_err(str::to_owned), "{texts:?}");
}

#[test]
fn each_selector_needs_a_matcher_that_does_not_match_empty() {
    check_selectors(&["up", "{job=~\".+\"}"], Ok(2));
    let empty = Err("match[] must contain at least one non-empty matcher");
    check_selectors(&["{job=~\".*\"}"], empty);
    check_selectors(&["up", "{job!=\"x\"}"], empty);
    let parse = |ctx: &QueryContext, text: &str| {
        parse_selectors(ctx, &[text.into()], ApiError::bad_data).unwrap_err()
    };
    assert!(
        parse(&QueryContext::unbounded(), "sum(up)")
            .message
            .contains("parse error")
    );
    let interrupted = QueryContext::unbounded();
    interrupted.interrupt(varve_context::Interrupt::Canceled);
    assert_eq!(parse(&interrupted, "up").kind, ErrorKind::Canceled);
}

#[test]
fn a_selector_has_a_maximum_size() {
    let selector = |size| format!("{{a=\"{}\"}}", "x".repeat(size - 6));
    check_selectors(&[&selector(QUERY_SIZE_MAX)], Ok(1));
    let text = selector(QUERY_SIZE_MAX + 1);
    let invalid =
        parse_selector(&QueryContext::unbounded(), &text, ApiError::bad_data).unwrap_err();
    assert_eq!(
        invalid.message,
        "selector of 1048577 bytes exceeds the limit of 1048576"
    );
    assert_eq!(invalid.limit, Some(Limit::Other("selector size")));
}

#[test]
fn errors_quote_only_the_start_of_a_long_parameter() {
    let long = "\u{fffd}".repeat(1 << 20);
    let check = |name: &str, message: &dyn Fn(&Form) -> String| {
        let size = message(&form(&format!("{name}={long}"))).len();
        assert!((100..1000).contains(&size), "{name}: {size}");
    };
    check("limit", &|form| message(form.limit()));
    check("time", &|form| message(form.optional_time_ms("time")));
    check("start", &|form| message(form.time_range()));
    check("start=1&end=2&step", &|form| message(form.steps(1)));
    check("timeout", &|form| message(form.timeout()));
    check("lookback_delta", &|form| message(form.lookback_delta_ms()));
    check("skip_head", &|form| message(form.boolean("skip_head")));
    let shown = form(&format!("start={long}&end={long}&step={long}")).shown();
    assert!(
        [shown.start, shown.end, shown.step]
            .iter()
            .all(|text| text.len() <= QUOTED_SIZE_MAX)
    );
}

fn check_name(escaped: &str, expect: &str) {
    assert_eq!(unescape_label_name(escaped), expect);
}

#[test]
fn label_names_in_paths_are_unescaped() {
    check_name("job", "job");
    check_name("U__http_2e_status:sum", "http.status:sum");
    check_name("U__a__b", "a_b");
    check_name("U___1F600_x", "😀x");
    check_name("U__", "");
    for damaged in [
        "U__a_2e",
        "U__a_",
        "U__a_zz_",
        "U__a_1234567_",
        "U__a_D800_",
    ] {
        check_name(damaged, damaged);
    }
}
