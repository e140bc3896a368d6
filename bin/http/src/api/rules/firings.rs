//! When the alerts of a backtest fired.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use varve_context::Charge;
use varve_model::Labels;
use varve_rules::{Alert, Group};
use varve_wire::api::backtest::Firing;

use crate::error::Result;
use crate::serving::run::Work;

/// Approximate memory of a label of a period besides its strings.
const LABEL_SIZE: usize = 64;

/// Periods of firing of a group's rules, which are numbered.
pub(super) struct Firings {
    open: BTreeMap<(usize, Labels), Open>,
    ended: Vec<Vec<Firing>>,
    /// Number of periods that may still be added.
    pub(super) left: usize,
    pub(super) charge: Charge,
}

struct Open {
    active_at_ms: i64,
    fired_at_ms: i64,
    is_continued: bool,
}

impl Firings {
    pub(super) fn new(work: &Work, group: &Group, left: usize) -> Self {
        let ended = group.rules.iter().map(|_| Vec::new()).collect();
        Self {
            open: BTreeMap::new(),
            ended,
            left,
            charge: work.ctx.charge(),
        }
    }

    /// Notes a firing alert of a rule after its evaluation at a time. As in a live server, alerts
    /// continue if the evaluation has failed.
    ///
    /// # Errors
    /// If memory is exhausted.
    pub(super) fn note(&mut self, rule_idx: usize, alert: &Alert, time_ms: i64) -> Result<()> {
        match self.open.entry((rule_idx, alert.labels.clone())) {
            Entry::Occupied(mut entry) => entry.get_mut().is_continued = true,
            Entry::Vacant(entry) => {
                self.charge.grow_without_waiting(open_size(&alert.labels))?;
                entry.insert(Open {
                    active_at_ms: alert.active_at.ms(),
                    fired_at_ms: time_ms,
                    is_continued: true,
                });
            }
        }
        Ok(())
    }

    /// Ends the alerts that [`Firings::note`] did not get at this time.
    pub(super) fn end_others(&mut self, time_ms: i64) -> Result<()> {
        let ended: Vec<_> = self
            .open
            .extract_if(.., |_, open| !std::mem::take(&mut open.is_continued))
            .collect();
        for ((rule_idx, labels), open) in ended {
            self.end(rule_idx, &labels, &open, time_ms)?;
        }
        Ok(())
    }

    /// Returns the periods by rule. Those of alerts that still fire have no end.
    pub(super) fn finish(&mut self) -> Result<Vec<Vec<Firing>>> {
        for ((rule_idx, labels), open) in std::mem::take(&mut self.open) {
            self.end(rule_idx, &labels, &open, 0)?;
        }
        for firings in &mut self.ended {
            firings.sort_by_key(|firing| firing.fired_at_ms);
        }
        Ok(std::mem::take(&mut self.ended))
    }

    fn end(
        &mut self,
        rule_idx: usize,
        labels: &Labels,
        open: &Open,
        resolved_at_ms: i64,
    ) -> Result<()> {
        self.charge.shrink(open_size(labels));
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(());
        };
        self.left = left;
        self.charge
            .grow(labels.size() + labels.len() * LABEL_SIZE + size_of::<Firing>())?;
        self.ended[rule_idx].push(Firing {
            labels: labels
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            active_at_ms: open.active_at_ms,
            fired_at_ms: open.fired_at_ms,
            resolved_at_ms,
        });
        Ok(())
    }
}

/// Returns about the memory of an alert that fires. Its labels outlive the alert.
fn open_size(labels: &Labels) -> usize {
    2 * size_of::<((usize, Labels), Open)>() + labels.size()
}
