//! PromQL text, up to a checked syntax tree, and back to text.
//!
//! ```text
//! text -> lexer -> tokens -> parser -> tree -> check -> Expr -> plan
//!                                                        |-> printer, pretty -> text
//!                                                        '-> json
//! ```
//!
//! The language, the wording of errors and the printed text are those of Prometheus 3.14; docs/decisions/0002 says why
//! the parser is our own.
//!
//! Invariants
//! 1. An error is the first one that Prometheus would report for the text, with its line and column.
//! 2. Parsing ends at the first error; types are checked only when the syntax is right.
//! 3. A tree that `parse` returns is right in every number and type of arguments, and a `Binary` has a matching exactly
//!    if both its sides are vectors.
//! 4. Everything that recurses is bounded by [`DEPTH_MAX`]. A chain of operators, `a or b or c`, leans to the left and
//!    may be longer than that: whatever walks it goes along [`ast::Binary::chain`] instead of recursing.

pub mod ast;
pub mod functions;

mod chain;
mod check;
mod duration;
mod error;
mod features;
mod json;
mod lexer;
pub(crate) mod number;
mod parser;
mod pretty;
mod printer;
pub(crate) mod quote;
mod selectors;
mod token;

pub use error::ParseError;
pub(crate) use error::Place;
pub use features::{Bounds, Features};
pub use quote::quoted;
pub use selectors::selectors;

use ast::Expr;
use varve_tsdb::Matcher;

/// The longest query text, in bytes.
pub const QUERY_SIZE_MAX: usize = 1 << 20;

/// How deep expressions may be nested: parentheses, arguments, subqueries, right sides of operators.
pub const DEPTH_MAX: usize = 256;

/// How many operators may follow one another in a chain such as `a + b + c`.
pub const CHAIN_LEN_MAX: usize = 1 << 14;

/// How many operators, calls and numbers a duration expression may have.
pub const DURATION_LEN_MAX: usize = 256;

/// Parses and checks an expression.
///
/// # Errors
/// [`ParseError`] for the first thing wrong with it.
pub fn parse(text: &str, features: &Features) -> Result<Expr, ParseError> {
    let expr = parser::parse_expression(text, features)?;
    check::check(text, &expr)?;
    Ok(expr)
}

/// Parses a selector of series as in the parameter `match[]`: `up`, `{job="node"}`, without modifiers.
///
/// As in Prometheus' parser a selector may be without a matcher that excludes the empty string (`{}`); refusing it is
/// up to the caller.
///
/// # Errors
/// [`ParseError`] for the first thing wrong with it.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
    parser::parse_selector(text)
}

/// Returns the text of an expression, on one line. Parsing it gives the same tree, but for the order of matchers.
#[must_use]
pub fn print(expr: &Expr) -> String {
    printer::print(expr)
}

/// Returns the text of an expression with line breaks and indentation where it is long, as `format_query` does.
#[must_use]
pub fn prettify(expr: &Expr) -> String {
    pretty::prettify(expr)
}

/// Returns the tree of an expression as JSON, as `parse_query` does.
#[must_use]
pub fn to_json(expr: &Expr) -> String {
    json::to_json(expr)
}

#[cfg(test)]
mod tests;
