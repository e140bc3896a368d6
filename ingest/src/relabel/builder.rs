//! A label set that is being rewritten, like Prometheus' `labels.Builder`. If two labels get the
//! same name, the last in the order of [`Builder::visit`] wins. So base labels, added labels and
//! deleted labels are separate.

use varve_model::Labels;
use varve_model::labels::LabelsError;

#[derive(Debug, Clone)]
pub(super) struct Builder<'a> {
    base: &'a Labels,
    added: Vec<(String, String)>,
    deleted: Vec<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(base: &'a Labels) -> Self {
        Self {
            base,
            added: Vec::new(),
            deleted: Vec::new(),
        }
    }

    /// Returns the value of a label, or an empty string if the label is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        if let Some((_, value)) = self.added.iter().find(|(added, _)| added == name) {
            return value;
        }
        if self.deleted.iter().any(|deleted| deleted == name) {
            ""
        } else {
            self.base.get(name).unwrap_or("")
        }
    }

    /// Sets a label. An empty value deletes it. Returns `true` if the value changes.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        if value.is_empty() {
            return self.delete(name);
        }
        // A label that is set to its current value also counts as added, which changes the order of
        // visits.
        let changes = self.get(name) != value;
        match self.added.iter_mut().find(|(added, _)| added == name) {
            Some((_, old_value)) => *old_value = value.to_owned(),
            None => self.added.push((name.to_owned(), value.to_owned())),
        }
        changes
    }

    /// Deletes a label. Returns `true` if it existed.
    pub(super) fn delete(&mut self, name: &str) -> bool {
        let existed = !self.get(name).is_empty();
        self.added.retain(|(added, _)| added != name);
        if !self.deleted.iter().any(|deleted| deleted == name) {
            self.deleted.push(name.to_owned());
        }
        existed
    }

    /// Returns the labels in the order in which Prometheus visits them: base labels, then added
    /// labels.
    pub(super) fn visit(&self) -> Vec<(String, String)> {
        let mut visited = Vec::new();
        for (name, value) in self.base.iter() {
            let is_deleted = self.deleted.iter().any(|deleted| deleted == name);
            let is_replaced = self.added.iter().any(|(added, _)| added == name);
            if !is_deleted && !is_replaced {
                visited.push((name.to_owned(), value.to_owned()));
            }
        }
        visited.extend(self.added.iter().cloned());
        visited
    }

    /// Returns the labels that another builder has set to other values, and the labels that it has
    /// deleted.
    pub(super) fn changes_to(&self, after: &Self) -> (Vec<(String, String)>, Vec<String>) {
        let set = after
            .visit()
            .into_iter()
            .filter(|(name, value)| self.get(name) != value)
            .collect();
        let deleted = self
            .visit()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| after.get(name).is_empty())
            .collect();
        (set, deleted)
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.added.is_empty() || !self.deleted.is_empty()
    }

    /// Returns the label set.
    pub(super) fn labels(&self) -> Result<Labels, LabelsError> {
        let visited = self.visit();
        let mut pairs: Vec<_> = visited
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Labels::from_unsorted(&mut pairs)
    }
}
