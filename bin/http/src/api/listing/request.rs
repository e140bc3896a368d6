//! The parameters that listings of series and labels share.

use varve_advise::usage::Requester;
use varve_model::TimeRange;

use crate::error::Result;
use crate::params::Form;

/// The parameters of a listing, and who requested it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) who: Requester,
    pub(super) selectors: Vec<String>,
    pub(super) range: TimeRange,
    pub(super) limit: usize,
}

impl Request {
    pub(super) fn read(form: &Form, who: Requester, selectors: Vec<String>) -> Result<Self> {
        let limit = form.limit()?.unwrap_or(usize::MAX);
        Ok(Self {
            who,
            selectors,
            range: form.time_range()?,
            limit,
        })
    }
}
