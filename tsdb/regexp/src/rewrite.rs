//! Expansion of a template with the groups of a regular expression, for `label_replace` and
//! relabeling.

use std::sync::{Arc, LazyLock, OnceLock};

use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::captures::Captures;

use super::alphabet::Alphabet;
use super::automaton::{anchored, in_symbols, within_limit};
use super::error::RegexpError;
use super::regexp::Regexp;
use super::request::{LimitExceeded, MatchRequest, NoRequest, reserve};
use super::syntax::{self, Goal, Syntax, TREE_COPIES};

/// A regular expression and a template.
#[derive(Debug, Clone)]
pub struct Rewrite {
    regexp: Regexp,
    template: String,
    /// Whether only a match of a whole text counts.
    is_anchored: bool,
    /// Set at first use.
    compiled: Arc<OnceLock<Compiled>>,
}

#[derive(Debug)]
struct Compiled {
    regex: Regex,
    alphabet: Option<Alphabet>,
    /// The name of each group, from the first one on. Go allows two groups with the same name. The
    /// crate `regex-automata` does not, so names are kept only here.
    names: Vec<Option<String>>,
    n_instructions: usize,
}

/// Maximum work to find the groups of a text for a request: instructions of Go's program, times
/// bytes of the text.
const WORK_MAX: usize = 1 << 24;
/// States of an automaton per instruction of Go's program.
const STATES_PER_INSTRUCTION: usize = 2;
/// Memory of a search that remembers the visited states, in bytes.
const VISITED_SIZE: usize = 256 << 10;

impl Rewrite {
    /// Parses a pattern in Go's syntax and a template as in Go's `Regexp.Expand`: `$1`, `$name` and
    /// `${name}` stand for groups, `$$` for a dollar sign.
    ///
    /// # Errors
    /// The errors of [`Regexp::parse`](super::Regexp::parse). Any template is valid.
    pub fn parse(pattern: &str, template: &str) -> Result<Self, RegexpError> {
        let regexp = Regexp::parse(pattern)?;
        let template = template.to_owned();
        Ok(Self {
            regexp,
            template,
            is_anchored: true,
            compiled: Arc::default(),
        })
    }

    /// Parses like [`Rewrite::parse`], for [`Rewrite::replace_all_in`]: as in Go, `.` matches no
    /// newline.
    ///
    /// # Errors
    /// The errors of [`Rewrite::parse`].
    pub fn parse_anywhere(pattern: &str, template: &str) -> Result<Self, RegexpError> {
        syntax::parse(pattern, Goal::Check)?;
        Ok(Self {
            is_anchored: false,
            ..Self::parse(&format!("(?-s:{pattern})"), template)?
        })
    }

    /// Replaces all matches in a text by the expanded template, like Go's
    /// `Regexp.ReplaceAllString`.
    ///
    /// # Errors
    /// The errors of [`Rewrite::apply_in`], and [`LimitExceeded`] if the result exceeds `size_max`
    /// bytes.
    pub fn replace_all_in<R: MatchRequest>(
        &self,
        request: &R,
        text: &str,
        size_max: usize,
    ) -> Result<String, R::Error> {
        let compiled = self.compiled(Some(request))?;
        compiled.check_work(text)?;
        let mut out = String::new();
        let mut copied = 0;
        let mut from = 0;
        while from <= text.len() {
            request.check()?;
            let Some(groups) = compiled.groups(text, from) else {
                break;
            };
            let (start, end) = groups.span(0).expect("a match has a span");
            out.push_str(&text[copied..start]);
            // An empty match right after another match does not count.
            if end > copied || start == 0 {
                self.each_piece(&groups, Some(request), |piece| {
                    if out.len() <= size_max {
                        out.push_str(piece);
                    }
                })?;
            }
            LimitExceeded::check("bytes of a text with replacements", out.len(), size_max)?;
            copied = end;
            let next = text[from..].chars().next().map_or(1, char::len_utf8);
            from = if end > from { end } else { from + next };
        }
        out.push_str(&text[copied..]);
        Ok(out)
    }

