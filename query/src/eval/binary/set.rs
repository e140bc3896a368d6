//! `and`, `or`, `unless`: which series of either side are there at each step.

use hashbrown::HashMap;
use varve_tsdb::Labels;

use super::super::column::Bits;
use super::super::series::{Bounds, Vector};
use super::matching::signature;
use crate::error::Result;
use crate::promql::ast::{BinaryOp, VectorMatching};

/// Combines two vectors; only presence changes, values stay where they are.
pub(super) fn combine(
    op: BinaryOp,
    mut lhs: Vector,
    mut rhs: Vector,
    matching: &VectorMatching,
    n_steps: usize,
    bounds: &Bounds,
) -> Result<Vector> {
    match op {
        BinaryOp::And => keep_matched(&mut lhs, &presence(&rhs, matching, n_steps, bounds)?, matching, true),
        BinaryOp::Unless => keep_matched(&mut lhs, &presence(&rhs, matching, n_steps, bounds)?, matching, false),
        _ => {
            keep_matched(&mut rhs, &presence(&lhs, matching, n_steps, bounds)?, matching, false);
            lhs.append(rhs)?;
            lhs.merge_same_labels()?;
        }
    }
    Ok(lhs)
}

/// Returns for each signature the steps at which any series has it.
fn presence(
    vector: &Vector,
    matching: &VectorMatching,
    n_steps: usize,
    bounds: &Bounds,
) -> Result<HashMap<Labels, Bits>> {
    let mut present = HashMap::new();
    for series in &vector.series {
        bounds.check()?;
        let steps = present.entry(signature(&series.labels, matching)).or_insert_with(|| Bits::none(n_steps));
        steps.unite(&series.column.present);
    }
    Ok(present)
}

/// Keeps of each series the steps at which the other side has its signature, or has not.
fn keep_matched(vector: &mut Vector, other: &HashMap<Labels, Bits>, matching: &VectorMatching, matched: bool) {
    for series in &mut vector.series {
        let present = &mut series.column.present;
        match other.get(&signature(&series.labels, matching)) {
            Some(steps) if matched => present.intersect(steps),
            Some(steps) => present.subtract(steps),
            None if matched => present.subtract(&present.clone()),
            None => {}
        }
    }
    vector.drop_empty();
}
