//! Simple forms of patterns that need no automaton: sets of literals, prefixes, suffixes,
//! substrings.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use regex_syntax::hir::{Class, Dot, Hir, HirKind, Look, Repetition};

/// The simplest form of a pattern that decides a match.
#[derive(Debug, PartialEq)]
pub(crate) enum Shape {
    /// `a|b|c`
    Literals(Literals),
    /// `foo.*`, `.*foo`, `foo.+bar`, `.*`, `.+`
    Affixes(Affixes),
    /// `.*foo.*`
    Infix(String),
    /// Begins with a literal. The automaton decides the rest.
    Prefixed(String),
    /// Needs the automaton.
    Other,
}

impl Shape {
    /// Returns the approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Literals(literals) => literals.size(),
            Self::Affixes(affixes) => affixes.prefix.len() + affixes.suffix.len(),
            Self::Infix(text) | Self::Prefixed(text) => text.len(),
            Self::Other => 0,
        }
    }
}

/// Maximum length of a list of literals.
const LITERALS_MAX: usize = 1 << 16;

/// Maximum length of a list of literals that results from a product, as in `[ab][cd]`.
const PRODUCT_MAX: usize = 256;

/// Maximum size of a list of literals in bytes.
const LITERALS_SIZE_MAX: usize = 1 << 20;

/// Longer lists are searched by hash.
const SCAN_MAX: usize = 16;

/// Returns the shape of a pattern and, if an automaton is needed, its tree.
pub(crate) fn shape_of(hir: Hir) -> (Shape, Option<Hir>) {
    let hir = without_outer_anchors(hir);
    if let Some(literals) = literals(&hir) {
        return (Shape::Literals(Literals::new(literals)), None);
    }
    if let Some(shape) = affixes_or_infix(&hir) {
        return (shape, None);
    }
    match prefix(&hir) {
        Some(prefix) => (Shape::Prefixed(prefix), Some(hir)),
        None => (Shape::Other, Some(hir)),
    }
}

/// Removes `^` at the start and `$` at the end, which are implied.
fn without_outer_anchors(hir: Hir) -> Hir {
    if is_look(&hir, Look::Start) || is_look(&hir, Look::End) {
        return Hir::empty();
    }
    if !matches!(hir.kind(), HirKind::Concat(_)) {
        return hir;
    }
    let HirKind::Concat(mut parts) = hir.into_kind() else {
        unreachable!("it is a concatenation: see above")
    };
    let n_starts = parts
        .iter()
        .take_while(|part| is_look(part, Look::Start))
        .count();
    parts.drain(..n_starts);
    while parts.last().is_some_and(|part| is_look(part, Look::End)) {
        parts.pop();
    }
    Hir::concat(parts)
}

fn is_look(hir: &Hir, look: Look) -> bool {
    matches!(hir.kind(), HirKind::Look(found) if *found == look)
}

/// Lists all matching strings, if they are few.
fn literals(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Empty => Some(vec![String::new()]),
        HirKind::Literal(literal) => Some(vec![text_of(&literal.0)?.to_owned()]),
        HirKind::Class(class) if class.is_empty() => Some(Vec::new()),
        HirKind::Class(Class::Unicode(class)) => {
            let n_chars: usize = class.ranges().iter().map(|range| range.len()).sum();
            let chars = class
                .ranges()
                .iter()
                .flat_map(|range| range.start()..=range.end());
            (n_chars <= PRODUCT_MAX).then(|| chars.map(String::from).collect())
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => None,
        HirKind::Repetition(repetition) => repeated(repetition),
        HirKind::Capture(capture) => literals(&capture.sub),
        HirKind::Concat(parts) => parts.iter().try_fold(vec![String::new()], |heads, part| {
            product(heads, literals(part)?)
        }),
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            let mut size = 0;
            for part in parts {
                let more = literals(part)?;
                size += size_of_all(&more);
                all.extend(more);
                if all.len() > LITERALS_MAX || size > LITERALS_SIZE_MAX {
                    return None;
                }
            }
            Some(all)
        }
    }
}

fn repeated(repetition: &Repetition) -> Option<Vec<String>> {
    let max = repetition.max.filter(|&max| max as usize <= PRODUCT_MAX)?;
    let once = literals(&repetition.sub)?;
    let mut all = Vec::new();
    let mut power = vec![String::new()];
    for times in 0..=max {
        if times > 0 {
            power = product(power, once.clone())?;
        }
        if times >= repetition.min {
            all.extend_from_slice(&power);
        }
        if all.len() > PRODUCT_MAX || size_of_all(&all) > LITERALS_SIZE_MAX {
            return None;
        }
    }
    Some(all)
}

