//! Messages and positions of errors in Prometheus 3.14 that the golden files do not contain.

use super::*;

fn check(text: &str, expect: &str) {
    assert_eq!(error(text), expect, "{text}");
}

#[test]
fn errors_of_the_lexer() {
    check(
        "",
        "unknown position: parse error: no expression found in input",
    );
    check(" # c", "1:1: parse error: no expression found in input");
    check(
        "a =~ b",
        "1:3: parse error: unexpected character after '=': '~'",
    );
    check(
        "a !",
        "1:3: parse error: unexpected character after '!': '\u{fffd}'",
    );
    check("a ; b", "1:3: parse error: unexpected character: ';'");
    check("é", "1:1: parse error: unexpected character: 'é'");
    check(
        "1..2",
        r#"1:1: parse error: bad number or duration syntax: "1..""#,
    );
    check(
        "5mx",
        r#"1:1: parse error: bad number or duration syntax: "5mx""#,
    );
    check(
        "1_",
        r#"1:1: parse error: bad number or duration syntax: "1_""#,
    );
    check(
        "x + (5_)",
        r#"1:6: parse error: error parsing number: strconv.ParseFloat: parsing "5_": invalid syntax"#,
    );
    check(
        r#""\q""#,
        "1:1: parse error: unknown escape sequence U+0071 'q'",
    );
    check(
        r#""\x4g""#,
        "1:1: parse error: illegal character U+0067 'g' in escape sequence",
    );
    check(
        r#""\ud800""#,
        "1:1: parse error: escape sequence is an invalid Unicode code point",
    );
    check("\"a\n\"", "1:1: parse error: unterminated quoted string");
    check("x + `a", "1:5: parse error: unterminated raw string");
    check("'\u{fffd}'", "1:1: parse error: invalid UTF-8 rune");
    check(
        "x{a=\"b\",!c}",
        "1:9: parse error: unexpected character after '!' inside braces: 'c'",
    );
    check("x{{", "1:3: parse error: unexpected left brace '{'");
    check(
        "x{*}",
        "1:3: parse error: unexpected character inside braces: '*'",
    );
    check(
        "x[",
        "1:3: parse error: unexpected end of input in duration expression",
    );
    check(
        "x[a]",
        "1:3: parse error: unexpected character in duration expression: 'a'",
    );
    check(
        "x[5m y]",
        "1:6: parse error: unexpected character: 'y', expected ':'",
    );
    check(
        "x[:5m]",
        "1:4: parse error: unexpected colon before duration in duration expression",
    );
    check(
        "rate(x[5m])[:1m]",
        "1:14: parse error: unexpected colon before duration in duration expression",
    );
    check("x[5m", "1:5: parse error: unclosed left bracket");
    check("x]", "1:2: parse error: unexpected right bracket ']'");
}

#[test]
fn errors_of_the_parser() {
    check(
        "a\n+ )",
        "2:4: parse error: unexpected right parenthesis ')'",
    );
    check("(a + )", "1:6: parse error: unexpected \")\"");
    check(
        "sum(a b)",
        "1:7: parse error: unexpected identifier \"b\" in aggregation",
    );
    check(
        "sum by a",
        "1:8: parse error: unexpected identifier \"a\" in grouping opts, expected \"(\"",
    );
    check(
        "sum by (without) (a)",
        "1:9: parse error: unexpected <without> in grouping opts, expected label",
    );
    check(
        "sum by (a b) (c)",
        "1:11: parse error: unexpected identifier \"b\" in grouping opts, expected \",\" or \")\"",
    );
    check(
        "sum by (\"\") (a)",
        "1:9: parse error: invalid label name for grouping: \"\"",
    );
    check(
        "sum()",
        "1:1: parse error: no arguments for aggregate expression provided",
    );
    check(
        "topk(a)",
        "1:1: parse error: wrong number of arguments for aggregate expression provided, expected 2, got 1",
    );
    check(
        "abs(a,)",
        "1:6: parse error: trailing commas not allowed in function call args",
    );
    check(
        "x{a}",
        "1:4: parse error: unexpected \"}\" in label matching, expected label matching operator",
    );
    check(
        "x{a=b}",
        "1:5: parse error: unexpected identifier \"b\" in label matching, expected string",
    );
    check(
        "x{,}",
        "1:3: parse error: unexpected \",\" in label matching, expected identifier or \"}\"",
    );
    check(
        "x[5m 3]",
        "1:6: parse error: unexpected number \"3\" in subquery or range, expected \":\" or \"]\"",
    );
    check(
        "x[]",
        "1:3: parse error: unexpected \"]\" in subquery or range selector, expected number, duration, step(), or range()",
    );
    check(
        "x[5m:1m 3]",
        "1:9: parse error: unexpected number \"3\" in subquery selector, expected \"]\"",
    );
    check(
        "x offset 5m offset 5m",
        "1:1: parse error: offset may not be set multiple times",
    );
    check(
        "x @ 1 @ 2",
        "1:1: parse error: @ <timestamp> may not be set multiple times",
    );
    check(
        "x @ inf",
        "1:1: parse error: timestamp out of bounds for @ modifier: +Inf",
    );
    check(
        "x offset 5m[5m]",
        "1:12: parse error: no offset modifiers allowed before range",
    );
    check(
        "1 offset 5m",
        "1:1: parse error: offset modifier must be preceded by an instant vector selector or range vector selector or a \
         subquery",
    );
    check("x[5m / 0]", "1:6: parse error: division by zero");
    check("x offset 300y", "1:10: parse error: duration out of range");
    check(
        "x anchored smoothed",
        "1:1: parse error: anchored and smoothed modifiers cannot be used together",
    );
    check(
        "x[5m:] anchored",
        "1:1: parse error: anchored modifier is not supported for subqueries",
    );
    check(
        "\"0123456789abc\" x",
        "1:17: parse error: unexpected identifier \"x\"",
    );
    check(
        "x \"0123456789abc\"",
        "1:3: parse error: unexpected string \"\\\"012345678\"...",
    );
    check(
        "x{\"\\xff\"=\"a\"}",
        "1:3: parse error: label name is not UTF-8: \"\\xff\"",
    );
    check(
        "x{a=~\"\\xff\"}",
        "1:3: parse error: error parsing regexp: invalid UTF-8: `\u{fffd}`",
    );
}

