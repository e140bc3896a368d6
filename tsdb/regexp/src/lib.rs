//! Regular expressions as in Prometheus: Go's syntax, anchored at both ends, `.` matches newlines.
//!
//! `syntax` parses the pattern by Go's rules, with Go's messages and limits, into the tree of the
//! crate `regex-syntax`. `shape` analyzes the tree: most label matchers are lists of literals,
//! prefixes or the like and need no `automaton`. An automaton works on a reduced `alphabet`.
//! `rewrite` expands templates with the groups of a match.
//!
//! Invariants
//! 1. Parsing a pattern only checks it: it takes memory for at most one character per level of
//!    nesting.
//! 2. A pattern is compiled at first use. For a request it is compiled under its deadline, and
//!    charged to it until the request ends. Equal patterns of a request that share a compiled form
//!    are charged once.
//! 3. Equal patterns share a compiled form, as long as it is in the cache of at most
//!    [`CACHE_SIZE_MAX`] bytes.
//!
//! Used by the label matchers of the store, and by all crates that accept patterns. The crate knows
//! no labels. Deadline and memory come through the trait [`MatchRequest`].
#![forbid(unsafe_code)]

mod regexp;
mod rewrite;

mod class;
mod scanner;
mod syntax;

mod alphabet;
mod automaton;
mod shape;

mod error;
mod request;

pub use error::RegexpError;
pub use regexp::{CACHE_SIZE_MAX, Regexp, RegexpCacheStats, cache_stats};
pub use request::{LimitExceeded, MatchRequest};
pub use rewrite::Rewrite;

#[cfg(test)]
mod tests;
