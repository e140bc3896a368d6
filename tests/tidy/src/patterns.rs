//! Patterns that pack code, and how to count them.

use crate::source::{Token, group_len, texts_start_with};

/// A name and what counts its occurrences in the tokens of a file.
pub(crate) type Pattern = (&'static str, fn(&[Token<'_>]) -> usize);

pub(crate) const PATTERNS: [Pattern; 8] = [
    ("tuple lets", tuple_lets),
    ("tuple parameters", tuple_parameters),
    ("closures bound by let", bound_closures),
    ("for_each", for_each),
    ("filter(|_|", ignoring_filters),
    ("match on a bool", bool_matches),
    ("nested Option or Result", nested_options),
    ("variables named of", variables_named_of),
];

fn count(tokens: &[Token<'_>], is_match: impl Fn(&[Token<'_>]) -> bool) -> usize {
    (0..tokens.len())
        .filter(|&start| is_match(&tokens[start..]))
        .count()
}

/// `let (a, b) = (c, d);`: two statements on one line.
fn tuple_lets(tokens: &[Token<'_>]) -> usize {
    count(tokens, |tokens| {
        let pattern = if texts_start_with(tokens, &["let", "mut"]) {
            2
        } else {
            1
        };
        if tokens[0].text != "let" || tokens.get(pattern).is_none_or(|token| token.text != "(") {
            return false;
        }
        let after = pattern + group_len(&tokens[pattern..]);
        texts_start_with(&tokens[after..], &["=", "("])
    })
}

/// `fn f((a, b): (A, B))`: two parameters without names at the call.
fn tuple_parameters(tokens: &[Token<'_>]) -> usize {
    crate::source::functions(tokens)
        .iter()
        .map(|function| {
            let parameters = function.parameters;
            (0..parameters.len())
                .filter(|&start| {
                    let begins = start == 0 || parameters[start - 1].text == ",";
                    let is_tuple = begins && parameters[start].text == "(";
                    let after = start + group_len(&parameters[start..]);
                    is_tuple && texts_start_with(&parameters[after..], &[":"])
                })
                .count()
        })
        .sum()
}

fn bound_closures(tokens: &[Token<'_>]) -> usize {
    count(tokens, |tokens| {
        if tokens[0].text != "let" {
            return false;
        }
        let head = &tokens[..tokens.len().min(6)];
        let Some(equals) = head.iter().position(|token| token.text == "=") else {
            return false;
        };
        let value = tokens.get(equals + 1).map(|token| token.text);
        matches!(value, Some("|" | "||" | "move"))
    })
}

fn for_each(tokens: &[Token<'_>]) -> usize {
    count(tokens, |tokens| {
        texts_start_with(tokens, &[".", "for_each"])
    })
}

/// `.filter(|_| condition)`: an `if` in disguise.
fn ignoring_filters(tokens: &[Token<'_>]) -> usize {
    count(tokens, |tokens| {
        texts_start_with(tokens, &[".", "filter", "(", "|", "_", "|"])
    })
}

fn bool_matches(tokens: &[Token<'_>]) -> usize {
    let is_bool = |text: &str| text == "true" || text == "false";
    count(tokens, |tokens| {
        // The first arm is enough.
        tokens.len() > 2
            && tokens[0].text == "{"
            && is_bool(tokens[1].text)
            && tokens[2].text == "=>"
    })
}

fn nested_options(tokens: &[Token<'_>]) -> usize {
    let nested = |name| [name, "<", name, "<"];
    count(tokens, |tokens| {
        texts_start_with(tokens, &nested("Option")) || texts_start_with(tokens, &nested("Result"))
    })
}

fn variables_named_of(tokens: &[Token<'_>]) -> usize {
    count(tokens, |tokens| {
        tokens.len() > 2
            && ["let", "mut", "for", "|", ",", "(", "&"].contains(&tokens[0].text)
            && tokens[1].text == "of"
            && [":", "=", "|", "in", ",", ")"].contains(&tokens[2].text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;

    #[test]
    fn each_pattern_is_found() {
        let packed = "fn f((a, b): (u8, u8), c: u8) {
            let (x, y) = (a, b);
            let (z, w) = g(a);
            let h = |v| v + 1;
            list.iter().for_each(h);
            option.filter(|_| a);
            match a { true => 1, false => 2 }
            let n: Option<Option<u8>> = None;
            for of in list {}
        }";
        let tokens = source::code(packed);
        for (name, n_matches) in PATTERNS {
            assert_eq!(n_matches(&tokens), 1, "{name}");
        }
    }
}
