//! `/api/v1/export` and `/api/v1/import`: VictoriaMetrics' JSON lines.

use serde_json::Value as Json;

use super::everything;
use crate::harness::{
    Http, Server, VictoriaMetrics, WriteRequest, missing, now_ms, series, wait_until,
};

fn export(http: &Http, parameters: &[(&str, &str)]) -> String {
    http.form("/api/v1/export", parameters)
        .expect_status(200)
        .text()
}

#[test]
fn samples_are_exported_in_parts() {
    let server = Server::start(&[]);
    let samples = [
        (1_700_000_000_000, 1.0),
        (1_700_000_001_000, f64::NAN),
        (1_700_000_002_000, f64::INFINITY),
    ];
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let all = [&samples[..], &[(1_700_000_003_000, stale)]].concat();
    let request = WriteRequest::new([
        series(&[("__name__", "a"), ("x", "\"")], &all),
        series(&[("__name__", "b")], &samples[..1]),
    ]);
    server.http().write(&request).expect_status(204);
    let exported = export(
        server.http(),
        &[
            ("match[]", "a"),
            ("match[]", "{__name__=~\"a|b\"}"),
            ("max_rows_per_line", "2"),
        ],
    );
    let expect = concat!(
        r#"{"metric":{"__name__":"a","x":"\""},"values":[1,"NaN"],"timestamps":[1700000000000,1700000001000]}"#,
        "\n",
        r#"{"metric":{"__name__":"a","x":"\""},"values":["Infinity",null],"timestamps":[1700000002000,1700000003000]}"#,
        "\n",
        r#"{"metric":{"__name__":"b"},"values":[1],"timestamps":[1700000000000]}"#,
        "\n",
    );
    assert_eq!(exported, expect);
    assert_eq!(
        export(server.http(), &[("match[]", "a"), ("end", "1700000000")])
            .lines()
            .count(),
        1
    );
    assert_eq!(export(server.http(), &[("match[]", "nothing")]), "");
    for invalid in ["?match[]=a&max_rows_per_line=x", "", "?match[]={"] {
        server
            .http()
            .get(&format!("/api/v1/export{invalid}"))
            .expect_status(400);
    }
}

