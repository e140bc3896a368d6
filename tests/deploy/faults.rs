//! Faults that are injected into a running server: another server scrapes it, and the expression of
//! each alert becomes true there. The unit tests beside the alerts show how long an expression must
//! be true.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use super::mixin::{MIXIN, rules};
use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series, wait_for, wait_until};
use crate::protection::{endless_query, ingest};

/// The alerts that only unit tests make true: no request is known that panics, and a forecast needs
/// hours.
const INJECTED_BY_UNIT_TESTS: [&str; 2] = ["VarvePanics", "VarveVolumeFillsUp"];

/// Alerts whose fault a test of this file injects.
const INJECTED: [&str; 34] = [
    "VarveAlertsNearMaximum",
    "VarveBlocksDamaged",
    "VarveCompactionsFailing",
    "VarveConfigReloadFailed",
    "VarveDown",
    "VarveHaFlapping",
    "VarveHaLeaderSilent",
    "VarveLimitsHit",
    "VarveLogDamaged",
    "VarveLogNotWritten",
    "VarveMemoryHigh",
    "VarveNoAlertmanager",
    "VarveNoSamples",
    "VarveNotReady",
    "VarveNotificationsDropped",
    "VarveQueriesQueued",
    "VarveQueriesSlow",
    "VarveRelabelRuleDisabled",
    "VarveReplaySlow",
    "VarveRequestsDenied",
    "VarveRestarting",
    "VarveRetentionHeld",
    "VarveRuleFailures",
    "VarveRuleIterationsMissed",
    "VarveRulesIncomplete",
    "VarveSamplesRejected",
    "VarveSenderLagging",
    "VarveTeamNearMaximum",
    "VarveTeamSeriesRejected",
    "VarveUploadsLagging",
    "VarveVolumeFull",
    "VarveWebConfigReloadFailed",
    "VarveWritesFailing",
    "VarveWritesThrottled",
];

static ALERTS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    rules(MIXIN)
        .iter()
        .map(|rule| (text(&rule["alert"]), text(&rule["expr"])))
        .collect()
});

/// A server that scrapes another one.
struct Monitor(Server);

impl Monitor {
    fn new() -> Self {
        Self(Server::start(&[]))
    }

    fn scrape(&self, target: &Server) {
        const LABELS: &str = "extra_label=job=varve&extra_label=instance=a:9898";
        let scraped = target.http().try_get("/metrics").ok();
        let text = scraped
            .as_ref()
            .map(|answer| answer.text())
            .unwrap_or_default();
        let body = format!("{text}\nup {}\n", u8::from(scraped.is_some()));
        let answer = self.0.http().post(
            &format!("/api/v1/import/prometheus?{LABELS}"),
            &[],
            body.as_bytes(),
        );
        assert!(answer.status < 300, "{answer:?}");
    }

    fn is_true(&self, alert: &str) -> bool {
        let result = self
            .0
            .http()
            .query("/api/v1/query", &[("query", &ALERTS[alert])])
            .data()["result"]
            .take();
        !result.as_array().expect("a vector").is_empty()
    }

    /// Injects a fault, again and again, until the expression of the alert is true. It must be
    /// false before.
    #[track_caller]
    fn expect(&self, alert: &str, target: &Server, fault: impl FnMut()) {
        self.scrape(target);
        assert!(!self.is_true(alert), "{alert} is true without a fault");
        self.expect_now(alert, target, fault);
    }

    /// As [`Self::expect`], if the fault has begun.
    #[track_caller]
    fn expect_now(&self, alert: &str, target: &Server, mut fault: impl FnMut()) {
        assert!(INJECTED.contains(&alert), "{alert} is not in the list");
        wait_until(alert, || {
            fault();
            // Samples of one millisecond would be duplicates.
            sleep(Duration::from_millis(20));
            self.scrape(target);
            self.is_true(alert)
        });
    }
}

