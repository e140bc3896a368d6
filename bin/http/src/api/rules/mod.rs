//! /api/v1/rules and /api/v1/alerts, with the parameters, pages and error messages of Prometheus.
//!
//! A tenant sees the rules and the alerts whose labels pass its matchers, as behind
//! prom-label-proxy.

pub mod backtest;
pub mod explain;
mod firings;
mod list;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use varve_context::QueryContext;
use varve_model::Matcher;
use varve_rules::rule::{Rule, RuleStatus};
use varve_rules::{Group, RuleSet};
use varve_server::requests::record::RequestRecord;
use varve_system::excerpt::quotable;

use crate::error::{ApiError, Result};
use crate::params::{Form, go_reason, parse_bool, parse_selectors};
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
pub(crate) use list::{Alerts, RuleGroups};
use list::{GroupJson, Shown};

/// GET /api/v1/alerts.
pub(crate) async fn alerts(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Result {
    let app = state.app.clone();
    let job = job_fn(move |work| {
        let ctx = work.ctx.clone();
        let set = app.rules.set();
        let mut statuses = Vec::new();
        for rule in set.groups().flat_map(|group| &group.rules) {
            statuses.push(kept_status(work, rule)?);
        }
        work.respond_html_safe_json(&Alerts {
            statuses: &statuses,
            tenant: ctx.restriction(),
        })
    });
    run(&state, &record, RequestClass::Metadata, None, job).await
}

/// GET /api/v1/rules.
pub(crate) async fn rules(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let app = state.app.clone();
    let job = job_fn(move |work| {
        let ctx = work.ctx.clone();
        let filter = Filter::read(&ctx, &form)?;
        let tenant = ctx.restriction();
        let set = app.rules.set();
        let page = filter.page(&set, tenant)?;
        let mut groups = Vec::new();
        for (group, rules) in page.groups {
            let mut with_status = Vec::with_capacity(rules.len());
            for rule in rules {
                work.keep(RULE_SIZE)?;
                with_status.push((rule, kept_status(work, rule)?));
            }
            groups.push((group, with_status));
        }
        let groups = groups
            .iter()
            .map(|(group, rules)| GroupJson::new(group, rules, filter.shown, tenant));
        work.respond_html_safe_json(&RuleGroups {
            groups: groups.collect(),
            group_next_token: page.next_token,
        })
    });
    run(&state, &record, RequestClass::Metadata, None, job).await
}

/// Estimated bytes of a rule in the response, without its status.
const RULE_SIZE: usize = 1 << 10;

/// Returns the status of a rule, charged until the response is written.
fn kept_status(work: &Work, rule: &Rule) -> Result<RuleStatus> {
    work.keep(rule.status_size())?;
    Ok(rule.status())
}

/// A page of /api/v1/rules: groups with their selected rules.
struct Page<'a> {
    groups: Vec<(&'a Group, Vec<&'a Rule>)>,
    /// The first group of the next page.
    next_token: Option<String>,
}

/// The parameters of /api/v1/rules.
pub(crate) struct Filter<'a> {
    names: Vec<&'a str>,
    groups: Vec<&'a str>,
    files: Vec<&'a str>,
    selectors: Vec<Vec<Matcher>>,
    /// `alert`, `record`, or empty for both.
    kind: String,
    shown: Shown,
    /// Maximum number of groups. `None` is unlimited.
    limit: Option<usize>,
    /// The first group of the page. Empty: the first one of all.
    token: &'a str,
}

