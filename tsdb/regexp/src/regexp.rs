//! A checked pattern, which is compiled at first use, and the cache of compiled patterns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::automaton::Automaton;
use super::error::RegexpError;
use super::request::{MatchRequest, NoRequest, reserve};
use super::shape::{Shape, shape_of};
use super::syntax::{self, Goal, TREE_COPIES};

/// An anchored regular expression. Clones share the compiled form.
#[derive(Debug, Clone)]
pub struct Regexp {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pattern: Box<str>,
    matches_empty: bool,
    tree_size: usize,
    /// Set at first use.
    pub(super) compiled: OnceLock<Arc<Compiled>>,
}

impl Regexp {
    /// Checks a pattern. It is compiled when it is first used.
    ///
    /// # Errors
    /// [`RegexpError`] if Go rejects the pattern.
    pub fn parse(pattern: &str) -> Result<Self, RegexpError> {
        let syntax = syntax::parse(pattern, Goal::Check)?;
        let matches_empty = syntax.matches_empty;
        let tree_size = syntax.tree_size;
        Ok(Self {
            shared: Arc::new(Shared {
                pattern: pattern.into(),
                matches_empty,
                tree_size,
                compiled: OnceLock::new(),
            }),
        })
    }

    /// Returns the pattern that matches only `text`.
    #[must_use]
    pub fn escape(text: &str) -> String {
        regex_syntax::escape(text)
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.shared.pattern
    }

    /// Compiles the pattern if it is not compiled yet. The compiled form is charged to the request
    /// until it ends.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn compile<R: MatchRequest>(&self, request: &R) -> Result<(), R::Error> {
        self.compiled(Some(request)).map(drop)
    }

    fn compiled<R: MatchRequest>(&self, request: Option<&R>) -> Result<&Compiled, R::Error> {
        let Shared {
            pattern,
            tree_size,
            compiled,
            ..
        } = &*self.shared;
        // Fast path: used before.
        if let Some(compiled) = compiled.get() {
            return Ok(compiled);
        }
        let found = CACHE.get(&**pattern);
        let counter = if found.is_some() {
            &N_FOUND
        } else {
            &N_COMPILED
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let compiled_now = match found {
            Some(found) => found,
            None => {
                let new = Arc::new(Compiled::new(pattern, *tree_size, request)?);
                CACHE.insert(pattern.clone(), Arc::clone(&new));
                new
            }
        };
        request.map_or(Ok(()), |request| {
            request.hold_shared(&compiled_now, compiled_now.size)
        })?;
        Ok(compiled.get_or_init(|| compiled_now))
    }

    /// Returns the compiled form. Compiles it without limits unless [`Regexp::compile`] has compiled
    /// it, as it must for patterns of requests.
    fn unlimited(&self) -> &Compiled {
        self.compiled(None::<&NoRequest>)
            .expect("without a request there is no limit")
    }

    /// Returns `true` if all of `text` matches. For patterns of requests, see
    /// [`Regexp::is_match_in`].
    #[must_use]
    #[inline]
    pub fn is_match(&self, text: &str) -> bool {
        self.unlimited()
            .is_match(text, None::<&NoRequest>)
            .expect("without a request there is no limit")
    }

    /// Returns `true` if all of `text` matches. Compiles the pattern as [`Regexp::compile`] does,
    /// and checks the request while it reads long texts.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn is_match_in<R: MatchRequest>(&self, request: &R, text: &str) -> Result<bool, R::Error> {
        self.compiled(Some(request))?.is_match(text, Some(request))
    }

    /// Returns `true` if the empty string matches. Does not compile the pattern.
    #[must_use]
    #[inline]
    pub fn matches_empty(&self) -> bool {
        self.shared.matches_empty
    }

    /// Returns the sorted literals if the pattern is a finite set of them, as in `a|b|c` or
    /// `node-[0-9]`.
    ///
    /// `None` does not mean that there is no such set: large products such as `[a-z][a-z][a-z]` are
    /// not expanded.
    #[must_use]
    pub fn literals(&self) -> Option<&[String]> {
        match &self.unlimited().shape {
            Shape::Literals(literals) => Some(literals.as_slice()),
            _ => None,
        }
    }

    /// Returns `true` if the pattern is `.*`, which matches every string. Other patterns may match
    /// every string too.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        matches!(&self.unlimited().shape, Shape::Affixes(affixes) if affixes.matches_all())
    }

    /// Returns a literal prefix of every match. It may be empty.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match &self.unlimited().shape {
            Shape::Literals(literals) => literals.common_prefix(),
            Shape::Affixes(affixes) => affixes.prefix(),
            Shape::Prefixed(prefix) => prefix,
            Shape::Infix(_) | Shape::Other => "",
        }
    }
}