fn write(server: &Server, labels: &[(&str, &str)], time_ms: i64) -> u16 {
    let labels = [&[("__name__", "m")], labels].concat();
    server
        .http()
        .write(&WriteRequest::new([series(&labels, &[(time_ms, 1.0)])]))
        .status
}

fn compact(server: &Server) -> u16 {
    server
        .http()
        .post("/api/v1/admin/tsdb/compact", &[], b"")
        .status
}

#[test]
fn a_fault_of_each_alert_is_injected() {
    let mut named: Vec<_> = INJECTED.into_iter().chain(INJECTED_BY_UNIT_TESTS).collect();
    named.sort_unstable();
    assert_eq!(named, ALERTS.keys().collect::<Vec<_>>());
}

#[test]
fn alerts_of_the_process() {
    let (config, dir) = (ConfigFile::new(""), TempDir::new().expect("a directory"));
    let web = dir.path().join("web.yml");
    std::fs::write(&web, "").expect("write a file");
    let flags = [
        &*config.flag(),
        "--web.enable-lifecycle",
        &format!("--web.config.file={}", web.display()),
    ];
    let (mut server, monitor) = (Server::start(&flags), Monitor::new());
    monitor.expect("VarveConfigReloadFailed", &server, || {
        config.write("nonsense: 1");
        server.http().post("/-/reload", &[], b"").expect_status(500);
    });
    config.write("");
    monitor.expect("VarveRequestsDenied", &server, || {
        let form = [("sec-fetch-site", "cross-site")];
        server
            .http()
            .post("/api/v1/write", &form, b"")
            .expect_status(403);
    });
    // A file is read once it no longer changes.
    std::fs::write(&web, "nonsense: 1").expect("write");
    monitor.expect_now("VarveWebConfigReloadFailed", &server, || {});
    std::fs::write(&web, "").expect("write a file");
    monitor.scrape(&server);
    assert!(!monitor.is_true("VarveDown") && !monitor.is_true("VarveRestarting"));
    // They use more than the least --memory.limit.
    let many = (0..150_000).map(|i| {
        series(
            &[("__name__", "many"), ("i", &i.to_string())],
            &[(now_ms(), 1.0)],
        )
    });
    server
        .http()
        .write(&WriteRequest::new(many))
        .expect_status(204);
    for _ in 0..3 {
        server.kill();
        server.restart(&flags);
        monitor.scrape(&server);
    }
    monitor.expect_now("VarveRestarting", &server, || {});
    let used = || server.metric("varve_memory_used_bytes");
    wait_until("the replay", || used() > f64::from(20 << 20));
    assert!(!monitor.is_true("VarveMemoryHigh"));
    let limit = (used() * 0.8).round();
    server.kill();
    server.restart(&[&format!("--memory.limit={limit}")]);
    monitor.expect_now("VarveMemoryHigh", &server, || {});
    server.kill();
    monitor.expect_now("VarveDown", &server, || {});
}

#[test]
fn alerts_of_a_start() {
    const SERIES: usize = 20_000;
    let (mut server, monitor) = (Server::start(&[]), Monitor::new());
    for part in 0..5 {
        let of = |i: usize| {
            series(
                &[("__name__", "m"), ("i", &format!("{part}-{i}"))],
                &[(now_ms(), i as f64)],
            )
        };
        server
            .http()
            .write(&WriteRequest::new((0..SERIES).map(of)))
            .expect_status(204);
    }
    monitor.scrape(&server);
    for alert in ["VarveNotReady", "VarveReplaySlow"] {
        assert!(!monitor.is_true(alert), "{alert}");
        wait_until(alert, || {
            server.kill();
            server.restart_at_once(&["--storage.wal.replay-concurrency=1"]);
            let is_over = |server: &Server| {
                let text = server.http().get("/metrics").text();
                text.contains("varve_tsdb_replay_running 0\n")
            };
            wait_for("the alert, or the end of the start", || {
                monitor.scrape(&server);
                let is_true = monitor.is_true(alert);
                sleep(Duration::from_millis(2));
                (is_true || is_over(&server)).then_some(is_true)
            })
        });
        assert!(INJECTED.contains(&alert));
        wait_until("the end of the start", || {
            server
                .http()
                .get("/metrics")
                .text()
                .contains("varve_tsdb_replay_running 0\n")
        });
        monitor.scrape(&server);
    }
}

