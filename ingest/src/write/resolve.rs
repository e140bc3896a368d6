//! Finds the series of a label set without a cached route, and creates it if it is new: parses the
//! labels, deduplicates them, relabels them, and looks them up in the store.

use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Rejection, RejectionReason, Sample};
use varve_tsdb::SeriesHandle;

use super::denial::{Exceeded, rule_denial};
use super::request::{Write, Writer};
use crate::admission::{Denied, SeriesLimit, Team};
use crate::error::WriteError;
use crate::ha::Deduplication;
use crate::label_set;
use crate::outcome::{Example, ExemplarRejection};
use crate::relabel::{ActiveRelabeling, Attribution};
use crate::route::Route;
use crate::sources::remote_write::v1;

/// For what a label set is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For its samples: the series counts for its team and its relabel rules, and its route is
    /// cached.
    Samples,
    /// For its exemplars, which neither create a series nor count one.
    Exemplars,
}

/// A resolved label set.
pub(super) enum Resolved {
    Route(Route),
    /// The store does not have the series.
    New(NewSeries),
}

/// A series that the store does not have.
pub(super) struct NewSeries {
    labels: Labels,
    team: Team,
    /// The relabel rules that matched its labels.
    relabel_rules: Vec<u16>,
    /// Whether the route may be cached.
    is_cacheable: bool,
}

impl NewSeries {
    /// Returns the attribution of the series' samples, and counts the series for its relabel rules.
    fn attribution(&self, relabeling: &ActiveRelabeling) -> Attribution {
        relabeling.attributions.of(self.team, &self.relabel_rules)
    }
}

impl<'a> Write<'a> {
    /// Checks the encoding of all label sets without a cached route. Called before anything is
    /// stored.
    ///
    /// # Errors
    /// [`WriteError::Malformed`].
    pub(super) fn check_unknown_labels(&self) -> Result<(), WriteError> {
        // The decoder of version 2.0 has already checked all references.
        if self.request.is_v2() {
            return Ok(());
        }
        for (series, route) in self.request.batch.series.iter().zip(&*self.routes) {
            if route.is_none() {
                v1::check_labels(self.request.message, series.labels)?;
            }
        }
        Ok(())
    }

    /// Resolves a series without a cached route, and creates it if it is new and that is allowed
    /// now. Returns `None` if the series was deferred or rejected, or if its creation failed.
    /// `denied_team` is the team whose budget denied the series in the previous pass.
    pub(super) fn find_or_create(
        &mut self,
        series_idx: u32,
        denied_team: Option<Team>,
    ) -> Option<Route> {
        if self.creation_error.is_some() {
            return None;
        }
        let found = match self.request.writer {
            Writer::Sender => self.find_or_create_sent(series_idx, denied_team),
            Writer::Rules(..) | Writer::Server(_) => self.find_or_create_internal(series_idx),
        };
        match found {
            Ok(route) => route,
            Err(error) => {
                self.creation_error = Some(error);
                None
            }
        }
    }

    fn find_or_create_sent(
        &mut self,
        series_idx: u32,
        denied_team: Option<Team>,
    ) -> Result<Option<Route>, WriteError> {
        // The series was resolved in an earlier pass, and its team is denied new series in this
        // pass as well.
        let is_denied = denied_team.is_some_and(|team| !self.may_create(team));
        // Without a permit, the look-up would be repeated in the next pass.
        let is_futile =
            self.n_unknown >= UNKNOWN_MAX && self.permit.is_creation_over(self.n_created);
        if is_denied || is_futile {
            self.deferred.push(series_idx, denied_team);
            return Ok(None);
        }

        let new = match self.resolve(series_idx, Purpose::Samples) {
            Resolved::Route(route) => return Ok(Some(route)),
            Resolved::New(new) => new,
        };
        self.n_unknown += 1;
        if self.reject_if_all_invalid(series_idx)? {
            return Ok(None);
        }
        if !self.may_create(new.team) {
            self.deferred.push(series_idx, Some(new.team));
            return Ok(None);
        }
        if let Some(limit) = self.exceeded_by(&new.labels) {
            self.reject_series(series_idx, new.team, limit);
            return Ok(None);
        }
        let grant = match self.permit.admit_series(new.team) {
            Ok(grant) => grant,
            Err(Denied::Permanent(limit)) => {
                self.reject_series(series_idx, new.team, limit);
                return Ok(None);
            }
            Err(denied) => {
                self.deferred.deny_series(new.team, denied);
                self.deferred.push(series_idx, Some(new.team));
                return Ok(None);
            }
        };

        let db = &self.receiver.db;
        let handle = db.series_in_group(&new.labels, new.team.group())?;
        drop(grant);
        self.n_created += 1;
        if self.n_created.is_multiple_of(BUFFERED_DEFINITIONS_MAX) {
            db.write_out()?;
        }
        self.permit.yield_after(self.n_created);

        let route = Route::Series(handle, new.attribution(&self.settings.relabeling));
        if new.is_cacheable {
            self.remember_route(self.request.series(series_idx), route);
        }
        Ok(Some(route))
    }