#[test]
fn errors_of_the_type_checker() {
    check(
        "a + bool b",
        "1:3: parse error: bool modifier can only be used on comparison operators",
    );
    check(
        "1 and a",
        "1:1: parse error: set operator \"and\" not allowed in binary scalar expression",
    );
    check(
        "a or on (b) group_left c",
        "1:1: parse error: no grouping allowed for \"or\" operation",
    );
    check(
        "1 + on (a) b",
        "1:1: parse error: vector matching only allowed between instant vectors",
    );
    check(
        "1 + fill (1) b",
        "1:1: parse error: filling in missing series only allowed between instant vectors",
    );
    check(
        "a or fill (1) b",
        "1:1: parse error: filling in missing series not allowed for set operators",
    );
    check(
        "a + on (b) group_left (b) c",
        "1:3: parse error: label \"b\" must not occur in ON and GROUP clause at once",
    );
    check(
        "1[5m:]",
        "1:1: parse error: subquery is only allowed on instant vector, got scalar instead",
    );
    check(
        "-\"a\"",
        "1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got \"string\"",
    );
    check(
        "label_join(a)",
        "1:1: parse error: expected at least 3 argument(s) in call to \"label_join\", got 1",
    );
    check(
        "round(a, 1, 2)",
        "1:1: parse error: expected at most 2 argument(s) in call to \"round\", got 3",
    );
    check(
        "info(a, b)",
        "1:9: parse error: expected label selectors only, got vector selector instead",
    );
    check(
        "info(a, -a)",
        "1:9: parse error: expected label selectors only",
    );
    check(
        "info(a, 1)",
        "1:1: parse error: expected type instant vector in call to function \"info\", got scalar",
    );
    check(
        "topk(\"a\", b)",
        "1:6: parse error: expected type scalar in aggregation parameter, got string",
    );
}

#[test]
fn errors_of_disabled_features() {
    let check = |text: &str, expect: &str| {
        assert_eq!(
            parse(text, &Features::default()).unwrap_err().to_string(),
            expect,
            "{text}"
        );
    };
    check(
        "mad_over_time(x[5m])",
        "1:1: parse error: function \"mad_over_time\" is not enabled",
    );
    check(
        "limitk(1, x)",
        "1:1: parse error: limitk() is experimental and must be enabled with --enable-feature=promql-experimental-functions",
    );
    check(
        "a + fill (1) b",
        "1:1: parse error: binop fill modifiers are experimental and not enabled",
    );
    check("温度", "1:1: parse error: unexpected character: '温'");
    check("a.b", "1:2: parse error: unexpected character: '.'");
}

#[test]
fn names_may_have_unicode_letters_and_dots() {
    let check = |text: &str, expect: &str| {
        let found =
            parse(text, &Features::all()).map_or_else(|e| e.to_string(), |expr| print(&expr));
        assert_eq!(found, expect, "{text}");
    };
    for name in [
        "Björn",
        "温度",
        "𐐀",
        "a𐐀9",
        "http.server.duration",
        "foo..bar",
        "foo.",
        "rate.total",
        "Inf.total",
        "İnf",
    ] {
        check(name, name);
        assert!(parse(name, &Features::default()).is_err(), "{name}");
    }
    check(
        "foo{service.name=\"api\", 場所=\"東京\"}",
        "foo{\"service.name\"=\"api\",\"場所\"=\"東京\"}",
    );
    check("sum by (équipe) (a.b)", "sum by (\"équipe\") (a.b)");
    check(
        "sum by (a:b) (c)",
        "1:9: parse error: invalid label name for grouping: \"a:b\"",
    );
    // Marks, symbols and digits of other scripts are no letters.
    for name in ["\u{301}", "Ⓐ", "१", "😀"] {
        assert!(parse(name, &Features::all()).is_err(), "{name}");
    }
    check("a[range():1s]", "a[range():1s]");
    check(
        "a[5m:é]",
        "1:6: parse error: unexpected character: 'é', expected ':'",
    );
}

#[test]
fn errors_of_selectors() {
    let check = |text: &str, expect: &str| {
        assert_eq!(
            parse_selector(text).unwrap_err().to_string(),
            expect,
            "{text}"
        )
    };
    check("", "unknown position: parse error: unexpected end of input");
    check("up + 1", "1:4: parse error: unexpected <op:+>");
    check("up[5m]", "1:3: parse error: unexpected \"[\"");
    check("1", "1:1: parse error: unexpected number \"1\"");
    check("bool", "1:1: parse error: unexpected <bool>");
    assert_eq!(parse_selector("{}").unwrap(), []);
    let text = r#"{"\xfe",a="\xff"}"#;
    assert_eq!(
        print(&parse(text, &features()).unwrap()),
        r#"{__name__="\xfe",a="\xff"}"#
    );
    let matchers = parse_selector(r#"up{job=~"a|b"}"#).unwrap();
    assert_eq!(
        matchers
            .iter()
            .map(|m| (m.name(), m.value()))
            .collect::<Vec<_>>(),
        [("job", "a|b"), ("__name__", "up")]
    );
}
