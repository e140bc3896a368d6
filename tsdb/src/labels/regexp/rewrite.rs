//! Expanding a template with the groups of a regular expression, as `label_replace` and relabelling do.

use regex::{Captures, Regex};

use super::syntax::{self, Groups};
use super::{RegexpError, anchored, compile};

/// An anchored regular expression and a template.
#[derive(Debug, Clone)]
pub struct Rewrite {
    regex: Regex,
    /// The name of each group, from the first one on. Go allows two groups with the same name, the crate `regex` does
    /// not, so names are kept only here.
    names: Vec<Option<String>>,
    template: String,
}

impl Rewrite {
    /// Parses a pattern in Go's syntax and a template as in Go's `Regexp.Expand`: `$1`, `$name` and `${name}` stand for
    /// groups, `$$` for a dollar sign.
    ///
    /// # Errors
    /// [`RegexpError`] as [`Regexp::parse`](super::Regexp::parse); any template is valid.
    pub fn parse(pattern: &str, template: &str) -> Result<Self, RegexpError> {
        let syntax = syntax::parse(pattern, Groups::Keep)?;
        let too_large = |_| RegexpError(format!("expression too large: `{pattern}`"));
        let regex = compile(&anchored(syntax.hir)).map_err(too_large)?;
        Ok(Self { regex, names: syntax.group_names, template: template.to_owned() })
    }

    /// Returns the expanded template if all of `text` matches. A group that does not participate or exist is empty; a
    /// dollar sign that begins no reference stands for itself.
    #[must_use]
    pub fn apply(&self, text: &str) -> Option<String> {
        let groups = self.regex.captures(text)?;
        let mut out = String::new();
        let mut rest = self.template.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            rest = after;
            if let Some(after) = after.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((name, after)) = reference(after) {
                out.push_str(self.group(&groups, name).unwrap_or(""));
                rest = after;
            } else {
                out.push('$');
            }
        }
        out.push_str(rest);
        Some(out)
    }

    fn group<'t>(&self, groups: &Captures<'t>, name: &str) -> Option<&'t str> {
        let text = |number: usize| groups.get(number).map(|group| group.as_str());
        // A number with a leading zero is a name.
        let is_number = name == "0" || !name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit());
        if is_number {
            return text(name.parse().ok()?);
        }
        let named = self.names.iter().zip(1..).filter(|(of_group, _)| of_group.as_deref() == Some(name));
        named.map(|(_, number)| text(number)).find(Option::is_some)?
    }
}

/// Splits off the name of a group.
fn reference(text: &str) -> Option<(&str, &str)> {
    let word = |text: &str| text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len());
    let (name, rest) = match text.strip_prefix('{') {
        Some(text) => {
            let (name, rest) = text.split_at(word(text));
            (name, rest.strip_prefix('}')?)
        }
        None => text.split_at(word(text)),
    };
    (!name.is_empty()).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, template: &str, text: &str, expect: Option<&str>) {
        let rewrite = Rewrite::parse(pattern, template).unwrap();
        assert_eq!(rewrite.apply(text).as_deref(), expect, "{pattern} {template} {text}");
    }

    #[test]
    fn templates_refer_to_groups_by_name_and_number() {
        let pattern = "(?P<first>a+)(b)?(c)";
        check(pattern, "x-$1-$3", "aac", Some("x-aa-c"));
        check(pattern, "${1}x$first", "aac", Some("aaxaa"));
        check(pattern, "$1x|$2|$9|$01|$0", "aac", Some("|||||aac").map(|s| &s[1..]));
        check(pattern, "$$1 $ ${ ${1 $-", "aac", Some("$1 $ ${ ${1 $-"));
        check(pattern, "$1", "xaac", None);
    }

    #[test]
    fn of_groups_with_one_name_the_first_that_participates_is_used() {
        check("(?P<n>a)|(?P<n>b)", "<$n>", "b", Some("<b>"));
    }

    #[test]
    fn greediness_decides_what_a_group_matches() {
        check("(.*)(-.*)?", "$1", "a-b", Some("a-b"));
        check("(.*?)(-.*)?", "$1", "a-b", Some("a"));
        check("(?U)(.*)(-.*)?", "$1", "a-b", Some("a"));
        check("(?U:(a*?))(.*)", "$1", "aab", Some("aa"));
        check("((a)|b)+", "$1$2", "ab", Some("ba"));
        check("(a|ab)(c|bcd)?(d*)", "$1,$2,$3", "abcd", Some("a,bcd,"));
    }

    #[test]
    fn patterns_that_go_rejects_are_rejected() {
        assert_eq!(Rewrite::parse("(", "").unwrap_err().to_string(), "error parsing regexp: missing closing ): `(`");
    }
}
