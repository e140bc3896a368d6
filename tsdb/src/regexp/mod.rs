//! Regular expressions as Prometheus reads them: Go's syntax, anchored at both ends, `.` matches newlines.
//!
//! `syntax` reads the pattern by Go's rules, with Go's messages, into the same tree that the crate `regex` works on.
//! `shape` looks at the tree: most label matchers are lists of literals, prefixes or the like and need no automaton.
//! What does is compiled when it is first used, or, where it could turn out too large, at once. `rewrite` fills in
//! templates with what the groups of a pattern match.

mod class;
mod rewrite;
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
    /// Only for [`Shape::Other`].
    automaton: Automaton,
}

/// Why a text is not a regular expression, in the words of Go's `regexp` package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct RegexpError(pub String);

impl Regexp {
    /// Reads a pattern. Cost: linear in its size, but for the few that are so large that they are compiled at once.
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

    /// Returns the pattern that only `text` matches.
    #[must_use]
    pub fn escape(text: &str) -> String {
        regex_syntax::escape(text)
    }

    /// Tells whether the whole of `text` matches.
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

    /// Returns the literals, sorted, if the pattern is a finite set of them, as in `a|b|c` or `node-[0-9]`.
    ///
    /// `None` does not mean that there is no such set: large products such as `[a-z][a-z][a-z]` are not written out.
    #[must_use]
    pub fn literals(&self) -> Option<&[String]> {
        match &self.shared.shape {
            Shape::Literals(literals) => Some(literals.as_slice()),
            _ => None,
        }
    }

    /// Tells whether the pattern is `.*`, which every text matches. Others may match every text too.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        matches!(&self.shared.shape, Shape::Affixes(affixes) if affixes.matches_all())
    }

    /// Returns literal text that every match begins with; it may be empty.
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

/// The automaton of a pattern, made when it is first needed.
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

/// Patterns of up to so many states are compiled when they are first used. A state takes at most some 100 bytes, so that
/// this is far from [`AUTOMATON_SIZE_MAX`].
const LAZY_STATES_MAX: u64 = 20_000;

/// The size limit of one automaton, in bytes.
const AUTOMATON_SIZE_MAX: usize = 32 << 20;

/// Printing a tree puts groups around some of its nodes.
const PRINTED_DEPTH_MAX: u32 = 4 * syntax::DEPTH_MAX as u32;

#[cfg(test)]
mod tests;
