//! Values of a Prometheus configuration that are valid alone, but not where they are or not
//! together.
//!
//! `schema` has checked the keys and the kinds of values. The nesting is bounded by the YAML
//! parser.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_yaml_ng::{Mapping, Value};
use varve_client::{RESERVED_HEADERS, RESERVED_HTTP_HEADERS};
use varve_config::file::alerting::FileDiscovery;
use varve_model::labels::is_legacy_name;
use varve_server::notifier::read_target_files;

use super::config::{boolean, duration, items, text};
use varve_config::file::parse_rules;
use varve_system::yaml::yaml_error;

/// Keys of which a mapping may have one: a value, or a file with it.
const ALTERNATIVES: [&[&str]; 8] = [
    &["bearer_token", "bearer_token_file"],
    &["username", "username_file"],
    &["password", "password_file"],
    &["credentials", "credentials_file"],
    &["client_secret", "client_secret_file"],
    &["ca", "ca_file"],
    &["cert", "cert_file"],
    &["key", "key_file"],
];
/// Kinds of authentication of which a mapping may have one.
const AUTHENTICATION: [&str; 5] = [
    "basic_auth",
    "authorization",
    "oauth2",
    "bearer_token",
    "bearer_token_file",
];
/// Keys of lists of relabel rules.
const RELABELING: [&str; 4] = [
    "alert_relabel_configs",
    "metric_relabel_configs",
    "relabel_configs",
    "write_relabel_configs",
];
/// Mappings whose keys users choose.
const NAMED_BY_USERS: [&str; 4] = ["labels", "external_labels", "params", "endpoint_params"];
/// Settings of the queue of a remote write, which must be positive.
const POSITIVE: [&str; 4] = [
    "max_shards",
    "min_shards",
    "max_samples_per_send",
    "capacity",
];

/// What applies to a mapping and all that it contains.
#[derive(Clone, Copy)]
struct Scope<'a> {
    /// Whether names have the characters of Prometheus 2 only.
    is_legacy: bool,
    /// The directory of the file; `None` if other files are not read.
    folder: Option<&'a Path>,
}

impl Scope<'_> {
    fn inside(mut self, mapping: &Value) -> Self {
        let scheme = text(mapping, "metric_name_validation_scheme");
        self.is_legacy = scheme.map_or(self.is_legacy, |scheme| scheme == "legacy");
        self
    }
}

/// Checks the sections of a file, and files with targets in `folder`.
///
/// # Errors
/// The first invalid value, with its location.
pub(super) fn check(top: &Mapping, folder: Option<&Path>) -> Result<()> {
    let scope = Scope {
        is_legacy: false,
        folder,
    };
    let scope = top
        .get("global")
        .map_or(scope, |global| scope.inside(global));
    for (key, value) in top {
        check_tree(value, scope).with_context(|| key.as_str().unwrap_or_default().to_owned())?;
    }
    for section in ["remote_write", "remote_read"] {
        let mut names = BTreeSet::new();
        for (remote, i) in items(top.get(section)).zip(1..) {
            check_remote(remote, section).with_context(|| format!("{section}: entry {i}"))?;
            let name = text(remote, "name").filter(|name| !name.is_empty());
            ensure!(
                name.is_none_or(|name| names.insert(name)),
                "{section}: entry {i}: two entries have its name"
            );
        }
    }
    if let Some(tracing) = top.get("tracing").filter(|tracing| !tracing.is_null()) {
        ensure!(is_set(tracing, "endpoint"), "tracing: endpoint is empty");
        check_headers(tracing, "headers", &[]).context("tracing")?;
    }
    for section in ["rule_files", "scrape_config_files"] {
        for pattern in items(top.get(section)).filter_map(Value::as_str) {
            let folder = pattern.rsplit_once('/').map_or("", |(folder, _)| folder);
            ensure!(
                !folder.contains('*'),
                "{section}: {pattern:?} has a wildcard in the name of a directory"
            );
        }
    }
    Ok(())
}

fn check_tree(value: &Value, scope: Scope<'_>) -> Result<()> {
    match value {
        Value::Sequence(values) => values.iter().zip(1..).try_for_each(|(value, i)| {
            check_tree(value, scope).with_context(|| format!("entry {i}"))
        }),
        Value::Mapping(keys) => {
            let scope = scope.inside(value);
            check_mapping(value, scope)?;
            keys.iter()
                .filter(|(key, _)| {
                    !key.as_str()
                        .is_some_and(|key| NAMED_BY_USERS.contains(&key))
                })
                .try_for_each(|(key, value)| {
                    check_tree(value, scope)
                        .with_context(|| key.as_str().unwrap_or_default().to_owned())
                })
        }
        _ => Ok(()),
    }
}

