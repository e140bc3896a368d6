//! Attributions: the team and the relabel rules for which the samples of a label set count.
//!
//! Invariants
//! 1. Attribution 0 stands for no team and no relabel rule.
//! 2. There are at most [`ATTRIBUTIONS_MAX`] attributions, and one more for each team. Beyond that,
//!    a label set counts only for its team and the last of its relabel rules, or, if this
//!    attribution would be new as well, only for its team.

use std::collections::HashMap;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use super::rates::Rates;
use crate::admission::Team;

/// The id of a team and a set of relabel rules in [`Attributions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attribution(u16);

/// All teams with the relabel rules that matched their label sets, and their counts.
#[derive(Debug)]
pub(crate) struct Attributions {
    known: RwLock<Known>,
    started: Instant,
    rates: Mutex<Rates>,
}

#[derive(Debug, Default)]
struct Known {
    /// Attribution ids by the id of the team followed by the indexes of the relabel rules.
    ids: HashMap<Box<[u16]>, u16>,
    counts: Vec<Counts>,
}

#[derive(Debug)]
struct Counts {
    team: Team,
    relabel_rules: Box<[u16]>,
    series: AtomicU64,
    samples: AtomicU64,
}

impl Attributions {
    /// Creates the attribution to no team and no relabel rule, and one for each single relabel rule.
    pub(super) fn new(n_rules: usize) -> Self {
        let mut known = Known::default();
        known.add(Team::NONE, &[]);
        for (idx, _) in (0..).zip(0..n_rules) {
            known.add(Team::NONE, &[idx]);
        }
        Self {
            known: RwLock::new(known),
            started: Instant::now(),
            rates: Mutex::default(),
        }
    }

    /// Returns the attribution to a team and a set of relabel rules. Counts a series for it.
    pub(crate) fn of(&self, team: Team, relabel_rules: &[u16]) -> Attribution {
        // Fast path: no team, and no relabel rule to count the series for.
        if relabel_rules.is_empty() && team == Team::NONE {
            return Attribution(0);
        }
        let read = self.known.read();
        if let Some(&id) = read.ids.get(&*key_of(team, relabel_rules)) {
            read.counts[usize::from(id)]
                .series
                .fetch_add(1, Ordering::Relaxed);
            return Attribution(id);
        }
        drop(read);
        let mut known = self.known.write();
        let id = known.add(team, relabel_rules);
        known.counts[usize::from(id)]
            .series
            .fetch_add(1, Ordering::Relaxed);
        Attribution(id)
    }

    /// Counts the samples of a request for their relabel rules. Appends the number of samples of
    /// each team to `by_team`, where a team may occur several times.
    pub(crate) fn count(&self, samples: &mut AttributedSamples, by_team: &mut Vec<(Team, u64)>) {
        self.drain(samples, |counts, n_samples| {
            counts.samples.fetch_add(n_samples, Ordering::Relaxed);
            if counts.team != Team::NONE {
                by_team.push((counts.team, n_samples));
            }
        });
    }

    /// Appends the number of samples of each team to `by_team`, where each team occurs once. Does
    /// not count the samples for relabel rules.
    pub(crate) fn by_team(&self, samples: &mut AttributedSamples, by_team: &mut Vec<(Team, u64)>) {
        self.drain(samples, |counts, n_samples| {
            by_team.push((counts.team, n_samples))
        });
        by_team.sort_unstable_by_key(|&(team, _)| team);
        by_team.dedup_by(|(other, n), (team, sum)| {
            let is_same = other == team;
            if is_same {
                *sum += *n;
            }
            is_same
        });
    }

    fn drain(&self, samples: &mut AttributedSamples, mut each: impl FnMut(&Counts, u64)) {
        if samples.touched.is_empty() {
            return;
        }
        let known = self.known.read();
        for id in samples.touched.drain(..).map(usize::from) {
            each(
                &known.counts[id],
                std::mem::take(&mut samples.n_samples[id]),
            );
        }
    }