    /// Returns the maximum size of the expanded template for a text of `size` bytes.
    #[must_use]
    pub fn expanded_size_max(&self, size: usize) -> usize {
        let n_references = self.template.bytes().filter(|&byte| byte == b'$').count();
        self.template
            .len()
            .saturating_add(n_references.saturating_mul(size))
    }

    /// Returns the expanded template if all of `text` matches. A group that does not participate or
    /// exist is empty. A dollar sign that begins no reference stands for itself. For patterns of
    /// requests, see [`Rewrite::apply_in`].
    #[must_use]
    pub fn apply(&self, text: &str) -> Option<String> {
        self.expand(text, None::<&NoRequest>)
            .expect("without a request there is no limit")
    }

    /// Expands the template as [`Rewrite::apply`] does. Compiles the pattern at first use and
    /// charges it to the request, and checks the request at each reference. The caller charges the
    /// result.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit, and [`LimitExceeded`] for a large
    /// pattern on a long text.
    pub fn apply_in<R: MatchRequest>(
        &self,
        request: &R,
        text: &str,
    ) -> Result<Option<String>, R::Error> {
        self.expand(text, Some(request))
    }

    fn compiled<R: MatchRequest>(&self, request: Option<&R>) -> Result<&Compiled, R::Error> {
        // Fast path: used before.
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let compiled = Compiled::new(self.regexp.pattern(), self.is_anchored, request)?;
        Ok(self.compiled.get_or_init(|| compiled))
    }

    fn expand<R: MatchRequest>(
        &self,
        text: &str,
        request: Option<&R>,
    ) -> Result<Option<String>, R::Error> {
        let compiled = self.compiled(request)?;
        if let Some(request) = request
            && let Err(too_long) = compiled.check_work(text)
        {
            // A search for a match can be interrupted, a search for groups cannot.
            return if self.regexp.is_match_in(request, text)? {
                Err(too_long.into())
            } else {
                Ok(None)
            };
        }
        let Some(groups) = compiled.groups(text, 0) else {
            return Ok(None);
        };
        let mut len = 0;
        self.each_piece(&groups, request, |piece| len += piece.len())?;
        // The exact capacity: a string that grows needs up to three times its length.
        let mut out = String::with_capacity(len);
        self.each_piece(&groups, request, |piece| out.push_str(piece))?;
        Ok(Some(out))
    }

    /// Calls `f` with each piece of the expanded template, in order.
    fn each_piece<R: MatchRequest>(
        &self,
        groups: &Groups<'_>,
        request: Option<&R>,
        mut f: impl FnMut(&str),
    ) -> Result<(), R::Error> {
        let mut rest = self.template.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            request.map_or(Ok(()), R::check)?;
            f(before);
            rest = after;
            if let Some(after) = after.strip_prefix('$') {
                f("$");
                rest = after;
            } else if let Some((name, after)) = reference(after) {
                f(groups.get(name).unwrap_or(""));
                rest = after;
            } else {
                f("$");
            }
        }
        f(rest);
        Ok(())
    }
}

impl Compiled {
    fn new<R: MatchRequest>(
        pattern: &str,
        is_anchored: bool,
        request: Option<&R>,
    ) -> Result<Self, R::Error> {
        let checked =
            syntax::parse(pattern, Goal::Check).expect("a rewrite holds a checked pattern");
        let _charge = request
            .map(|request| reserve(request, TREE_COPIES * checked.tree_size))
            .transpose()?;
        let Syntax {
            hir,
            group_names,
            n_instructions,
            ..
        } = syntax::parse(pattern, Goal::Rewrite).expect("a rewrite holds a checked pattern");
        let (hir, alphabet) = in_symbols(if is_anchored { anchored(hir) } else { hir }, request)?;
        let regex = within_limit(request, |limit| {
            let config = Config::new()
                .nfa_size_limit(limit)
                .hybrid(false)
                .dfa(false)
                .auto_prefilter(false);
            Regex::builder()
                .configure(config.utf8_empty(alphabet.is_none()))
                .build_from_hir(&hir)
                .ok()
        })?;
        // A search has up to two lists of states, with the positions of all groups.
        let positions = 2 * 2 * size_of::<usize>() * (group_names.len() + 1);
        let search_size = positions.saturating_mul(STATES_PER_INSTRUCTION * n_instructions);
        request.map_or(Ok(()), |request| {
            request.hold(
                regex
                    .memory_usage()
                    .saturating_add(search_size)
                    .saturating_add(VISITED_SIZE),
            )
        })?;
        Ok(Self {
            regex,
            alphabet,
            names: group_names,
            n_instructions,
        })
    }

