//! All groups, and their reload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::alerts_max::AlertsMax;
use crate::file::RuleFile;
use crate::group::{Departed, Group, Settings};
use crate::time::Time;

/// Maximum number of rules.
pub const RULES_MAX: usize = 100_000;

/// All groups, by file and name.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    groups: BTreeMap<(Arc<str>, String), Arc<Group>>,
}

/// The difference between two rule sets.
#[derive(Debug)]
pub struct Change {
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

    /// Returns the change to the rules of `files`. Groups that stay the same are kept. With `restores`, the alerts of
    /// new groups are restored.
    ///
    /// # Errors
    /// There are more than [`RULES_MAX`] rules.
    pub fn change_to(
        &self,
        files: Vec<(Arc<str>, RuleFile)>,
        default_interval: Duration,
        restores: bool,
        alerts_max: &Arc<AlertsMax>,
    ) -> Result<Change, String> {
        let mut change = Change { set: Self::default(), changed: Vec::new(), removed: Vec::new() };
        let n_rules: usize = files.iter().flat_map(|(_, file)| &file.groups).map(|group| group.rules.len()).sum();
        if n_rules > RULES_MAX {
            return Err(format!("{n_rules} rules exceed the limit of {RULES_MAX}"));
        }
        for (path, file) in files {
            for definition in file.groups {
                let key = (Arc::clone(&path), definition.name.clone());
                let new = Arc::new(Group::new(Arc::clone(&path), definition, default_interval, restores, alerts_max));
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
        let is_removed = |(key, _): &(&(Arc<str>, String), &Arc<Group>)| !change.set.groups.contains_key(key);
        change.removed = self.groups.iter().filter(is_removed).map(|(_, group)| Arc::clone(group)).collect();
        Ok(change)
    }
}

impl Change {
    /// Stops changed and removed groups, waits for their evaluations, and carries state over. Returns the new set, and
    /// the series of removed groups.
    #[must_use]
    pub fn apply(self, now: Time, settings: &Settings) -> (RuleSet, Vec<Departed>) {
        for (old, new) in &self.changed {
            old.stop();
            new.carry_over(old);
        }
        let depart = |group: &Arc<Group>| {
            group.stop();
            group.depart(now, settings)
        };
        let departed = self.removed.iter().map(depart).collect();
        (self.set, departed)
    }
}
