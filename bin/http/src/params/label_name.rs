//! Label names in paths.

/// Unescapes a label name in a path: `U__a_2e_b` is `a.b`. A name with invalid escapes stays
/// unchanged.
pub(crate) fn unescape_label_name(name: &str) -> String {
    unescape_value_encoding(name).unwrap_or_else(|| name.to_owned())
}

fn unescape_value_encoding(name: &str) -> Option<String> {
    const HEX_DIGITS_MAX: usize = 6;
    let mut rest = name.strip_prefix("U__")?;
    let mut plain = String::with_capacity(rest.len());
    while let Some(start) = rest.find('_') {
        plain.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let end = rest.find('_')?;
        let code = &rest[..end];
        if code.is_empty() {
            plain.push('_');
        } else if code.len() < HEX_DIGITS_MAX && code.bytes().all(|b| b.is_ascii_hexdigit()) {
            plain.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
        } else {
            return None;
        }
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    Some(plain)
}
