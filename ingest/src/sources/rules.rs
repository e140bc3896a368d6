//! Samples that recording and alerting rules write. They pass admission control as a team of their
//! own.

use std::sync::Arc;

use varve_context::scheduler;
use varve_model::histogram::Histogram;
use varve_model::{Labels, Rejection, Sample};
use varve_protobuf::Span;

use crate::admission::RULES_TEAM;
use crate::batch::{DecodedBatch, HistogramEntry};
use crate::error::WriteError;
use crate::receiver::Receiver;
use crate::write::buffers::RequestBuffers;
use crate::write::{Write, Writer};

/// A sample of a rule.
#[derive(Debug, Clone)]
pub struct RuleSample<'a> {
    /// The series.
    pub labels: &'a Labels,
    /// Time and value.
    pub sample: Sample,
    /// The value, if it is a histogram.
    pub histogram: Option<Arc<Histogram>>,
}

/// Whether a budget may deny the samples of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleBudget {
    /// The budgets of the team [`RULES_TEAM`] and of the store.
    Team,
    /// None: the caller bounds the samples.
    Exempt,
}

impl Receiver {
    /// Appends the samples of a rule, and returns those that were not stored. Calls
    /// [`scheduler::pause`] before it looks up each series, but not during the append.
    ///
    /// # Errors
    /// See [`WriteError`]. If a series cannot be found or created in the first round, nothing is
    /// stored. After a later error, some of the samples may be stored.
    pub fn append_rule_samples(
        &self,
        samples: &[RuleSample<'_>],
        budget: RuleBudget,
    ) -> Result<Vec<Rejection>, WriteError> {
        let team = self.admission.budgets().team_named(RULES_TEAM);
        let size = samples.iter().map(memory_size).sum();
        let permit = match budget {
            RuleBudget::Team => {
                let permit = self.admission.admit_rules(Some(team), size)?;
                permit.budgets().charge_samples(team, samples.len() as u64);
                permit
            }
            RuleBudget::Exempt => self.admission.admit_rules(None, size)?,
        };

        let batch = self.batch_of(samples);
        let labels: Vec<&Labels> = samples.iter().map(|sample| sample.labels).collect();
        let mut buffers = RequestBuffers::internal();
        let writer = Writer::Rules(&labels, team);
        let mut write = Write::internal(self, permit, writer, &batch, &mut buffers);
        write.store_internal()?;
        Ok(write.finish_rules())
    }

    /// Returns the samples as a batch of one series each, with the keys of their routes.
    fn batch_of(&self, samples: &[RuleSample<'_>]) -> DecodedBatch {
        let mut batch = DecodedBatch::default();
        for rule_sample in samples {
            scheduler::pause();
            match &rule_sample.histogram {
                None => batch.push_sample(rule_sample.sample, 0),
                Some(histogram) => batch.histograms.push(HistogramEntry::Decoded {
                    timestamp_ms: rule_sample.sample.timestamp_ms,
                    start_ms: 0,
                    histogram: Arc::clone(histogram),
                }),
            }
            let packed = rule_sample.labels.as_packed().as_bytes();
            batch.push_series(Span::default(), Some(self.rule_hasher.hash(packed)));
        }
        batch
    }
}

/// Returns the bytes of memory of a sample on its way into the store.
fn memory_size(rule_sample: &RuleSample<'_>) -> usize {
    let histogram_size = match &rule_sample.histogram {
        None => 0,
        Some(histogram) => histogram.size(),
    };
    SAMPLE_SIZE + histogram_size
}

/// Bytes of a sample in the batch, and of its index, key and route.
const SAMPLE_SIZE: usize = 48 + 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Amounts, Budgets, TeamBudget};
    use crate::limits::Limits;
    use crate::relabel::Attribution;
    use crate::route::{CacheKey, Route, Scope};
    use varve_env::testing::ManualClock;
    use varve_model::{Matcher, RejectionReason, SampleColumns, TimeRange};
    use varve_tsdb::{Db, Options, ReadContext, WriteBatch};

    fn receiver(dir: &tempfile::TempDir) -> Receiver {
        Receiver::new(
            Arc::new(Db::open(dir.path(), Options::default()).unwrap()),
            Limits::for_tests(),
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
        budget: RuleBudget,
    ) -> Vec<Rejection> {
        let labels: Vec<Labels> = (0..n).map(series).collect();
        let sample = Sample {
            timestamp_ms,
            value,
        };
        let samples: Vec<_> = labels
            .iter()
            .map(|labels| RuleSample {
                labels,
                sample,
                histogram: None,
            })
            .collect();
        receiver.append_rule_samples(&samples, budget).unwrap()
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
        let rejected = append(&receiver, 3, NOW_MS, 1.0, RuleBudget::Team);
        let reason = RejectionReason::RulesSeries { used: 2, limit: 2 };
        assert_eq!(rejected, [Rejection { index: 2, reason }]);
        assert_eq!(
            reason.to_string(),
            format!("series exceeds the budget of team {RULES_TEAM:?}, with 2 of 2 active")
        );
        assert!(
            append(&receiver, 2, NOW_MS + 1, 1.0, RuleBudget::Team).is_empty(),
            "known series"
        );
        assert!(append(&receiver, 3, NOW_MS + 2, 1.0, RuleBudget::Exempt).is_empty());
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
        assert!(append(&other, 100, NOW_MS, 1.0, RuleBudget::Team).is_empty());
        let stranger = other.db.find(&series(99)).unwrap();
        let labels = series(1);
        let budgets = receiver.admission.budgets();
        let scope = Scope::new(
            &receiver.rule_hasher,
            0,
            0,
            budgets.generation(),
            budgets.team_named(RULES_TEAM),
        );
        let packed = labels.as_packed().as_bytes();
        let key = CacheKey::new(receiver.rule_hasher.hash(packed), scope);
        let mut found = Vec::new();
        let mut order = Vec::new();
        receiver
            .routes
            .lookup([Some(key)].into_iter(), &mut found, &mut order);
        assert_eq!(found, [None]);
        receiver
            .routes
            .insert(&[(key, Route::Series(stranger, Attribution::default()))]);
        for i in 0..3 {
            assert!(append(&receiver, 3, NOW_MS + i, 1.0, RuleBudget::Team).is_empty());
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
        assert!(append(&receiver, 1, NOW_MS, 1.0, RuleBudget::Team).is_empty());
        assert!(
            append(&receiver, 2, NOW_MS, 1.0, RuleBudget::Team).is_empty(),
            "a repetition"
        );
        let rejected = append(&receiver, 3, NOW_MS, 2.0, RuleBudget::Team);
        let rejected_at = |index| Rejection {
            index,
            reason: RejectionReason::Duplicate,
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
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(NOW_MS);
        let options = || Options {
            clock: Arc::new(clock.clone()),
            ..Options::default()
        };
        let open = || {
            Receiver::new(
                Arc::new(Db::open(dir.path(), options()).unwrap()),
                Limits::for_tests(),
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
        assert!(append(&receiver, 1, NOW_MS + AHEAD_MS, 1.0, RuleBudget::Team).is_empty());
        drop(receiver);
        assert_eq!(send(&open(), NOW_MS + 1000), 0);
    }
}
