//! Samples that recording and alerting rules write. They pass admission control as a team of their
//! own. Relabel rules and HA deduplication do not apply to them: they have no sender.

use std::sync::Arc;

use varve_context::scheduler;
use varve_model::histogram::Histogram;
use varve_model::{Labels, Sample};
use varve_tsdb::{RejectReason, Rejected, SeriesHandle, WriteBatch};

use crate::admission::{Denied, Permit, RULES_TEAM, SeriesLimit, Team};
use crate::batch::RouteKey;
use crate::error::WriteError;
use crate::receiver::Receiver;
use crate::relabel::Attribution;
use crate::route::{Route, Scope};

/// A sample of a rule.
#[derive(Debug, Clone)]
pub struct RecordedSample<'a> {
    /// The series.
    pub labels: &'a Labels,
    /// Time and value.
    pub sample: Sample,
    /// The value, if it is a histogram.
    pub histogram: Option<Arc<Histogram>>,
}

/// Whether a budget may deny the samples of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedBudget {
    /// The budgets of the team [`RULES_TEAM`] and of the store.
    Team,
    /// None: the caller bounds the samples.
    Exempt,
}

/// A sample of a rule that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRejection {
    /// Its index in the request.
    pub idx: usize,
    /// The reason.
    pub reason: String,
    /// `true` if the series has another value at this time.
    pub is_duplicate: bool,
}

