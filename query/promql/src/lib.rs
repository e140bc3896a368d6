//! The PromQL language: parses text to a checked syntax tree, and prints trees.
//!
//! ```text
//! text -> lexer -> tokens -> parser -> tree -> check -> Expr -> plan (in `varve-query`)
//!                                                        |-> print -> text
//!                                                        '-> json
//! ```
//!
//! The language, the error messages and the printed text are those of Prometheus 3.16;
//! docs/decisions/query/0002-own-promql-parser.md explains why Varve has its own parser.
//!
//! Invariants
//! 1. An error is the first error that Prometheus reports for the text, with the same line and
//!    column.
//! 2. Parsing stops at the first error. Types are checked only if the syntax is valid.
//! 3. In a tree that `parse` returns, the numbers and types of all arguments are valid, and a
//!    `Binary` has a matching if and only if both operands are vectors.
//! 4. All recursion is bounded by [`DEPTH_MAX`], and runs on a larger stack for deep queries
//!    ([`deep_stack`]). A chain of operators, `a or b or c`, leans to the left and may be longer.
//!    Code that walks a chain uses [`ast::Binary::chain`] instead of recursing.
//!
//! Used by `varve-query`, which evaluates expressions, and by all crates that read or print them.
//! The crate knows no samples and no HTTP. [`number`] and [`decimal`] parse and print floats as Go
//! does.
#![forbid(unsafe_code)]

pub mod ast;
mod check;
pub mod decimal;
pub mod deep_stack;
pub mod duration;
mod error;
mod features;
pub mod functions;
pub mod json;
mod lexer;
mod limits;
pub mod number;
mod parser;
mod print;
pub mod quote;
mod selectors;
mod token;

pub use error::{Error, ParseError, Position};
pub use features::{Features, Limits};
pub use limits::{CHAIN_LEN_MAX, DEPTH_MAX, DURATION_LEN_MAX, QUERY_SIZE_MAX};
pub use parser::metric::{parse_description, parse_metric};
pub use parser::parse_selector;
pub use print::pretty::{prettify, prettify_within};
pub use print::{print, print_label, print_matchers};
pub use selectors::selectors;

use ast::Expr;
use varve_context::{Charge, QueryContext};

use deep_stack::SHALLOW_DEPTH;

/// Parses and checks an expression.
///
/// # Errors
/// The first [`ParseError`].
pub fn parse(text: &str, features: &Features) -> Result<Expr, ParseError> {
    match parse_within(&QueryContext::unbounded(), text, features) {
        Ok((expr, _)) => Ok(expr),
        Err(Error::Parse(error)) => Err(error),
        // A context without deadline and limits causes no other errors.
        Err(other) => Err(ParseError::new(text, 0, other.to_string())),
    }
}

/// Like [`parse`], within the deadline and the memory limit of a request. Also returns the charge
/// for the memory of the tree and of its plan.
///
/// # Errors
/// [`Error::Parse`] with the first error, and [`Error::Context`].
pub fn parse_within(
    ctx: &QueryContext,
    text: &str,
    features: &Features,
) -> Result<(Expr, Charge), Error> {
    let depth_max = features.limits.depth_max.min(SHALLOW_DEPTH);
    let shallow = Features {
        limits: Limits {
            depth_max,
            ..features.limits
        },
        ..*features
    };
    match parse_on_this_stack(ctx, text, &shallow) {
        Err(Error::Parse(error))
            if error.limit() == Some(parser::NESTING_LIMIT)
                && features.limits.depth_max > depth_max =>
        {
            deep_stack::run(ctx, true, || parse_on_this_stack(ctx, text, features))?
        }
        parsed => parsed,
    }
}

fn parse_on_this_stack(
    ctx: &QueryContext,
    text: &str,
    features: &Features,
) -> Result<(Expr, Charge), Error> {
    let (expr, charge) = parser::parse_expression(text, features, ctx)?;
    ctx.check()?;
    check::check(text, &expr)?;
    ctx.check()?;
    Ok((expr, charge))
}

#[cfg(test)]
mod tests;