fn check_mapping(value: &Value, scope: Scope<'_>) -> Result<()> {
    check_proxy(value)?;
    for key in RELABELING {
        check_relabeling(value.get(key), scope.is_legacy).context(key)?;
    }
    for (discovery, i) in items(value.get("file_sd_configs")).zip(1..) {
        check_files(discovery, scope.folder)
            .with_context(|| format!("file_sd_configs: entry {i}"))?;
    }
    for key in ["url", "proxy_url", "token_url"] {
        check_url(&text(value, key).unwrap_or_default()).context(key)?;
    }
    for key in ["labels", "external_labels"] {
        for label in value
            .get(key)
            .and_then(Value::as_mapping)
            .into_iter()
            .flat_map(Mapping::keys)
        {
            let label = label.as_str().unwrap_or_default();
            let is_legacy = scope.is_legacy && key == "external_labels";
            let is_valid = if is_legacy {
                is_legacy_name(label)
            } else {
                !label.is_empty()
            };
            ensure!(is_valid, "{key}: {label:?} is not a valid label name");
        }
    }
    if let Some(kind) = value
        .get("authorization")
        .and_then(|authorization| text(authorization, "type"))
    {
        let is_basic = kind.trim().eq_ignore_ascii_case("basic");
        ensure!(
            !is_basic,
            "authorization: type: use basic_auth for basic authentication"
        );
    }
    let has_no_protocol = value
        .get("scrape_protocols")
        .and_then(Value::as_sequence)
        .is_some_and(Vec::is_empty);
    ensure!(!has_no_protocol, "scrape_protocols: the list is empty");
    check_headers(value, "http_headers", &RESERVED_HTTP_HEADERS)?;
    if let Some(tls) = value.get("tls_config") {
        let [has_cert, has_key] = [
            ["cert", "cert_file", "cert_ref"],
            ["key", "key_file", "key_ref"],
        ]
        .map(|keys| keys.iter().any(|key| is_set(tls, key)));
        ensure!(
            has_cert == has_key,
            "tls_config: a client certificate needs cert or cert_file, and key or key_file"
        );
    }
    if let Some(oauth2) = value.get("oauth2").filter(|oauth2| oauth2.is_mapping()) {
        for key in ["client_id", "token_url"] {
            ensure!(is_set(oauth2, key), "oauth2: {key} is empty");
        }
    }
    for keys in ALTERNATIVES.into_iter().chain([&AUTHENTICATION[..]]) {
        let set: Vec<_> = keys
            .iter()
            .copied()
            .filter(|key| is_set(value, key))
            .collect();
        ensure!(
            set.len() < 2,
            "at most one of {} may be set",
            set.join(", ")
        );
    }
    for key in ["alertmanagers", "static_configs"] {
        ensure!(
            !items(value.get(key)).any(Value::is_null),
            "{key}: an entry is empty"
        );
    }
    for (group, i) in items(value.get("static_configs")).zip(1..) {
        for target in items(group.get("targets")).filter_map(Value::as_str) {
            ensure!(
                !target.contains('/'),
                "static_configs: entry {i}: {target:?} is not a host with a port"
            );
        }
    }
    for (name, header) in value
        .get("http_headers")
        .and_then(Value::as_mapping)
        .into_iter()
        .flatten()
    {
        let is_valid = |(kind, texts): (&Value, &Value)| {
            matches!(kind.as_str(), Some("values" | "secrets" | "files"))
                && (texts.is_null() || texts.is_sequence())
        };
        let is_valid = header.is_null()
            || header
                .as_mapping()
                .is_some_and(|lists| lists.iter().all(is_valid));
        ensure!(
            is_valid,
            "http_headers: {}: expected lists: values, secrets, files",
            name.as_str().unwrap_or_default()
        );
    }
    let mut labels = value
        .get("required_matchers")
        .and_then(Value::as_mapping)
        .into_iter()
        .flat_map(Mapping::keys);
    ensure!(
        labels.all(|label| label.as_str() != Some("")),
        "required_matchers: a label name is empty"
    );
    let mut protocols = BTreeSet::new();
    for protocol in items(value.get("scrape_protocols")).filter_map(Value::as_str) {
        ensure!(
            protocols.insert(protocol),
            "scrape_protocols: {protocol} is repeated"
        );
    }
    let is = |key: &str, expect: &str| text(value, key).is_some_and(|text| text == expect);
    if is("metric_name_validation_scheme", "legacy")
        && is("metric_name_escaping_scheme", "allow-utf-8")
    {
        bail!("metric_name_escaping_scheme: allow-utf-8 needs metric_name_validation_scheme: utf8");
    }
    Ok(())
}