impl Receiver {
    /// Appends the samples of a rule. Calls [`scheduler::pause`] before it looks up each series,
    /// but not during the append.
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing is stored, unless the store fails in between.
    pub fn append_recorded(
        &self,
        samples: &[RecordedSample<'_>],
        budget: RecordedBudget,
    ) -> Result<Vec<RecordedRejection>, WriteError> {
        let size = samples.iter().map(sample_size).sum();
        let rules = self.admission.budgets().team_named(RULES_TEAM);
        let permit = self
            .admission
            .admit_recorded((budget == RecordedBudget::Team).then_some(rules), size)?;
        let n_samples = samples.len() as u64;
        if permit.team().is_some() {
            permit.budgets().charge_samples(rules, n_samples);
        }
        let (mut denied, mut rejected) = (Vec::new(), Vec::new());
        let (mut known, mut found) = (self.recorded_routes(samples, rules), Vec::new());
        let push = |batch: &mut WriteBatch, idx: u32| {
            scheduler::pause();
            let (sample, (key, route)) = (&samples[idx as usize], &mut known[idx as usize]);
            // A cached route is used once. If the series has moved, the next call resolves its
            // labels.
            if let Some(Route::Series(handle, _)) = route.take() {
                push(batch, handle, sample, idx);
                return Ok(());
            }
            match self.recorded_series(&permit, sample.labels, rules, budget)? {
                Ok(handle) => {
                    found.push((*key, Route::Series(handle, Attribution::default())));
                    push(batch, handle, sample, idx);
                }
                Err(reason) => denied.push(RecordedRejection {
                    idx: idx as usize,
                    reason,
                    is_duplicate: false,
                }),
            }
            Ok(())
        };
        self.append_unsent(samples.len(), push, |Rejected { tag, reason, .. }| {
            rejected.push(RecordedRejection {
                idx: *tag as usize,
                reason: reason.to_string(),
                is_duplicate: *reason == RejectReason::Duplicate,
            });
        })?;
        self.routes.insert(&found);
        denied.append(&mut rejected);
        permit
            .budgets()
            .count_samples(&[(rules, n_samples - denied.len() as u64)]);
        Ok(denied)
    }

    /// Returns the keys of the series in the route cache, and the cached routes.
    fn recorded_routes(
        &self,
        samples: &[RecordedSample<'_>],
        team: Team,
    ) -> Vec<(RouteKey, Option<Route>)> {
        let scope = Scope::new(0, self.admission.budgets().generation(), team);
        let key = |of: &RecordedSample<'_>| {
            scheduler::pause();
            self.recorded_hasher
                .hash(of.labels.as_packed().as_bytes())
                .under(scope)
        };
        let keys: Vec<RouteKey> = samples.iter().map(key).collect();
        let (mut routes, mut order) = (Vec::new(), Vec::new());
        self.routes
            .lookup(keys.iter().copied().map(Some), &mut routes, &mut order);
        keys.into_iter().zip(routes).collect()
    }

    /// Returns the series, which is created if its budget allows it, or the reason of a denial.
    fn recorded_series(
        &self,
        permit: &Permit<'_>,
        labels: &Labels,
        team: Team,
        budget: RecordedBudget,
    ) -> Result<Result<SeriesHandle, String>, WriteError> {
        if let Some(handle) = self.db.find_for(labels, team.group()) {
            return Ok(Ok(handle));
        }
        let _grant = match budget {
            RecordedBudget::Exempt => None,
            RecordedBudget::Team => match permit.admit_series(team) {
                Ok(grant) => Some(grant),
                Err(denied) => return Ok(Err(reason(&denied))),
            },
        };
        Ok(Ok(self.db.series_for(labels, team.group())?))
    }
}

fn push(batch: &mut WriteBatch, handle: SeriesHandle, of: &RecordedSample<'_>, tag: u32) {
    match &of.histogram {
        None => batch.push(handle, of.sample, tag),
        Some(histogram) => {
            batch.push_histogram(handle, of.sample.timestamp_ms, Arc::clone(histogram), tag)
        }
    }
}

fn reason(denied: &Denied) -> String {
    match denied {
        Denied::Permanent(SeriesLimit::Team { used, limit }) => {
            format!(
                "series exceeds the budget of team {RULES_TEAM:?}, with {used} of {limit} active"
            )
        }
        Denied::Permanent(SeriesLimit::Total { used, limit }) => {
            format!("series exceeds the budget of the store, with {used} of {limit} active")
        }
        Denied::Temporary(resource, _) => format!(
            "series is not created now: {} is exhausted",
            resource.name()
        ),
    }
}

/// Returns the bytes of memory of a sample on its way into the store.
fn sample_size(of: &RecordedSample<'_>) -> usize {
    SAMPLE_SIZE
        + of.histogram
            .as_ref()
            .map_or(0, |histogram| histogram.size())
}

/// Bytes of a sample in the batch, and of its index, key and route.
const SAMPLE_SIZE: usize = 48 + 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Amounts, Budgets, TeamBudget};
    use crate::limits::Limits;
    use varve_fs::testing::ManualClock;
    use varve_model::{Matcher, SampleColumns, TimeRange};
    use varve_tsdb::{Db, Options, ReadContext};

    fn receiver(dir: &tempfile::TempDir) -> Receiver {
        Receiver::new(
            Arc::new(Db::open(dir.path(), Options::default()).unwrap()),
            Limits::default(),
        )
    }

    fn series(i: usize) -> Labels {
        Labels::from_pairs([("__name__", "r"), ("i", &i.to_string())]).unwrap()
    }

    /// Appends one sample for each of `n` series and returns the rejected ones.
    fn append(
        receiver: &Receiver,
        n: usize,
        timestamp_ms: i64,
        value: f64,
        budget: RecordedBudget,
    ) -> Vec<RecordedRejection> {
        let labels: Vec<Labels> = (0..n).map(series).collect();
        let sample = Sample {
            timestamp_ms,
            value,
        };
        let samples: Vec<_> = labels
            .iter()
            .map(|labels| RecordedSample {
                labels,
                sample,
                histogram: None,
            })
            .collect();
        receiver.append_recorded(&samples, budget).unwrap()
    }

    const NOW_MS: i64 = 1_700_000_000_000;

    #[test]
    fn the_team_of_rules_has_a_budget_and_alerts_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let receiver = receiver(&dir);
        let maximum = Amounts {
            active_series: Some(2),
            ..Amounts::default()
        };
        let teams = [(
            RULES_TEAM.to_owned(),
            TeamBudget {
                maximum,
                ..TeamBudget::default()
            },
        )]
        .into();
        receiver.set_budgets(Budgets {
            teams,
            ..Budgets::default()
        });
        let rejected = append(&receiver, 3, NOW_MS, 1.0, RecordedBudget::Team);
        let reason = "series exceeds the budget of team \"(rules)\", with 2 of 2 active".to_owned();
        assert_eq!(
            rejected,
            [RecordedRejection {
                idx: 2,
                reason,
                is_duplicate: false
            }]
        );
        assert!(
            append(&receiver, 2, NOW_MS + 1, 1.0, RecordedBudget::Team).is_empty(),
            "known series"
        );
        assert!(append(&receiver, 3, NOW_MS + 2, 1.0, RecordedBudget::Exempt).is_empty());
        let (_, teams) = receiver.team_stats();
        let rules = teams.iter().find(|team| &*team.name == RULES_TEAM).unwrap();
        assert_eq!((rules.use_now.active_series, rules.samples), (3, 7));
        assert_eq!(
            receiver.stats().samples_stored,
            0,
            "it would hide that no sender sends"
        );
    }

    #[test]
    fn known_series_are_cached_and_resolved_again_if_they_have_moved() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [receiver, other] = dirs.each_ref().map(receiver);
        assert!(append(&other, 100, NOW_MS, 1.0, RecordedBudget::Team).is_empty());
        let stranger = other.db.find(&series(99)).unwrap();
        let labels = series(1);
        let of_rule = |labels| RecordedSample {
            labels,
            sample: Sample {
                timestamp_ms: 0,
                value: 0.0,
            },
            histogram: None,
        };
        let rules = receiver.admission.budgets().team_named(RULES_TEAM);
        let (key, route) = receiver
            .recorded_routes(&[of_rule(&labels)], rules)
            .remove(0);
        assert_eq!(route, None);
        receiver
            .routes
            .insert(&[(key, Route::Series(stranger, Attribution::default()))]);
        for i in 0..3 {
            assert!(append(&receiver, 3, NOW_MS + i, 1.0, RecordedBudget::Team).is_empty());
        }
        let stats = receiver.stats().route;
        assert_eq!(
            (stats.entries, stats.hits, stats.misses),
            (3, 1 + 2 * 3, 1 + 2)
        );
        let found = receiver
            .db
            .select(&ReadContext::unbounded(), &[], TimeRange::ALL)
            .unwrap();
        assert_eq!(
            found
                .map(|series| series.unwrap().labels().clone())
                .collect::<Vec<_>>(),
            [0, 1, 2].map(series)
        );
    }

    #[test]
    fn rejected_samples_are_reported_by_index_and_the_others_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let receiver = receiver(&dir);
        assert!(append(&receiver, 1, NOW_MS, 1.0, RecordedBudget::Team).is_empty());
        assert!(
            append(&receiver, 2, NOW_MS, 1.0, RecordedBudget::Team).is_empty(),
            "a repetition"
        );
        let rejected = append(&receiver, 3, NOW_MS, 2.0, RecordedBudget::Team);
        let duplicate = "duplicate sample for timestamp".to_owned();
        let rejected_at = |idx| RecordedRejection {
            idx,
            reason: duplicate.clone(),
            is_duplicate: true,
        };
        assert_eq!(rejected, [0, 1].map(rejected_at));
        let matchers = [Matcher::equal("i", "2")];
        let found = receiver
            .db
            .select(&ReadContext::unbounded(), &matchers, TimeRange::ALL)
            .unwrap();
        let mut columns = SampleColumns::default();
        found.for_each(|series| series.unwrap().read(&mut columns).unwrap());
        assert_eq!(columns.values, [2.0]);
    }

    /// After a restart, samples of rules counted as those of a sender.
    #[test]
    fn samples_of_a_clock_that_is_ahead_make_no_sent_sample_too_old() {
        const AHEAD_MS: i64 = 5 * 3_600_000;
        let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
        let options = || Options {
            clock: Arc::new(clock.clone()),
            ..Options::default()
        };
        let open = || {
            Receiver::new(
                Arc::new(Db::open(dir.path(), options()).unwrap()),
                Limits::default(),
            )
        };
        let send = |receiver: &Receiver, timestamp_ms| {
            let mut batch = WriteBatch::default();
            batch.push(
                receiver.db.series(&series(9)).unwrap(),
                Sample {
                    timestamp_ms,
                    value: 1.0,
                },
                0,
            );
            receiver.db.append(&mut batch).unwrap();
            batch.rejected().len()
        };
        let receiver = open();
        assert_eq!(send(&receiver, NOW_MS), 0);
        clock.jump_to(NOW_MS + AHEAD_MS);
        assert!(append(&receiver, 1, NOW_MS + AHEAD_MS, 1.0, RecordedBudget::Team).is_empty());
        drop(receiver);
        assert_eq!(send(&open(), NOW_MS + 1000), 0);
    }
}
