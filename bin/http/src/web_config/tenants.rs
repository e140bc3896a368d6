//! Section `tenants`: the users and tokens that see only a part of the series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;
use varve_server::requests::fair_semaphore::FairSemaphore;
use varve_server::requests::tenant::Tenant;
use varve_system::quantity::{parse_duration, parse_size};

use super::file::{File, TenantEntry};
use super::scope::Scope;

/// Minimum of `limits.range`, which is compared in seconds.
const RANGE_MIN: Duration = Duration::from_secs(1);

/// The tenants, by the name of a user or token.
#[derive(Debug, Default)]
pub(super) struct Tenants(BTreeMap<String, Arc<Tenant>>);

impl Tenants {
    /// Returns the tenants of a file.
    ///
    /// # Errors
    /// If an entry is invalid, or a user is in two of them.
    pub(super) fn new(file: &File) -> Result<Self> {
        let mut tenants = Self::default();
        for (idx, entry) in file.tenants.iter().enumerate() {
            tenants
                .add(entry, file)
                .with_context(|| format!("tenants[{idx}]"))?;
        }
        Ok(tenants)
    }

    fn add(&mut self, entry: &TenantEntry, file: &File) -> Result<()> {
        let matchers = varve_promql::parse_selector(&entry.matchers).context("matchers")?;
        ensure!(
            !matchers.is_empty(),
            "matchers: a selector with at least one matcher is required"
        );
        let is_text = |matcher: &Matcher| matcher.value().as_bytes() == matcher.value_bytes();
        ensure!(
            matchers.iter().all(is_text),
            "matchers: values must be UTF-8"
        );
        ensure!(
            !entry.users.is_empty(),
            "users: at least one user or token is required"
        );
        for (name, value) in &entry.labels {
            ensure!(
                name != METRIC_NAME && !name.is_empty() && !value.is_empty(),
                "labels: {name:?} cannot be set to {value:?}"
            );
        }
        let labels = entry.labels.clone().into_iter().collect();
        let mut tenant = Tenant::new(matchers.into(), labels);
        if let Some(concurrency) = entry.limits.concurrency {
            ensure!(concurrency > 0, "limits.concurrency: must be at least 1");
            tenant.reads = Some(FairSemaphore::new(concurrency));
        }
        if !entry.limits.memory.is_empty() {
            let memory_max = parse_size(&entry.limits.memory)
                .map_err(Error::msg)
                .context("limits.memory")?;
            tenant.limits.memory_max = Some(memory_max);
        }
        if !entry.limits.range.is_empty() {
            let range_max = parse_duration(&entry.limits.range)
                .map_err(Error::msg)
                .context("limits.range")?;
            ensure!(
                range_max >= RANGE_MIN,
                "limits.range: {} is less than 1s",
                entry.limits.range
            );
            tenant.limits.range_max = Some(range_max);
        }
        ensure!(
            entry.limits.samples != Some(0),
            "limits.samples: must be at least 1"
        );
        tenant.limits.samples_max = entry.limits.samples;
        let tenant = Arc::new(tenant);
        for user in &entry.users {
            let tokens = file
                .bearer_tokens
                .iter()
                .filter(|token| token.name == *user);
            ensure!(
                file.basic_auth_users.contains_key(user) || tokens.clone().next().is_some(),
                "users: there is no user or token {user:?}"
            );
            for token in tokens {
                let writes = token.scopes.contains(&Scope::Write);
                ensure!(
                    !writes || !entry.labels.is_empty(),
                    "labels: required, as the token {user:?} has the scope write"
                );
            }
            // Users have all scopes except admin, if they have a tenant.
            let is_user = file.basic_auth_users.contains_key(user);
            ensure!(
                !is_user || !entry.labels.is_empty(),
                "labels: required, as the user {user:?} may write"
            );
            if self.0.insert(user.clone(), Arc::clone(&tenant)).is_some() {
                bail!("users: {user:?} has a tenant already");
            }
        }
        Ok(())
    }

    /// Returns the tenant of a user or token.
    pub(super) fn of(&self, user: &str) -> Option<Arc<Tenant>> {
        self.0.get(user).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web_config::file::parse;

    fn check(tenants: &str, expect: &str) {
        let tokens = "{name: r, token: x, scopes: [read]}, {name: w, token: y, scopes: [write]}, {name: a, token: z, scopes: [admin]}";
        let users = "basic_auth_users: {ann: hash}";
        let file = parse(&format!(
            "{users}\nbearer_tokens: [{tokens}]\ntenants: [{tenants}]"
        ))
        .unwrap();
        let invalid = Tenants::new(&file)
            .map(|_| String::new())
            .unwrap_or_else(|error| format!("{error:#}"));
        assert!(
            invalid.contains(expect) && expect.is_empty() == invalid.is_empty(),
            "{tenants}: {invalid:?}"
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
