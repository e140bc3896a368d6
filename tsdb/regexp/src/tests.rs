//! Patterns against Go's rules, and the simple forms against the automaton.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use regex_automata::meta::Regex;
use regex_syntax::hir::{Hir, Look};

use super::alphabet::Alphabet;
use super::syntax::Goal;
use super::*;

fn error(pattern: &str) -> String {
    Regexp::parse(pattern).map_or_else(|e| e.to_string(), |_| "no error".to_owned())
}

#[test]
fn patterns_that_go_rejects_are_rejected_in_its_words() {
    let check = |pattern: &str, expect: &str| {
        assert_eq!(error(pattern), format!("error parsing regexp: {expect}"))
    };
    check("[", "missing closing ]: `[`");
    check("a[b", "missing closing ]: `[b`");
    check("[]a", "missing closing ]: `[]a`");
    check("(a", "missing closing ): `(a`");
    check("a)b", "unexpected ): `a)b`");
    check("*", "missing argument to repetition operator: `*`");
    check("a|*?", "missing argument to repetition operator: `*?`");
    check("(+)", "missing argument to repetition operator: `+`");
    check("a**", "invalid nested repetition operator: `**`");
    check("a*?{2}", "invalid nested repetition operator: `*?{2}`");
    check("a{1001}", "invalid repeat count: `{1001}`");
    check("a{3,2}", "invalid repeat count: `{3,2}`");
    check("a{99999999999}", "invalid repeat count: `{99999999999}`");
    check("((a{100}){10}){2}", "invalid repeat count: `{2}`");
    check("[z-a]", "invalid character class range: `z-a`");
    check("[a~~b--c]", "invalid character class range: `b--`");
    check("[[:foo:]]", "invalid character class range: `[:foo:]`");
    check(
        r"\p{Klingon}",
        r"invalid character class range: `\p{Klingon}`",
    );
    check(r"\pX", r"invalid character class range: `\pX`");
    check(r"\p{L", r"invalid character class range: `\p{L`");
    check(r"\C", r"invalid escape sequence: `\C`");
    check(r"\Z", r"invalid escape sequence: `\Z`");
    check(r"\8", r"invalid escape sequence: `\8`");
    check(r"\1", r"invalid escape sequence: `\1`");
    check(r"\u{41}", r"invalid escape sequence: `\u`");
    check(r"\x{110000}", r"invalid escape sequence: `\x{110000`");
    check(r"\x4g", r"invalid escape sequence: `\x4g`");
    check(r"a\", "trailing backslash at end of expression: ``");
    check("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
    check("(?<!a)", "invalid named capture: `(?<!a)`");
    check("(?x)a", "invalid or unsupported Perl syntax: `(?x`");
    check("(?i", "invalid or unsupported Perl syntax: `(?i`");
    check("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`");
    check("(?P<n", "invalid named capture: `(?P<n`");
    check("(?P<>a)", "invalid named capture: `(?P<>`");
    check("(?P=n)", "invalid or unsupported Perl syntax: `(?P`");
}

#[test]
fn matches_are_those_of_go() {
    let check = |pattern: &str, matching: &[&str], others: &[&str]| {
        let regexp = Regexp::parse(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        assert!(
            matching.iter().all(|text| regexp.is_match(text)),
            "{pattern} matches {matching:?}"
        );
        assert!(
            !others.iter().any(|text| regexp.is_match(text)),
            "{pattern} does not match {others:?}"
        );
    };
    check("", &[""], &["a"]);
    check("a.c", &["abc", "a\nc", "aéc"], &["ac", "xabc", "abcx"]);
    check("(?-s)a.c", &["abc"], &["a\nc"]);
    check("a|b", &["a", "b"], &["ab", "xa", "bx"]);
    check("^a$", &["a"], &["a\n"]);
    check("(?m)a$\nb", &["a\nb"], &["ab"]);
    check(r"\Aa\z", &["a"], &["a\n"]);
    check(r"\d\w\s", &["1a ", "1_\t"], &["١a ", "1é ", "1a\u{a0}"]);
    check(r"\bfoo\b.*", &["foo", "foo bar"], &["foobar"]);
    check(r"\Bfoo", &[], &["foo"]);
    check(r"é\B.*", &["é", "éé"], &["éa"]);
    check("(?i)straße", &["STRAßE", "ſtraße"], &["STRASSE"]);
    check("(?i)k", &["k", "K", "\u{212a}"], &[]);
    check("a(?i)b(?-i)c", &["abc", "aBc"], &["Abc", "abC"]);
    check("(a(?i)b)c", &["aBc"], &["aBC"]);
    check("(?i:a)b", &["Ab"], &["AB"]);
    check("[a&&b]", &["a", "&", "b"], &["c"]);
    check("[[a]", &["[", "a"], &[]);
    check("[[:alpha:]&&a]", &["x", "&"], &["1"]);
    check("[]a]", &["]", "a"], &[]);
    check("[^]a]", &["b", "\n"], &["]", "a"]);
    check("[a-]", &["a", "-"], &["b"]);
    check("[a~~b-]", &["~", "a", "b", "-"], &["c"]);
    check(r"[\d\-x]", &["1", "-", "x"], &["a"]);
    check(r"[[:^alpha:]]", &["1"], &["a"]);
    check(r"(?i)[[:upper:]]", &["a", "A", "ſ"], &["1"]);
    check(r"\pN\p{Greek}\PL", &["1α1"], &["aα1", "1a1", "1αa"]);
    check(r"\p{^Greek}\P{^Greek}", &["aα"], &["αα"]);
    check(r"\Q.*\E+", &[".*", ".**"], &[".", "ab"]);
    check(r"a\Q.", &["a."], &["ab"]);
    check(r"\x41\x{e9}\101\n\_\<", &["AéA\n_<"], &[]);
    check("a{,3}", &["a{,3}"], &["a", "aaa"]);
    check("a{2}b{1,}c{0,1}", &["aab", "aabbc"], &["ab", "aa", "aabcc"]);
    check("x{", &["x{"], &[]);
    check("{{.*}}", &["{{a}}"], &["{a}"]);
    check("a{01}", &["a{01}"], &["a"]);
    check("(?P<n>a)(?<m>b)(?P<n>c)", &["abc"], &[]);
    check("a(?i)*", &["", "a", "aa"], &["A"]);
    check("(?:)*|^*", &[""], &["a"]);
    check(r"\x{d800}|a", &["a"], &[]);
    check(r"[\x{d000}-\x{dfff}]", &["\u{d7ff}"], &["\u{e000}"]);
    check("$x", &[], &["x", "$x"]);
    check("a # b", &["a # b"], &["a"]);
}

#[test]
fn finite_sets_are_expanded() {
    let check = |pattern: &str, expect: Option<&[&str]>| {
        let found = Regexp::parse(pattern).unwrap();
        assert_eq!(
            found
                .literals()
                .map(|l| l.iter().map(String::as_str).collect::<Vec<_>>())
                .as_deref(),
            expect,
            "{pattern}"
        );
    };
    check("foo", Some(&["foo"]));
    check("", Some(&[""]));
    check("^(b|a|foo|)$", Some(&["", "a", "b", "foo"]));
    check("(a|b)c(d|)", Some(&["ac", "acd", "bc", "bcd"]));
    check(
        "node-[0-2]x?",
        Some(&[
            "node-0", "node-0x", "node-1", "node-1x", "node-2", "node-2x",
        ]),
    );
    check("(?i)up", Some(&["UP", "Up", "uP", "up"]));
    check("a{2,3}", Some(&["aa", "aaa"]));
    check("[^\\x00-\\x{10FFFF}]", Some(&[]));
    check("a.*", None);
    check("a+", None);
    check("[a-z][a-z]", None);
    check(r"a\b", None);
    let many: Vec<_> = (0..10_000).map(|i| format!("pod-{i:05}-é")).collect();
    let regexp = Regexp::parse(&many.join("|")).unwrap();
    assert_eq!(regexp.literals(), Some(many.as_slice()));
    assert!(regexp.is_match("pod-09999-é") && !regexp.is_match("pod-10000-é"));
    assert_eq!(regexp.prefix(), "pod-0");
}

#[test]
fn prefixes_are_found() {
    let check = |pattern: &str, expect: &str| {
        assert_eq!(
            Regexp::parse(pattern).unwrap().prefix(),
            expect,
            "{pattern}"
        )
    };
    check("foo.*", "foo");
    check("^foo.+bar$", "foo");
    check("foo[a-z]+", "foo");
    check("foo(x|y)*", "foo");
    check("foo|fob", "fo");
    check("foo*", "fo");
    check(".*foo", "");
    check("(?i)foo.*", "");
    check("(foo|bar).*", "");
}

#[test]
fn unbounded_patterns_are_rejected_or_stop() {
    let deep = format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(error(&deep).starts_with("error parsing regexp: expression nests too deeply: `((("));
    let stacked = format!("{}a{}", "(?:".repeat(600), "x*)*".repeat(600));
    assert!(error(&stacked).starts_with("error parsing regexp: expression nests too deeply: `"));
    let large = format!("(?:{}){{1000}}", "a".repeat(3400));
    assert!(error(&large).starts_with("error parsing regexp: expression too large: `"));
    let nested = format!("{}a{}", "(?:".repeat(900), "|b)".repeat(900));
    assert!(Regexp::parse(&nested).unwrap().is_match("a"));
    let nested = format!("{}a{}", "(?:".repeat(450), "b?)*".repeat(450));
    assert!(Regexp::parse(&nested).unwrap().is_match("ab"));
    assert!(
        Regexp::parse("(x+x+)+y")
            .unwrap()
            .is_match(&format!("{}y", "x".repeat(1000)))
    );
    // Each of these is quadratic if the parser searches for an end again and again.
    for pattern in [
        "{".repeat(1 << 20),
        format!("[{}x]", "[:".repeat(1 << 19)),
        format!("[{}]", r"\pL".repeat(1 << 14)),
    ] {
        assert!(Regexp::parse(&pattern).is_ok(), "{}", &pattern[..9]);
    }
}

/// A pattern that takes megabytes if it is compiled over UTF-8.
const WIDE: &str = r"(\pL{1,60}){1,9}-[α-ω]x*";

/// A request with a memory limit.
pub(crate) struct Limited {
    used: Rc<Cell<usize>>,
    size_max: usize,
    is_canceled: Cell<bool>,
    /// Addresses of shared values.
    held: RefCell<HashSet<usize>>,
}

/// Why a [`Limited`] request ends.
#[derive(Debug, PartialEq)]
pub(crate) enum Error {
    Memory,
    Limit(LimitExceeded),
    Canceled,
}

impl From<LimitExceeded> for Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::Limit(exceeded)
    }
}

/// Memory of a [`Limited`] request.
pub(crate) struct Charge {
    used: Rc<Cell<usize>>,
    size: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.size);
    }
}

