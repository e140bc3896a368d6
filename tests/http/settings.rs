//! What `status/flags`, `status/config` and `status/runtimeinfo` say is what is in force, wherever
//! it was set.

use crate::harness::{ConfigFile, Http, Server, WriteRequest, now_ms, series};

/// A setting that is a flag and a key of the configuration file.
struct Setting {
    key: &'static str,
    flag: &'static str,
    /// The value of the flag, and what flags show.
    of_flag: (&'static str, &'static str),
    /// The value in the file, and what flags and the configuration show.
    of_file: (&'static str, &'static str),
    /// What runtime information shows with the one and with the other, if it has the setting.
    runtime: Option<(&'static str, &'static str)>,
}

/// Returns the settings of the table "Keys and flags", which lists all of them.
fn settings() -> Vec<Setting> {
    let page = include_str!("../../docs/config.md");
    let (_, table) = page
        .split_once("| key | flag |\n| --- | --- |\n")
        .expect("the table of keys and flags");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split('`').skip(1).step_by(2);
        let key = cells.next().expect("a key");
        let flag = cells.next().expect("a flag");
        let (of_flag, of_file, runtime) = match key {
            "runtime.log_level" => (("debug", "debug"), ("warn", "warn"), None),
            "storage.tsdb.retention.time" => {
                let runtime = Some(("10d", "30d"));
                (("240h", "10d"), ("720h", "30d"), runtime)
            }
            "storage.tsdb.retention.size" => {
                let runtime = Some(("2GiB", "3GiB"));
                (("2048MB", "2GiB"), ("3GB", "3GiB"), runtime)
            }
            _ => panic!("{key} is not tested"),
        };
        Setting {
            key,
            flag,
            of_flag,
            of_file,
            runtime,
        }
    })
    .collect()
}

/// Returns YAML of a key with its sections.
fn yaml(key: &str, value: &str) -> String {
    let sections = key.split('.').rev();
    sections.fold(value.to_owned(), |value, key| format!("{{{key}: {value}}}"))
}

fn flag(http: &Http, flag: &str) -> String {
    let flags = http.get("/api/v1/status/flags").data();
    let value = flags[flag.trim_start_matches("--")].as_str();
    value.expect("every flag is shown").to_owned()
}

/// Returns the lines of the configuration in force.
fn config(http: &Http) -> String {
    let config = http.get("/api/v1/status/config").data();
    config["yaml"].as_str().expect("a text").to_owned()
}

fn storage_retention(http: &Http) -> String {
    let info = http.get("/api/v1/status/runtimeinfo").data();
    let retention = info["storageRetention"].as_str();
    retention.expect("a text").to_owned()
}

/// Flags showed the value of the command line, or its default, while the file had set another one.
#[test]
fn flags_configuration_and_runtime_information_show_what_is_in_force() {
    for setting in settings() {
        let Setting {
            key, flag: name, ..
        } = setting;
        let file = ConfigFile::new("");
        let given = format!("{name}={}", setting.of_flag.0);
        let server = Server::start(&[&file.flag(), "--web.enable-lifecycle", &given]);
        let http = server.http();
        let last_key = key.rsplit('.').next().expect("a key");
        let check = |value: &str, runtime: Option<&str>| {
            assert_eq!(flag(http, name), value, "{key}");
            let line = format!(" {last_key}: {value}\n");
            assert!(config(http).contains(&line), "{key}: {}", config(http));
            if let Some(runtime) = runtime {
                assert_eq!(storage_retention(http), runtime, "{key}");
            }
        };
        let reload = |text: &str| {
            file.write(text);
            http.post("/-/reload", &[], b"").expect_status(200);
        };

        check(setting.of_flag.1, setting.runtime.map(|(flag, _)| flag));
        reload(&yaml(key, setting.of_file.0));
        check(setting.of_file.1, setting.runtime.map(|(_, file)| file));
        reload("");
        check(setting.of_flag.1, setting.runtime.map(|(flag, _)| flag));
    }
}

/// Returns the samples per second that advice estimates for each series.
fn rate_of_series(http: &Http) -> f64 {
    let totals = http.get("/api/v1/status/advice").data()["totals"].clone();
    let series = totals["series"].as_f64().expect("a number");
    totals["samplesPerSecond"].as_f64().expect("a number") / series
}

/// pint takes 1m if the configuration has no scrape interval, and reports `rate(x[1m])` at an
/// interval of 30 s as an error.
#[test]
fn the_scrape_interval_of_senders_is_shown() {
    let file = ConfigFile::new("");
    let server = Server::start(&[&file.flag(), "--web.enable-lifecycle"]);
    let http = server.http();
    let written = [series(&[("__name__", "a")], &[(now_ms(), 1.0)])];
    http.write(&WriteRequest::new(written)).expect_status(204);
    assert!(config(http).contains("  scrape_interval: 1m\n"));
    assert!((rate_of_series(http) - 1.0 / 60.0).abs() < 1e-6);
    file.write("global: {scrape_interval: 30s}");
    http.post("/-/reload", &[], b"").expect_status(200);
    assert!(config(http).contains("  scrape_interval: 30s\n"));
    assert!((rate_of_series(http) - 1.0 / 30.0).abs() < 1e-6);
    file.write("global: {scrape_timeout: 10s}");
    let refused = http.post("/-/reload", &[], b"").expect_status(500).text();
    assert!(
        refused.contains("global: unknown field `scrape_timeout`"),
        "{refused}"
    );
}

/// Prometheus 3 listens on each address of a repeated flag, too.
#[test]
fn the_server_listens_on_each_address() {
    let flag_of_port_0 = "--web.listen-address=127.0.0.1:0";
    let mut server = Server::start(&[flag_of_port_0, flag_of_port_0]);
    let log = server.log();
    let addresses: Vec<_> = log
        .lines()
        .filter_map(|line| line.split_once("msg=Listening address="))
        .map(|(_, address)| address.parse().expect("an address"))
        .collect();
    assert_eq!(addresses.len(), 2, "{log}");
    let written = [series(&[("__name__", "a")], &[(now_ms(), 1.0)])];
    Http::new(addresses[0])
        .write(&WriteRequest::new(written))
        .expect_status(204);
    let found = Http::new(addresses[1]).query("/api/v1/query", &[("query", "a")]);
    assert_eq!(
        found.expect_status(200).data()["result"][0]["value"][1],
        "1"
    );
    let shown = flag(server.http(), "--web.listen-address");
    assert_eq!(shown, "127.0.0.1:0,127.0.0.1:0");
    assert!(server.terminate().success());
}

/// `0s` in flags and no time in runtime information, as Prometheus shows it.
#[test]
fn no_limit_of_retention_is_shown_as_in_prometheus() {
    let server = Server::start(&["--storage.tsdb.retention.time=0"]);
    assert_eq!(flag(server.http(), "--storage.tsdb.retention.time"), "0s");
    assert_eq!(storage_retention(server.http()), "");
}
