//! A source as tokens, so that no formatter changes what is counted.

use std::collections::BTreeSet;

/// A token and the lines it covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
    pub(crate) last_line: usize,
}

/// A function with a body.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) n_code_lines: usize,
    /// The tokens between the parentheses of its parameters.
    pub(crate) parameters: &'a [Token<'a>],
}

const OPERATORS: [&str; 19] = [
    "..=", "::", "->", "=>", "==", "!=", "<=", ">=", "&&", "||", "..", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=",
];

/// Returns the tokens of a source without comments and without items under `#[cfg(test)]`.
pub(crate) fn code(source: &str) -> Vec<Token<'_>> {
    without_tests(tokens(source))
}

fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let size = token_size(rest, first);
        let (text, after) = rest.split_at(size);
        let n_newlines = text.matches('\n').count();
        if !first.is_whitespace() && !text.starts_with("//") && !text.starts_with("/*") {
            tokens.push(Token {
                text,
                line,
                last_line: line + n_newlines,
            });
        }
        line += n_newlines;
        rest = after;
    }
    tokens
}

/// Returns the size of the token, comment or white space at the beginning of `rest`.
fn token_size(rest: &str, first: char) -> usize {
    let size_while = |is_part: fn(char) -> bool| rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    if first.is_whitespace() {
        return size_while(char::is_whitespace);
    }
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    if let Some(size) = raw_string_size(rest) {
        return size;
    }
    let without_prefix = rest.strip_prefix('b').unwrap_or(rest);
    let prefix = rest.len() - without_prefix.len();
    if let Some(contents) = without_prefix.strip_prefix('"') {
        return prefix + 1 + quoted_size(contents, '"');
    }
    if let Some(contents) = without_prefix.strip_prefix('\'')
        && is_char_literal(contents)
    {
        return prefix + 1 + quoted_size(contents, '\'');
    }
    if first == '\'' {
        let name = &rest[1..];
        return 1 + name.find(|c| !is_word(c)).unwrap_or(name.len());
    }
    if is_word(first) {
        return size_while(is_word);
    }
    let operator = OPERATORS.iter().find(|text| rest.starts_with(**text));
    operator.map_or(first.len_utf8(), |text| text.len())
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// `'a'` and `'\n'` are characters, `'a` is a lifetime.
fn is_char_literal(after_quote: &str) -> bool {
    let mut chars = after_quote.chars();
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

/// Returns the size up to and with the closing quote.
fn quoted_size(contents: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (index, c) in contents.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == quote {
            return index + c.len_utf8();
        }
    }
    contents.len()
}

fn raw_string_size(rest: &str) -> Option<usize> {
    let without_prefix = rest.strip_prefix('b').unwrap_or(rest);
    let after_r = without_prefix.strip_prefix('r')?;
    let n_hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let contents = after_r[n_hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(n_hashes));
    let size = contents
        .find(&end)
        .map_or(contents.len(), |at| at + end.len());
    Some(rest.len() - contents.len() + size)
}

fn without_tests(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = &tokens[..];
    while let Some((first, after)) = rest.split_first() {
        if texts_start_with(rest, &ATTRIBUTE) {
            let item = &rest[ATTRIBUTE.len()..];
            rest = &item[item_len(item)..];
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    kept
}

/// Returns `true` if the tokens begin with these texts.
pub(crate) fn texts_start_with(tokens: &[Token<'_>], texts: &[&str]) -> bool {
    tokens.len() >= texts.len()
        && tokens
            .iter()
            .zip(texts)
            .all(|(token, text)| token.text == *text)
}

/// Returns the number of tokens up to the end of an item: a semicolon outside of braces, or the
/// last brace.
fn item_len(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return index + 1;
                }
            }
            ";" if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the number of tokens of the group that the first token opens, with both ends.
pub(crate) fn group_len(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Returns the number of lines that hold a token.
pub(crate) fn n_code_lines(tokens: &[Token<'_>]) -> usize {
    let lines: BTreeSet<_> = tokens
        .iter()
        .flat_map(|token| token.line..=token.last_line)
        .collect();
    lines.len()
}

/// Returns all functions with a body, nested ones too.
pub(crate) fn functions<'a>(tokens: &'a [Token<'a>]) -> Vec<Function<'a>> {
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        let is_named = tokens.get(start + 1).is_some_and(|token| {
            token
                .text
                .starts_with(|c: char| c == '_' || c.is_alphabetic())
        });
        if tokens[start].text == "fn" && is_named {
            found.extend(function(&tokens[start..]));
        }
    }
    found
}

fn function<'a>(tokens: &'a [Token<'a>]) -> Option<Function<'a>> {
    // A bound such as `F: Fn(&str)` has parentheses before those of the parameters.
    let mut angles = 0;
    let open = tokens.iter().position(|token| {
        match token.text {
            "<" => angles += 1,
            ">" => angles -= 1,
            _ => {}
        }
        token.text == "(" && angles == 0
    })?;
    let after_parameters = open + group_len(&tokens[open..]);
    let parameters = &tokens[open + 1..after_parameters - 1];
    let rest = &tokens[after_parameters..];
    let body = rest
        .iter()
        .position(|token| ["{", ";"].contains(&token.text))?;
    if rest[body].text == ";" {
        return None;
    }
    let end = after_parameters + body + group_len(&rest[body..]);
    Some(Function {
        name: tokens[1].text,
        n_code_lines: n_code_lines(&tokens[..end]),
        parameters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_lifetimes_are_tokens_of_their_kind() {
        let source = "a/* { */'x' '\\'' &'b r#\"\"{\"# b\"\\\"\" // {\nc..=d";
        let texts: Vec<_> = tokens(source).iter().map(|token| token.text).collect();
        let expected = [
            "a",
            "'x'",
            "'\\''",
            "&",
            "'b",
            "r#\"\"{\"#",
            "b\"\\\"\"",
            "c",
            "..=",
            "d",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let source =
            "fn a() {} #[cfg(test)] mod tests { fn b() {} } #[cfg(test)] mod c; fn d(x: u8) {\n}";
        let tokens = code(source);
        let functions = functions(&tokens);
        let names: Vec<_> = functions.iter().map(|function| function.name).collect();
        assert_eq!(names, ["a", "d"]);
        assert_eq!(functions[1].n_code_lines, 2);
        assert_eq!(functions[1].parameters.len(), 3);
    }
}