    /// Samples of rules and of the server itself do not wait: a series that is denied now is
    /// rejected.
    fn find_or_create_internal(&mut self, series_idx: u32) -> Result<Option<Route>, WriteError> {
        let new = match self.resolve(series_idx, Purpose::Samples) {
            Resolved::Route(route) => return Ok(Some(route)),
            Resolved::New(new) => new,
        };
        let db = &self.receiver.db;
        if let Writer::Server(_) = self.request.writer {
            // After a restart, the series belongs to the team that its labels name, until this call
            // removes it from there.
            let handle = db.series_without_group(&new.labels)?;
            return Ok(Some(Route::Series(handle, Attribution::default())));
        }

        if let Some(limit) = self.exceeded_by(&new.labels) {
            self.rule_rejections.push(Rejection {
                index: series_idx,
                reason: rule_denial(Denied::Permanent(limit)),
            });
            return Ok(None);
        }

        // Without a team, no budget bounds the series.
        let grant = match self.permit.team() {
            None => None,
            Some(team) => match self.permit.admit_series(team) {
                Ok(grant) => Some(grant),
                Err(denied) => {
                    self.rule_rejections.push(Rejection {
                        index: series_idx,
                        reason: rule_denial(denied),
                    });
                    return Ok(None);
                }
            },
        };
        let handle = db.series_in_group(&new.labels, new.team.group())?;
        drop(grant);

        let route = Route::Series(handle, Attribution::default());
        self.remember_route(self.request.series(series_idx), route);
        Ok(Some(route))
    }

    /// Resolves the labels of a series. Creates no series.
    fn resolve(&mut self, series_idx: u32, purpose: Purpose) -> Resolved {
        match self.request.writer {
            Writer::Sender => self.resolve_sent(series_idx, purpose),
            Writer::Rules(labels, team) => {
                let labels = labels[series_idx as usize];
                let Some(handle) = self.receiver.db.find_in_group(labels, team.group()) else {
                    return Resolved::new_internal(labels, team);
                };
                let route = Route::Series(handle, Attribution::default());
                self.remember_route(self.request.series(series_idx), route);
                Resolved::Route(route)
            }
            Writer::Server(labels) => {
                Resolved::new_internal(labels[series_idx as usize], Team::NONE)
            }
        }
    }

    fn resolve_sent(&mut self, series_idx: u32, purpose: Purpose) -> Resolved {
        let labels = self.parse_labels(series_idx);
        let ha = &self.settings.ha;
        let (route, is_cacheable) = match labels {
            Err(reason) => (Route::Rejected(reason), ha.uses_route_cache()),
            Ok(labels) => match ha.deduplicate(self.request.sender_labels.with_forced(labels)) {
                Deduplication::Standby => (Route::Standby, false),
                Deduplication::Reject(reason) => (Route::Rejected(reason), false),
                Deduplication::Store {
                    labels,
                    is_cacheable,
                } => match self.relabel(labels, is_cacheable, purpose) {
                    Resolved::Route(route) => (route, is_cacheable),
                    new @ Resolved::New(_) => return new,
                },
            },
        };
        if is_cacheable && purpose == Purpose::Samples {
            self.remember_route(self.request.series(series_idx), route);
        }
        Resolved::Route(route)
    }