/// The compiled form of a pattern.
#[derive(Debug)]
pub(super) struct Compiled {
    shape: Shape,
    /// `Some` for [`Shape::Prefixed`] and [`Shape::Other`].
    automaton: Option<Automaton>,
    size: usize,
}

impl Compiled {
    fn new<R: MatchRequest>(
        pattern: &str,
        tree_size: usize,
        request: Option<&R>,
    ) -> Result<Self, R::Error> {
        let _charge = request
            .map(|request| reserve(request, TREE_COPIES * tree_size))
            .transpose()?;
        let syntax = syntax::parse(pattern, Goal::Match)
            .expect("a regular expression holds a checked pattern");
        let (shape, rest) = shape_of(syntax.hir);
        let automaton = rest.map(|hir| Automaton::new(hir, request)).transpose()?;
        let size = size_of::<Self>()
            + 2 * pattern.len()
            + shape.size()
            + automaton.as_ref().map_or(0, Automaton::size);
        Ok(Self {
            shape,
            automaton,
            size,
        })
    }

    fn is_match<R: MatchRequest>(&self, text: &str, request: Option<&R>) -> Result<bool, R::Error> {
        match (&self.shape, &self.automaton) {
            (Shape::Literals(literals), _) => Ok(literals.contains(text)),
            (Shape::Affixes(affixes), _) => Ok(affixes.is_match(text)),
            (Shape::Infix(infix), _) => Ok(text.contains(infix.as_str())),
            (Shape::Prefixed(prefix), _) if !text.starts_with(prefix.as_str()) => Ok(false),
            (Shape::Prefixed(_) | Shape::Other, Some(automaton)) => {
                automaton.is_match(text, request)
            }
            (Shape::Prefixed(_) | Shape::Other, None) => {
                unreachable!("these shapes have an automaton: see shape_of")
            }
        }
    }
}

/// Compiled patterns, by pattern.
static CACHE: LazyLock<Cache<Box<str>, Arc<Compiled>, Size>> =
    LazyLock::new(|| Cache::with_weighter(CACHE_ITEMS, CACHE_SIZE_MAX, Size));
static N_COMPILED: AtomicU64 = AtomicU64::new(0);
static N_FOUND: AtomicU64 = AtomicU64::new(0);

/// Maximum size of all cached patterns in bytes. Each counts with the memory of one search.
pub const CACHE_SIZE_MAX: u64 = 32 << 20;
/// The expected number of cached patterns.
const CACHE_ITEMS: usize = 256;

#[derive(Debug, Clone)]
struct Size;

impl Weighter<Box<str>, Arc<Compiled>> for Size {
    fn weight(&self, _: &Box<str>, compiled: &Arc<Compiled>) -> u64 {
        compiled.size as u64
    }
}

/// Statistics of the cache of compiled patterns, which all stores of the process share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegexpCacheStats {
    /// Patterns that were compiled, since the start of the process.
    pub n_compiled: u64,
    /// Patterns that were found in the cache.
    pub n_found: u64,
    /// Size of the cached patterns in bytes.
    pub size: u64,
}

/// Returns statistics of the cache of compiled patterns.
#[must_use]
pub fn cache_stats() -> RegexpCacheStats {
    RegexpCacheStats {
        n_compiled: N_COMPILED.load(Ordering::Relaxed),
        n_found: N_FOUND.load(Ordering::Relaxed),
        size: CACHE.weight(),
    }
}