fn check_proxy(value: &Value) -> Result<()> {
    let is_from_environment = value.get("proxy_from_environment").and_then(boolean) == Some(true);
    let [has_url, has_exceptions] = ["proxy_url", "no_proxy"].map(|key| is_set(value, key));
    let has_header = value
        .get("proxy_connect_header")
        .and_then(Value::as_mapping)
        .is_some_and(|all| !all.is_empty());
    ensure!(
        !has_header || has_url || is_from_environment,
        "proxy_connect_header needs proxy_url"
    );
    ensure!(
        !(is_from_environment && has_url),
        "proxy_from_environment and proxy_url contradict each other"
    );
    ensure!(
        !(is_from_environment && has_exceptions),
        "proxy_from_environment and no_proxy contradict each other"
    );
    // As in Prometheus, an empty URL counts here.
    ensure!(
        value.get("proxy_url").is_some() || !has_exceptions,
        "no_proxy needs proxy_url"
    );
    Ok(())
}

fn check_remote(remote: &Value, section: &str) -> Result<()> {
    ensure!(
        remote.get("url").is_some_and(|url| !url.is_null()),
        "url for {section} is empty"
    );
    check_headers(remote, "headers", &[])?;
    let Some(queue) = remote.get("queue_config") else {
        return Ok(());
    };
    let number = |key: &str| queue.get(key).and_then(Value::as_i64);
    for key in POSITIVE {
        ensure!(
            number(key).is_none_or(|number| number > 0),
            "queue_config: {key} must be positive"
        );
    }
    let is_ascending = number("min_shards").unwrap_or(1) <= number("max_shards").unwrap_or(50);
    ensure!(
        is_ascending,
        "queue_config: min_shards is greater than max_shards"
    );
    let backoff = |key, default_ms: u128| {
        duration(queue, key).map(|time| time.map_or(default_ms, |time| time.as_millis()))
    };
    let is_ascending = backoff("min_backoff", 30)? <= backoff("max_backoff", 5_000)?;
    ensure!(
        is_ascending,
        "queue_config: min_backoff is greater than max_backoff"
    );
    Ok(())
}

/// Checks relabel rules with Varve's parser, which accepts what Prometheus accepts.
fn check_relabeling(rules: Option<&Value>, is_legacy: bool) -> Result<()> {
    let Some(rules) = rules.filter(|rules| items(Some(rules)).next().is_some()) else {
        return Ok(());
    };
    parse_rules(&serde_yaml_ng::to_string(rules)?)?;
    for rule in items(Some(rules)).filter(|_| is_legacy) {
        let is_map =
            text(rule, "action").is_some_and(|action| action.eq_ignore_ascii_case("labelmap"));
        let key = if is_map {
            "replacement"
        } else {
            "target_label"
        };
        let name = text(rule, key).unwrap_or_default();
        let is_valid = name.is_empty() || name.contains('$') || is_legacy_name(&name);
        ensure!(is_valid, "{key}: {name:?} is not a valid label name");
    }
    Ok(())
}

/// Checks a file discovery, and the files that exist.
fn check_files(discovery: &Value, folder: Option<&Path>) -> Result<()> {
    let discovery: FileDiscovery =
        serde_yaml_ng::from_value(discovery.clone()).map_err(yaml_error)?;
    discovery.check()?;
    let paths = folder
        .into_iter()
        .flat_map(|folder| discovery.files.iter().map(|file| folder.join(file)));
    paths
        .into_iter()
        .try_for_each(|path| read_target_files(&path).map(drop))
}