#[test]
fn alerts_of_ingestion() {
    let config = ConfigFile::new(
        "ingest: {team_label: team, teams: {a: {maximum: {active_series: 10}}, b: {maximum: {samples_per_second: 1}}}, \
         ha: {cluster_label: cluster, replica_label: replica, failover_timeout: 1s}}",
    );
    let (server, monitor) = (
        Server::start(&[&config.flag(), "--ingest.queue-timeout=50ms"]),
        Monitor::new(),
    );
    let now = now_ms();
    assert_eq!(write(&server, &[], now), 204);
    monitor.scrape(&server);
    assert_eq!(write(&server, &[], now + 1), 204);
    monitor.expect("VarveSamplesRejected", &server, || {
        assert_eq!(write(&server, &[], now - 86_400_000), 400);
    });
    let teams = |i: usize| {
        [
            ("team", "a"),
            ("i", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"][i]),
        ]
    };
    monitor.expect("VarveTeamNearMaximum", &server, || {
        (0..10).for_each(|i| assert_eq!(write(&server, &teams(i), now_ms()), 204));
    });
    monitor.expect("VarveTeamSeriesRejected", &server, || {
        write(
            &server,
            &[("team", "a"), ("i", &now_ms().to_string())],
            now_ms(),
        );
    });
    monitor.expect("VarveWritesThrottled", &server, || {
        let samples: Vec<_> = (0..20).map(|i| (now_ms() + i, 1.0)).collect();
        server.http().write(&WriteRequest::new([series(
            &[("__name__", "m"), ("team", "b")],
            &samples,
        )]));
    });
    let mut replicas = ["0", "1"].into_iter().cycle();
    monitor.expect("VarveHaFlapping", &server, || {
        let labels = [
            ("cluster", "c"),
            ("replica", replicas.next().expect("it is endless")),
        ];
        write(&server, &labels, now_ms());
        sleep(Duration::from_millis(1100));
    });
}

#[test]
#[ignore = "takes 5 minutes"]
fn alert_of_a_silent_leader() {
    const SILENT_MAX: Duration = Duration::from_secs(300);
    let config = ConfigFile::new("ingest: {ha: {cluster_label: cluster, replica_label: replica}}");
    let (server, monitor) = (Server::start(&[&config.flag()]), Monitor::new());
    assert_eq!(
        write(&server, &[("cluster", "c"), ("replica", "0")], now_ms()),
        204
    );
    monitor.scrape(&server);
    assert!(!monitor.is_true("VarveHaLeaderSilent"));
    sleep(SILENT_MAX);
    monitor.expect_now("VarveHaLeaderSilent", &server, || {});
}

#[test]
fn alerts_of_a_sender() {
    let (server, monitor) = (Server::start(&[]), Monitor::new());
    let late = || assert_eq!(write(&server, &[], now_ms() - 600_000), 204);
    late();
    monitor.expect("VarveSenderLagging", &server, late);
    // Another server scrapes from now on: it has seen no sample arrive.
    let monitor = Monitor::new();
    monitor.expect("VarveNoSamples", &server, || {});
}

#[test]
fn alert_of_a_disabled_relabel_rule() {
    let rule =
        "{source_labels: [__name__], regex: m, action: drop, name: no-m, disable_on_use: true}";
    let config = ConfigFile::new(&format!("ingest: {{metric_relabel_configs: [{rule}]}}"));
    let (server, monitor) = (Server::start(&[&config.flag()]), Monitor::new());
    assert_eq!(write(&server, &[], now_ms()), 204);
    monitor.expect("VarveRelabelRuleDisabled", &server, || {
        server
            .http()
            .query("/api/v1/query", &[("query", "m")])
            .data();
    });
}

#[test]
fn alerts_of_a_full_disk() {
    let Some(server) = Server::start_on_small_disk("16m", &["--storage.head.flush-interval=1s"])
    else {
        return;
    };
    let monitor = Monitor::new();
    assert_eq!(write(&server, &[], now_ms()), 204);
    for alert in [
        "VarveWritesFailing",
        "VarveLogNotWritten",
        "VarveCompactionsFailing",
        "VarveVolumeFull",
    ] {
        monitor.scrape(&server);
        assert!(!monitor.is_true(alert), "{alert}");
    }
    let filler = server.root(&server.data_dir()).join("filler");
    // Takes what is free, also what the server has just freed.
    let fill = || {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&filler)
            .expect("open a file");
        while file.write(&[1; 4096]).is_ok_and(|n| n > 0) {}
    };
    let write = || {
        fill();
        let samples: Vec<_> = (0..10_000)
            .map(|i| (now_ms() - 600_000 + i, (i as f64).sqrt()))
            .collect();
        let name = now_ms().to_string();
        server.http().write(&WriteRequest::new([series(
            &[("__name__", "m"), ("n", &name)],
            &samples,
        )]));
    };
    monitor.expect_now("VarveWritesFailing", &server, write);
    monitor.expect_now("VarveVolumeFull", &server, write);
    monitor.expect_now("VarveLogNotWritten", &server, write);
    monitor.expect_now("VarveCompactionsFailing", &server, write);
}

