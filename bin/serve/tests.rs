//! Faults that no request of a client causes, injected into a server without listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use clap::Parser;
use varve_config::file::Config;
use varve_config::flags::ServeArgs;
use varve_config::settings::{Resolved, resolve};
use varve_http::web_config::LiveWebConfig;
use varve_http::{App, HttpState, job_fn, run};
use varve_query::{QueryResult, Request, Steps, Value};
use varve_server::live_config::LiveConfig;
use varve_server::pressure::Pressure;
use varve_server::requests::record::{RequestClass, RequestRecord};
use varve_server::self_scrape::scrape;
use varve_system::machine::Memory;
use varve_tsdb::ReadContext;

use super::app;
use super::replay::open;
use crate::cli::{Cli, Command};

const ALERTS: &str = include_str!("../../docs/mixin/alerts.yaml");

/// Parses flags of `varve serve`.
fn args(flags: &[&str]) -> ServeArgs {
    let Command::Serve(args) = Cli::parse_from(["varve", "serve"].iter().chain(flags)).command
    else {
        unreachable!("the arguments name the command");
    };
    *args
}

#[test]
fn connections_use_at_most_half_of_the_open_files() {
    let limited = |open_files| {
        let args = args(&["--web.max-connections=600"]);
        let memory = Memory::given(1 << 30);
        let flags = BTreeMap::from([("web.max-connections".to_owned(), "600".to_owned())]);
        let config = Config::default();
        let Resolved { settings, .. } =
            resolve(&args, &config, &memory, open_files, flags, false).unwrap();
        // As in Prometheus, the API shows the value in force.
        let connections_max = settings.web.connections_max;
        assert_eq!(
            settings.flags_in_force(&config)["web.max-connections"],
            connections_max.to_string()
        );
        connections_max
    };
    assert_eq!(
        [None, Some(1201), Some(1024), Some(0)].map(limited),
        [600, 600, 512, 1]
    );
}

/// The store kept the relabel rules and budgets of the old file until the next reload.
#[tokio::test]
async fn a_reload_before_the_store_is_open_applies_to_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("varve.yml"));
    std::fs::write(&file, "").unwrap();
    let args = args(&[
        "--storage.tsdb.path",
        data.to_str().unwrap(),
        "--config.file",
        file.to_str().unwrap(),
    ]);
    let memory = Memory::given(1 << 30);
    let Resolved {
        settings,
        store: store_options,
        ..
    } = resolve(
        &args,
        &Config::default(),
        &memory,
        None,
        BTreeMap::new(),
        false,
    )
    .unwrap();
    let refuse_at = settings.memory_refuse_at;
    let data_dir = settings.data_dir.clone();
    let config = LiveConfig::new(Some(file.clone()), Config::default());
    let app = app::build(settings, config, Pressure::new(memory, refuse_at)).unwrap();
    let store = Arc::new(open(data_dir, store_options).await.unwrap());
    let rule = "{source_labels: [__name__], regex: up, action: drop}";
    std::fs::write(
        &file,
        format!("ingest: {{metric_relabel_configs: [{rule}]}}"),
    )
    .unwrap();
    app.reloader.reload().unwrap();
    app.reloader.open_store(Arc::clone(&store)).unwrap();
    assert_eq!(store.receiver.relabel_rule_stats().len(), 1);
}

/// The server created an empty store among the files of Prometheus. `data/` is the default of both.
#[tokio::test]
async fn a_directory_of_prometheus_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("chunks_head")).unwrap();
    let memory = Memory::given(1 << 30);
    let Resolved { store, .. } = resolve(
        &args(&[]),
        &Config::default(),
        &memory,
        None,
        BTreeMap::new(),
        false,
    )
    .unwrap();
    let opened = open(dir.path().to_owned(), store).await;
    let error = format!("{:#}", opened.err().unwrap());
    assert!(error.contains("`varve tsdb import`"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Starts a server, up to its listeners.
async fn start(dir: &Path) -> HttpState {
    let args = args(&[
        "--storage.tsdb.path",
        dir.to_str().expect("a path in UTF-8"),
    ]);
    let memory = Memory::given(1 << 30);
    let Resolved {
        settings,
        store: store_options,
        ..
    } = resolve(
        &args,
        &Config::default(),
        &memory,
        None,
        BTreeMap::new(),
        false,
    )
    .unwrap();
    let refuse_at = settings.memory_refuse_at;
    let data_dir = settings.data_dir.clone();
    let config = LiveConfig::new(None, Config::default());
    let app = Arc::new(app::build(settings, config, Pressure::new(memory, refuse_at)).unwrap());
    app.reloader
        .open_store(Arc::new(open(data_dir, store_options).await.unwrap()))
        .unwrap();
    HttpState::new(app, LiveWebConfig::load(None).unwrap())
}

/// Returns the expression of an alert of the mixin.
fn expr(alert: &str) -> String {
    let mixin: serde_yaml_ng::Value = serde_yaml_ng::from_str(ALERTS).unwrap();
    let groups = mixin["groups"].as_sequence().unwrap();
    let mut rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_sequence().unwrap());
    let rule = rules
        .find(|rule| rule["alert"] == alert)
        .expect("the mixin has the alert");
    rule["expr"].as_str().unwrap().to_owned()
}

/// Scrapes the server into its own store, and returns whether the expression selects anything
/// there.
fn is_true(app: &App, expr: &str) -> bool {
    let store = app.store().unwrap();
    // Samples of one millisecond would be duplicates.
    std::thread::sleep(Duration::from_millis(2));
    scrape(&app.registry, &store, "a:9898", &BTreeSet::new()).unwrap();
    let times = Steps::instant(store.db.own_now_ms());
    let QueryResult { value, .. } = store
        .engine
        .run(
            &store.db,
            &ReadContext::unbounded(),
            &Request::new(expr, times),
        )
        .unwrap();
    let Value::Vector(vector) = value else {
        panic!("the expression of an alert is a vector")
    };
    !vector.is_empty()
}

#[tokio::test]
async fn a_request_that_panics_fails_alone_and_makes_its_alert_true() {
    let dir = tempfile::tempdir().unwrap();
    let (state, expr) = (start(dir.path()).await, expr("VarvePanics"));
    assert!(!is_true(&state.app, &expr));
    let job = job_fn(|_| panic!("as the test wants"));
    let record = RequestRecord::new("POST", String::new(), None, "", Default::default(), None);
    let failed = run(&state, &record, RequestClass::Query, None, job)
        .await
        .unwrap_err();
    assert_eq!(
        failed.kind.status(),
        StatusCode::INTERNAL_SERVER_ERROR,
        "{failed:?}"
    );
    assert!(is_true(&state.app, &expr));
    let job = job_fn(|work| work.respond_encoded("1"));
    let record = RequestRecord::new("POST", String::new(), None, "", Default::default(), None);
    let next = run(&state, &record, RequestClass::Query, None, job)
        .await
        .unwrap();
    assert_eq!(next.status(), StatusCode::OK);
    // A job ends just after its response.
    let ended = async {
        while state.app.requests.active.len() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended)
        .await
        .expect("the jobs end");
}
