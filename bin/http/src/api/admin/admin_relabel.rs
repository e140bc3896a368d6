//! /api/v1/admin/relabel/enable: enables a relabel rule that a query has disabled.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_ingest::relabel::EnabledRelabelRule;
use varve_server::requests::record::RequestRecord;

use super::request::run;
use crate::error::{ApiError, ErrorKind, Result};
use crate::params::Form;
use crate::response::success;
use crate::serving::app::App;
use varve_wire::schema;

schema! {
    /// The result of enabling a rule.
    pub(crate) struct Enabled {
        /// Whether a query had disabled the rule, or would have in a dry run. The query is
        /// forgotten.
        was_used: bool,
        /// The state in force now: `enforce` or `dry_run`.
        state: String,
    }
}

/// Enables the rule `name`.
pub(crate) async fn enable(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    run(&app, record, move |store| {
        form.check_encoding()?;
        let name = form.first("name");
        let Some(enabled) = store.receiver.enable_relabel_rule(name) else {
            let reason = format!("no relabel rule has the name {name:?}");
            return Err(ApiError::new(ErrorKind::NotFound, reason));
        };
        let EnabledRelabelRule { was_used, state } = enabled;
        Ok(success(&Enabled {
            was_used,
            state: state.name().to_owned(),
        }))
    })
    .await
}