#[test]
fn alerts_of_damaged_files() {
    const FLAGS: [&str; 2] = ["--web.enable-admin-api", "--storage.tsdb.retention.time=0"];
    let (mut server, monitor) = (Server::start(&FLAGS), Monitor::new());
    write(&server, &[], now_ms() - 600_000);
    assert_eq!(compact(&server), 204);
    for i in 0..200 {
        write(&server, &[("i", &i.to_string())], now_ms());
    }
    monitor.scrape(&server);
    assert!(!monitor.is_true("VarveBlocksDamaged") && !monitor.is_true("VarveLogDamaged"));
    server.kill();
    damage(&server.data_dir().join("blocks"), |bytes| {
        bytes.truncate(bytes.len() / 2)
    });
    damage(&server.data_dir().join("wal"), |bytes| bytes[500] ^= 1);
    server.restart(&FLAGS);
    monitor.expect_now("VarveBlocksDamaged", &server, || {});
    monitor.expect_now("VarveLogDamaged", &server, || {});
}

/// Damages the largest file below a directory.
fn damage(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let (mut files, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("list a directory") {
            let path = entry.expect("list a directory").path();
            let to = if path.is_dir() { &mut open } else { &mut files };
            to.push(path);
        }
    }
    files.retain(|path| !path.ends_with("reserve"));
    let largest = files
        .into_iter()
        .max_by_key(|path| path.metadata().expect("a file").len())
        .expect("a file");
    let mut bytes = std::fs::read(&largest).expect("read a file");
    change(&mut bytes);
    std::fs::write(&largest, bytes).expect("write a file");
}

#[test]
fn alerts_of_retention_and_uploads() {
    let dir = TempDir::new().expect("a directory");
    let bucket = dir.path().join("bucket.yml");
    // The bucket would be below a file.
    std::fs::write(
        &bucket,
        format!(
            "type: FILESYSTEM\nconfig: {{directory: '{}/x'}}",
            bucket.display()
        ),
    )
    .unwrap();
    let config = ConfigFile::new("global: {external_labels: {cluster: x}}");
    let flags = [
        "--web.enable-admin-api",
        "--objstore.upload-interval=200ms",
        &format!("--objstore.config-file={}", bucket.display()),
        &config.flag(),
    ];
    let monitor = Monitor::new();
    let server = Server::start(&flags);
    monitor.expect("VarveUploadsLagging", &server, || {
        let end = now_ms() - 3_600_000;
        for time in (end - 50_400_000..end).step_by(600_000) {
            write(&server, &[], time);
        }
        server
            .http()
            .post("/api/v1/admin/tsdb/snapshot", &[], b"")
            .expect_status(200);
        sleep(Duration::from_secs(1));
    });
    let server = Server::start(&[
        "--web.enable-admin-api",
        "--storage.tsdb.retention.time=15d",
    ]);
    monitor.expect("VarveRetentionHeld", &server, || {
        for days in [40, 39, 38, 37, 36, 0] {
            write(
                &server,
                &[("day", &days.to_string())],
                now_ms() - days * 86_400_000,
            );
            assert_eq!(compact(&server), 204);
        }
    });
}

