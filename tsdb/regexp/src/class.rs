//! Character classes: `[a-z]`, `\d`, `\p{Greek}`, `[[:alpha:]]`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::error::RegexpError;
use super::scanner::{Scanner, failure};

/// A parsed class.
pub(crate) struct CharSet {
    /// Upper bound for the number of ranges, before case folding.
    pub(crate) n_ranges: usize,
    /// `None` if the scanner does not build classes.
    pub(crate) class: Option<ClassUnicode>,
}

impl CharSet {
    /// `build` returns the class before its negation, with case folding applied.
    fn new(
        src: &Scanner<'_>,
        n_ranges: usize,
        negated: bool,
        build: impl FnOnce() -> ClassUnicode,
    ) -> Self {
        let class = src.builds.then(|| {
            let mut class = build();
            if negated {
                class.negate();
            }
            class
        });
        Self {
            n_ranges: n_ranges + 1,
            class,
        }
    }

    fn from_table(src: &Scanner<'_>, table: &[(char, char)], negated: bool) -> Self {
        let ranges = table
            .iter()
            .map(|&(low, high)| ClassUnicodeRange::new(low, high));
        Self::new(src, table.len(), negated, || {
            folded(src, ClassUnicode::new(ranges))
        })
    }
}

/// Ranges of brackets are merged when there are more than this plus twice their number after the
/// last merge.
const UNMERGED_RANGES_MAX: usize = 4096;

/// Returns a class with case folding applied, if the pattern ignores case. Cost: linear in the
/// number of characters.
fn folded(src: &Scanner<'_>, mut class: ClassUnicode) -> ClassUnicode {
    if src.flags.fold_case {
        class.case_fold_simple();
    }
    class
}

/// Parses a class in brackets.
pub(crate) fn parse_brackets(src: &mut Scanner<'_>) -> Result<CharSet, RegexpError> {
    let start = src.position;
    src.position += 1;
    let negated = src.eat("^");
    let mut n_ranges = 1;
    let mut ranges = Vec::new();
    let mut n_merged = 0;
    let mut first = true;
    // A bracket in first position is a character.
    while first || !src.eat("]") {
        first = false;
        let item = match parse_posix(src)? {
            None if src.peek() == Some('\\') => parse_escaped(src)?,
            item => item,
        };
        let item = item.map_or_else(|| parse_range(src, start), Ok)?;
        n_ranges += item.n_ranges;
        ranges.extend(item.class.iter().flat_map(ClassUnicode::iter));
        if ranges.len() > 2 * n_merged + UNMERGED_RANGES_MAX {
            ranges = ClassUnicode::new(ranges).ranges().to_vec();
            n_merged = ranges.len();
        }
    }
    let class = src.builds.then(|| {
        // Ranges are folded once, after they are merged: a range of few bytes may have a million
        // characters.
        let mut class = folded(src, ClassUnicode::new(ranges));
        if negated {
            class.negate();
        }
        class
    });
    Ok(CharSet { n_ranges, class })
}

/// Parses a character or `a-z`.
fn parse_range(src: &mut Scanner<'_>, class_start: usize) -> Result<CharSet, RegexpError> {
    let start = src.position;
    let low = parse_char(src, class_start)?;
    let mut high = low;
    // A hyphen in last position is a character.
    if src.rest().len() >= 2 && src.rest().starts_with('-') && !src.rest().starts_with("-]") {
        src.position += 1;
        high = parse_char(src, class_start)?;
        if high < low {
            return Err(failure(
                "invalid character class range",
                &src.pattern[start..src.position],
            ));
        }
    }
    Ok(CharSet::new(src, 1, false, || between(low, high)))
}

fn parse_char(src: &mut Scanner<'_>, class_start: usize) -> Result<u32, RegexpError> {
    match src.peek() {
        None => Err(failure("missing closing ]", &src.pattern[class_start..])),
        Some('\\') => src.escape(),
        Some(c) => {
            src.position += c.len_utf8();
            Ok(u32::from(c))
        }
    }
}

/// Parses `[:name:]`. Returns `None` if there is none.
fn parse_posix(src: &mut Scanner<'_>) -> Result<Option<CharSet>, RegexpError> {
    if src.has_no_posix_end {
        return Ok(None);
    }
    let rest = src.rest();
    let Some(inner) = rest.strip_prefix("[:") else {
        return Ok(None);
    };
    let Some(end) = inner.find(":]") else {
        src.has_no_posix_end = true;
        return Ok(None);
    };
    let text = &rest[..end + 4];
    let name = &rest[2..end + 2];
    let (name, negated) = name
        .strip_prefix('^')
        .map_or((name, false), |name| (name, true));
    let ranges: &[(char, char)] = match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => DIGIT,
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => WORD,
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return Err(failure("invalid character class range", text)),
    };
    src.position += text.len();
    Ok(Some(CharSet::from_table(src, ranges, negated)))
}

