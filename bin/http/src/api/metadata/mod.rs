//! Series, label names, label values and metadata.

pub(crate) mod families;
pub(crate) mod labels;
pub(crate) mod series;

use varve_model::TimeRange;

use crate::error::Result;
use crate::params::{Form, Verbatim};

/// The parameters of a listing.
#[derive(Debug)]
struct Request {
    selectors: Vec<Verbatim>,
    range: TimeRange,
    limit: usize,
}

impl Request {
    fn read(form: &Form, selectors: Vec<Verbatim>) -> Result<Self> {
        let limit = form.limit()?.unwrap_or(usize::MAX);
        Ok(Self {
            selectors,
            range: form.time_range()?,
            limit,
        })
    }
}