impl MatchRequest for Limited {
    type Error = Error;
    type Charge = Charge;

    fn check(&self) -> Result<(), Error> {
        if self.is_canceled.get() {
            Err(Error::Canceled)
        } else {
            Ok(())
        }
    }

    fn charge(&self) -> Charge {
        Charge {
            used: Rc::clone(&self.used),
            size: 0,
        }
    }

    fn grow(&self, charge: &mut Charge, size: usize) -> Result<(), Error> {
        self.hold(size)?;
        charge.size += size;
        Ok(())
    }

    fn hold(&self, size: usize) -> Result<(), Error> {
        let used = self.used.get() + size;
        if used > self.size_max {
            return Err(Error::Memory);
        }
        self.used.set(used);
        Ok(())
    }

    fn hold_shared<T: Any + Send + Sync>(&self, value: &Arc<T>, size: usize) -> Result<(), Error> {
        if self.held.borrow_mut().insert(Arc::as_ptr(value) as usize) {
            self.hold(size)
        } else {
            Ok(())
        }
    }
}

pub(crate) fn request(size_max: usize) -> Limited {
    Limited {
        used: Rc::default(),
        size_max,
        is_canceled: Cell::new(false),
        held: RefCell::default(),
    }
}

fn is_compiled(regexp: &Regexp) -> bool {
    regexp.shared.compiled.get().is_some()
}

