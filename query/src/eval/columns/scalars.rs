//! Scalars: one number per step.

use std::ops::{Deref, DerefMut};

use varve_context::Charge;

use super::limits::Limits;
use crate::error::Result;

/// One number per step, charged to the request's memory until dropped.
#[derive(Debug)]
pub(crate) struct Scalars {
    values: Vec<f64>,
    _charge: Charge,
}

impl Scalars {
    /// Creates `n_steps` numbers, all equal to `value`.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if the query exceeds its memory limit.
    pub(crate) fn constant(value: f64, n_steps: usize, limits: &Limits) -> Result<Self> {
        let charge = limits.charge_column(n_steps)?;
        Ok(Self {
            values: vec![value; n_steps],
            _charge: charge,
        })
    }

    /// Returns the numbers and releases their charge. The caller must charge them.
    pub(crate) fn into_values(self) -> Vec<f64> {
        self.values
    }
}

impl Deref for Scalars {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values
    }
}

impl DerefMut for Scalars {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }
}