/// Checks the parts of a URL that Go's parser checks.
fn check_url(url: &str) -> Result<()> {
    let is_escape =
        |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    let (path, fragment) = url.split_once('#').unwrap_or((url, ""));
    // As in Go, the query may contain anything.
    let path = path.split('?').next().unwrap_or_default();
    let are_escapes = |text: &str| text.split('%').skip(1).all(is_escape);
    ensure!(
        are_escapes(path) && are_escapes(fragment),
        "{url:?} has an invalid escape"
    );
    ensure!(!url.starts_with(':'), "{url:?} has no scheme");
    let Some((scheme, after)) = url.split_once("//") else {
        return Ok(());
    };
    let is_scheme = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    // Elsewhere, `//` is part of a path or a query.
    if !scheme.is_empty() && !scheme.strip_suffix(':').is_some_and(is_scheme) {
        return Ok(());
    }
    let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let address = host
        .strip_prefix('[')
        .map_or(Some(host), |v6| v6.split_once(']').map(|(_, port)| port));
    let address = address.with_context(|| format!("{url:?} has no ']' in its host"))?;
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    ensure!(
        port.bytes().all(|byte| byte.is_ascii_digit()),
        "{url:?} has an invalid port"
    );
    ensure!(
        !host.contains([' ', '"', '<', '>']),
        "{url:?} has an invalid host"
    );
    Ok(())
}

/// Checks that no key of a section is a header that Prometheus reserves, or another one of these.
fn check_headers(of: &Value, key: &str, others: &[&str]) -> Result<()> {
    for header in of
        .get(key)
        .and_then(Value::as_mapping)
        .into_iter()
        .flat_map(Mapping::keys)
    {
        let header = header.as_str().unwrap_or_default().to_lowercase();
        let is_reserved = RESERVED_HEADERS.contains(&&*header) || others.contains(&&*header);
        ensure!(
            header != "authorization",
            "{key}: set authorization with its own keys, for example basic_auth"
        );
        ensure!(!is_reserved, "{key}: {header} is set by Prometheus itself");
    }
    Ok(())
}

