//! `Info/Info`: what this endpoint serves. A querier asks every five seconds, and drops an endpoint
//! that does not respond. Therefore it needs no permit and does not wait for the WAL replay.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use varve_model::TimeRange;
use varve_server::requests::record::RequestRecord;

use super::call::{check_open, single};
use super::status::{Code, Status};
use crate::serving::state::HttpState;
use varve_wire::thanos::LabelSet;
use varve_wire::thanos::info::{Announced, InfoResponse, StoreInfo, Times, TsdbInfo};

pub(super) const PATH: &str = "/thanos.info.Info/Info";

/// The type of component. Queriers accept several endpoints of this type with equal labels.
const COMPONENT: &str = "receive";

/// Serves the method. The request has no fields, so it is not read.
pub(super) async fn info(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
) -> Response {
    record.note_read();
    single(&state, PATH, describe(&state, &record).await)
}

async fn describe(state: &HttpState, record: &RequestRecord) -> Result<InfoResponse, Status> {
    check_open(&state.app)?;
    let config = state.app.config.current();
    let external = &config.global.external_labels;
    if record.tenant.is_some() {
        return Ok(without_denied(response(external, None)));
    }
    let Some(store) = state.app.store() else {
        return Err(Status::new(Code::Unavailable, "the server is stopping"));
    };
    // Locks each shard for a moment.
    let range = tokio::task::spawn_blocking(move || store.db.time_range()).await;
    let range = range.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    Ok(response(external, range))
}

/// Removes the services that users of a tenant may not call.
fn without_denied(response: InfoResponse) -> InfoResponse {
    InfoResponse {
        rules: None,
        metric_metadata: None,
        targets: None,
        status: None,
        ..response
    }
}

/// Returns the description of a store with samples from the start of `range`. A store accepts newer
/// samples at any time, so its end is open. The start of an empty store is that of a sidecar.
fn response(external: &BTreeMap<String, String>, range: Option<TimeRange>) -> InfoResponse {
    let labels = LabelSet::of(
        external
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    let min_time = range.map_or(0, |range| range.start_ms);
    let max_time = i64::MAX;
    InfoResponse {
        label_sets: vec![labels.clone()],
        component_type: COMPONENT.to_owned(),
        store: Some(StoreInfo {
            min_time,
            max_time,
            supports_sharding: true,
            supports_without_replica_labels: true,
            // A distributed querier only sends queries to an endpoint that has some.
            tsdb_infos: vec![TsdbInfo {
                labels: Some(labels),
                min_time,
                max_time,
            }],
        }),
        rules: Some(Announced {}),
        metric_metadata: Some(Announced {}),
        targets: Some(Announced {}),
        exemplars: Some(Times { min_time, max_time }),
        query: Some(Announced {}),
        status: Some(Announced {}),
    }
}
