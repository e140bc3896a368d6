//! `Store/LabelNames` and `Store/LabelValues`.

use std::collections::BTreeSet;

use varve_model::{Matcher, TimeRange};
use varve_query::usage::LabelSet;
use varve_server::requests::record::Parameters;

use super::call::{Caller, Method};
use super::external::{own_matchers, shown};
use super::frame::Frames;
use crate::error::{ApiError, Result};
use crate::serving::run::{TRUNCATED, Work};
use varve_wire::thanos::store::{LabelNamesRequest, LabelTexts, LabelValuesRequest};

impl Method for LabelNamesRequest {
    const PATH: &'static str = "/thanos.Store/LabelNames";
    const SERVES_TENANTS: bool = true;

    fn shown(&self) -> Parameters {
        parameters(shown(&self.matchers), self.start, self.end)
    }

    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let Some(matchers) = own_matchers(&work.ctx, &self.matchers, &caller.external)? else {
            return send(work, out, [], self.limit);
        };
        work.store.note_metadata(
            &work.ctx,
            &caller.who,
            std::slice::from_ref(&matchers),
            &LabelSet::none(),
        );
        let range = TimeRange {
            start_ms: self.start,
            end_ms: self.end,
        };
        let stored = work.store.db.label_names(&work.ctx, &matchers, range)?;
        let mut names: BTreeSet<&str> = stored.iter().collect();
        if !names.is_empty() {
            names.extend(caller.external.keys().map(String::as_str));
        }
        names.retain(|name| {
            !self
                .without_replica_labels
                .iter()
                .any(|label| label == name)
        });
        send(work, out, names, self.limit)
    }
}

impl Method for LabelValuesRequest {
    const PATH: &'static str = "/thanos.Store/LabelValues";
    const SERVES_TENANTS: bool = true;

    fn shown(&self) -> Parameters {
        parameters(
            format!("{} of {}", self.label, shown(&self.matchers)),
            self.start,
            self.end,
        )
    }

    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        if self.label.is_empty() {
            return Err(ApiError::bad_data("label name is empty"));
        }
        let is_hidden = self.without_replica_labels.contains(&self.label);
        let matchers = own_matchers(&work.ctx, &self.matchers, &caller.external)?;
        let matchers = match matchers {
            Some(matchers) if !is_hidden => matchers,
            _ => return send(work, out, [], self.limit),
        };
        let labels = LabelSet::Only([self.label.clone()].into());
        work.store.note_metadata(
            &work.ctx,
            &caller.who,
            std::slice::from_ref(&matchers),
            &labels,
        );
        let range = TimeRange {
            start_ms: self.start,
            end_ms: self.end,
        };
        match caller.external.get(&self.label) {
            Some(value) => {
                let has_series = has_series(work, &matchers, range)?;
                send(work, out, has_series.then_some(value.as_str()), self.limit)
            }
            None => {
                let values =
                    work.store
                        .db
                        .label_values(&work.ctx, &self.label, &matchers, range)?;
                send(work, out, values.iter(), self.limit)
            }
        }
    }
}

fn has_series(work: &Work, matchers: &[Matcher], range: TimeRange) -> Result<bool> {
    if matchers.is_empty() && work.ctx.restriction().is_empty() {
        return Ok(work
            .store
            .db
            .time_range()
            .is_some_and(|stored| stored.overlaps(range)));
    }
    Ok(work
        .store
        .db
        .select_first_labels(&work.ctx, matchers, range, 1)?
        .next()
        .transpose()?
        .is_some())
}

fn parameters(text: String, start: i64, end: i64) -> Parameters {
    Parameters {
        text,
        start: start.to_string(),
        end: end.to_string(),
        ..Parameters::default()
    }
}

/// Sends sorted texts, at most `limit` of them if it is positive.
fn send<'a>(
    work: &mut Work,
    out: &mut Frames,
    texts: impl IntoIterator<Item = &'a str>,
    limit: i64,
) -> Result<()> {
    let limit = usize::try_from(limit)
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(usize::MAX);
    let mut texts = texts.into_iter();
    let mut charge = work.ctx.charge();
    let mut response = LabelTexts::default();
    for text in texts.by_ref().take(limit) {
        charge.grow(2 * (size_of::<String>() + text.len()))?;
        response.texts.push(text.to_owned());
    }
    if texts.next().is_some() {
        response.warnings.push(TRUNCATED.to_owned());
    }
    if let Some(partial) = work.ctx.partial() {
        response.warnings.push(partial.to_owned());
    }
    out.send(work, &response)
}