impl<'a> Filter<'a> {
    /// Creates a filter that selects by name, group and file, without the parameters of pages.
    /// Empty lists and an empty kind select all.
    pub(crate) fn new([names, groups, files]: [Vec<&'a str>; 3], kind: &str) -> Self {
        let shown = Shown {
            alerts: true,
            evaluations: false,
        };
        Self {
            names,
            groups,
            files,
            selectors: Vec::new(),
            kind: kind.to_owned(),
            shown,
            limit: None,
            token: "",
        }
    }

    /// Reads the parameters. The order of the checks is Prometheus'.
    fn read(ctx: &QueryContext, form: &'a Form) -> Result<Self> {
        form.check_encoding()?;
        let selectors = parse_selectors(ctx, &form.selectors(), ApiError::bad_data)?;
        let kind = form.first("type").to_lowercase();
        if !matches!(&*kind, "" | "alert" | "record") {
            return Err(ApiError::invalid_parameter(
                "type",
                format!("not supported value {:?}", quotable(&kind)),
            ));
        }
        let excludes_alerts = parse_exclude_alerts(&form.first("exclude_alerts").to_lowercase())?;
        let token = form.first("group_next_token");
        let limit = parse_group_limit(form.first("group_limit"), token)?;
        let shown = Shown {
            alerts: !excludes_alerts,
            evaluations: form.boolean("evaluations")?,
        };
        Ok(Self {
            names: form.all("rule_name[]").collect(),
            groups: form.all("rule_group[]").collect(),
            files: form.all("file[]").collect(),
            selectors,
            kind,
            shown,
            limit,
            token,
        })
    }

    /// Returns the groups with selected rules. Rules are left out if their labels do not pass the
    /// matchers of `tenant`.
    fn page<'s>(&self, set: &'s RuleSet, tenant: &[Matcher]) -> Result<Page<'s>> {
        let skips = self.limit.is_some() && !self.token.is_empty();
        let mut page = Page {
            groups: Vec::new(),
            next_token: None,
        };
        let mut candidates = set
            .groups()
            .skip_while(|group| skips && token(group) != self.token)
            .peekable();
        if skips && candidates.peek().is_none() {
            let reason = format!(
                "invalid group_next_token '{}'. were rule groups changed?",
                self.token
            );
            return Err(ApiError::invalid_parameter("group_next_token", reason));
        }
        for group in candidates.filter(|group| self.selects_group(group)) {
            let mut selected = Vec::new();
            for rule in &group.rules {
                if self.selects(rule) && passes(rule, tenant) {
                    selected.push(rule);
                }
            }
            if selected.is_empty() {
                continue;
            }
            if self.limit == Some(page.groups.len()) {
                page.next_token = Some(token(group));
                break;
            }
            page.groups.push((group, selected));
        }
        Ok(page)
    }

    /// Returns `true` if the rules of a group may be selected.
    pub(crate) fn selects_group(&self, group: &Group) -> bool {
        (self.groups.is_empty() || self.groups.contains(&group.name()))
            && (self.files.is_empty() || self.files.contains(&&*group.file))
    }

    /// Returns `true` if a rule of a selected group is selected.
    pub(crate) fn selects(&self, rule: &Rule) -> bool {
        let is_kind = match &*self.kind {
            "alert" => rule.is_alerting(),
            "record" => !rule.is_alerting(),
            _ => true,
        };
        is_kind
            && (self.names.is_empty() || self.names.contains(&rule.definition.name.as_str()))
            && (self.selectors.is_empty()
                || self.selectors.iter().any(|matchers| passes(rule, matchers)))
    }
}

/// Returns `true` if the labels of a rule pass all matchers.
fn passes(rule: &Rule, matchers: &[Matcher]) -> bool {
    let labels = &rule.definition.labels;
    matchers
        .iter()
        .all(|matcher| matcher.matches(labels.get(matcher.name()).map_or("", String::as_str)))
}

/// Returns the token of the page that begins with `group`.
fn token(group: &Group) -> String {
    HEXLOWER.encode(digest(&SHA256, group.key().as_bytes()).as_ref())
}

fn parse_exclude_alerts(text: &str) -> Result<bool> {
    if text.is_empty() {
        return Ok(false);
    }
    parse_bool(quotable(text)).map_err(|reason| {
        let reason = format!("error converting exclude_alerts: {reason}");
        ApiError::invalid_parameter("exclude_alerts", reason)
    })
}

fn parse_group_limit(limit: &str, token: &str) -> Result<Option<usize>> {
    if limit.is_empty() && token.is_empty() {
        return Ok(None);
    }
    if limit.is_empty() {
        return Err(ApiError::invalid_parameter(
            "group_next_token",
            "group_limit needs to be present in order to paginate over the groups",
        ));
    }
    let parsed = limit.parse::<i32>().map_err(|error| {
        let reason = go_reason(&error);
        let reason = format!(
            "group_limit needs to be a valid number: strconv.ParseInt: parsing {limit:?}: {reason}"
        );
        ApiError::invalid_parameter("group_limit", reason)
    })?;
    match usize::try_from(parsed) {
        Ok(limit) if limit > 0 => Ok(Some(limit)),
        _ => Err(ApiError::invalid_parameter(
            "group_limit",
            "group_limit needs to be greater than 0",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_rejected(encoded: &str, expect: &str) {
        let mut form = Form::default();
        form.add(encoded.as_bytes()).unwrap();
        let read = Filter::read(&QueryContext::unbounded(), &form);
        let message = read.err().map_or_else(String::new, |error| error.message);
        assert_eq!(message, expect, "{encoded}");
    }

    #[test]
    fn parameters_are_checked_in_the_words_of_prometheus() {
        check_rejected(
            "type=Alert&exclude_alerts=TRUE&group_limit=5&rule_name[]=x",
            "",
        );
        check_rejected(
            "type=x",
            "invalid parameter \"type\": not supported value \"x\"",
        );
        check_rejected(
            "exclude_alerts=x",
            "invalid parameter \"exclude_alerts\": error converting exclude_alerts: strconv.ParseBool: parsing \"x\": invalid syntax",
        );
        check_rejected(
            "group_limit=99999999999",
            "invalid parameter \"group_limit\": group_limit needs to be a valid number: strconv.ParseInt: parsing \"99999999999\": value out of range",
        );
        check_rejected(
            "group_limit=0",
            "invalid parameter \"group_limit\": group_limit needs to be greater than 0",
        );
        check_rejected(
            "group_next_token=x",
            "invalid parameter \"group_next_token\": group_limit needs to be present in order to paginate over the groups",
        );
        check_rejected(
            "match[]={}",
            "match[] must contain at least one non-empty matcher",
        );
    }
}
