//! String literals: parses them as Prometheus does, and formats them as Go does.

use std::fmt::{self, Write};

/// Returns the bytes of the string literal `literal`, which includes the quotes; `None` if it is
/// malformed.
///
/// Strings in `"` and `'` have Go's escapes. Strings in backquotes have no escapes.
#[must_use]
pub fn unquote(literal: &str) -> Option<Vec<u8>> {
    let quote = literal.chars().next()?;
    let body = literal.get(1..)?.strip_suffix(quote)?;
    if quote == '`' || !body.contains('\\') {
        return Some(body.as_bytes().to_vec());
    }
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = unescape(&rest[at + 1..], quote, &mut bytes)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

/// Decodes the escape after a backslash, and returns the remaining text.
fn unescape<'q>(text: &'q str, quote: char, bytes: &mut Vec<u8>) -> Option<&'q str> {
    let escape = text.chars().next()?;
    let rest = &text[escape.len_utf8()..];
    let byte = match escape {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        '\'' | '"' if escape == quote => escape as u8,
        'x' => {
            let (code, rest) = digits(rest, 2, 16)?;
            bytes.push(u8::try_from(code).ok()?);
            return Some(rest);
        }
        '0'..='7' => {
            let (code, rest) = digits(text, 3, 8)?;
            bytes.push(u8::try_from(code).ok()?);
            return Some(rest);
        }
        'u' | 'U' => {
            let (code, rest) = digits(rest, if escape == 'u' { 4 } else { 8 }, 16)?;
            let mut utf8 = [0; 4];
            bytes.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut utf8).as_bytes());
            return Some(rest);
        }
        _ => return None,
    };
    bytes.push(byte);
    Some(rest)
}

fn digits(text: &str, len: usize, radix: u32) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(len)?;
    let all_digits = digits.chars().all(|c| c.is_digit(radix));
    all_digits
        .then(|| u32::from_str_radix(digits, radix).ok())?
        .map(|code| (code, rest))
}

/// Writes bytes like Go's `strconv.Quote`: escapes unprintable characters and bytes that are not
/// valid UTF-8.
pub(crate) fn write_quoted(out: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
    out.write_char('"')?;
    for chunk in bytes.utf8_chunks() {
        write_plain(out, chunk.valid())?;
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}")?;
        }
    }
    out.write_char('"')
}

/// Writes characters, and escapes those that need it.
fn write_plain(out: &mut dyn Write, text: &str) -> fmt::Result {
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        if c != '"' && c != '\\' && is_printable(c) {
            continue;
        }
        out.write_str(&text[plain..at])?;
        write_escaped(out, c, '"')?;
        plain = at + c.len_utf8();
    }
    out.write_str(&text[plain..])
}

fn write_escaped(out: &mut dyn Write, c: char, quote: char) -> fmt::Result {
    match c {
        _ if c == quote || c == '\\' => write!(out, "\\{c}"),
        '\x07' => out.write_str("\\a"),
        '\x08' => out.write_str("\\b"),
        '\x0c' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\x0b' => out.write_str("\\v"),
        _ if is_printable(c) => out.write_char(c),
        '\0'..=' ' | '\x7f' => write!(out, "\\x{:02x}", u32::from(c)),
        '\u{80}'..='\u{ffff}' => write!(out, "\\u{:04x}", u32::from(c)),
        _ => write!(out, "\\U{:08x}", u32::from(c)),
    }
}

/// Returns a string in double quotes, escaped like Go's `strconv.Quote`.
#[must_use]
pub fn quoted(text: impl AsRef<[u8]>) -> String {
    let mut out = String::with_capacity(text.as_ref().len() + 2);
    let _ = write_quoted(&mut out, text.as_ref());
    out
}

/// Returns a character in single quotes, like Go's `%q`. The end of the text is shown as the
/// replacement character.
#[must_use]
pub fn quoted_char(c: Option<char>) -> String {
    let mut out = String::from("'");
    let _ = write_escaped(&mut out, c.unwrap_or(char::REPLACEMENT_CHARACTER), '\'');
    out.push('\'');
    out
}

/// Returns the code point of a character, and the character if it is printable, like Go's `%#U`.
#[must_use]
pub fn code_point(c: char) -> String {
    let code = format!("U+{:04X}", u32::from(c));
    if is_printable(c) {
        format!("{code} '{c}'")
    } else {
        code
    }
}

/// Returns `true` if a character is a letter, mark, number, punctuation, symbol or the space, like
/// Go's `unicode.IsPrint`.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library exposes this property only by escaping strings. It does not escape a
    // mark after another character.
    let mut text = [b'a', 0, 0, 0, 0];
    let end = 1 + c.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..end]).expect("consists of characters");
    text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_unquoted_as_in_go() {
        let check = |literal: &str, expect: Option<&[u8]>| {
            assert_eq!(unquote(literal).as_deref(), expect, "{literal}")
        };
        check(r#""a\n\t\\\"b""#, Some(b"a\n\t\\\"b"));
        check(r"'it\'s'", Some(b"it's"));
        check(r"`raw \n`", Some(br"raw \n"));
        check(r#""\x41\101\u00e9\U0001F600""#, Some("AAé😀".as_bytes()));
        check(r#""\xff\377""#, Some(b"\xff\xff"));
        check(r#""\'""#, None);
        check(r#""\ud800""#, None);
        check(r#""\400""#, None);
        check(r#""\x4""#, None);
        check(r#""\u+123""#, None);
    }

    #[test]
    fn bytes_are_quoted_as_in_go() {
        let check = |bytes: &[u8], expect: &str| assert_eq!(quoted(bytes), expect);
        check(b"a\"\\\n\x07\x00\x7f", r#""a\"\\\n\a\x00\x7f""#);
        check("é日😀 a\u{301}".as_bytes(), "\"é日😀 a\u{301}\"");
        check("\u{301}".as_bytes(), "\"\u{301}\"");
        check(
            "\u{a0}\u{200b}\u{ad}\u{e000}\u{10ffff}".as_bytes(),
            r#""\u00a0\u200b\u00ad\ue000\U0010ffff""#,
        );
        check(b"\xff\xc3", r#""\xff\xc3""#);
        assert_eq!(quoted_char(Some('\'')), r"'\''");
        assert_eq!(quoted_char(Some('"')), "'\"'");
        assert_eq!(code_point('d'), "U+0064 'd'");
        assert_eq!(code_point('\n'), "U+000A");
    }
}