/// Parses `\d` and the like, `\pN` or `\p{Greek}`. Returns `None` if the backslash begins something
/// else.
pub(crate) fn parse_escaped(src: &mut Scanner<'_>) -> Result<Option<CharSet>, RegexpError> {
    let (ranges, negated): (&[(char, char)], bool) = match src.rest().as_bytes().get(1) {
        Some(b'd') => (DIGIT, false),
        Some(b'D') => (DIGIT, true),
        Some(b's') => (SPACE, false),
        Some(b'S') => (SPACE, true),
        Some(b'w') => (WORD, false),
        Some(b'W') => (WORD, true),
        Some(b'p') => return parse_property(src, false).map(Some),
        Some(b'P') => return parse_property(src, true).map(Some),
        _ => return Ok(None),
    };
    src.position += 2;
    Ok(Some(CharSet::from_table(src, ranges, negated)))
}

/// Parses the name of a general category or script of Unicode after `\p`.
fn parse_property(src: &mut Scanner<'_>, negated: bool) -> Result<CharSet, RegexpError> {
    let start = src.position;
    let rest = src.rest();
    src.position += 2;
    let name = match src.next_char() {
        Some('{') => {
            let Some(end) = rest.find('}') else {
                return Err(failure("invalid character class range", rest));
            };
            src.position = start + end + 1;
            &rest[3..end]
        }
        Some(c) => &rest[2..2 + c.len_utf8()],
        None => "",
    };
    let (name, inverted) = name
        .strip_prefix('^')
        .map_or((name, false), |name| (name, true));
    let Some(class) = property(name, false) else {
        return Err(failure(
            "invalid character class range",
            &src.pattern[start..src.position],
        ));
    };
    let n_ranges = class.ranges().len();
    let class = if src.builds && src.flags.fold_case {
        property(name, true).unwrap_or(class)
    } else {
        class
    };
    Ok(CharSet::new(src, n_ranges, negated != inverted, || {
        (*class).clone()
    }))
}

/// The general categories and scripts that patterns have used, by name and case folding. There is a
/// fixed number of names.
static PROPERTIES: LazyLock<Mutex<Properties>> = LazyLock::new(Mutex::default);
type Properties = HashMap<(String, bool), Arc<ClassUnicode>>;

/// Finds a general category or script of Unicode, with case folding applied if `fold_case`. Ignores
/// case, spaces, hyphens and underscores in `name`.
fn property(name: &str, fold_case: bool) -> Option<Arc<ClassUnicode>> {
    if name.len() > PROPERTY_NAME_SIZE_MAX
        || !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_- ".contains(&b))
    {
        return None;
    }
    let name: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let mut known = PROPERTIES.lock();
    let key = (name, fold_case);
    if let Some(class) = known.get(&key) {
        return Some(Arc::clone(class));
    }
    let name = &key.0;
    let parse = |kind: &str| regex_syntax::parse(&format!("\\p{{{kind}={name}}}")).ok();
    match parse("gc").or_else(|| parse("sc"))?.into_kind() {
        HirKind::Class(Class::Unicode(mut class)) => {
            if fold_case {
                class.case_fold_simple();
            }
            Some(Arc::clone(known.entry(key).or_insert(Arc::new(class))))
        }
        _ => None,
    }
}

/// Maximum length of the name of a Unicode property. No property has a longer name.
const PROPERTY_NAME_SIZE_MAX: usize = 64;

/// Returns the characters between two code points, without surrogates, which escapes can name.
fn between(low: u32, high: u32) -> ClassUnicode {
    let low = if (0xd800..0xe000).contains(&low) {
        0xe000
    } else {
        low
    };
    let high = if (0xd800..0xe000).contains(&high) {
        0xd7ff
    } else {
        high
    };
    let range = char::from_u32(low)
        .zip(char::from_u32(high))
        .filter(|(low, high)| low <= high);
    ClassUnicode::new(range.map(|(low, high)| ClassUnicodeRange::new(low, high)))
}

const DIGIT: &[(char, char)] = &[('0', '9')];
const SPACE: &[(char, char)] = &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')];
const WORD: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];