fn size_of_all(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

fn product(heads: Vec<String>, tails: Vec<String>) -> Option<Vec<String>> {
    let is_product = heads.len() > 1 && tails.len() > 1;
    let size = size_of_all(&heads) * tails.len() + size_of_all(&tails) * heads.len();
    if is_product && heads.len() * tails.len() > PRODUCT_MAX || size > LITERALS_SIZE_MAX {
        return None;
    }
    if heads.iter().all(String::is_empty) && heads.len() == 1 {
        return Some(tails);
    }
    Some(
        heads
            .iter()
            .flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}")))
            .collect(),
    )
}

fn affixes_or_infix(hir: &Hir) -> Option<Shape> {
    let parts = match hir.kind() {
        HirKind::Concat(parts) => parts.as_slice(),
        _ => std::slice::from_ref(hir),
    };
    let empty = Hir::empty();
    match parts {
        [gap] => affixes(&empty, any(gap)?, &empty),
        [gap, suffix] if any(gap).is_some() => affixes(&empty, any(gap)?, suffix),
        [prefix, gap] => affixes(prefix, any(gap)?, &empty),
        [before, infix, after] if any(before) == Some(0) && any(after) == Some(0) => {
            literal(infix).map(Shape::Infix)
        }
        [prefix, gap, suffix] => affixes(prefix, any(gap)?, suffix),
        _ => None,
    }
}

fn affixes(prefix: &Hir, gap_min: usize, suffix: &Hir) -> Option<Shape> {
    Some(Shape::Affixes(Affixes {
        prefix: literal(prefix)?,
        gap_min,
        suffix: literal(suffix)?,
    }))
}

/// Returns the minimum length of `.*` or `.+`. Returns `None` for other expressions.
fn any(hir: &Hir) -> Option<usize> {
    match hir.kind() {
        HirKind::Repetition(Repetition {
            min: min @ (0 | 1),
            max: None,
            sub,
            ..
        }) => (**sub == Hir::dot(Dot::AnyChar)).then_some(*min as usize),
        _ => None,
    }
}

fn literal(hir: &Hir) -> Option<String> {
    match hir.kind() {
        HirKind::Empty => Some(String::new()),
        HirKind::Literal(literal) => text_of(&literal.0).map(str::to_owned),
        _ => None,
    }
}

fn prefix(hir: &Hir) -> Option<String> {
    match hir.kind() {
        HirKind::Concat(parts) => literal(parts.first()?).filter(|prefix| !prefix.is_empty()),
        _ => None,
    }
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Strings with a prefix, a suffix, and at least `gap_min` characters between them.
#[derive(Debug, PartialEq)]
pub(crate) struct Affixes {
    prefix: String,
    /// 0 or 1. A character is at least a byte.
    gap_min: usize,
    suffix: String,
}

impl Affixes {
    #[inline]
    pub(crate) fn is_match(&self, text: &str) -> bool {
        text.len() >= self.prefix.len() + self.gap_min + self.suffix.len()
            && text.starts_with(&self.prefix)
            && text.ends_with(&self.suffix)
    }

    pub(crate) fn matches_all(&self) -> bool {
        self.prefix.is_empty() && self.gap_min == 0 && self.suffix.is_empty()
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// A sorted set of strings.
#[derive(Debug)]
pub(crate) struct Literals {
    sorted: Vec<String>,
    /// Positions in `sorted` by hash. Empty if the set is small.
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Literals {
    fn new(mut texts: Vec<String>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        let hasher = RandomState::new();
        let mut table = HashTable::new();
        if texts.len() > SCAN_MAX {
            table.reserve(texts.len(), |_| unreachable!("the table is empty"));
            for (idx, text) in (0_u32..).zip(&texts) {
                table.insert_unique(hasher.hash_one(text), idx, |&idx| {
                    hasher.hash_one(&texts[idx as usize])
                });
            }
        }
        Self {
            sorted: texts,
            table,
            hasher,
        }
    }

    #[inline]
    pub(crate) fn contains(&self, text: &str) -> bool {
        if self.table.is_empty() {
            return self.sorted.iter().any(|literal| literal == text);
        }
        self.table
            .find(self.hasher.hash_one(text), |&idx| {
                self.sorted[idx as usize] == text
            })
            .is_some()
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.sorted
            .iter()
            .map(|text| text.len() + size_of::<String>() + 2 * size_of::<u32>())
            .sum()
    }

    pub(crate) fn as_slice(&self) -> &[String] {
        &self.sorted
    }

    /// Returns the common prefix of all strings, which is the common prefix of the first and the
    /// last one.
    pub(crate) fn common_prefix(&self) -> &str {
        let Some(first) = self.sorted.first() else {
            return "";
        };
        let last = self.sorted.last().unwrap_or(first);
        let pairs = first.chars().zip(last.chars());
        let len = pairs
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| a.len_utf8())
            .sum();
        &first[..len]
    }
}

impl PartialEq for Literals {
    fn eq(&self, other: &Self) -> bool {
        self.sorted == other.sorted
    }
}
