//! Series, label names, label values and metadata.

pub(crate) mod labels;
pub(crate) mod metadata;
pub(crate) mod series;

use varve_advise::usage::Requester;
use varve_model::TimeRange;

use crate::error::Result;
use crate::params::Form;

/// The parameters of a listing, and who requested it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Request {
    who: Requester,
    selectors: Vec<String>,
    range: TimeRange,
    limit: usize,
}

impl Request {
    fn read(form: &Form, who: Requester, selectors: Vec<String>) -> Result<Self> {
        let limit = form.limit()?.unwrap_or(usize::MAX);
        Ok(Self {
            who,
            selectors,
            range: form.time_range()?,
            limit,
        })
    }
}
