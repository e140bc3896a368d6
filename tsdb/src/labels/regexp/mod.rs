//! Regular expressions as in Prometheus: Go's syntax, anchored at both ends, `.` matches newlines.
//!
//! `syntax` parses the pattern by Go's rules, with Go's messages, into the tree of the crate `regex`. `shape` analyzes
//! the tree: most label matchers are lists of literals, prefixes or the like and need no automaton. Other patterns are
//! compiled at first use or, if they might become too large, at once. `rewrite` expands templates with the groups of a
//! match.

mod class;
mod rewrite;
mod scanner;
mod shape;
mod syntax;

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, Look};

pub use rewrite::Rewrite;
use shape::Shape;
use syntax::Groups;

/// An anchored regular expression; clones share the compiled form.
#[derive(Debug, Clone)]
pub struct Regexp {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    shape: Shape,
    /// Used only for [`Shape::Other`].
    automaton: Automaton,
}

/// Why a string is not a regular expression, in the words of Go's `regexp` package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct RegexpError(pub String);

impl Regexp {
    /// Parses a pattern. Cost: linear in its size, except for very large patterns, which are compiled at once.
    ///
    /// # Errors
    /// [`RegexpError`] if the pattern is not valid, nests groups and repetitions more than 250 levels deep, or needs an
    /// automaton of more than 32 MiB.
    pub fn parse(pattern: &str) -> Result<Self, RegexpError> {
        let syntax = syntax::parse(pattern, Groups::Drop)?;
        let (shape, rest) = shape::of(syntax.hir);
        let automaton = Automaton { pattern: rest.map(anchored).unwrap_or_default(), compiled: OnceLock::new() };
        if shape == Shape::Other && syntax.states > LAZY_STATES_MAX {
            let too_large = |_| RegexpError(format!("expression too large: `{pattern}`"));
            automaton.compile().map_err(too_large).map(|compiled| automaton.compiled.set(compiled))?.ok();
        }
        Ok(Self { shared: Arc::new(Shared { shape, automaton }) })
    }

    /// Returns the pattern that matches only `text`.
    #[must_use]
    pub fn escape(text: &str) -> String {
        regex_syntax::escape(text)
    }

    /// Returns `true` if all of `text` matches.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        match &self.shared.shape {
            Shape::Literals(literals) => literals.contains(text),
            Shape::Affixes(affixes) => affixes.is_match(text),
            Shape::Infix(infix) => text.contains(infix.as_str()),
            Shape::Prefixed(prefix) => text.starts_with(prefix.as_str()) && self.shared.automaton.is_match(text),
            Shape::Other => self.shared.automaton.is_match(text),
        }
    }

    /// Returns the sorted literals if the pattern is a finite set of them, as in `a|b|c` or `node-[0-9]`.
    ///
    /// `None` does not mean that there is no such set: large products such as `[a-z][a-z][a-z]` are not expanded.
    #[must_use]
    pub fn literals(&self) -> Option<&[String]> {
        match &self.shared.shape {
            Shape::Literals(literals) => Some(literals.as_slice()),
            _ => None,
        }
    }

    /// Returns `true` if the pattern is `.*`, which matches every string. Other patterns may match every string too.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        matches!(&self.shared.shape, Shape::Affixes(affixes) if affixes.matches_all())
    }

    /// Returns a literal prefix of every match; it may be empty.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match &self.shared.shape {
            Shape::Literals(literals) => literals.common_prefix(),
            Shape::Affixes(affixes) => affixes.prefix(),
            Shape::Prefixed(prefix) => prefix,
            Shape::Infix(_) | Shape::Other => "",
        }
    }
}

/// The automaton of a pattern, compiled at first use.
#[derive(Debug)]
struct Automaton {
    /// In the syntax of the crate `regex`, anchored.
    pattern: String,
    compiled: OnceLock<Regex>,
}

impl Automaton {
    fn is_match(&self, text: &str) -> bool {
        let compile = || self.compile().expect("patterns with many states are compiled by Regexp::parse");
        self.compiled.get_or_init(compile).is_match(text)
    }

    fn compile(&self) -> Result<Regex, regex::Error> {
        compile(&self.pattern)
    }
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(AUTOMATON_SIZE_MAX).nest_limit(PRINTED_DEPTH_MAX).build()
}

/// Prints a tree in the syntax of the crate `regex`, anchored at both ends.
fn anchored(hir: Hir) -> String {
    Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]).to_string()
}

/// Patterns of up to this many states are compiled at first use. A state takes at most some 100 bytes, so this is far
/// from [`AUTOMATON_SIZE_MAX`].
const LAZY_STATES_MAX: u64 = 20_000;

/// Maximum size of one automaton in bytes.
const AUTOMATON_SIZE_MAX: usize = 32 << 20;

/// Printing a tree adds groups around some of its nodes.
const PRINTED_DEPTH_MAX: u32 = 4 * syntax::DEPTH_MAX as u32;

#[cfg(test)]
mod tests;
