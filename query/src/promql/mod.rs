//! The PromQL language: parses text to a checked syntax tree, and prints trees.
//!
//! ```text
//! text -> lexer -> tokens -> parser -> tree -> check -> Expr -> plan
//!                                                        |-> printer, pretty -> text
//!                                                        '-> json
//! ```
//!
//! The language, the error messages and the printed text are those of Prometheus 3.14; docs/decisions/0002 explains why Varve
//! has its own parser.
//!
//! Invariants
//! 1. An error is the first error that Prometheus reports for the text, with the same line and column.
//! 2. Parsing stops at the first error. Types are checked only if the syntax is valid.
//! 3. In a tree that `parse` returns, the numbers and types of all arguments are valid, and a `Binary` has a matching
//!    if and only if both operands are vectors.
//! 4. All recursion is bounded by [`DEPTH_MAX`]. A chain of operators, `a or b or c`, leans to the left and may be
//!    longer. Code that walks a chain uses [`ast::Binary::chain`] instead of recursing.

pub mod ast;
mod chain;
mod check;
pub(crate) mod duration;
mod error;
mod features;
pub mod functions;
mod json;
mod lexer;
mod number;
mod parser;
mod pretty;
mod printer;
pub(crate) mod quote;
mod selectors;
mod token;
mod value_type;

pub use error::ParseError;
pub(crate) use error::Position;
pub use features::{Features, Limits};
pub use json::to_json;
pub use parser::parse_selector;
pub use pretty::prettify;
pub use printer::print;
pub use quote::quoted;
pub use selectors::selectors;

use ast::Expr;

/// Maximum size of a query in bytes.
pub const QUERY_SIZE_MAX: usize = 1 << 20;

/// Maximum nesting depth: parentheses, arguments, subqueries, right sides of operators.
pub const DEPTH_MAX: usize = 256;

/// Maximum number of operators in a chain such as `a + b + c`.
pub const CHAIN_LEN_MAX: usize = 1 << 14;

/// Maximum number of operators, calls and numbers in a duration expression.
pub const DURATION_LEN_MAX: usize = 256;

/// Parses and checks an expression.
///
/// # Errors
/// The first [`ParseError`].
pub fn parse(text: &str, features: &Features) -> Result<Expr, ParseError> {
    let expr = parser::parse_expression(text, features)?;
    check::check(text, &expr)?;
    Ok(expr)
}

#[cfg(test)]
mod tests;
