use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use prometheus::Registry;
use serde_json::Value;
use tokio::net::TcpListener;
use varve_model::Labels;

use super::*;

/// An Alertmanager that records requests.
#[derive(Clone)]
struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
    /// Statuses of the next responses; 0 is none at all. Then 200.
    statuses: Arc<Mutex<VecDeque<u16>>>,
}

struct Recorded {
    path: String,
    authorization: String,
    alerts: Vec<Value>,
}

impl Recorder {
    async fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let statuses = Arc::new(Mutex::new(statuses.iter().copied().collect()));
        let recorder = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            statuses,
        };
        let shared = recorder.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                let service = service_fn(move |request| shared.clone().respond(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        recorder
    }

    async fn respond(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let status = self.statuses.lock().unwrap().pop_front().unwrap_or(200);
        let path = request.uri().path().to_owned();
        let authorization = request
            .headers()
            .get("authorization")
            .map_or("", |value| value.to_str().unwrap())
            .to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if status == 0 {
            std::future::pending::<()>().await;
        }
        if status == 200 {
            let alerts = serde_json::from_slice(&body).unwrap();
            self.requests.lock().unwrap().push(Recorded {
                path,
                authorization,
                alerts,
            });
        }
        Ok(Response::builder()
            .status(status)
            .body(Full::default())
            .unwrap())
    }

    /// Returns the label `n` of all alerts, by request.
    fn batches(&self) -> Vec<Vec<String>> {
        let requests = self.requests.lock().unwrap();
        let n = |alert: &Value| alert["labels"]["n"].as_str().unwrap().to_owned();
        requests
            .iter()
            .map(|request| request.alerts.iter().map(n).collect())
            .collect()
    }

    fn n_alerts(&self) -> usize {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|request| request.alerts.len())
            .sum()
    }

    /// Returns an entry of `alerting.alertmanagers` with additional keys.
    fn config(&self, more: &str) -> String {
        format!(
            "{{static_configs: [{{targets: ['{}']}}], {more}}}",
            self.address
        )
    }

    /// Returns the value of a metric of this Alertmanager.
    fn metric(&self, counter: &prometheus::IntCounterVec) -> u64 {
        counter
            .with_label_values(&[&format!("http://{}/api/v2/alerts", self.address)])
            .get()
    }
}

fn config(text: &str) -> Config {
    Config::parse(text).unwrap()
}

fn alerting(alertmanagers: &[String]) -> Config {
    config(&format!(
        "alerting: {{alertmanagers: [{}]}}",
        alertmanagers.join(", ")
    ))
}

/// Options with times that suit a test.
fn options() -> NotifierOptions {
    NotifierOptions {
        retry_pause: Duration::from_millis(1),
        queue_capacity: 10_000,
        batch_size: 256,
        drain_on_shutdown: true,
        drain_time_max: Duration::from_secs(10),
    }
}

fn start(options: NotifierOptions, config: &Config) -> Arc<Notifier> {
    let registry = Registry::new();
    let notifier = Notifier::new(options, &Registrar(&registry)).unwrap();
    let notifier = Arc::new(notifier);
    notifier.apply(Notifier::prepare(config).unwrap());
    notifier
}

fn reload(notifier: &Arc<Notifier>, config: &Config) {
    notifier.apply(Notifier::prepare(config).unwrap());
}

fn alerts(numbers: std::ops::Range<usize>) -> Vec<OutgoingAlert> {
    let alert = |n: usize| OutgoingAlert {
        labels: Labels::from_pairs([("alertname", "A"), ("n", &n.to_string())]).unwrap(),
        annotations: Arc::default(),
        starts_at_ms: 1,
        ends_at_ms: 2,
        generator_url: String::new(),
    };
    numbers.map(alert).collect()
}

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "waited for {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

#[test]
fn ten_thousand_alerts_are_40_batches_in_order() {
    run(async {
        let recorder = Recorder::start(&[]).await;
        let notifier = start(options(), &alerting(&[recorder.config("")]));
        notifier.enqueue(alerts(0..10_000));
        until("all alerts", || recorder.n_alerts() == 10_000).await;
        let batches = recorder.batches();
        assert_eq!(
            (batches.len(), batches[0].len(), batches[39].len()),
            (40, 256, 16)
        );
        assert!(
            batches
                .concat()
                .iter()
                .map(|n| n.parse::<usize>().unwrap())
                .eq(0..10_000)
        );
        until("the count", || {
            recorder.metric(&notifier.metrics.sent) == 10_000
        })
        .await;
        assert_eq!(
            (
                recorder.metric(&notifier.metrics.dropped),
                recorder.metric(&notifier.metrics.errors)
            ),
            (0, 0)
        );
    });
}

