//! The query of a URL, wherever it is: [`Uri`] holds at most 64 KiB.

use std::sync::Arc;

use axum::http::{Extensions, Uri};
use varve_context::Charge;

use crate::error::{ApiError, Result};

/// Maximum size of the query of a request whose parameters are in its URL only.
const SHORT_QUERY_SIZE_MAX: usize = 64 << 10;

/// The query of a URL that is too long for [`Uri`]: an extension of its request. Its bytes are
/// charged until the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct LongQuery(Arc<Charged>);

#[derive(Debug)]
struct Charged {
    query: Vec<u8>,
    _charge: Charge,
}

impl LongQuery {
    /// Creates the extension of a query that `charge` covers.
    pub(crate) fn new(query: Vec<u8>, charge: Charge) -> Self {
        Self(Arc::new(Charged {
            query,
            _charge: charge,
        }))
    }

    /// Returns the query as received, without the `?`.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.query
    }
}

/// Returns the query of the URL of a request. It is empty if there is none.
pub(crate) fn url_query<'r>(uri: &'r Uri, extensions: &'r Extensions) -> &'r [u8] {
    match extensions.get::<LongQuery>() {
        Some(long) => long.bytes(),
        None => uri.query().unwrap_or_default().as_bytes(),
    }
}

/// Returns the query of the URL of a request that has few parameters.
///
/// # Errors
/// If it exceeds [`SHORT_QUERY_SIZE_MAX`]: it would have to be charged and parsed elsewhere.
pub(crate) fn short_url_query<'r>(uri: &'r Uri, extensions: &'r Extensions) -> Result<&'r [u8]> {
    let query = url_query(uri, extensions);
    if query.len() <= SHORT_QUERY_SIZE_MAX {
        Ok(query)
    } else {
        let size = query.len();
        let text = format!("the URL has a query of {size} bytes, more than {SHORT_QUERY_SIZE_MAX}");
        Err(ApiError::bad_data(text).with_limit("URL query size"))
    }
}
