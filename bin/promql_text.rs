//! Prints strings and selectors as PromQL.

use varve_query::promql::quoted;
use varve_tsdb::Matcher;
use varve_tsdb::labels::is_legacy_name;

/// Returns a label name, quoted if necessary.
pub(crate) fn label(name: &str) -> String {
    if is_legacy_name(name) { name.to_owned() } else { quoted(name) }
}

/// Returns matchers as a selector.
pub(crate) fn selector<'a>(matchers: impl IntoIterator<Item = &'a Matcher>) -> String {
    let print =
        |matcher: &Matcher| format!("{}{}{}", label(matcher.name()), matcher.op().as_str(), quoted(matcher.value()));
    format!("{{{}}}", matchers.into_iter().map(print).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_query::promql::parse_selector;

    #[test]
    fn printed_selectors_parse() {
        for text in ["{a=\"b\"}", "{__name__=~\"a.*\", \"b.c\"!=\"\\\"\\\\\\n\\x01é\"}"] {
            let matchers = parse_selector(text).unwrap();
            assert_eq!(selector(&matchers), text);
        }
    }
}
