//! Relabelling at the door: rules that rewrite, keep or drop series before they cost anything.
//!
//! A rule is one of Prometheus' relabel configurations (`config`), with its defaults, its regular expressions and its
//! errors; what they do to a label set is in `rule`. Each label set is put through the rules once, when it is first seen;
//! the route cache keeps what came of it, with the [`Verdict`] that says which rules had a hand in it. From then on a
//! sample of a dropped series costs a look-up.
//!
//! A rule in shadow is evaluated and counted where it stands, and changes nothing. One that is armed falls back to that when
//! a query asks for what it drops (`armed`), and stays so, across restarts too (`fallen`).
//!
//! Invariants
//! 1. A verdict belongs to the rules that it was made by: other rules have other keys in the route cache.
//! 2. Verdict 0 is that no rule had a hand in it and that it belongs to no team; there are at most [`VERDICTS_MAX`], and
//!    one for each team besides. Where there would be more, a label set counts for its team and the last of its rules only,
//!    or if that is one too many for its team only.
//!
//! Threads: rules do not change, but that they may fall back once; a request holds those that it began with.

mod builder;
mod config;
mod disabled_rules;
mod footprints;
mod letter_case;
mod rates;
mod rule;

use std::collections::HashMap;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use varve_tsdb::{Labels, Matcher};

pub use config::{RelabelConfig, RelabelError, RuleState};
pub use disabled_rules::FallenRules;
pub use rule::Fallen;

use crate::admission::Team;
use builder::Builder;
use footprints::Dropped;
use rates::Rates;
use rule::Rule;

/// Checked rules, in order.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// What those that are armed have dropped.
    dropped: Dropped,
}

/// What the rules make of a label set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ruled {
    /// It stays, as it was or rewritten.
    Kept(Labels),
    Dropped,
    /// It was rewritten to what is no label set.
    Invalid(varve_tsdb::labels::LabelsError),
}

/// Which team a label set belongs to and which rules had a hand in it, as a number of [`Verdicts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict(u16);

/// What rules have done so far.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleStats {
    /// The rule's name.
    pub name: String,
    /// Whether it counts only, as it is now.
    pub state: RuleState,
    /// Whether it falls back to shadow when somebody asks for what it drops.
    pub armed: bool,
    /// That it has.
    pub fallen: Option<Fallen>,
    /// Label sets that it dropped or changed, or would have, when they were first seen under these rules.
    pub series: u64,
    /// Their samples since then.
    pub samples: u64,
    /// Likewise per second, of late.
    pub samples_per_second: f64,
}

impl Rules {
    /// Checks rules.
    ///
    /// # Errors
    /// The first one that Prometheus would refuse, and why; a name that two rules have; more than [`RULES_MAX`].
    pub fn new(configs: Vec<RelabelConfig>) -> Result<Self, RelabelError> {
        if configs.len() > RULES_MAX {
            return Err(RelabelError(format!("more than {RULES_MAX} rules")));
        }
        let mut rules: Vec<Rule> = Vec::with_capacity(configs.len());
        for (idx, config) in configs.into_iter().enumerate() {
            let rule =
                Rule::new(config, idx).map_err(|RelabelError(reason)| RelabelError(format!("rule {idx}: {reason}")))?;
            if rules.iter().any(|other| other.name == rule.name) {
                return Err(RelabelError(format!("rule {idx}: another rule has the name {:?}", rule.name)));
            }
            rules.push(rule);
        }
        Ok(Self { rules, dropped: Dropped::default() })
    }

    /// Returns what the rules leave of a label set; `None` if they drop it.
    ///
    /// # Errors
    /// If they make of it what is no label set.
    pub fn relabel(&self, labels: &Labels) -> Result<Option<Labels>, varve_tsdb::labels::LabelsError> {
        match self.apply(labels.clone(), &mut Vec::new()) {
            Ruled::Kept(labels) => Ok(Some(labels)),
            Ruled::Dropped => Ok(None),
            Ruled::Invalid(refused) => Err(refused),
        }
    }