#[test]
fn an_export_holds_at_most_its_budget_and_ends_with_its_client() {
    let server = Server::start(&["--query.max-memory=1MiB", "--web.response-buffer=64KiB"]);
    let http = server.http();
    let line = |name: &str, n_samples: i64| {
        let values = vec!["1"; n_samples as usize].join(",");
        let times: Vec<_> = (0..n_samples)
            .map(|i| 1_700_000_000_000 + 1000 * i)
            .collect();
        format!(
            "{{\"metric\":{{\"__name__\":{name:?}}},\"values\":[{values}],\"timestamps\":{times:?}}}\n"
        )
    };
    let small: String = (0..500)
        .map(|i| line(&format!("small_{i}"), 1_000))
        .collect();
    http.post(
        "/api/v1/import",
        &[],
        (small + &line("large", 200_000)).as_bytes(),
    )
    .expect_status(204);
    let exceeded = http.get("/api/v1/export?match[]=large").expect_status(422);
    assert!(
        exceeded.text().contains("--query.max-memory: "),
        "{exceeded:?}"
    );
    // More than the budget in all, but each series is small.
    assert_eq!(
        export(http, &[("match[]", "{__name__=~\"small_.+\"}")])
            .lines()
            .count(),
        500
    );
    let mut client = http.connect();
    client.send(
        b"GET /api/v1/export?match[]={__name__=~%22small_.%2B%22} HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    let active = || server.metric("varve_requests_active{class=\"remote_read\"}");
    assert!(client.read(16).starts_with("HTTP/1.1 200"));
    drop(client);
    wait_until("the export to end", || {
        active() == 0.0 && server.metric("varve_query_memory_bytes") == 0.0
    });
}

/// A NaN of VictoriaMetrics was stored as a value, so that sums were NaN after the end of a series.
#[test]
fn null_is_the_end_of_a_series() {
    let server = Server::start(&[]);
    let http = server.http();
    let body = concat!(
        r#"{"metric":{"__name__":"m","pod":"a"},"values":[1,null,"NaN"],"timestamps":[1700000000000,1700000015000,1700000030000]}"#,
        "\n",
        r#"{"metric":{"__name__":"m","pod":"b"},"values":[7,7],"timestamps":[1700000000000,1700000015000]}"#,
        "\n",
    );
    http.post("/api/v1/import", &[], body.as_bytes())
        .expect_status(204);
    let sum = |time: &str| {
        let parameters = [("query", "sum(m)"), ("time", time)];
        http.query("/api/v1/query", &parameters).data()["result"][0]["value"][1].to_string()
    };
    let sums = ["1700000014", "1700000016", "1700000031"].map(sum);
    assert_eq!(sums, ["\"8\"", "\"7\"", "\"NaN\""]);
    assert_eq!(export(http, &[("match[]", "m")]), body);

    let other = Server::start(&[]);
    let expected = [
        ("value", r#"[1,"NaN","NaN"]"#),
        ("marker", "[1,null,null]"),
        ("skip", "[1]"),
    ];
    for (meaning, values) in expected {
        let path = format!("/api/v1/import?nan={meaning}&extra_label=nan={meaning}");
        let other = other.http();
        other.post(&path, &[], body.as_bytes()).expect_status(204);
        let exported = export(
            other,
            &[("match[]", &format!("m{{nan={meaning:?},pod='a'}}"))],
        );
        assert!(
            exported.contains(&format!("\"values\":{values},")),
            "{exported}"
        );
    }
}

#[test]
fn an_invalid_json_line_is_reported() {
    let server = Server::start(&[]);
    let http = server.http();
    let line =
        r#"{"metric":{"__name__":"a"},"values":[1,2],"timestamps":[1700000000000,1700000001000]}"#;
    let answer = http
        .post(
            "/api/v1/import",
            &[],
            format!("{line}\n\n{{}}\n").as_bytes(),
        )
        .expect_status(400);
    assert!(
        answer.text().contains("line 3: missing field `metric`"),
        "{answer:?}"
    );
    assert!(everything(http).is_empty());
    http.post("/api/v1/import?extra_label=x=y", &[], line.as_bytes())
        .expect_status(204);
    assert_eq!(
        everything(http),
        [r#"{"__name__":"a","x":"y"} [[1700000000,"1"],[1700000001,"2"]]"#]
    );
}

/// Samples that a real VictoriaMetrics exports are the same after an import into Varve, and after
/// an export from there and an import into another VictoriaMetrics.
#[test]
fn json_lines_travel_from_victoria_metrics_and_back() {
    if missing(&["victoria-metrics"]) {
        return;
    }
    let server = Server::start(&[]);
    let now_ms = now_ms();
    let line = |i: i64| {
        let times: Vec<_> = (0..200)
            .map(|step| now_ms - 600_000 + 2_000 * step + i)
            .collect();
        let values: Vec<_> = (0..200)
            .map(|step| format!("{}", (step * i) as f64 * 0.375))
            .collect();
        format!(
            "{{\"metric\":{{\"__name__\":\"m\",\"i\":\"{i}\\\"é\"}},\"values\":[{},\"Infinity\"],\"timestamps\":{:?}}}\n",
            values.join(","),
            [times, vec![now_ms - 60_000]].concat()
        )
    };
    let body: String = (0..50).map(line).collect();
    let export = |http: &Http| {
        let lines = export(
            http,
            &[
                ("match[]", "{__name__=\"m\"}"),
                ("max_rows_per_line", "100000"),
            ],
        );
        let mut lines: Vec<Json> = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        lines.sort_by_key(|line| line["metric"].to_string());
        lines
    };
    let import = |http: &Http, body: &str| {
        http.post("/api/v1/import", &[], body.as_bytes())
            .expect_status(204)
    };
    let theirs = VictoriaMetrics::start();
    import(theirs.http(), &body);
    theirs.flush();
    let exported = export(theirs.http());
    let n_samples: Vec<_> = exported
        .iter()
        .map(|line| line["values"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(n_samples, [201; 50]);
    let text = |lines: &[Json]| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    import(server.http(), &text(&exported));
    assert_eq!(export(server.http()), exported);
    let back = VictoriaMetrics::start();
    import(back.http(), &text(&export(server.http())));
    back.flush();
    assert_eq!(export(back.http()), exported);
}
