//! Section `tenants`: the users and tokens that see only a part of the series.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;
use varve_system::quantity::{parse_duration, parse_size};

use super::file::{File, TenantEntry, TenantLimitsEntry};
use super::scope::Scope;

/// Minimum of `limits.range`, which is compared in seconds.
const RANGE_MIN: Duration = Duration::from_secs(1);

/// The series that some users and tokens may read, and the labels of what they write.
#[derive(Debug, Clone)]
pub struct TenantConfig {
    /// Names of users and tokens. None of them has another tenant.
    pub users: Vec<String>,
    /// Matchers that are added to every selection of a request.
    pub matchers: Vec<Matcher>,
    /// Labels that all series of a write request get.
    pub labels: Vec<(String, String)>,
    /// Limits of reads.
    pub limits: TenantLimits,
}

/// Limits of the reads of a tenant. `None`: no limit.
#[derive(Debug, Clone, Default)]
pub struct TenantLimits {
    /// Maximum number of active reads.
    pub concurrency_max: Option<usize>,
    /// Maximum memory of all reads together in bytes.
    pub memory_max: Option<usize>,
    /// Maximum number of samples that one request reads.
    pub samples_max: Option<u64>,
    /// Maximum length of the time that one selector reads.
    pub range_max: Option<Duration>,
}

impl TenantConfig {
    /// Returns the key of a limit or label that is set here and not in `next`.
    #[must_use]
    pub fn restriction_missing_in(&self, next: &Self) -> Option<String> {
        if let Some(key) = self.limits.missing_in(&next.limits) {
            return Some(format!("limits.{key}"));
        }
        for (name, _) in &self.labels {
            if !next.labels.iter().any(|(kept, _)| kept == name) {
                return Some(format!("labels.{name}"));
            }
        }
        None
    }
}

impl TenantLimits {
    /// Returns the key of a limit that is set here and not in `next`.
    fn missing_in(&self, next: &Self) -> Option<&'static str> {
        let pairs = [
            (
                "concurrency",
                self.concurrency_max.is_some(),
                next.concurrency_max.is_some(),
            ),
            (
                "memory",
                self.memory_max.is_some(),
                next.memory_max.is_some(),
            ),
            (
                "samples",
                self.samples_max.is_some(),
                next.samples_max.is_some(),
            ),
            ("range", self.range_max.is_some(), next.range_max.is_some()),
        ];
        for (key, is_set, stays_set) in pairs {
            if is_set && !stays_set {
                return Some(key);
            }
        }
        None
    }
}

/// Returns the tenants of a file.
///
/// # Errors
/// If an entry is invalid, or a user is in two of them.
pub(super) fn tenants(file: &File) -> Result<Vec<TenantConfig>> {
    let mut tenants = Vec::new();
    let mut assigned_users = BTreeSet::new();
    for (idx, entry) in file.tenants.iter().enumerate() {
        let tenant =
            tenant(entry, file, &mut assigned_users).with_context(|| format!("tenants[{idx}]"))?;
        tenants.push(tenant);
    }
    Ok(tenants)
}

/// Returns the tenant of an entry, whose users are added to `assigned_users`.
fn tenant<'a>(
    entry: &'a TenantEntry,
    file: &File,
    assigned_users: &mut BTreeSet<&'a str>,
) -> Result<TenantConfig> {
    let matchers = matchers(&entry.matchers)?;
    ensure!(
        !entry.users.is_empty(),
        "users: at least one user or token is required"
    );
    for (name, value) in &entry.labels {
        ensure!(
            name != METRIC_NAME && !name.is_empty() && !value.is_empty(),
            "labels: {name:?} cannot be set to {value:?}"
        );
        // It separates the strings of keys (`FamilyKey`).
        ensure!(
            !name.contains('\0') && !value.contains('\0'),
            "labels: {name:?} or its value {value:?} contains NUL"
        );
    }
    let limits = limits(&entry.limits)?;
    for user in &entry.users {
        check_user(user, entry, file)?;
        ensure!(
            assigned_users.insert(user),
            "users: {user:?} has a tenant already"
        );
    }
    Ok(TenantConfig {
        users: entry.users.clone(),
        matchers,
        labels: entry.labels.clone().into_iter().collect(),
        limits,
    })
}

fn matchers(selector: &str) -> Result<Vec<Matcher>> {
    let matchers = varve_promql::parse_selector(selector).context("matchers")?;
    ensure!(
        !matchers.is_empty(),
        "matchers: a selector with at least one matcher is required"
    );
    for matcher in &matchers {
        ensure!(
            matcher.value().as_bytes() == matcher.value_bytes(),
            "matchers: values must be UTF-8"
        );
    }
    Ok(matchers)
}