    /// Lets the armed rules fall back that have dropped what a selector may ask for, and returns their names.
    pub(crate) fn fall_back(&self, matchers: &[Matcher], fallen: impl Fn() -> Fallen) -> Vec<String> {
        if !self.rules.iter().any(Rule::may_fall) {
            return Vec::new();
        }
        let asked = self.dropped.asked(matchers).into_iter().map(|idx| &self.rules[usize::from(idx)]);
        asked.filter(|rule| rule.fallen.set(fallen()).is_ok()).map(|rule| rule.name.clone()).collect()
    }

    /// Puts a label set through the rules; `acted` gets the rules that had a hand in it.
    pub(crate) fn apply(&self, labels: Labels, acted: &mut Vec<u16>) -> Ruled {
        acted.clear();
        if self.rules.is_empty() {
            return Ruled::Kept(labels);
        }
        let mut builder = Builder::new(&labels);
        for (idx, rule) in (0..).zip(&self.rules) {
            match rule.apply(&mut builder) {
                rule::Effect::None => continue,
                rule::Effect::Drops if rule.state() == RuleState::Enforce => {
                    acted.push(idx);
                    if rule.config.armed {
                        self.dropped.note(idx, rule.looks_at(), &builder);
                    }
                    return Ruled::Dropped;
                }
                rule::Effect::Drops | rule::Effect::Changes => acted.push(idx),
            }
        }
        if !builder.is_changed() {
            return Ruled::Kept(labels);
        }
        match builder.labels() {
            Ok(labels) if labels.is_empty() => Ruled::Dropped,
            Ok(labels) => Ruled::Kept(labels),
            Err(refused) => Ruled::Invalid(refused),
        }
    }
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub(crate) rules: Arc<Rules>,
    pub(crate) verdicts: Arc<Verdicts>,
    /// Counts how often the rules have changed.
    pub(crate) generation: u32,
}

impl Ruling {
    pub(crate) fn new(rules: Rules, generation: u32) -> Self {
        Self { verdicts: Arc::new(Verdicts::new(&rules)), rules: Arc::new(rules), generation }
    }

    /// Returns the same rules, of which some have fallen back: what they have made of label sets counts no more.
    pub(crate) fn anew(&self) -> Self {
        let generation = self.generation.wrapping_add(1);
        Self { rules: Arc::clone(&self.rules), verdicts: Arc::clone(&self.verdicts), generation }
    }
}

/// The teams with the sets of rules that had a hand in their label sets, and how much they had.
#[derive(Debug)]
pub(crate) struct Verdicts {
    known: RwLock<Known>,
    started: Instant,
    rates: Mutex<Rates>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the number of the team, and the rules after that.
    by_cause: HashMap<Box<[u16]>, u16>,
    counts: Vec<Counts>,
}

#[derive(Debug)]
struct Counts {
    team: Team,
    rules: Box<[u16]>,
    series: AtomicU64,
    samples: AtomicU64,
}

impl Verdicts {
    /// Makes one for nothing, and one for each rule alone.
    pub(crate) fn new(rules: &Rules) -> Self {
        let mut known = Known::default();
        known.add(Team::NONE, &[]);
        for (idx, _) in (0..).zip(&rules.rules) {
            known.add(Team::NONE, &[idx]);
        }
        Self { known: RwLock::new(known), started: Instant::now(), rates: Mutex::default() }
    }