#[test]
fn parsing_does_not_compile() {
    for i in 0..200 {
        let regexp = Regexp::parse(&format!("{WIDE}{i}")).unwrap();
        assert!(!regexp.matches_empty() && !is_compiled(&regexp));
    }
}

#[test]
fn a_wide_pattern_is_compiled_once_and_charged_to_each_request() {
    let regexp = Regexp::parse(WIDE).unwrap();
    let (ctx, other) = (request(1 << 20), request(1 << 20));
    regexp.compile(&ctx).unwrap();
    let size = ctx.used.get();
    assert!(
        (10_000..600_000).contains(&size),
        "{size} bytes; Go takes 500 kB"
    );
    assert!(
        regexp.is_match_in(&ctx, "Straße-βxx").unwrap()
            && !regexp.is_match_in(&ctx, "Straße-bxx").unwrap()
    );
    let same = Regexp::parse(WIDE).unwrap();
    same.compile(&other).unwrap();
    assert_eq!(other.used.get(), size);
    let shared = |regexp: &Regexp| Arc::clone(regexp.shared.compiled.get().unwrap());
    assert!(Arc::ptr_eq(&shared(&regexp), &shared(&same)));
    let stats = cache_stats();
    assert!(
        stats.n_compiled > 0
            && stats.n_found > 0
            && stats.size >= size as u64
            && stats.size <= CACHE_SIZE_MAX
    );
}

#[test]
fn compiling_obeys_the_limits_of_the_request() {
    let check = |ctx: Limited, pattern: &str, expect: Error| {
        let regexp = Regexp::parse(pattern).unwrap();
        let error = regexp.is_match_in(&ctx, "x").unwrap_err();
        assert!(error == expect && !is_compiled(&regexp), "{error:?}");
        assert_eq!(ctx.used.get(), 0);
        let rewrite = Rewrite::parse(pattern, "$1").unwrap();
        assert_eq!(rewrite.apply_in(&ctx, "x").unwrap_err(), expect);
    };
    check(request(1000), "[ab]+limited", Error::Memory);
    check(
        request(4 << 20),
        &format!("(.x{{999}}{})", "y.*".repeat(100_000)),
        Error::Memory,
    );
    let canceled = request(1 << 20);
    canceled.is_canceled.set(true);
    check(canceled, "[ab]+canceled", Error::Canceled);
}

