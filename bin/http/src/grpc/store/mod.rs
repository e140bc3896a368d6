//! `Store/Series`: series with their samples as Prometheus' chunks, sorted by the labels that the
//! client sees.

mod encode;
mod order;
mod shard;

use varve_model::{Labels, Matcher, TimeRange};
use varve_query::usage::LabelSet;
use varve_server::requests::record::Parameters;

use super::call::{Caller, Method};
use super::external::{self, own_matchers};
use super::frame::Frames;
use crate::error::{ApiError, Result};
use crate::serving::run::{RequestClass, Work};
use encode::SeriesWriter;
use shard::Shard;
use varve_wire::thanos::store::SeriesRequest;

impl Method for SeriesRequest {
    const PATH: &'static str = "/thanos.Store/Series";
    const SERVES_TENANTS: bool = true;

    fn class(&self) -> RequestClass {
        if self.skip_chunks {
            RequestClass::Metadata
        } else {
            RequestClass::RemoteRead
        }
    }

    fn shown(&self) -> Parameters {
        let text = external::shown(&self.matchers);
        let start = self.min_time.to_string();
        let end = self.max_time.to_string();
        Parameters {
            text,
            start,
            end,
            ..Parameters::default()
        }
    }

    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let Some(matchers) = own_matchers(&work.ctx, &self.matchers, &caller.external)? else {
            return Ok(());
        };
        if matchers.is_empty() {
            return Err(ApiError::bad_data(
                "no matchers specified, except of external labels",
            ));
        }
        let range = TimeRange {
            start_ms: self.min_time,
            end_ms: self.max_time,
        };
        send(self, caller, work, out, &matchers, range)?;
        if let Some(partial) = work.ctx.partial().map(str::to_owned) {
            out.send_encoded(work, |out| encode::warning(&partial, out))?;
        }
        Ok(())
    }
}

/// Notes the use of the selected series, and writes them. Labels that the client must not see are
/// removed only if a series may have one of them, because the series must be sorted again then.
fn send(
    request: SeriesRequest,
    caller: &Caller,
    work: &mut Work,
    out: &mut Frames,
    matchers: &[Matcher],
    range: TimeRange,
) -> Result<()> {
    let selectors = [matchers.to_vec()];
    let hidden_names: Vec<&str> = request
        .without_replica_labels
        .iter()
        .chain(caller.external.keys())
        .map(String::as_str)
        .collect();
    if request.skip_chunks {
        work.store
            .note_metadata(&work.ctx, &caller.who, &selectors, &LabelSet::all());
        let set = work.store.db.select_labels(&work.ctx, matchers, range)?;
        let hidden = if set.may_have_label(&hidden_names)? {
            &*hidden_names
        } else {
            &[]
        };
        let series = set.map(|series| series.map(|series| (series.labels().clone(), series)));
        return write_all(
            &request,
            caller,
            work,
            out,
            series,
            hidden,
            |writer, work, labels, _| writer.write_labels(work, labels),
        );
    }

    work.store
        .note_selectors(&work.ctx, &caller.who, &selectors);
    let set = work.store.db.select(&work.ctx, matchers, range)?;
    let hidden = if set.may_have_label(&hidden_names)? {
        &*hidden_names
    } else {
        &[]
    };
    let series = set.map(|series| series.map(|series| (series.labels().clone(), series)));
    write_all(
        &request,
        caller,
        work,
        out,
        series,
        hidden,
        |writer, work, labels, series| writer.write(work, labels, series),
    )
}

/// Writes the series that the request asks for, without the labels `hidden`, each with `write`.
fn write_all<S>(
    request: &SeriesRequest,
    caller: &Caller,
    work: &mut Work,
    out: &mut Frames,
    series: impl Iterator<Item = varve_tsdb::Result<(Labels, S)>>,
    hidden: &[&str],
    mut write: impl FnMut(&mut SeriesWriter<'_>, &mut Work, &Labels, &S) -> Result<()>,
) -> Result<()> {
    let removed = &request.without_replica_labels;
    let added = caller
        .external
        .iter()
        .filter(|(name, _)| !removed.contains(name));
    let series = order::sorted(&work.ctx, series, hidden, added);
    let shard = Shard::of(request.shard_info.clone());
    let limit = usize::try_from(request.limit)
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(usize::MAX);
    let mut writer = SeriesWriter::new(
        out,
        usize::try_from(request.response_batch_size).unwrap_or_default(),
    );
    let selected = series.filter(|next| match (next, &shard) {
        (Ok((labels, _)), Some(shard)) => shard.has(labels),
        _ => true,
    });
    for next in selected.take(limit) {
        let (labels, series) = next?;
        write(&mut writer, work, &labels, &series)?;
    }
    writer.flush(work)
}