    /// Returns the verdict for a team and a set of rules, and counts a label set under it.
    pub(crate) fn of(&self, team: Team, acted: &[u16]) -> Verdict {
        // Fast path: no rule had a hand in it, so there is none to count it for, and it belongs to no team.
        if acted.is_empty() && team == Team::NONE {
            return Verdict(0);
        }
        let read = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&verdict) = read.by_cause.get(&*cause(team, acted)) {
            read.counts[usize::from(verdict)].series.fetch_add(1, Ordering::Relaxed);
            return Verdict(verdict);
        }
        drop(read);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let verdict = known.add(team, acted);
        known.counts[usize::from(verdict)].series.fetch_add(1, Ordering::Relaxed);
        Verdict(verdict)
    }

    /// Counts the samples of a request for the rules, and adds to `by_team` those of teams.
    pub(crate) fn count(&self, tally: &mut Tally, by_team: &mut Vec<(Team, u64)>) {
        self.drain(tally, |counts, n_samples| {
            counts.samples.fetch_add(n_samples, Ordering::Relaxed);
            if counts.team != Team::NONE {
                by_team.push((counts.team, n_samples));
            }
        });
    }

    /// Adds the samples of a request to `by_team`, a team once, and counts nothing.
    pub(crate) fn by_team(&self, tally: &mut Tally, by_team: &mut Vec<(Team, u64)>) {
        self.drain(tally, |counts, n_samples| by_team.push((counts.team, n_samples)));
        by_team.sort_unstable_by_key(|&(team, _)| team);
        by_team.dedup_by(|(other, n), (team, sum)| {
            let is_same = other == team;
            *sum += if is_same { *n } else { 0 };
            is_same
        });
    }

    fn drain(&self, tally: &mut Tally, mut each: impl FnMut(&Counts, u64)) {
        if tally.touched.is_empty() {
            return;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        for verdict in tally.touched.drain(..) {
            each(&known.counts[usize::from(verdict)], std::mem::take(&mut tally.n_samples[usize::from(verdict)]));
        }
    }

    /// Returns the team of a verdict.
    pub(crate) fn team_of(&self, Verdict(verdict): Verdict) -> Team {
        self.known.read().unwrap_or_else(PoisonError::into_inner).counts[usize::from(verdict)].team
    }

    /// Sums up by rule.
    pub(crate) fn stats(&self, rules: &Rules) -> Vec<RuleStats> {
        let mut stats: Vec<_> = rules.rules.iter().map(Rule::stats).collect();
        for Counts { rules, series, samples, .. } in &self.known.read().unwrap_or_else(PoisonError::into_inner).counts {
            for &idx in rules {
                stats[usize::from(idx)].series += series.load(Ordering::Relaxed);
                stats[usize::from(idx)].samples += samples.load(Ordering::Relaxed);
            }
        }
        let counts = stats.iter().map(|of| of.samples).collect();
        let rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner).look(self.started.elapsed(), counts);
        stats.iter_mut().zip(rates).for_each(|(of, rate)| of.samples_per_second = rate);
        stats
    }
}

impl Known {
    fn add(&mut self, team: Team, acted: &[u16]) -> u16 {
        let of_cause = cause(team, acted);
        if let Some(&verdict) = self.by_cause.get(&of_cause) {
            return verdict;
        }
        // There is always room for a team alone: its budget depends on it.
        if self.counts.len() >= VERDICTS_MAX && !acted.is_empty() {
            let last = &acted[acted.len() - 1..];
            return self.by_cause.get(&cause(team, last)).copied().unwrap_or_else(|| self.add(team, &[]));
        }
        let verdict = u16::try_from(self.counts.len()).expect("VERDICTS_MAX and TEAMS_MAX are within 16 bits");
        self.by_cause.insert(of_cause, verdict);
        self.counts.push(Counts { team, rules: acted.into(), series: AtomicU64::new(0), samples: AtomicU64::new(0) });
        verdict
    }
}

fn cause(team: Team, acted: &[u16]) -> Box<[u16]> {
    iter::once(team.number()).chain(acted.iter().copied()).collect()
}

/// Samples of a request by verdict.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    n_samples: Vec<u64>,
    touched: Vec<u16>,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, verdict: Verdict, n_samples: usize) {
        // Fast path: no rule had a hand in it, and it belongs to no team.
        if verdict != Verdict::default() {
            self.add_any(verdict, n_samples);
        }
    }

    /// As [`Tally::add`], of no rule and no team too.
    pub(crate) fn add_any(&mut self, Verdict(verdict): Verdict, n_samples: usize) {
        if n_samples == 0 {
            return;
        }
        let idx = usize::from(verdict);
        if idx >= self.n_samples.len() {
            self.n_samples.resize(idx + 1, 0);
        }
        if self.n_samples[idx] == 0 {
            self.touched.push(verdict);
        }
        self.n_samples[idx] += n_samples as u64;
    }
}

/// The most rules that there can be.
pub const RULES_MAX: usize = 4_096;
/// The most sets of rules, by team, that are told apart.
const VERDICTS_MAX: usize = 16_384;

#[cfg(test)]
mod tests;
