//! Alerts of rules at a real Alertmanager, and at one that hangs.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use crate::harness::{
    Alertmanager, ConfigFile, Server, WriteRequest, missing, now_ms, series, wait_until,
};

/// Starts a listener that reads requests and never responds.
fn start_hanging() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("a listener has an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            thread::spawn(move || while stream.read(&mut [0; 1 << 16]).is_ok_and(|n| n > 0) {});
        }
    });
    address
}

/// A configuration with a rule that fires for each series of `burning`.
fn config(targets: &[SocketAddr]) -> ConfigFile {
    let entry = |target: &SocketAddr| {
        format!("  - {{static_configs: [{{targets: ['{target}']}}], timeout: 30s}}\n")
    };
    let alertmanagers: String = targets.iter().map(entry).collect();
    let file = ConfigFile::new(&format!(
        "global: {{evaluation_interval: 1s, external_labels: {{cluster: c1}}}}\n\
         rules: {{wait: none}}\nrule_files: [rules.yml]\nalerting:\n  alertmanagers:\n{alertmanagers}"
    ));
    let rule = "{alert: Burning, expr: burning == 1, labels: {severity: page}, annotations: {summary: It burns}}";
    std::fs::write(
        file.dir().join("rules.yml"),
        format!("groups: [{{name: g, rules: [{rule}]}}]"),
    )
    .expect("write rules");
    file
}

/// Sets `n` series of `burning` on fire.
fn burn(server: &Server, n: usize) {
    let one = |i: usize| {
        series(
            &[("__name__", "burning"), ("n", &i.to_string())],
            &[(now_ms(), 1.0)],
        )
    };
    server
        .http()
        .write(&WriteRequest::new((0..n).map(one)))
        .expect_status(204);
}

fn metric(server: &Server, name: &str, target: SocketAddr) -> f64 {
    server.metric(&format!(
        "prometheus_notifications_{name}{{alertmanager=\"http://{target}/api/v2/alerts\"}}"
    ))
}

#[test]
fn ten_thousand_alerts_reach_one_alertmanager_in_40_batches_while_another_hangs() {
    if missing(&["prometheus-alertmanager", "amtool"]) {
        return;
    }
    let (alertmanager, hanging) = (Alertmanager::start(), start_hanging());
    let good = alertmanager.address();
    let file = config(&[hanging, good]);
    let server = Server::start(&[
        &file.flag(),
        "--web.external-url=http://ex.org/varve/",
        "--web.route-prefix=/",
    ]);
    let urls = server.http().get("/api/v1/alertmanagers").data();
    assert_eq!(
        urls["activeAlertmanagers"][1]["url"],
        format!("http://{good}/api/v2/alerts")
    );
    burn(&server, 10_000);
    wait_until("all alerts", || {
        metric(&server, "sent_total", good) == 10_000.0
    });
    assert_eq!(
        metric(&server, "latency_histogram_seconds_count", good),
        40.0
    );
    assert_eq!(
        (
            metric(&server, "dropped_total", good),
            metric(&server, "errors_total", good)
        ),
        (0.0, 0.0)
    );
    assert_eq!(
        (
            metric(&server, "dropped_total", hanging),
            metric(&server, "queue_length", hanging)
        ),
        (0.0, 9744.0)
    );
    assert_eq!(alertmanager.alerts().len(), 10_000);
    let alerts = alertmanager.amtool(&["alert", "query", "n=\"77\""]);
    let [alert] = alerts.as_array().expect("a list of alerts").as_slice() else {
        panic!("one alert: {alerts}")
    };
    let expect =
        serde_json::json!({"alertname": "Burning", "cluster": "c1", "n": "77", "severity": "page"});
    assert_eq!(
        (&alert["labels"], &alert["annotations"]["summary"]),
        (&expect, &"It burns".into())
    );
    let link = alert["generatorURL"].as_str().expect("a link");
    assert_eq!(
        link,
        "http://ex.org/varve/graph?g0.expr=burning+%3D%3D+1&g0.tab=1"
    );
}

#[test]
fn a_full_queue_drops_alerts_of_its_own_alertmanager_only() {
    if missing(&["prometheus-alertmanager"]) {
        return;
    }
    let (alertmanager, hanging) = (Alertmanager::start(), start_hanging());
    let file = config(&[hanging, alertmanager.address()]);
    let flags = [
        "--alertmanager.notification-queue-capacity=1500",
        "--rules.alert.resend-delay=1s",
    ];
    let server = Server::start(&[&file.flag(), flags[0], flags[1]]);
    burn(&server, 1000);
    wait_until("dropped alerts", || {
        metric(&server, "dropped_total", hanging) > 2000.0
    });
    assert_eq!(metric(&server, "queue_length", hanging), 1500.0);
    assert_eq!(
        metric(&server, "dropped_total", alertmanager.address()),
        0.0
    );
    assert_eq!(alertmanager.alerts().len(), 1000);
}

#[test]
fn queued_alerts_are_sent_at_shutdown() {
    if missing(&["prometheus-alertmanager"]) {
        return;
    }
    let alertmanager = Alertmanager::start();
    let file = config(&[alertmanager.address()]);
    // Each request carries one alert, so that most alerts still wait when the server stops.
    let mut server = Server::start(&[&file.flag(), "--alertmanager.notification-batch-size=1"]);
    burn(&server, 200);
    wait_until("the first alert", || {
        metric(&server, "sent_total", alertmanager.address()) >= 1.0
    });
    assert!(server.terminate().success());
    assert_eq!(alertmanager.alerts().len(), 200);
}

#[test]
fn a_thousand_reloads_add_no_metric_and_no_memory() {
    let hanging = start_hanging();
    let file = config(&[hanging]);
    let server = Server::start(&[&file.flag(), "--web.enable-lifecycle"]);
    burn(&server, 100);
    wait_until("alerts", || server.metric("varve_rule_alerts") == 100.0);
    let reload = || drop(server.http().post("/-/reload", &[], b"").expect_status(200));
    let n_series = || {
        server
            .http()
            .get("/metrics")
            .text()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
    };
    (0..100).for_each(|_| reload());
    let (series_before, size_before) = (n_series(), server.resident_size());
    (0..900).for_each(|_| reload());
    let (series, size) = (n_series(), server.resident_size());
    assert_eq!(series, series_before);
    assert!(
        size < size_before + (16 << 20),
        "{size_before} bytes became {size}"
    );
}

#[test]
fn an_invalid_section_is_rejected_with_its_place() {
    let file = ConfigFile::new(
        "alerting:\n  alertmanagers:\n  - dns_sd_configs: [{names: [a], port: 9093}]\n",
    );
    let server_of = |file: &ConfigFile| crate::harness::try_serve(file.dir(), &[&file.flag()]);
    let (status, output) = server_of(&file);
    assert!(
        !status.success() && output.contains("type: SRV is not supported; set A or AAAA"),
        "{output}"
    );
    file.write("alerting:\n  alertmanagers:\n  - consul_sd_configs: []\n");
    let (_, output) = server_of(&file);
    assert!(
        output.contains("unknown field `consul_sd_configs`") && output.contains("line 3 column 5"),
        "{output}"
    );
}