    /// Relabels a label set and looks up the result.
    fn relabel(&self, labels: Labels, is_cacheable: bool, purpose: Purpose) -> Resolved {
        let relabeling = &self.settings.relabeling;
        let mut relabel_rules = Vec::new();
        let labels = match relabeling.apply(labels, &mut relabel_rules) {
            Err(invalid) => {
                return Resolved::Route(Route::Rejected(label_set::reason(&invalid)));
            }
            Ok(Some(labels)) if !labels.is_empty() => labels,
            // A relabel rule drops the series, or the relabel rules remove all its labels.
            Ok(_) => {
                let attribution = match purpose {
                    Purpose::Samples => relabeling.attributions.of(Team::NONE, &relabel_rules),
                    Purpose::Exemplars => Attribution::default(),
                };
                return Resolved::Route(Route::Dropped(attribution));
            }
        };
        // Relabel rules must not replace a forced label.
        let labels = match label_set::check(self.request.sender_labels.with_forced(labels)) {
            Ok(labels) => labels,
            Err(reason) => return Resolved::Route(Route::Rejected(reason)),
        };

        let team = match self.permit.team() {
            Some(team) => team,
            None => self.permit.budgets().team_of(&labels),
        };
        let series = NewSeries {
            labels,
            team,
            relabel_rules,
            is_cacheable,
        };
        let db = &self.receiver.db;
        let (handle, attribution) = match purpose {
            Purpose::Samples => match db.find_in_group(&series.labels, team.group()) {
                Some(handle) => (handle, series.attribution(relabeling)),
                None => return Resolved::New(series),
            },
            Purpose::Exemplars => match db.find(&series.labels) {
                Some(handle) => (handle, Attribution::default()),
                None => return Resolved::New(series),
            },
        };
        Resolved::Route(Route::Series(handle, attribution))
    }

    /// Parses and checks the labels of a series.
    pub(super) fn parse_labels(&mut self, series_idx: u32) -> Result<Labels, RejectionReason> {
        let request = &self.request;
        let limits = &self.receiver.limits;
        let strings = &mut self.strings;
        let series = request.series(series_idx);
        // Fast path: the labels are encoded as most senders do.
        if !request.is_v2() && v1::plain_strings(request.message, series.labels, strings) {
            request.sender_labels.insert_added(strings);
            return label_set::parse_strings(strings, limits);
        }
        label_set::parse(request.pairs(series), limits, strings)
    }

    /// Returns the handle for the exemplars of a series. If the request has samples of the series,
    /// they have already created it.
    pub(super) fn handle_for_exemplars(
        &mut self,
        route: Option<Route>,
        series_idx: u32,
    ) -> Result<SeriesHandle, ExemplarRejection> {
        let route = match route {
            Some(route) => route,
            None => match self.resolve(series_idx, Purpose::Exemplars) {
                Resolved::Route(route) => route,
                Resolved::New(_) => return Err(ExemplarRejection::UnknownSeries),
            },
        };
        match route {
            Route::Series(handle, _) => Ok(handle),
            Route::Dropped(_) => Err(ExemplarRejection::Dropped),
            Route::Standby => Err(ExemplarRejection::Standby),
            Route::Rejected(_) => Err(ExemplarRejection::UnknownSeries),
        }
    }

    /// Returns the new handle of a series that has moved, or `None` if the store no longer has the
    /// series.
    pub(super) fn relocate(&mut self, series_idx: u32) -> Result<Option<SeriesHandle>, WriteError> {
        match self.resolve(series_idx, Purpose::Samples) {
            Resolved::Route(Route::Series(handle, _)) => Ok(Some(handle)),
            Resolved::Route(Route::Dropped(_) | Route::Standby | Route::Rejected(_)) => {
                Err(WriteError::Moved)
            }
            // The series was evicted from the store. The next pass creates it again.
            Resolved::New(_) => Ok(None),
        }
    }

