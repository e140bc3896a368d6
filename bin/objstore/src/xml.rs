//! The few elements of XML responses that a client needs.

use anyhow::{Context, Result};

/// Returns the contents of all elements of a name, in order. They are not nested in each other.
pub(super) fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let open = format!("<{name}>");
    let close = format!("</{name}>");
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&*open)?;
        let (content, after) = after.split_once(&*close)?;
        rest = after;
        Some(content)
    })
}

/// Returns the text of the first element of a name.
pub(super) fn text(xml: &str, name: &str) -> Option<String> {
    elements(xml, name).next().map(unescape)
}

/// Returns the text of the first element of a name.
///
/// # Errors
/// If there is none.
pub(super) fn required(xml: &str, name: &str) -> Result<String> {
    text(xml, name).with_context(|| format!("the response has no {name}"))
}

/// Replaces references to characters. An invalid one stays.
fn unescape(text: &str) -> String {
    let mut parts = text.split('&');
    let mut unescaped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let found = part
            .split_once(';')
            .and_then(|(name, rest)| Some((character(name)?, rest)));
        match found {
            Some((character, rest)) => {
                unescaped.push(character);
                unescaped.push_str(rest);
            }
            None => {
                unescaped.push('&');
                unescaped.push_str(part);
            }
        }
    }
    unescaped
}

fn character(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    })
}

/// Replaces the characters that text must not have.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_in_order() {
        let xml =
            "<L><C><Key>a&amp;b</Key><Size>1</Size></C><C><Key>&#x63;&#100;&bad;</Key></C><T>x";
        let keys: Vec<_> = elements(xml, "C")
            .filter_map(|object| text(object, "Key"))
            .collect();
        assert_eq!(keys, ["a&b", "cd&bad;"]);
        assert_eq!(
            (text(xml, "T"), required(xml, "Size").unwrap()),
            (None, "1".to_owned())
        );
        assert!(required(xml, "None").is_err());
        assert_eq!(unescape(&escape("<\"&\">")), "<\"&\">");
    }
}
