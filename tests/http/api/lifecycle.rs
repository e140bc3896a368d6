//! /-/reload, /-/quit and SIGHUP, and the visible parts of the configuration.

use crate::harness::{ConfigFile, Server, wait_until};

#[test]
fn the_configuration_is_reloaded_on_request() {
    let config = ConfigFile::new("global: {external_labels: {cluster: one}}");
    let server = Server::start(&[&config.flag(), "--web.enable-lifecycle"]);
    let yaml = || {
        server.http().get("/api/v1/status/config").data()["yaml"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    let notifications = || server.http().get("/api/v1/notifications").data();
    assert!(yaml().contains("cluster: one"), "{}", yaml());

    config.write("global: {external_labels: {cluster: two}}");
    let reloaded = server.http().post("/-/reload", &[], b"").expect_status(200);
    assert!(reloaded.body.is_empty());
    assert!(yaml().contains("cluster: two"));

    config.write("nonsense: 1");
    let refused = server
        .http()
        .call("PUT", "/-/reload", &[], b"")
        .expect_status(500)
        .text();
    assert!(
        refused.starts_with("failed to reload config: ") && refused.contains("nonsense"),
        "{refused}"
    );
    assert!(yaml().contains("cluster: two"));
    let notified = notifications()[0]["text"].to_string();
    assert!(
        notified.contains("Configuration reload has failed: ") && notified.contains("nonsense"),
        "{notified}"
    );
    assert_eq!(
        server.metric("prometheus_config_last_reload_successful"),
        0.0
    );
    assert_eq!(
        server.http().get("/api/v1/status/runtimeinfo").data()["reloadConfigSuccess"],
        false
    );

    // A valid configuration that cannot be applied fails too; the old one stays in force.
    config.write("global: {external_labels: {cluster: two}}");
    server.http().post("/-/reload", &[], b"").expect_status(200);
    let loaded = |name: &str| server.metric(&format!("prometheus_config_last_reload_{name}"));
    let last_success = loaded("success_timestamp_seconds");
    assert_eq!(loaded("successful"), 1.0);
    config.write("global: {external_labels: {cluster: three}, query_log_file: .}");
    let refused = server
        .http()
        .post("/-/reload", &[], b"")
        .expect_status(500)
        .text();
    assert!(refused.contains("open query log"), "{refused}");
    assert_eq!(
        (loaded("successful"), loaded("success_timestamp_seconds")),
        (0.0, last_success)
    );
    assert!(yaml().contains("cluster: two"));

    config.write("{}");
    server.signal("HUP");
    wait_until("the configuration to be read", || {
        !yaml().contains("cluster")
    });
    wait_until("the reload to be noted", || {
        notifications().as_array().map(Vec::len) == Some(0)
    });
    assert_eq!(loaded("successful"), 1.0);
}

#[test]
fn the_server_stops_on_request() {
    let mut server = Server::start(&["--web.enable-lifecycle"]);
    let answer = server
        .http()
        .post("/-/quit", &[], b"")
        .expect_status(200)
        .text();
    assert_eq!(answer, "Requesting termination... Goodbye!");
    assert!(server.wait().success());
}

#[test]
fn without_the_lifecycle_api_requests_do_not_stop_the_server() {
    let server = Server::start(&[]);
    for (method, path) in [
        ("POST", "/-/quit"),
        ("PUT", "/-/quit"),
        ("POST", "/-/reload"),
        ("PUT", "/-/reload"),
    ] {
        let refused = server
            .http()
            .call(method, path, &[], b"")
            .expect_status(403);
        assert_eq!(refused.text(), "Lifecycle API is not enabled.");
    }
}

#[test]
fn a_reload_sets_the_log_level() {
    let config = ConfigFile::new("");
    let server = Server::start(&[&config.flag(), "--web.enable-lifecycle"]);
    // The message comes after the new level is in force.
    for (text, n_messages) in [
        ("runtime: {log_level: error}", 0),
        ("", 1),
        ("runtime: {log_level: warn}", 1),
        ("runtime: {log_level: debug}", 2),
    ] {
        config.write(text);
        server.http().post("/-/reload", &[], b"").expect_status(200);
        let n_logged = || {
            server
                .log()
                .matches("Completed loading of configuration file")
                .count()
        };
        wait_until(text, || n_logged() >= n_messages);
        assert_eq!(n_logged(), n_messages, "{text}");
    }
    config.write("runtime: {log_level: loud}");
    let refused = server
        .http()
        .post("/-/reload", &[], b"")
        .expect_status(500)
        .text();
    assert!(refused.contains("unknown variant `loud`"), "{refused}");
}

/// The notification and the metric stayed at the failure until something else changed.
#[test]
fn a_file_that_is_valid_again_ends_the_failure_of_a_reload() {
    let valid = "global: {external_labels: {cluster: one}}";
    let config = ConfigFile::new(valid);
    let server = Server::start(&[
        &config.flag(),
        "--config.auto-reload",
        "--config.auto-reload-interval=20ms",
    ]);
    let is_successful = || server.metric("prometheus_config_last_reload_successful") == 1.0;
    // The second one can be read, but not applied.
    for invalid in [
        "nonsense: 1",
        "global: {external_labels: {cluster: two}, query_log_file: .}",
    ] {
        config.replace(invalid);
        wait_until("the reload to fail", || !is_successful());
        config.replace(&format!("{valid} # as before"));
        wait_until("the failure to be over", is_successful);
        let notifications = server.http().get("/api/v1/notifications").data();
        assert_eq!(notifications.as_array().map(Vec::len), Some(0));
    }
}

/// It executes itself as `/proc/self/exe`, after which the kernel named it.
#[test]
fn the_process_has_the_name_of_its_program() {
    let server = Server::start(&[]);
    let comm = format!("/proc/{}/comm", server.process().id());
    let name = std::fs::read_to_string(comm).expect("read /proc");
    assert_eq!(name, "varve\n");
}

/// `timeout` signals the process, and then its group.
#[test]
fn signals_within_a_second_are_one() {
    let mut server = Server::start(&[]);
    for _ in 0..3 {
        server.signal("TERM");
    }
    assert!(server.wait().success(), "{}", server.log());
}