#[test]
fn a_long_search_obeys_the_deadline() {
    let (regexp, ctx) = (Regexp::parse("(.*a){300}long").unwrap(), request(8 << 20));
    let text = "a".repeat(1 << 16);
    assert!(!regexp.is_match_in(&ctx, &text).unwrap());
    ctx.is_canceled.set(true);
    assert!(matches!(
        regexp.is_match_in(&ctx, &text),
        Err(Error::Canceled)
    ));
}

#[test]
fn patterns_that_distinguish_many_characters_work_on_utf_8() {
    let many: String = ('一'..).take(400).flat_map(|c| [c, '?']).collect();
    let regexp = Regexp::parse(&format!("{many}[^一]+")).unwrap();
    assert!(regexp.is_match("一三é") && !regexp.is_match("三一"));
}

#[test]
fn repeated_pieces_can_be_optional() {
    let check = |pattern: &str, yes: &[&str], no: &[&str]| {
        let regexp = Regexp::parse(pattern).unwrap();
        for text in yes.iter() {
            assert!(regexp.is_match(text), "{pattern} on {text:?}");
        }
        for text in no.iter() {
            assert!(!regexp.is_match(text), "{pattern} on {text:?}");
        }
    };
    check("node(-[0-9]+)?", &["node", "node-1", "node-12"], &["node-"]);
    check("n([0-9]+)?x", &["nx", "n1x", "n12x"], &["n", "nax"]);
    check("n(?:[a-z]{2})?x", &["nx", "nabx"], &["nax", "nabcx"]);
    check(
        "n(?:[a-z]{2,3})?x.*y",
        &["nxy", "nabx_y", "nabcxy"],
        &["naxy"],
    );
    check("(?:[0-9]+)??x", &["x", "12x"], &["a"]);
    check("([0-9]+)*x", &["x", "12x"], &["ax"]);
    check("([0-9]?)+x", &["x", "12x"], &["ax"]);
    check("[a-b]{2}(?i)?", &["", "ab"], &["a", "abab"]);
    let rewrite = Regexp::parse("n(?:[0-9]+)?(x)").unwrap();
    assert!(rewrite.is_match("nx"));
}

#[test]
fn an_alphabet_ends_at_the_deadline() {
    let hir = syntax::parse("[é-ü]|ß", Goal::Match).unwrap().hir;
    let ctx = request(usize::MAX);
    assert!(Alphabet::of(&hir, Some(&ctx)).unwrap().is_some());
    ctx.is_canceled.set(true);
    assert!(matches!(
        Alphabet::of(&hir, Some(&ctx)),
        Err(Error::Canceled)
    ));
}

/// Generates patterns from pieces that exercise the simple forms.
fn pattern() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "b", "ab", ".", ".*", ".+", "|", "(", ")", "(?:", "*", "+", "?", "{2}", "[ab]",
        "[^a]", "^", "$", "(?i)", "é", "[ß-ú]", r"\pL", "[^é]", r"\b", r"\w", "(?s)", "(?-s)",
        "\n", "a|b", ".*a.*",
    ]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn simple_forms_agree_with_the_automaton(pattern in pattern(), texts in prop::collection::vec("[abAéß→\n]{0,5}", 8)) {
        let Ok(regexp) = Regexp::parse(&pattern) else { return Ok(()) };
        let hir = syntax::parse(&pattern, Goal::Match).unwrap().hir;
        let anchored = Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]);
        let plain = Regex::builder().build_from_hir(&anchored).unwrap();
        prop_assert_eq!(regexp.matches_empty(), plain.is_match(""), "{} on the empty string", &pattern);
        for text in texts {
            let found = regexp.is_match(&text);
            prop_assert_eq!(found, plain.is_match(&text), "{} on {:?}", pattern, text);
            prop_assert!(!found || text.starts_with(regexp.prefix()));
            if let Some(literals) = regexp.literals() {
                prop_assert_eq!(found, literals.contains(&text));
            }
        }
    }

    #[test]
    fn random_patterns_never_panic(pattern in "[-a\\[\\](){}*+?|^$.,:\\\\pPQExiUsdwz0-9<>=!&~]{0,16}", text in any::<String>()) {
        if let Ok(regexp) = Regexp::parse(&pattern) {
            let _ = regexp.is_match(&text);
        }
    }

    #[test]
    fn random_text_never_panics(pattern in any::<String>()) {
        if let Ok(regexp) = Regexp::parse(&pattern) {
            let _ = regexp.is_match(&pattern);
        }
    }
}