    /// Returns the limit of the store that a new series would exceed.
    fn exceeded_by(&self, labels: &Labels) -> Option<SeriesLimit> {
        let db = &self.receiver.db;
        let limits = &self.receiver.limits;

        let max = limits.label_names_max;
        let used = db.n_label_names();
        // Fast path: there is room, even if no name is known.
        let may_exceed = used + labels.len() > max;
        if may_exceed && used + db.n_new_label_names(labels) > max {
            return Some(SeriesLimit::LabelNames {
                used: used as u64,
                limit: max as u64,
            });
        }

        let limit = limits.series_per_metric_max?;
        let used = db.n_series_with(METRIC_NAME, labels.get(METRIC_NAME)?);
        (used >= limit).then_some(SeriesLimit::Metric { used, limit })
    }

    /// Returns `true` if a team may create a series in this pass.
    fn may_create(&mut self, team: Team) -> bool {
        self.permit.may_create(self.n_created) && self.deferred.allows_series(team)
    }

    /// If the store would reject each sample of a new series, rejects them and returns `true`. No
    /// series is created for them.
    fn reject_if_all_invalid(&mut self, series_idx: u32) -> Result<bool, WriteError> {
        let bounds = match self.bounds {
            Some(bounds) => bounds,
            None => *self.bounds.insert(self.receiver.db.bounds()?),
        };
        let batch = self.request.batch;
        let mut rejected = Vec::new();
        for &sample in batch.samples_of(series_idx as usize).samples {
            match bounds.first_sample_rejection(sample.timestamp_ms) {
                Some(reason) => rejected.push((sample, reason)),
                None => return Ok(false),
            }
        }
        let mut invalid = Vec::new();
        for entry in batch.histograms_of(series_idx as usize) {
            let sent = self.request.decode_histogram(entry)?;
            let timestamp_ms = sent.timestamp_ms;
            match (sent.checked, bounds.first_sample_rejection(timestamp_ms)) {
                (Err(reason), _) => invalid.push((timestamp_ms, reason)),
                (Ok(histogram), Some(reason)) => {
                    let sample = Sample {
                        timestamp_ms,
                        value: histogram.sum,
                    };
                    rejected.push((sample, reason));
                }
                (Ok(_), None) => return Ok(false),
            }
        }

        self.note_rejected_series(series_idx);
        for (sample, reason) in rejected {
            self.rejections.add(reason, 1, 1, || {
                Example::of_sample(self.request.print(series_idx), sample)
                    .out_of(Some(bounds), reason)
            });
        }
        for (timestamp_ms, reason) in invalid {
            self.reject_histogram(series_idx, timestamp_ms, &reason);
        }
        Ok(true)
    }

    /// Rejects a new series because it would exceed a limit.
    fn reject_series(&mut self, series_idx: u32, team: Team, exceeded: SeriesLimit) {
        let Exceeded {
            reason,
            used,
            limit,
            counted,
        } = Exceeded::of(exceeded);
        let n_samples = self.request.batch.n_samples_of(series_idx as usize) as u64;
        self.note_rejected_series(series_idx);
        self.rejections.add(reason, 1, n_samples, || {
            let name = self.permit.budgets().name(team);
            let team_suffix = if name.is_empty() {
                String::new()
            } else {
                format!(" of team {name:?}")
            };
            let labels = self.request.print(series_idx);
            let text = format!("series {labels}{team_suffix}, with {used} of {limit} {counted}");
            Example {
                text,
                labels,
                timestamp_ms: None,
                value: None,
            }
        });
    }
}

impl Resolved {
    /// A series of rules, or of the server itself, that the store does not have.
    fn new_internal(labels: &Labels, team: Team) -> Self {
        Self::New(NewSeries {
            labels: labels.clone(),
            team,
            relabel_rules: Vec::new(),
            is_cacheable: true,
        })
    }
}

/// Maximum number of unsuccessful look-ups of a pass without a permit. So a few new series do not
/// delay many series that have lost their cached routes, and a storm of new series does not take
/// CPU time from requests of known series.
const UNKNOWN_MAX: usize = 64;
/// Maximum number of series definitions that a request buffers for the log. The next commit of any
/// request, even one of known series, compresses and writes all of them.
const BUFFERED_DEFINITIONS_MAX: usize = 256;
