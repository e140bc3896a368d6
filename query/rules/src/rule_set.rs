//! All groups, and their reload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::alerts_max::AlertsMax;
use crate::file::RuleFile;
use crate::group::{Group, GroupSettings, RemovedGroup};
use crate::time::Time;

/// All groups, by file and name.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    groups: BTreeMap<(Arc<str>, String), Arc<Group>>,
}

/// The difference between two rule sets.
#[derive(Debug)]
pub struct RuleSetChange {
    set: RuleSet,
    /// Groups and their successors.
    changed: Vec<(Arc<Group>, Arc<Group>)>,
    removed: Vec<Arc<Group>>,
}

impl RuleSet {
    /// Iterates over the groups by file and name.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.values()
    }

    /// Returns the change to the rules of `files`. Groups that stay the same are kept. With
    /// `restores`, the alerts of new groups are restored.
    #[must_use]
    pub fn change_to(
        &self,
        files: Vec<(Arc<str>, RuleFile)>,
        default_interval: Duration,
        restores: bool,
        alerts_max: &Arc<AlertsMax>,
    ) -> RuleSetChange {
        let mut change = RuleSetChange {
            set: Self::default(),
            changed: Vec::new(),
            removed: Vec::new(),
        };
        for (path, file) in files {
            for definition in file.groups {
                let key = (Arc::clone(&path), definition.name.clone());
                let new = Arc::new(Group::new(
                    Arc::clone(&path),
                    definition,
                    default_interval,
                    restores,
                    alerts_max,
                ));
                let kept = match self.groups.get(&key) {
                    Some(old) if old.is_same(&new) => Arc::clone(old),
                    Some(old) => {
                        change.changed.push((Arc::clone(old), Arc::clone(&new)));
                        new
                    }
                    None => new,
                };
                change.set.groups.insert(key, kept);
            }
        }
        change.removed = self
            .groups
            .iter()
            .filter(|(key, _)| !change.set.groups.contains_key(key))
            .map(|(_, group)| Arc::clone(group))
            .collect();
        change
    }
}

impl RuleSetChange {
    /// Stops changed and removed groups, waits for their evaluations, and carries state over.
    /// Returns the new set, and the series of removed groups.
    #[must_use]
    pub fn apply(self, now: Time, settings: &GroupSettings) -> (RuleSet, Vec<RemovedGroup>) {
        // All groups end at the same time, so that a reload waits only for the slowest rule.
        for group in self.changed.iter().map(|(old, _)| old).chain(&self.removed) {
            group.stop();
        }
        for (old, new) in &self.changed {
            old.join();
            new.carry_over(old);
        }
        let mut removed = Vec::with_capacity(self.removed.len());
        for group in &self.removed {
            group.join();
            removed.push(group.removed(now, settings));
        }
        (self.set, removed)
    }
}
