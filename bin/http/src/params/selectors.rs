//! The selectors of `match[]`.

use varve_context::QueryContext;
use varve_model::Matcher;
use varve_promql::QUERY_SIZE_MAX;

use crate::error::{ApiError, Result};

/// Parses the selectors of `match[]`. Checks the deadline before each selector: a request may have
/// thousands of regular expressions to compile.
///
/// # Errors
/// The errors of [`parse_selector`]; `invalid` if a selector matches series that have none of its
/// labels.
pub(crate) fn parse_selectors(
    ctx: &QueryContext,
    texts: &[String],
    invalid: impl Fn(String) -> ApiError,
) -> Result<Vec<Vec<Matcher>>> {
    let mut selectors = Vec::with_capacity(texts.len());
    for text in texts {
        selectors.push(parse_selector(ctx, text, &invalid)?);
    }
    for matchers in &selectors {
        if matchers.iter().all(Matcher::matches_empty) {
            return Err(invalid(
                "match[] must contain at least one non-empty matcher".to_owned(),
            ));
        }
    }
    Ok(selectors)
}

/// Returns the error of a selector of `match[]` that is invalid.
pub(crate) fn invalid_match(reason: String) -> ApiError {
    ApiError::invalid_parameter("match[]", reason)
}

/// Parses a selector of `match[]`.
///
/// # Errors
/// `invalid` with the reason if the selector does not parse or is too long; the interrupts of the
/// request.
pub(crate) fn parse_selector(
    ctx: &QueryContext,
    text: &str,
    invalid: impl Fn(String) -> ApiError,
) -> Result<Vec<Matcher>> {
    ctx.check()?;
    let size = text.len();
    if size > QUERY_SIZE_MAX {
        let reason = format!("selector of {size} bytes exceeds the limit of {QUERY_SIZE_MAX}");
        return Err(invalid(reason).with_limit("selector size"));
    }
    varve_promql::parse_selector(text).map_err(|error| invalid(error.to_string()))
}
