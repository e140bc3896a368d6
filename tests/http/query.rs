//! Queries: exact responses, and errors by kind.

use super::{T0, call, server_with_data};
use crate::harness::{Server, WriteRequest, series, wait_until};

/// Checks the whole body of a response; GET and POST must agree.
#[track_caller]
fn check(server: &Server, row: &str, expect: &str) {
    let (path, params) = call(row);
    let answer = server.http().query(&path, &params);
    assert_eq!(answer.text(), expect, "{row}");
    assert_eq!(answer.header("content-type"), "application/json", "{row}");
    let posted = server.http().form(&path, &params);
    assert_eq!(
        (posted.status, posted.text()),
        (answer.status, answer.text()),
        "{row}"
    );
}

#[track_caller]
fn check_data(server: &Server, row: &str, data: &str) {
    check(
        server,
        row,
        &format!(r#"{{"status":"success","data":{data}}}"#),
    );
}

#[track_caller]
fn check_error(server: &Server, row: &str, status: u16, error_type: &str, error: &str) {
    let (path, params) = call(row);
    for answer in [
        server.http().query(&path, &params),
        server.http().form(&path, &params),
    ] {
        assert_eq!(
            (answer.status, answer.error()),
            (status, (error_type.to_owned(), error.to_owned())),
            "{row}"
        );
        assert_eq!(answer.header("content-type"), "application/json", "{row}");
    }
}

#[test]
fn responses_are_exactly_those_of_prometheus() {
    let server = server_with_data(&[]);
    for (row, data) in [
        (
            "query?query=1.5&time=1700000000",
            r#"{"resultType":"scalar","result":[1700000000,"1.5"]}"#,
        ),
        (
            "query?query=1e21&time=1700000000.5",
            r#"{"resultType":"scalar","result":[1700000000.5,"1000000000000000000000"]}"#,
        ),
        (
            "query?query=\"a<b\"&time=0",
            r#"{"resultType":"string","result":[0,"a\u003cb"]}"#,
        ),
        (
            "query?query=nothing&time=1700000000",
            r#"{"resultType":"vector","result":[]}"#,
        ),
        (
            "query?query=nothing[5m]&time=1700000000",
            r#"{"resultType":"matrix","result":[]}"#,
        ),
        (
            "query_range?query=nothing&start=0&end=1&step=1",
            r#"{"resultType":"matrix","result":[]}"#,
        ),
        (
            "query?query=up{instance=\"a:1\"}&time=2023-11-14T22:13:20.007Z",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"up","instance":"a:1","job":"x"},"value":[1700000000.007,"1"]}]}"#,
        ),
        (
            "query?query=tiny&time=1700000015",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"tiny"},"value":[1700000015,"1.5e-09"]}]}"#,
        ),
        (
            "query?query=huge[16s]&time=1700000015",
            r#"{"resultType":"matrix","result":[{"metric":{"__name__":"huge"},"values":[[1700000000,"1e+21"],[1700000015,"2e+21"]]}]}"#,
        ),
        (
            "query?query=temperature&time=1700000000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"temperature","room":"é <&> \"x\" \\ \n"},"value":[1700000000,"-3.3333333333333335"]}]}"#,
        ),
        (
            "query?query=sum(up)&time=1700000000",
            r#"{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"2"]}]}"#,
        ),
        (
            "query?query={\"with.dots\"}&time=1700000000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"with.dots","label with space":"1"},"value":[1700000000,"0"]}]}"#,
        ),
        (
            "query_range?query=special&start=1700000000&end=1700000015&step=15",
            r#"{"resultType":"matrix","result":[{"metric":{"__name__":"special","is":"-0"},"values":[[1700000000,"-0"],[1700000015,"-0"]]},{"metric":{"__name__":"special","is":"-inf"},"values":[[1700000000,"-Inf"],[1700000015,"-Inf"]]},{"metric":{"__name__":"special","is":"inf"},"values":[[1700000000,"+Inf"],[1700000015,"+Inf"]]},{"metric":{"__name__":"special","is":"nan"},"values":[[1700000000,"NaN"],[1700000015,"NaN"]]}]}"#,
        ),
        (
            "query_range?query=vector(time())&start=1699999999.5&end=1700000001&step=500ms",
            r#"{"resultType":"matrix","result":[{"metric":{},"values":[[1699999999.500,"1699999999.5"],[1700000000,"1700000000"],[1700000000.500,"1700000000.5"],[1700000001,"1700000001"]]}]}"#,
        ),
    ] {
        check_data(&server, row, data);
    }
}

