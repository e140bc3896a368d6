//! Regular expressions, compared with the crate `regex` where both languages agree.

use varve_regexp::Regexp;

/// Parses the first line of the input as a pattern and matches the other lines. The results are
/// those of the crate `regex`, and agree with the literals and the prefix of the pattern.
pub fn regexp_parse(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let (pattern, texts) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(regexp) = Regexp::parse(pattern) else {
        return;
    };
    let twin = if is_common(pattern) {
        regex::Regex::new(&format!("^(?s:{pattern})$")).ok()
    } else {
        None
    };
    let literals = regexp.literals().unwrap_or_default();
    let pieces = pattern.split(['|', '(', ')', '.', '*', '+', '?', '[', ']', '^', '$']);
    for text in texts
        .split('\n')
        .chain(pieces)
        .chain(["", pattern])
        .chain(literals.iter().take(50).map(String::as_str))
    {
        let is_match = regexp.is_match(text);
        if let Some(twin) = &twin {
            assert_eq!(is_match, twin.is_match(text), "{pattern:?} and {text:?}");
        }
        if regexp.literals().is_some() {
            assert_eq!(
                is_match,
                literals.iter().any(|literal| literal == text),
                "{pattern:?} and {text:?}"
            );
        }
        assert!(
            !is_match || text.starts_with(regexp.prefix()),
            "{pattern:?} and {text:?}"
        );
        assert!(
            is_match || !regexp.matches_all(),
            "{pattern:?} and {text:?}"
        );
    }
    let escaped = Regexp::parse(&Regexp::escape(text)).expect("an escaped text is a pattern");
    assert!(escaped.is_match(text));
}

/// Returns `true` if a pattern means the same in Go and in Rust: escapes, flags, repetition counts,
/// and classes in which Rust has operators may not.
fn is_common(pattern: &str) -> bool {
    let other = [
        "\\", "(?", "{", "}", "&&", "--", "~~", "[[", "[^[", "[]", "[^]",
    ];
    let n_open = pattern.matches('[').count();
    !other.iter().any(|other| pattern.contains(other))
        && n_open == pattern.matches(']').count()
        && n_open < 2
}