fn limits(entry: &TenantLimitsEntry) -> Result<TenantLimits> {
    ensure!(
        entry.concurrency != Some(0),
        "limits.concurrency: must be at least 1"
    );
    let mut limits = TenantLimits {
        concurrency_max: entry.concurrency,
        samples_max: entry.samples,
        ..TenantLimits::default()
    };
    if !entry.memory.is_empty() {
        let memory_max = parse_size(&entry.memory)
            .map_err(Error::msg)
            .context("limits.memory")?;
        limits.memory_max = Some(memory_max);
    }
    if !entry.range.is_empty() {
        let range_max = parse_duration(&entry.range)
            .map_err(Error::msg)
            .context("limits.range")?;
        ensure!(
            range_max >= RANGE_MIN,
            "limits.range: {} is less than 1s",
            entry.range
        );
        limits.range_max = Some(range_max);
    }
    ensure!(
        entry.samples != Some(0),
        "limits.samples: must be at least 1"
    );
    Ok(limits)
}

/// Checks that a user or token exists, and has labels if it may write.
fn check_user(user: &str, entry: &TenantEntry, file: &File) -> Result<()> {
    let is_user = file.basic_auth_users.contains_key(user);
    let mut is_token = false;
    for token in &file.bearer_tokens {
        if token.name != user {
            continue;
        }
        is_token = true;
        let writes = token.scopes.contains(&Scope::Write);
        ensure!(
            !writes || !entry.labels.is_empty(),
            "labels: required, as the token {user:?} has the scope write"
        );
    }
    ensure!(
        is_user || is_token,
        "users: there is no user or token {user:?}"
    );
    // Users have all scopes except admin, if they have a tenant.
    ensure!(
        !is_user || !entry.labels.is_empty(),
        "labels: required, as the user {user:?} may write"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::file::parse;

    fn check(entries: &str, expect: &str) {
        let tokens = "{name: r, token: x, scopes: [read]}, {name: w, token: y, scopes: [write]}, {name: a, token: z, scopes: [admin]}";
        let users = "basic_auth_users: {ann: hash}";
        let file = parse(&format!(
            "tenants: [{entries}]\n{users}\nbearer_tokens: [{tokens}]\n"
        ))
        .unwrap();
        let invalid = tenants(&file)
            .map(|_| String::new())
            .unwrap_or_else(|error| format!("{error:#}"));
        assert!(
            invalid.contains(expect) && expect.is_empty() == invalid.is_empty(),
            "{entries}: {invalid:?}"
        );
    }

    #[test]
    fn entries_are_checked() {
        check(
            "{users: [r, w], matchers: '{team=\"a\"}', labels: {team: a}}",
            "",
        );
        check(
            "{users: [r], matchers: '{team=}'}",
            "tenants[0]: matchers: ",
        );
        check("{users: [r], matchers: '{}'}", "at least one matcher");
        check("{users: [], matchers: '{a=\"b\"}'}", "at least one user");
        check(
            "{users: [x], matchers: '{a=\"b\"}'}",
            "there is no user or token \"x\"",
        );
        check("{users: [a], matchers: '{a=\"b\"}'}", "");
        check(r#"{users: [a], matchers: '{a="\xff"}'}"#, "must be UTF-8");
        check("{users: [w], matchers: '{a=\"b\"}'}", "labels: required");
        check(
            "{users: [ann], matchers: '{a=\"b\"}'}",
            "labels: required, as the user \"ann\" may write",
        );
        check("{users: [ann], matchers: '{a=\"b\"}', labels: {a: b}}", "");
        check(
            "{users: [r], matchers: '{a=\"b\"}', labels: {__name__: x}}",
            "cannot be set",
        );
        check(
            r#"{users: [r], matchers: '{a="b"}', labels: {a: "x\0y"}}"#,
            r#"labels: "a" or its value "x\0y" contains NUL"#,
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}', limits: {concurrency: 2, memory: 1GiB}}",
            "",
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}', limits: {concurrency: 0}}",
            "must be at least 1",
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}', limits: {memory: 1x}}",
            "limits.memory: unknown unit",
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}', limits: {samples: 5, range: 1d}}",
            "",
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}', limits: {samples: 0}}",
            "limits.samples: must be at least 1",
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}', limits: {range: 1ms}}",
            "limits.range: 1ms is less than 1s",
        );
        check(
            "{users: [r], matchers: '{a=\"b\"}'}, {users: [r], matchers: '{a=\"c\"}'}",
            "tenants[1]: users: \"r\" has a tenant",
        );
    }
}