/// Returns `true` if a key has a value other than an empty string.
fn is_set(of: &Value, key: &str) -> bool {
    of.get(key)
        .is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_contradict_each_other_are_rejected() {
        for (text, expect) in [
            (
                "remote_write: [null]",
                "remote_write: entry 1: url for remote_write is empty",
            ),
            (
                "remote_read: [{url: }]",
                "remote_read: entry 1: url for remote_read is empty",
            ),
            (
                "remote_write: [{url: '::'}]",
                "remote_write: entry 1: url: \"::\" has no scheme",
            ),
            (
                "remote_write: [{url: 'http://a b'}]",
                "url: \"http://a b\" has an invalid host",
            ),
            (
                "remote_write: [{url: 'http://[::1'}]",
                "has no ']' in its host",
            ),
            (
                "scrape_configs: [{proxy_url: 'http://x:ab'}]",
                "proxy_url: \"http://x:ab\" has an invalid port",
            ),
            (
                "scrape_configs: [{proxy_url: '%zz'}]",
                "proxy_url: \"%zz\" has an invalid escape",
            ),
            (
                "alerting: {alertmanagers: [null]}",
                "alerting: alertmanagers: an entry is empty",
            ),
            (
                "alerting: {alert_relabel_configs: [{action: foo}]}",
                "alert_relabel_configs: rule 0: unknown relabel action",
            ),
            (
                "alerting: {alertmanagers: [{relabel_configs: [{regex: '('}]}]}",
                "entry 1: relabel_configs: rule 0",
            ),
            (
                "alerting: {alertmanagers: [{relabel_configs: [null]}]}",
                "relabel_configs: ",
            ),
            (
                "alerting: {alertmanagers: [{file_sd_configs: [{files: [x.txt]}]}]}",
                "\"x.txt\" does not end in .json",
            ),
            (
                "alerting: {alertmanagers: [{http_headers: {Authorization: {}}}]}",
                "http_headers: set authorization with",
            ),
            (
                "scrape_configs: [{authorization: {type: Basic}}]",
                "authorization: type: use basic_auth",
            ),
            (
                "scrape_configs: [{scrape_protocols: []}]",
                "scrape_protocols: the list is empty",
            ),
            (
                "global: {external_labels: {'': a}}",
                "external_labels: \"\" is not a valid label name",
            ),
            (
                "global: {metric_name_validation_scheme: legacy, external_labels: {a.b: c}}",
                "external_labels: \"a.b\" is not a valid label name",
            ),
            (
                "{global: {metric_name_validation_scheme: legacy}, scrape_configs: [{relabel_configs: [{target_label: a.b}]}]}",
                "target_label: \"a.b\" is not a valid label name",
            ),
            (
                "remote_write: [{url: a, name: x}, {url: b, name: x}]",
                "entry 2: two entries have its name",
            ),
            (
                "remote_write: [{url: a, headers: {Authorization: b}}]",
                "set authorization with its own keys",
            ),
            (
                "remote_read: [{url: a, headers: {Host: b}}]",
                "headers: host is set by Prometheus itself",
            ),
            (
                "remote_write: [{url: a, queue_config: {capacity: 0}}]",
                "queue_config: capacity must be positive",
            ),
            (
                "remote_write: [{url: a, queue_config: {min_shards: 51}}]",
                "min_shards is greater than max_shards",
            ),
            (
                "remote_write: [{url: a, queue_config: {max_backoff: 10ms}}]",
                "min_backoff is greater than max_backoff",
            ),
            ("tracing: {insecure: true}", "tracing: endpoint is empty"),
            (
                "tracing: {endpoint: a, headers: {Host: b}}",
                "tracing: headers: host is set by Prometheus itself",
            ),
            (
                "rule_files: [a, 'my/*/rule']",
                "\"my/*/rule\" has a wildcard in the name of a directory",
            ),
            (
                "scrape_configs: [{bearer_token: a, basic_auth: {}}]",
                "scrape_configs: entry 1: at most one of basic_auth, bearer_token may be set",
            ),
            (
                "scrape_configs: [{bearer_token: a, bearer_token_file: b}]",
                "bearer_token, bearer_token_file may be set",
            ),
            (
                "scrape_configs: [{tls_config: {ca: a, ca_file: b}}]",
                "entry 1: tls_config: at most one of ca, ca_file",
            ),
            (
                "scrape_configs: [{static_configs: [null]}]",
                "static_configs: an entry is empty",
            ),
            (
                "scrape_configs: [{static_configs: [{targets: ['http://a']}]}]",
                "\"http://a\" is not a host",
            ),
            (
                "scrape_configs: [{scrape_protocols: [a, b, a]}]",
                "scrape_protocols: a is repeated",
            ),
            (
                "remote_write: [{url: a, oauth2: {client_id: b}}]",
                "entry 1: oauth2: token_url is empty",
            ),
            (
                "remote_read: [{url: a, tls_config: {cert_file: b}}]",
                "needs cert or cert_file, and key or key_file",
            ),
            (
                "remote_read: [{url: a, http_headers: {X: {values: b}}}]",
                "http_headers: X: expected lists: values",
            ),
            (
                "remote_read: [{url: a, http_headers: {X: {vals: [b]}}}]",
                "http_headers: X: expected lists: values",
            ),
            (
                "remote_read: [{url: a, required_matchers: {'': b}}]",
                "required_matchers: a label name is empty",
            ),
            (
                "remote_read: [{url: a, no_proxy: b}]",
                "entry 1: no_proxy needs proxy_url",
            ),
            (
                "scrape_configs: [{proxy_connect_header: {a: [b]}}]",
                "proxy_connect_header needs proxy_url",
            ),
            (
                "scrape_configs: [{proxy_url: a, proxy_from_environment: true}]",
                "and proxy_url contradict each other",
            ),
            (
                "scrape_configs: [{no_proxy: a, proxy_from_environment: true}]",
                "and no_proxy contradict each other",
            ),
            (
                "global: {metric_name_validation_scheme: legacy, metric_name_escaping_scheme: allow-utf-8}",
                "global: metric_name_escaping_scheme: allow-utf-8 needs",
            ),
        ] {
            let error = format!(
                "{:#}",
                check(&serde_yaml_ng::from_str(text).unwrap(), None).unwrap_err()
            );
            assert!(error.contains(expect), "{text}: {error}");
        }
        let valid = "remote_write: [{url: '', queue_config: {min_shards: 2}, bearer_token: ''}]\n\
                     scrape_configs: [{}, {basic_auth: {password: a}}]\n\
                     rule_files: ['rules/*.yml']\n\
                     remote_read: [{url: a, proxy_url: b, no_proxy: c, http_headers: {X: {files: [d]}}},\n\
                       {url: d, proxy_from_environment: true}]\n";
        check(&serde_yaml_ng::from_str(valid).unwrap(), None).unwrap();
        let valid = "global: {metric_name_validation_scheme: legacy, external_labels: {no_proxy: x, __name__: y}}\n\
                     scrape_configs: [{proxy_url: 'a?//:b', no_proxy: a}, {metric_name_validation_scheme: utf8,\n\
                       relabel_configs: [{target_label: a.b}]}, {proxy_connect_header: {}},\n\
                       {params: {no_proxy: [y]}}, {proxy_from_environment: yes, proxy_connect_header: {a: [b]}}]\n";
        check(&serde_yaml_ng::from_str(valid).unwrap(), None).unwrap();
    }
}