    /// Returns an error if the groups of a text take too long to find.
    fn check_work(&self, text: &str) -> Result<(), LimitExceeded> {
        let work = text.len().saturating_mul(self.n_instructions);
        LimitExceeded::check(
            "bytes of a text times instructions of a regular expression",
            work,
            WORK_MAX,
        )
    }

    /// Returns the groups of the first match at or after the byte offset `from`.
    fn groups<'t>(&'t self, text: &'t str, from: usize) -> Option<Groups<'t>> {
        let mut buffer = Vec::new();
        let (symbols, offsets): (_, Option<Vec<usize>>) = match &self.alphabet {
            Some(alphabet) if !text.is_ascii() => {
                let mut offsets: Vec<_> = text.char_indices().map(|(offset, _)| offset).collect();
                offsets.push(text.len());
                (alphabet.encode(text, &mut buffer), Some(offsets))
            }
            _ => (text.as_bytes(), None),
        };
        let mut captures = self.regex.create_captures();
        let from = offsets.as_ref().map_or(from, |offsets| {
            offsets.partition_point(|&offset| offset < from)
        });
        self.regex
            .search_captures(&Input::new(symbols).range(from..), &mut captures);
        captures.is_match().then_some(Groups {
            text,
            names: &self.names,
            captures,
            offsets,
        })
    }
}

/// The groups of a match.
struct Groups<'t> {
    text: &'t str,
    names: &'t [Option<String>],
    captures: Captures,
    /// Positions in `text` by position in the searched symbols, if they differ.
    offsets: Option<Vec<usize>>,
}

impl<'t> Groups<'t> {
    fn get(&self, name: &str) -> Option<&'t str> {
        // A number with a leading zero is a name.
        let is_number =
            name == "0" || !name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit());
        if is_number {
            return self.numbered(name.parse().ok()?);
        }
        let named = self
            .names
            .iter()
            .zip(1..)
            .filter(|(group, _)| group.as_deref() == Some(name));
        named
            .map(|(_, number)| self.numbered(number))
            .find(Option::is_some)?
    }

    fn numbered(&self, number: usize) -> Option<&'t str> {
        self.span(number).map(|(start, end)| &self.text[start..end])
    }

    /// Returns the byte offsets of a group.
    fn span(&self, number: usize) -> Option<(usize, usize)> {
        let span = self.captures.get_group(number)?;
        match &self.offsets {
            Some(offsets) => Some((offsets[span.start], offsets[span.end])),
            None => Some((span.start, span.end)),
        }
    }
}

/// Splits off the name of a group: letters, digits and underscores, of any script, as in Go's
/// `Regexp.Expand`.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = match text.strip_prefix('{') {
        Some(text) => {
            let (name, rest) = split_word(text);
            (name, rest.strip_prefix('}')?)
        }
        None => split_word(text),
    };
    if name.is_empty() {
        return None;
    }
    Some((name, rest))
}

/// Splits off the word at the start of a text.
fn split_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()))
}

