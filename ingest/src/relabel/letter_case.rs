//! Upper and lower case as in Go: each character maps to one character, independent of its context.

/// Returns a string in lower case.
pub(super) fn lower(string: &str) -> String {
    string
        .chars()
        .map(|c| single(c.to_lowercase()).unwrap_or('i'))
        .collect()
}

/// Returns a string in upper case.
pub(super) fn upper(string: &str) -> String {
    string
        .chars()
        .map(|c| single(c.to_uppercase()).unwrap_or_else(|| simple_upper(c)))
        .collect()
}

/// Returns the letter of a mapping to a single letter, otherwise `None`. `İ` is the only letter
/// whose lower case has several letters.
fn single(mut letters: impl ExactSizeIterator<Item = char>) -> Option<char> {
    if letters.len() == 1 {
        letters.next()
    } else {
        None
    }
}

/// Returns the simple upper case of a letter whose full upper case has several letters.
fn simple_upper(c: char) -> char {
    let upper = match c {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            u32::from(c) + 8
        }
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => u32::from(c) + 9,
        _ => u32::from(c),
    };
    char::from_u32(upper).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_map_one_to_one() {
        for (text, expect) in [
            ("ÀΣΣ İ", "àσσ i"),
            ("abc1", "abc1"),
            ("ὈΔΥΣΣΕΎΣ", "ὀδυσσεύσ"),
        ] {
            assert_eq!(lower(text), expect);
        }
        for (text, expect) in [
            ("straße ŉ", "STRAßE ŉ"),
            ("\u{1fb3}\u{1f80}", "\u{1fbc}\u{1f88}"),
            ("ﬀ", "ﬀ"),
        ] {
            assert_eq!(upper(text), expect);
        }
    }
}
