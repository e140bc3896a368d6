//! Character classes: `[a-z]`, `\d`, `\p{Greek}`, `[[:alpha:]]`.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::RegexpError;
use super::scanner::{Scanner, failure};

/// Parses a class in brackets.
pub(super) fn parse_brackets(src: &mut Scanner<'_>) -> Result<ClassUnicode, RegexpError> {
    let start = src.at;
    src.at += 1;
    let negated = src.eat("^");
    let mut class = ClassUnicode::empty();
    let mut first = true;
    // A bracket in first position is a character.
    while first || !src.eat("]") {
        first = false;
        let item = match parse_posix(src)? {
            Some(item) => Some(item),
            None if src.peek() == Some('\\') => parse_escaped(src)?,
            None => None,
        };
        match item {
            Some(item) => class.union(&item),
            None => class.union(&parse_range(src, start)?),
        }
    }
    if negated {
        class.negate();
    }
    Ok(class)
}

/// Parses a character or `a-z`.
fn parse_range(src: &mut Scanner<'_>, class_start: usize) -> Result<ClassUnicode, RegexpError> {
    let start = src.at;
    let low = parse_char(src, class_start)?;
    let mut high = low;
    // A hyphen in last position is a character.
    if src.rest().len() >= 2 && src.rest().starts_with('-') && !src.rest().starts_with("-]") {
        src.at += 1;
        high = parse_char(src, class_start)?;
        if high < low {
            return Err(failure("invalid character class range", &src.pattern[start..src.at]));
        }
    }
    Ok(folded(src, between(low, high)))
}

fn parse_char(src: &mut Scanner<'_>, class_start: usize) -> Result<u32, RegexpError> {
    match src.peek() {
        None => Err(failure("missing closing ]", &src.pattern[class_start..])),
        Some('\\') => src.escape(),
        Some(c) => {
            src.at += c.len_utf8();
            Ok(u32::from(c))
        }
    }
}

/// Parses `[:name:]`; `None` if there is none.
fn parse_posix(src: &mut Scanner<'_>) -> Result<Option<ClassUnicode>, RegexpError> {
    let rest = src.rest();
    let Some(end) = rest.strip_prefix("[:").and_then(|inner| inner.find(":]")) else { return Ok(None) };
    let text = &rest[..end + 4];
    let name = &rest[2..end + 2];
    let (name, negated) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
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
    src.at += text.len();
    Ok(Some(group(src, ranges, negated)))
}

/// Parses `\d` and the like, `\pN` or `\p{Greek}`; `None` if the backslash begins something else.
pub(super) fn parse_escaped(src: &mut Scanner<'_>) -> Result<Option<ClassUnicode>, RegexpError> {
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
    src.at += 2;
    Ok(Some(group(src, ranges, negated)))
}

/// Parses the name of a general category or script of Unicode after `\p`.
fn parse_property(src: &mut Scanner<'_>, negated: bool) -> Result<ClassUnicode, RegexpError> {
    let start = src.at;
    let rest = src.rest();
    src.at += 2;
    let name = match src.next_char() {
        Some('{') => {
            let Some(end) = rest.find('}') else { return Err(failure("invalid character class range", rest)) };
            src.at = start + end + 1;
            &rest[3..end]
        }
        Some(c) => &rest[2..2 + c.len_utf8()],
        None => "",
    };
    let (name, inverted) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
    let Some(class) = property(name) else {
        return Err(failure("invalid character class range", &src.pattern[start..src.at]));
    };
    let mut class = folded(src, class);
    if negated != inverted {
        class.negate();
    }
    Ok(class)
}

/// Finds a general category or script of Unicode.
fn property(name: &str) -> Option<ClassUnicode> {
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b' ')) {
        return None;
    }
    let parse = |kind: &str| regex_syntax::parse(&format!("\\p{{{kind}={name}}}")).ok();
    match parse("gc").or_else(|| parse("sc"))?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

fn group(src: &Scanner<'_>, ranges: &[(char, char)], negated: bool) -> ClassUnicode {
    let ranges = ranges.iter().map(|&(low, high)| ClassUnicodeRange::new(low, high));
    let mut class = folded(src, ClassUnicode::new(ranges));
    if negated {
        class.negate();
    }
    class
}

/// Adds upper and lower case if the pattern ignores case.
fn folded(src: &Scanner<'_>, mut class: ClassUnicode) -> ClassUnicode {
    if src.flags.fold_case {
        class.case_fold_simple();
    }
    class
}

/// Returns the characters between two code points; surrogates, which escapes can name, are excluded.
fn between(low: u32, high: u32) -> ClassUnicode {
    let low = if (0xd800..0xe000).contains(&low) { 0xe000 } else { low };
    let high = if (0xd800..0xe000).contains(&high) { 0xd7ff } else { high };
    let range = char::from_u32(low).zip(char::from_u32(high)).filter(|(low, high)| low <= high);
    ClassUnicode::new(range.map(|(low, high)| ClassUnicodeRange::new(low, high)))
}

const DIGIT: &[(char, char)] = &[('0', '9')];
const SPACE: &[(char, char)] = &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')];
const WORD: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];