    /// Sets all numbers of series to 0, because every label set will be resolved and counted again.
    pub(super) fn reset_series(&self) {
        for counts in &self.known.read().counts {
            counts.series.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn team_of(&self, Attribution(id): Attribution) -> Team {
        self.known.read().counts[usize::from(id)].team
    }

    /// Calls `each` with the relabel rules, series and samples of each attribution.
    pub(super) fn for_each(&self, mut each: impl FnMut(&[u16], u64, u64)) {
        for Counts {
            relabel_rules,
            series,
            samples,
            ..
        } in &self.known.read().counts
        {
            each(
                relabel_rules,
                series.load(Ordering::Relaxed),
                samples.load(Ordering::Relaxed),
            );
        }
    }

    /// Returns the samples per second of each relabel rule. `counts` is the current number of
    /// samples of each.
    pub(super) fn rates(&self, counts: Vec<u64>) -> Vec<f64> {
        self.rates.lock().read(self.started.elapsed(), counts)
    }
}

impl Known {
    fn add(&mut self, team: Team, relabel_rules: &[u16]) -> u16 {
        let key = key_of(team, relabel_rules);
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        // The attribution to a team and no relabel rules always exists: the team's budget depends on
        // it.
        if self.counts.len() >= ATTRIBUTIONS_MAX && !relabel_rules.is_empty() {
            let last = &relabel_rules[relabel_rules.len() - 1..];
            return self
                .ids
                .get(&key_of(team, last))
                .copied()
                .unwrap_or_else(|| self.add(team, &[]));
        }
        let id = u16::try_from(self.counts.len())
            .expect("ATTRIBUTIONS_MAX and TEAMS_MAX are within 16 bits");
        self.ids.insert(key, id);
        self.counts.push(Counts {
            team,
            relabel_rules: relabel_rules.into(),
            series: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        });
        id
    }
}

fn key_of(team: Team, relabel_rules: &[u16]) -> Box<[u16]> {
    iter::once(team.id())
        .chain(relabel_rules.iter().copied())
        .collect()
}

/// The samples of a request by attribution.
#[derive(Debug, Default)]
pub(crate) struct AttributedSamples {
    n_samples: Vec<u64>,
    touched: Vec<u16>,
}

impl AttributedSamples {
    /// Forgets all samples.
    pub(crate) fn clear(&mut self) {
        for id in self.touched.drain(..) {
            self.n_samples[usize::from(id)] = 0;
        }
    }

    /// Adds samples if they count for a team or a relabel rule.
    #[inline]
    pub(crate) fn add(&mut self, attribution: Attribution, n_samples: u64) {
        // Fast path: no team and no relabel rule.
        if attribution != Attribution::default() {
            self.add_any(attribution, n_samples);
        }
    }

    /// Removes samples that [`AttributedSamples::add`] added.
    pub(crate) fn remove(&mut self, attribution: Attribution, n_samples: u64) {
        if attribution != Attribution::default() {
            // The id stays in `touched`, even twice if samples are added again: what is left is
            // drained once.
            self.n_samples[usize::from(attribution.0)] -= n_samples;
        }
    }

    /// Adds samples, even if they count for no team and no relabel rule.
    pub(crate) fn add_any(&mut self, Attribution(id): Attribution, n_samples: u64) {
        if n_samples == 0 {
            return;
        }
        let idx = usize::from(id);
        if idx >= self.n_samples.len() {
            self.n_samples.resize(idx + 1, 0);
        }
        if self.n_samples[idx] == 0 {
            self.touched.push(id);
        }
        self.n_samples[idx] += n_samples;
    }
}

/// Maximum number of combinations of a team and a set of relabel rules that are counted separately.
const ATTRIBUTIONS_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::TeamNames;

    #[test]
    fn beyond_the_maximum_the_last_rule_counts() {
        let n_rules = 15;
        let attributions = Attributions::new(n_rules);
        let sets = (1_u32..1 << n_rules).map(|bits| {
            (0..n_rules as u16)
                .filter(|idx| bits >> idx & 1 == 1)
                .collect::<Vec<_>>()
        });
        let all: Vec<_> = sets
            .map(|rules| (attributions.of(Team::NONE, &rules), rules))
            .collect();
        assert!(
            all.iter()
                .all(|(attribution, _)| usize::from(attribution.0) < ATTRIBUTIONS_MAX)
        );
        let (last, rules) = &all[all.len() - 1];
        assert_eq!(
            (*last, rules.len()),
            (attributions.of(Team::NONE, &[14]), 15)
        );
    }

    #[test]
    fn samples_count_for_teams_and_every_team_has_an_attribution() {
        let attributions = Attributions::new(1);
        let mut names = TeamNames::default();
        let teams = ["x", "y"].map(|name| names.get(name, |_| false));
        let mut samples = AttributedSamples::default();
        for (team, rules, n) in [
            (teams[0], &[][..], 1),
            (teams[0], &[0], 2),
            (teams[1], &[], 4),
            (Team::NONE, &[0], 8),
        ] {
            samples.add(attributions.of(team, rules), n);
        }
        let mut by_team = Vec::new();
        let mut of_rule = 0;
        attributions.count(&mut samples, &mut by_team);
        assert_eq!(by_team, [(teams[0], 1), (teams[0], 2), (teams[1], 4)]);
        attributions
            .for_each(|rules, _, n_samples| of_rule += if rules == [0] { n_samples } else { 0 });
        assert_eq!(of_rule, 10);

        by_team.clear();
        for (team, n) in [(teams[1], 1), (Team::NONE, 2), (teams[1], 4)] {
            samples.add_any(attributions.of(team, &[]), n);
        }
        attributions.by_team(&mut samples, &mut by_team);
        assert_eq!(by_team, [(Team::NONE, 2), (teams[1], 5)]);

        for rule in 1..=ATTRIBUTIONS_MAX as u16 {
            assert_eq!(
                attributions.team_of(attributions.of(teams[0], &[rule, rule + 1])),
                teams[0]
            );
        }
        let newest = names.get("newest", |_| false);
        assert_eq!(
            attributions.team_of(attributions.of(newest, &[0, 1])),
            newest
        );
    }
}
