//! /api/v1/rules and /api/v1/alerts: Varve evaluates no rules, so both are empty. Parameters are checked as in Prometheus.

use axum::extract::State;
use axum::response::Response;
use varve_tsdb::QueryContext;

use super::targets::Nothing;
use crate::http::error::ApiError;
use crate::http::openapi::described;
use crate::http::params::{Form, parse_selectors};
use crate::http::response::success;
use crate::http::serving::run::{RequestClass, run};
use crate::http::serving::state::HttpState;

described! {
    /// All rules.
    pub(crate) struct RuleGroups {
        groups: Vec<Nothing>,
    }
}

described! {
    /// All active alerts.
    pub(crate) struct Alerts {
        alerts: Vec<Nothing>,
    }
}

/// GET /api/v1/alerts.
pub(crate) async fn alerts() -> Response {
    success(&Alerts { alerts: Vec::new() })
}

/// GET /api/v1/rules.
pub(crate) async fn rules(State(state): State<HttpState>, form: Form) -> Result<Response, ApiError> {
    run(&state, RequestClass::Metadata, None, move |work| {
        check(&work.ctx, &form)?;
        work.respond_json(&RuleGroups { groups: Vec::new() })
    })
    .await
}

fn check(ctx: &QueryContext, form: &Form) -> Result<(), ApiError> {
    form.check_encoding()?;
    parse_selectors(ctx, &form.selectors(), ApiError::bad_data)?;
    let kind = form.first("type").to_lowercase();
    if !matches!(&*kind, "" | "alert" | "record") {
        return Err(ApiError::invalid_parameter("type", format!("not supported value {kind:?}")));
    }
    check_exclude_alerts(&form.first("exclude_alerts").to_lowercase())?;
    check_page(form.first("group_limit"), form.first("group_next_token"))
}

fn check_exclude_alerts(text: &str) -> Result<(), ApiError> {
    if matches!(text, "" | "1" | "t" | "true" | "0" | "f" | "false") {
        return Ok(());
    }
    let reason = format!("error converting exclude_alerts: strconv.ParseBool: parsing {text:?}: invalid syntax");
    Err(ApiError::invalid_parameter("exclude_alerts", reason))
}

fn check_page(limit: &str, token: &str) -> Result<(), ApiError> {
    let invalid = |name, reason: &str| ApiError::invalid_parameter(name, reason);
    if limit.is_empty() {
        return match token {
            "" => Ok(()),
            _ => {
                Err(invalid("group_next_token", "group_limit needs to be present in order to paginate over the groups"))
            }
        };
    }
    let parsed = limit.parse::<i32>().map_err(|error| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let reason = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let reason = format!("group_limit needs to be a valid number: strconv.ParseInt: parsing {limit:?}: {reason}");
        invalid("group_limit", &reason)
    })?;
    if parsed <= 0 {
        return Err(invalid("group_limit", "group_limit needs to be greater than 0"));
    }
    match token {
        "" => Ok(()),
        _ => {
            let reason = format!("invalid group_next_token '{token}'. were rule groups changed?");
            Err(invalid("group_next_token", &reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_rejected(encoded: &str, expect: &str) {
        let mut form = Form::default();
        form.add(encoded.as_bytes()).unwrap();
        let message = check(&QueryContext::unbounded(), &form).err().map_or_else(String::new, |error| error.message);
        assert_eq!(message, expect, "{encoded}");
    }

    #[test]
    fn parameters_are_checked_in_the_words_of_prometheus() {
        check_rejected("type=Alert&exclude_alerts=TRUE&group_limit=5&rule_name[]=x", "");
        check_rejected("type=x", "invalid parameter \"type\": not supported value \"x\"");
        check_rejected(
            "exclude_alerts=x",
            "invalid parameter \"exclude_alerts\": error converting exclude_alerts: strconv.ParseBool: parsing \"x\": invalid syntax",
        );
        check_rejected(
            "group_limit=99999999999",
            "invalid parameter \"group_limit\": group_limit needs to be a valid number: strconv.ParseInt: parsing \"99999999999\": value out of range",
        );
        check_rejected("group_limit=0", "invalid parameter \"group_limit\": group_limit needs to be greater than 0");
        check_rejected(
            "group_next_token=x",
            "invalid parameter \"group_next_token\": group_limit needs to be present in order to paginate over the groups",
        );
        check_rejected(
            "group_limit=1&group_next_token=x",
            "invalid parameter \"group_next_token\": invalid group_next_token 'x'. were rule groups changed?",
        );
        check_rejected("match[]={}", "match[] must contain at least one non-empty matcher");
    }
}