#[test]
fn alerts_of_queries() {
    let flags = ["--query.max-concurrency=1", "--query.queue-timeout=2m"];
    let (server, monitor) = (Server::start(&flags), Monitor::new());
    ingest(&server, 10_000);
    monitor.scrape(&server);
    assert!(!monitor.is_true("VarveQueriesSlow"));
    let endless = endless_query(&server);
    let started = std::time::Instant::now();
    let mut waiting = server.http().connect();
    monitor.expect("VarveQueriesQueued", &server, || {
        waiting.send(b"GET /api/v1/query?query=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    });
    sleep(Duration::from_millis(10_500).saturating_sub(started.elapsed()));
    drop((endless, waiting));
    monitor.expect_now("VarveQueriesSlow", &server, || {});
    let server = Server::start(&["--query.max-samples=1"]);
    ingest(&server, 5_000);
    let query = || {
        server
            .http()
            .query(
                "/api/v1/query",
                &[("query", "load"), ("time", "1700000045")],
            )
            .status
    };
    assert_eq!(query(), 422);
    let monitor = Monitor::new();
    monitor.expect("VarveLimitsHit", &server, || {
        (0..40).for_each(|_| assert_eq!(query(), 422))
    });
}

#[test]
fn alerts_of_rules() {
    let config = |text: &str, rules: &str| {
        let config = ConfigFile::new(&format!("rule_files: [rules.yml]\n{text}"));
        std::fs::write(config.dir().join("rules.yml"), rules).expect("write rules");
        config
    };
    let groups = "groups:\n\
                  - {name: slow, interval: 1ms, rules: [{record: a, expr: count(m)}, {record: b, expr: count(m)}]}\n\
                  - {name: bad, interval: 1s, rules: [{record: c, expr: 'label_replace(m, \"i\", \"\", \"i\", \".*\")'}]}\n\
                  - {name: alerts, interval: 1s, rules: [{alert: A, expr: 'm == 1'}]}";
    let away = "rules: {wait: none}\nalerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:1']}]}]}";
    let file = config(away, groups);
    let flags = [
        &*file.flag(),
        "--rules.alerts-max=2",
        "--alertmanager.notification-queue-capacity=1",
    ];
    let (server, monitor) = (Server::start(&flags), Monitor::new());
    let burn =
        || (0..2).for_each(|i| assert!(write(&server, &[("i", &i.to_string())], now_ms()) < 500));
    monitor.expect("VarveRuleFailures", &server, burn);
    for alert in [
        "VarveRuleIterationsMissed",
        "VarveAlertsNearMaximum",
        "VarveNotificationsDropped",
    ] {
        monitor.expect_now(alert, &server, burn);
    }
    assert!(!monitor.is_true("VarveNoAlertmanager"));
    let file = config("rules: {max_wait: 100ms}", groups);
    let (server, monitor) = (Server::start(&[&file.flag()]), Monitor::new());
    monitor.expect_now("VarveNoAlertmanager", &server, || {});
    let sent = now_ms();
    monitor.expect("VarveRulesIncomplete", &server, || {
        // A sender that is behind.
        write(&server, &[], now_ms().min(sent + 2000) - 5000);
    });
}