#[test]
fn limits_and_annotations_are_reported_beside_the_data() {
    let server = server_with_data(&[]);
    check(
        &server,
        "query?query=up&time=1700000000&limit=1",
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","instance":"a:1","job":"x"},"value":[1700000000,"1"]}]},"warnings":["results truncated due to limit"]}"#,
    );
    check(
        &server,
        "query?query=rate(huge[1m])&time=1700000015",
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000015,"25000000000000000000"]}]},"infos":["PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"huge\" (1:6)"]}"#,
    );
}

#[test]
fn what_cannot_be_understood_is_400_bad_data() {
    let server = server_with_data(&[]);
    let step =
        "zero or negative query resolution step widths are not accepted. Try a positive integer";
    for (row, error) in [
        (
            "query?query=up{&time=1",
            "invalid parameter \"query\": 1:4: parse error: unexpected end of input inside braces",
        ),
        (
            "query?query=nonsense(up)",
            "invalid parameter \"query\": 1:1: parse error: unknown function with name \"nonsense\"",
        ),
        (
            "query?query=",
            "invalid parameter \"query\": unknown position: parse error: no expression found in input",
        ),
        (
            "query?query=up&time=x",
            "invalid parameter \"time\": invalid time value for 'time': cannot parse \"x\" to a valid timestamp",
        ),
        (
            "query?query=up&timeout=x",
            "invalid parameter \"timeout\": cannot parse \"x\" to a valid duration",
        ),
        (
            "query?query=up&limit=x",
            "invalid parameter \"limit\": strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            "query_range?query=up&start=1&end=2",
            "invalid parameter \"step\": cannot parse \"\" to a valid duration",
        ),
        (
            "query_range?query=up&end=2&step=1",
            "invalid parameter \"start\": cannot parse \"\" to a valid timestamp",
        ),
        (
            "query_range?query=up&start=1&end=2&step=0",
            &format!("invalid parameter \"step\": {step}"),
        ),
        (
            "query_range?query=up&start=1&end=2&step=-1",
            &format!("invalid parameter \"step\": {step}"),
        ),
        (
            "query_range?query=up&start=2&end=1&step=1",
            "invalid parameter \"end\": end timestamp must not be before start time",
        ),
        (
            "query_range?query=up&start=0&end=11001&step=1",
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ),
        (
            "query_range?query=up[1m]&start=0&end=1&step=1",
            "invalid parameter \"query\": invalid expression type \"range vector\" for range query, must be Scalar or instant Vector",
        ),
    ] {
        check_error(&server, row, 400, "bad_data", error);
    }
    check_data(
        &server,
        "query_range?query=nothing&start=0&end=11000&step=1",
        r#"{"resultType":"matrix","result":[]}"#,
    );
}

#[test]
fn what_cannot_be_answered_is_422_execution() {
    let server = server_with_data(&["--query.max-samples=10"]);
    let twice = WriteRequest::new([
        series(
            &[("__name__", "twice"), ("a", "1"), ("b", "1")],
            &[(T0, 1.0)],
        ),
        series(
            &[("__name__", "twice"), ("a", "1"), ("b", "2")],
            &[(T0, 1.0)],
        ),
    ]);
    server.http().write(&twice).expect_status(204);
    check_error(
        &server,
        "query?query=up[5m]&time=1700000285",
        422,
        "execution",
        "query processing would load too many samples into memory in query execution. Shorten the range, select fewer series, or record the expression; the limit is --query.max-samples",
    );
    check_error(
        &server,
        "query?query=label_replace(twice, \"b\", \"x\", \"b\", \".*\")&time=1700000000",
        422,
        "execution",
        "vector cannot contain metrics with the same labelset",
    );
    let (path, params) = call("query?query=twice * on(a) twice&time=1700000000");
    let (kind, error) = server
        .http()
        .query(&path, &params)
        .expect_status(422)
        .error();
    assert_eq!(kind, "execution");
    assert!(
        error.starts_with("found duplicate series for the match group {a=\"1\"} on the "),
        "{error}"
    );
}

