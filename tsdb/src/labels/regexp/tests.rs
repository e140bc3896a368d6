//! Patterns against Go's rules, and the simple forms against the automaton.

use proptest::prelude::*;

use super::*;

fn error(pattern: &str) -> String {
    Regexp::parse(pattern).map_or_else(|e| e.to_string(), |_| "no error".to_owned())
}

#[test]
fn patterns_that_go_rejects_are_rejected_in_its_words() {
    let check = |pattern: &str, expect: &str| assert_eq!(error(pattern), format!("error parsing regexp: {expect}"));
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
    check(r"\p{Klingon}", r"invalid character class range: `\p{Klingon}`");
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
        assert!(matching.iter().all(|text| regexp.is_match(text)), "{pattern} matches {matching:?}");
        assert!(!others.iter().any(|text| regexp.is_match(text)), "{pattern} does not match {others:?}");
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
            found.literals().map(|l| l.iter().map(String::as_str).collect::<Vec<_>>()).as_deref(),
            expect,
            "{pattern}"
        );
    };
    check("foo", Some(&["foo"]));
    check("", Some(&[""]));
    check("^(b|a|foo|)$", Some(&["", "a", "b", "foo"]));
    check("(a|b)c(d|)", Some(&["ac", "acd", "bc", "bcd"]));
    check("node-[0-2]x?", Some(&["node-0", "node-0x", "node-1", "node-1x", "node-2", "node-2x"]));
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
    let check = |pattern: &str, expect: &str| assert_eq!(Regexp::parse(pattern).unwrap().prefix(), expect, "{pattern}");
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
    let stacked = format!("{}a{}", "(?:".repeat(240), "x*)*".repeat(240));
    assert!(error(&stacked).starts_with("error parsing regexp: expression nests too deeply: `"));
    assert!(error(r"(\pL{500}){2}x").starts_with("error parsing regexp: expression too large: `"));
    let nested = format!("{}a{}", "(?:".repeat(200), "|b)".repeat(200));
    assert!(Regexp::parse(&nested).unwrap().is_match("a"));
    assert!(Regexp::parse("(x+x+)+y").unwrap().is_match(&format!("{}y", "x".repeat(1000))));
}

#[test]
fn repeated_pieces_can_be_optional() {
    let check = |pattern: &str, yes: &[&str], no: &[&str]| {
        let regexp = Regexp::parse(pattern).unwrap();
        yes.iter().for_each(|text| assert!(regexp.is_match(text), "{pattern} on {text:?}"));
        no.iter().for_each(|text| assert!(!regexp.is_match(text), "{pattern} on {text:?}"));
    };
    check("node(-[0-9]+)?", &["node", "node-1", "node-12"], &["node-"]);
    check("n([0-9]+)?x", &["nx", "n1x", "n12x"], &["n", "nax"]);
    check("n(?:[a-z]{2})?x", &["nx", "nabx"], &["nax", "nabcx"]);
    check("n(?:[a-z]{2,3})?x.*y", &["nxy", "nabx_y", "nabcxy"], &["naxy"]);
    check("(?:[0-9]+)??x", &["x", "12x"], &["a"]);
    check("([0-9]+)*x", &["x", "12x"], &["ax"]);
    check("([0-9]?)+x", &["x", "12x"], &["ax"]);
    check("[a-b]{2}(?i)?", &["", "ab"], &["a", "abab"]);
    let rewrite = Regexp::parse("n(?:[0-9]+)?(x)").unwrap();
    assert!(rewrite.is_match("nx"));
}

/// Generates patterns from pieces that exercise the simple forms.
fn pattern() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "b", "ab", ".", ".*", ".+", "|", "(", ")", "(?:", "*", "+", "?", "{2}", "[ab]", "[^a]", "^", "$", "(?i)",
        "é", r"\b", r"\w", "(?s)", "(?-s)", "\n", "a|b", ".*a.*",
    ]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn simple_forms_agree_with_the_automaton(pattern in pattern(), texts in prop::collection::vec("[abAé\n]{0,5}", 8)) {
        let Ok(regexp) = Regexp::parse(&pattern) else { return Ok(()) };
        let hir = syntax::parse(&pattern, syntax::Groups::Drop).unwrap().hir;
        let plain = Regex::new(&anchored(hir)).unwrap();
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
