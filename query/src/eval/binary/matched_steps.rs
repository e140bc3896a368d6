//! The steps at which vector matching has results.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use varve_context::Charge;
use varve_model::Labels;
use varve_promql::ast::Cardinality;

use crate::error::{Error, Result};
use crate::eval::columns::StepSet;

/// The steps at which a signature has results: one set if the match is one-to-one, otherwise one
/// per label set.
pub(super) struct MatchedSteps {
    pub(super) steps: HashMap<Option<Labels>, StepSet>,
    /// The memory of `steps`, unless the match is one-to-one.
    pub(super) charge: Charge,
}

impl MatchedSteps {
    /// Adds the steps of a result. Fails if one of the steps already has a result.
    pub(super) fn add(
        &mut self,
        cardinality: Cardinality,
        labels: &Labels,
        steps: &StepSet,
        n_steps: usize,
    ) -> Result<()> {
        let (key, rule) = match cardinality {
            Cardinality::OneToOne => (
                None,
                "many-to-one matching must be explicit (group_left/group_right)",
            ),
            _ => (
                Some(labels.clone()),
                "grouping labels must ensure unique matches",
            ),
        };
        let size =
            labels.size() + StepSet::size(n_steps) + 2 * size_of::<(Option<Labels>, StepSet)>();
        match self.steps.entry(key) {
            Entry::Occupied(known) if known.get().overlaps(steps) => Err(Error::Execution(
                format!("multiple matches for labels: {rule}"),
            )),
            Entry::Occupied(mut known) => {
                known.get_mut().union_with(steps);
                Ok(())
            }
            Entry::Vacant(free) => {
                if free.key().is_some() {
                    self.charge.grow(size)?;
                }
                free.insert(steps.clone());
                Ok(())
            }
        }
    }
}