/// Returns `true` for an underscore, a letter and a decimal digit. Rust's `is_alphanumeric` also
/// has marks and other numbers.
fn is_word(c: char) -> bool {
    static WORD: LazyLock<Regexp> =
        LazyLock::new(|| Regexp::parse(r"[\pL\p{Nd}_]").expect("the pattern is a constant"));
    if c.is_ascii() {
        c == '_' || c.is_ascii_alphanumeric()
    } else {
        WORD.is_match(c.encode_utf8(&mut [0; 4]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Error, request};

    fn check(pattern: &str, template: &str, text: &str, expect: Option<&str>) {
        let rewrite = Rewrite::parse(pattern, template).unwrap();
        assert_eq!(
            rewrite.apply(text).as_deref(),
            expect,
            "{pattern} {template} {text}"
        );
    }

    #[test]
    fn templates_refer_to_groups_by_name_and_number() {
        let pattern = "(?P<first>a+)(b)?(c)";
        check(pattern, "x-$1-$3", "aac", Some("x-aa-c"));
        check(pattern, "${1}x$first", "aac", Some("aaxaa"));
        check(
            pattern,
            "$1x|$2|$9|$01|$0",
            "aac",
            Some("|||||aac").map(|s| &s[1..]),
        );
        check(pattern, "$$1 $ ${ ${1 $-", "aac", Some("$1 $ ${ ${1 $-"));
        check(pattern, "$1", "xaac", None);
        // Rust's `is_alphanumeric` has the Roman numeral, the fraction and the mark, too. Go's
        // names do not.
        for (template, expect) in [
            ("$1Ⅷ", "vⅧ"),
            ("$1½", "v½"),
            ("$1\u{345}", "v\u{345}"),
            ("$1٣", ""),
            ("$é1", ""),
        ] {
            check("(v)", template, "v", Some(expect));
        }
    }

    #[test]
    fn the_first_participating_group_of_a_name_is_used() {
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
    fn groups_of_texts_outside_of_ascii_are_found() {
        check("(é*)(.)([^a]*)a", "$3$2$1", "ééßx→a", Some("x→ßéé"));
        check("(.*)é(?P<n>.*)", "<$n>", "aéé→", Some("<→>"));
    }

    #[test]
    fn a_large_pattern_on_a_long_text_is_an_error() {
        let rewrite = Rewrite::parse("(a{100}|b)*", "$1").unwrap();
        let ctx = request(usize::MAX);
        assert_eq!(rewrite.apply_in(&ctx, "ab").unwrap(), None);
        let long = "a".repeat(WORK_MAX / 10_000 * 100);
        let error = rewrite.apply_in(&ctx, &long).unwrap_err();
        assert!(matches!(
            error,
            Error::Limit(LimitExceeded {
                limit: WORK_MAX,
                ..
            })
        ));
        assert_eq!(
            rewrite.apply_in(&ctx, &long[1..]).unwrap(),
            None,
            "a text that does not match has no groups"
        );
    }

    #[test]
    fn all_matches_are_replaced_as_in_go() {
        let check = |pattern: &str, template: &str, text: &str, expect: &str| {
            let rewrite = Rewrite::parse_anywhere(pattern, template).unwrap();
            let replaced = rewrite
                .replace_all_in(&request(usize::MAX), text, 100)
                .unwrap();
            assert_eq!(replaced, expect, "{pattern} {template} {text}");
        };
        check("a(.)", "<$1>", "abcad", "<b>c<d>");
        check("", "-", "aé", "-a-é-");
        check("a*", "-", "baac", "-b-c-");
        check("^a", "x", "aa", "xa");
        check("a.b", "x", "a\nb acb", "a\nb x");
        check("é+", "e", "caféé é", "cafe e");
        check("[^é]", "", "aéb", "é");
        check(r"\b", "|", "ab c", "|ab| |c|");
        let rewrite = Rewrite::parse_anywhere("a", "bbbb").unwrap();
        let error = rewrite
            .replace_all_in(&request(usize::MAX), &"a".repeat(100), 100)
            .unwrap_err();
        assert!(matches!(
            error,
            Error::Limit(LimitExceeded { limit: 100, .. })
        ));
    }

    #[test]
    fn patterns_that_go_rejects_are_rejected() {
        assert_eq!(
            Rewrite::parse("(", "").unwrap_err().to_string(),
            "error parsing regexp: missing closing ): `(`"
        );
    }
}