#[test]
fn an_alertmanager_that_hangs_delays_no_other_and_drops_its_oldest_alerts() {
    run(async {
        let (hanging, other) = (Recorder::start(&[0]).await, Recorder::start(&[]).await);
        let options = NotifierOptions {
            queue_capacity: 1000,
            ..options()
        };
        let notifier = start(
            options,
            &alerting(&[hanging.config("timeout: 1h"), other.config("")]),
        );
        for i in 0..20 {
            notifier.enqueue(alerts(i * 500..(i + 1) * 500));
            until("the other", || other.n_alerts() == (i + 1) * 500).await;
        }
        assert_eq!(recorder_drops(&notifier, &other), 0);
        let url = format!("http://{}/api/v2/alerts", hanging.address);
        assert_eq!(
            notifier
                .metrics
                .queue_length
                .with_label_values(&[&url])
                .get(),
            1000
        );
        let dropped = recorder_drops(&notifier, &hanging);
        assert!(
            (10_000 - 1000 - 256..=10_000 - 1000 - 1).contains(&dropped),
            "{dropped}"
        );
    });
}

fn recorder_drops(notifier: &Notifier, recorder: &Recorder) -> u64 {
    recorder.metric(&notifier.metrics.dropped)
}

#[test]
fn a_failed_batch_is_sent_a_second_time_if_that_can_help() {
    let check = |statuses: &'static [u16], n_sent: usize, n_errors: u64| {
        run(async move {
            let recorder = Recorder::start(statuses).await;
            let notifier = start(options(), &alerting(&[recorder.config("")]));
            notifier.enqueue(alerts(0..1));
            until("the errors", || {
                recorder.metric(&notifier.metrics.errors) == n_errors
            })
            .await;
            notifier.drain().await;
            assert_eq!(recorder.n_alerts(), n_sent, "{statuses:?}");
        });
    };
    check(&[500], 1, 1);
    check(&[429], 1, 1);
    check(&[500, 503], 0, 2);
    check(&[400], 0, 1);
}

#[test]
fn lost_alerts_are_counted_as_dropped() {
    run(async {
        let recorder = Recorder::start(&[400]).await;
        let notifier = start(options(), &alerting(&[recorder.config("")]));
        notifier.enqueue(alerts(0..300));
        until("the second batch", || recorder.n_alerts() == 44).await;
        assert_eq!(recorder_drops(&notifier, &recorder), 256);
    });
}

#[test]
fn an_alertmanager_without_a_response_is_an_error_after_the_timeout() {
    run(async {
        let recorder = Recorder::start(&[0]).await;
        let notifier = start(options(), &alerting(&[recorder.config("timeout: 50ms")]));
        notifier.enqueue(alerts(0..1));
        until("the alert", || recorder.n_alerts() == 1).await;
        assert_eq!(recorder.metric(&notifier.metrics.errors), 1);
    });
}

#[test]
fn labels_are_added_and_rewritten_in_order() {
    run(async {
        let (all, some) = (Recorder::start(&[]).await, Recorder::start(&[]).await);
        let own = "alert_relabel_configs: [{source_labels: [n], regex: '1', action: drop}, {action: labeldrop, regex: x}]";
        let notifier = start(
            options(),
            &config(&format!(
                "global: {{external_labels: {{x: external, n: external}}}}\n\
                 alerting:\n  alert_relabel_configs: [{{source_labels: [n, x], target_label: joined}}, \
                 {{source_labels: [n], regex: '2', action: drop}}]\n  alertmanagers: [{}, {}]",
                all.config("path_prefix: /am, bearer_token: t0ken"),
                some.config(own),
            )),
        );
        notifier.enqueue(alerts(0..3));
        until("all alerts", || all.n_alerts() == 2 && some.n_alerts() == 1).await;
        let requests = all.requests.lock().unwrap();
        assert_eq!(
            (&*requests[0].path, &*requests[0].authorization),
            ("/am/api/v2/alerts", "Bearer t0ken")
        );
        let labels = |recorded: &Recorded, idx: usize| recorded.alerts[idx]["labels"].to_string();
        assert_eq!(
            labels(&requests[0], 1),
            "{\"alertname\":\"A\",\"joined\":\"1;external\",\"n\":\"1\",\"x\":\"external\"}"
        );
        let requests = some.requests.lock().unwrap();
        assert_eq!(
            labels(&requests[0], 0),
            "{\"alertname\":\"A\",\"joined\":\"0;external\",\"n\":\"0\"}"
        );
    });
}

#[test]
fn a_reload_keeps_queued_alerts_and_applies_new_settings() {
    run(async {
        let recorder = Recorder::start(&[503]).await;
        let slow = NotifierOptions {
            retry_pause: Duration::from_millis(100),
            batch_size: 10,
            ..options()
        };
        let notifier = start(slow, &alerting(&[recorder.config("bearer_token: a")]));
        notifier.enqueue(alerts(0..35));
        until("the first attempt", || {
            recorder.metric(&notifier.metrics.errors) == 10
        })
        .await;
        reload(&notifier, &alerting(&[recorder.config("bearer_token: b")]));
        until("all alerts", || recorder.n_alerts() == 35).await;
        let requests = recorder.requests.lock().unwrap();
        assert!(
            requests
                .iter()
                .all(|request| request.authorization == "Bearer b")
        );
        drop(requests);
        assert_eq!(recorder_drops(&notifier, &recorder), 0);
        for invalid in [
            "bearer_token_file: nowhere",
            "scheme: https, tls_config: {ca: nothing}",
            // A relabel rule may set `__scheme__` to `https`.
            "tls_config: {insecure_skip_verify: true, max_version: TLS11}",
            "tls_config: {ca_file: nowhere}",
        ] {
            assert!(
                Notifier::prepare(&alerting(&[recorder.config(invalid)])).is_err(),
                "{invalid}"
            );
        }
    });
}