#[test]
fn durations_that_prometheus_3_16_refuses_are_refused() {
    let server = server_with_data(&[]);
    let overflow = "cannot parse \"9223372036.854775808\" to a valid duration. It overflows int64";
    let check = |row: &str, status, kind: &str, text: &str| {
        let (path, params) = call(row);
        let answer = server.http().query(&path, &params).expect_status(status);
        assert_eq!(answer.error(), (kind.to_owned(), text.to_owned()), "{row}");
    };
    for (timeout, reason) in [
        ("0", "timeout must be positive, got 0s"),
        ("-5", "timeout must be positive, got -5s"),
        ("9223372036.854775808", overflow),
    ] {
        let text = format!("invalid parameter \"timeout\": {reason}");
        check(
            &format!("query?query=1&timeout={timeout}"),
            400,
            "bad_data",
            &text,
        );
    }
    let lookback = format!("error parsing lookback delta duration: {overflow}");
    check(
        "query?query=1&lookback_delta=9223372036.854775808",
        400,
        "bad_data",
        &lookback,
    );
    let range = "query_range?query=1&start=1700000000&end=1700000001";
    let step = format!("invalid parameter \"step\": {overflow}");
    check(
        &format!("{range}&step=9223372036.854775808"),
        400,
        "bad_data",
        &step,
    );
    check(
        &format!("{range}&step=0.0005"),
        422,
        "execution",
        "step of 0.0005s is below the minimum of 1ms",
    );
    let redirect = server
        .http()
        .connect()
        .send(b"GET //api/v1/labels HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .read_to_end();
    assert!(
        redirect.starts_with("HTTP/1.1 307 ") && redirect.contains("location: /api/v1/labels\r\n"),
        "{redirect}"
    );
}

#[test]
fn a_deadline_that_has_passed_is_503_timeout() {
    let server = server_with_data(&[]);
    for row in [
        "query?query=up&time=1700000000&timeout=1e-9",
        "query_range?query=up&start=1700000000&end=1700000285&step=1&timeout=0.000000001",
    ] {
        let (path, params) = call(row);
        let (kind, error) = server
            .http()
            .query(&path, &params)
            .expect_status(503)
            .error();
        assert_eq!(kind, "timeout", "{row}");
        assert!(error.starts_with("query timed out in "), "{row}: {error}");
    }
}

#[test]
fn a_small_query_has_the_response_that_it_has_on_a_blocking_thread() {
    let server = server_with_data(&[]);
    let time = (T0 / 1000 + 60).to_string();
    for query in [
        "1+1",
        "up",
        "sum by (job) (rate(requests_total[1m]))",
        "nothing",
        "special",
        "1 +",
        "sum(up",
        "up[1h:1y]",
    ] {
        // A query with a comment is not small.
        let commented = format!("{query}\n# not small");
        for params in [
            &[("time", time.as_str())][..],
            &[("time", time.as_str()), ("limit", "1")],
        ] {
            let ask = |query: &str| {
                server
                    .http()
                    .query("/api/v1/query", &[&[("query", query)], params].concat())
            };
            let (small, other) = (ask(query), ask(&commented));
            assert_eq!(small.status, other.status, "{query}");
            // The message of a query that ends too early has the position of its end.
            if small.status == 200 {
                assert_eq!(small.text(), other.text(), "{query}");
            }
            assert!(
                small.headers.keys().eq(other.headers.keys()),
                "{query}: {small:?} {other:?}"
            );
        }
    }
    assert!(server.metric("varve_requests_inline_total{class=\"query\"}") >= 1.0);
}

/// The cost of a query is an estimate, which does not contain the time to print long labels.
#[test]
fn a_query_that_takes_longer_than_expected_suspends_small_queries() {
    let server = Server::start(&[]);
    let long = "x".repeat(60_000);
    let labelled = |i: usize| {
        series(
            &[("__name__", "long"), ("i", &i.to_string()), ("x", &long)],
            &[(T0, 1.0)],
        )
    };
    server
        .http()
        .write(&WriteRequest::new((0..50).map(labelled)))
        .expect_status(204);
    let time = (T0 / 1000).to_string();
    server
        .http()
        .query("/api/v1/query", &[("query", "long"), ("time", &time)])
        .expect_status(200);
    assert_eq!(
        server.metric("varve_requests_inline_total{class=\"query\"}"),
        1.0
    );
    assert_eq!(
        server.metric("varve_requests_inline_suspensions_total{class=\"query\"}"),
        1.0
    );
}

#[test]
fn a_small_listing_has_the_response_that_it_has_on_a_blocking_thread() {
    let server = server_with_data(&[]);
    for path in [
        "/api/v1/labels",
        "/api/v1/label/job/values",
        "/api/v1/label/nosuch/values",
    ] {
        for selector in ["up", "{job=\"api\"}", "nothing", "{__name__=~\".+\"}"] {
            let ask = |selectors: &[(&str, &str)]| {
                server
                    .http()
                    .query(path, selectors)
                    .expect_status(200)
                    .text()
            };
            // Two selectors are not small.
            let (small, other) = (("match[]", selector), [("match[]", selector); 2]);
            assert_eq!(ask(&[small]), ask(&other), "{path} {selector}");
            assert_eq!(
                ask(&[small, ("limit", "1")]),
                ask(&[other[0], other[1], ("limit", "1")]),
                "{path} {selector}"
            );
        }
        server
            .http()
            .query(path, &[("match[]", "up{")])
            .expect_status(400);
    }
    let n_inline = || server.metric("varve_requests_inline_total{class=\"metadata\"}");
    let before = n_inline();
    // A listing that took too long on a busy machine suspends small ones for a while.
    wait_until("a small listing", || {
        server
            .http()
            .query("/api/v1/labels", &[])
            .expect_status(200);
        n_inline() > before
    });
}