#[test]
fn a_removed_alertmanager_gets_what_is_queued() {
    run(async {
        let recorder = Recorder::start(&[503]).await;
        let notifier = start(options(), &alerting(&[recorder.config("")]));
        notifier.enqueue(alerts(0..300));
        reload(&notifier, &Config::default());
        assert_eq!(notifier.alertmanagers().0.len(), 0);
        notifier.enqueue(alerts(300..301));
        until("all alerts", || recorder.n_alerts() == 300).await;
    });
}

#[test]
fn a_thousand_reloads_leave_nothing_behind() {
    run(async {
        let notifier = start(options(), &Config::default());
        let n_series = || -> usize {
            let family = |name: &str| {
                prometheus::core::Collector::collect(&notifier.metrics.sent)
                    .iter()
                    .filter(|family| family.name() == name)
                    .map(|family| family.get_metric().len())
                    .sum()
            };
            family("prometheus_notifications_sent_total")
        };
        let config_of = |i: usize| {
            alerting(&[format!(
                "{{static_configs: [{{targets: ['a:1', 'b{i}:1']}}]}}"
            )])
        };
        reload(&notifier, &config_of(0));
        let kept = Arc::clone(&notifier.state.read().sets[0].deliveries[0]);
        for i in 1..=1000 {
            reload(&notifier, &config_of(i));
        }
        assert!(Arc::ptr_eq(
            &kept,
            &notifier.state.read().sets[0].deliveries[0]
        ));
        assert_eq!(
            notifier.alertmanagers().0,
            ["http://a:1/api/v2/alerts", "http://b1000:1/api/v2/alerts"]
        );
        until("the end of removed deliveries", || {
            reload(&notifier, &config_of(1000));
            n_series() == 2 && notifier.state.read().closing.is_empty()
        })
        .await;
        assert_eq!(notifier.metrics.discovered.get(), 2);
    });
}

#[test]
fn queued_alerts_are_sent_at_shutdown_within_a_bound() {
    let check = |drains: bool, status: u16, n_sent: usize| {
        run(async move {
            let (recorder, first) = (Recorder::start(&[503, status]).await, 10);
            let times = (Duration::from_secs(3600), Duration::from_millis(200));
            let options = NotifierOptions {
                drain_on_shutdown: drains,
                batch_size: first,
                retry_pause: times.0,
                drain_time_max: times.1,
                ..options()
            };
            let notifier = start(options, &alerting(&[recorder.config("timeout: 1h")]));
            let (dropped, metrics) = (
                format!("http://{}/api/v2/alerts", recorder.address),
                notifier.metrics.clone(),
            );
            notifier.enqueue(alerts(0..30));
            until("the first attempt", || {
                recorder.metric(&notifier.metrics.errors) == first as u64
            })
            .await;
            let started = Instant::now();
            notifier.drain().await;
            assert!(started.elapsed() < Duration::from_secs(30));
            notifier.enqueue(alerts(30..31));
            assert_eq!(recorder.n_alerts(), n_sent, "drains: {drains}, {status}");
            // The metrics of a delivery end with it.
            assert_eq!(metrics.dropped.with_label_values(&[&dropped]).get(), 0);
        });
    };
    check(true, 200, 30);
    check(true, 0, 0);
    check(false, 200, 0);
}

#[test]
fn alertmanagers_of_files_follow_the_files() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        let settings = alerting(&[format!(
            "{{file_sd_configs: [{{files: ['{}']}}]}}",
            file.display()
        )]);
        let write = |targets: &str| {
            std::fs::write(&file, format!("[{{\"targets\": [{targets}]}}]")).unwrap()
        };
        write("\"a:1\", \"b:1\"");
        let notifier = start(options(), &settings);
        let active = || notifier.alertmanagers().0;
        let is_active = |names: &[&str]| {
            active()
                == names
                    .iter()
                    .map(|name| format!("http://{name}/api/v2/alerts"))
                    .collect::<Vec<_>>()
        };
        until("two", || is_active(&["a:1", "b:1"])).await;
        let kept = Arc::clone(&notifier.state.read().sets[0].deliveries[1]);
        // A reload reads files at once. Until then the known targets remain.
        write("\"b:1\", \"c:1\"");
        reload(&notifier, &settings);
        assert_eq!(active().len(), 2);
        until("others", || is_active(&["b:1", "c:1"])).await;
        assert!(Arc::ptr_eq(
            &kept,
            &notifier.state.read().sets[0].deliveries[0]
        ));
        std::fs::write(&file, "{").unwrap();
        reload(&notifier, &settings);
        notifier.drain().await;
        assert_eq!(active().len(), 0);
    });
}
