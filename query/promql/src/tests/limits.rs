//! Long and deep queries return an error or a tree, and never crash.

use std::time::{Duration, Instant};

use super::*;

/// Parses a query, and calls every function that walks its tree. Comparison and cloning are only
/// used in tests, and run on the stack of their caller.
fn exercise(query: &str) {
    deep_stack::run(&QueryContext::unbounded(), true, || {
        exercise_on_this_stack(query)
    })
    .unwrap();
    assert!(!prettify(&parse(query, &Features::all()).unwrap()).is_empty());
}

fn exercise_on_this_stack(query: &str) {
    let expr = parse(query, &Features::all()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(expr.clone(), expr);
    assert_eq!(
        print(&expr).split_whitespace().count(),
        query.split_whitespace().count()
    );
    assert!(
        !prettify(&expr).is_empty()
            && !to_json(&expr).is_empty()
            && !format!("{expr:?}").is_empty()
    );
    let _ = expr.value_type();
}

#[test]
fn nesting_up_to_the_limit_is_accepted() {
    let n = DEPTH_MAX - 1;
    exercise(&format!("{}x{}", "(".repeat(n), ")".repeat(n)));
    exercise(&format!("{}x{}", "abs(".repeat(n), ")".repeat(n)));
    exercise(&format!("{}x", "-".repeat(n)));
    exercise(&format!("x{}", " ^ x".repeat(n)));
    exercise(&format!(
        "{}x{}",
        "sum(a + ".repeat(n / 2),
        ")".repeat(n / 2)
    ));
}

#[test]
fn nesting_past_the_limit_is_an_error() {
    let check = |query: String| {
        let message = error(&query);
        let expect = "parse error: expression is nested more than 1024 levels deep, the limit of the query nesting";
        assert!(message.ends_with(expect), "{message}");
    };
    for n in [DEPTH_MAX, 100_000] {
        check(format!("{}x{}", "(".repeat(n), ")".repeat(n)));
        check("(".repeat(n + 1));
        check(format!("{}x", "-".repeat(n)));
        check(format!("x{}", " ^ x".repeat(n)));
        check(format!("{}x", "sum(".repeat(n)));
        check(format!("x{}", "[5m:]".repeat(n)));
    }
}

#[test]
fn duration_expressions_are_bounded() {
    let check = |query: String| {
        let message = error(&query);
        assert!(
            message.ends_with("parse error: duration expression has more than 256 parts"),
            "{message}"
        );
    };
    check(format!(
        "x[{}5m{}]",
        "(".repeat(100_000),
        ")".repeat(100_000)
    ));
    check(format!("x[5m{}]", " + 5m".repeat(100_000)));
    check(format!("x offset {}5m", "-".repeat(100_000)));
    exercise(&format!("x[5m{}]", " + 5m".repeat(100)));
}

#[test]
fn a_chain_of_ten_thousand_operators_is_parsed_in_linear_time() {
    let start = Instant::now();
    for chain in [" or x", " + 1", " == bool 1"] {
        let first = if chain == " or x" { "x" } else { "1" };
        exercise(&format!("{first}{}", chain.repeat(10_000)));
    }
    // Linear time is milliseconds; quadratic time would be minutes.
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    let message = error(&format!("x{}", " or x".repeat(CHAIN_LEN_MAX + 1)));
    assert_eq!(
        message,
        "1:1: parse error: expression has more than 16384 operators in a row"
    );
}

#[test]
fn a_query_past_the_size_limit_is_an_error() {
    let message = error(&"x".repeat(QUERY_SIZE_MAX + 1));
    let expect =
        "1:1: parse error: query of 1048577 bytes exceeds 1048576, the limit of the query length";
    assert_eq!(message, expect);
}

#[test]
fn limits_can_be_lowered_but_not_raised() {
    let limit = |query: &str, size_max, depth_max| {
        let features = Features {
            limits: Limits {
                size_max,
                depth_max,
            },
            ..Features::default()
        };
        parse(query, &features)
            .err()
            .map(|error| error.limit().expect("the error names a limit").name())
    };
    assert_eq!(limit("((x))", 5, 3), None);
    assert_eq!(limit("((x))", 4, 3), Some("query length"));
    assert_eq!(limit("((x))", 5, 2), Some("query nesting"));
    assert_eq!(limit("x[5m:][5m:]", 100, 2), Some("query nesting"));
    assert_eq!(
        limit(&"(".repeat(2000), usize::MAX, usize::MAX),
        Some("query nesting")
    );
    assert_eq!(
        limit(&"x".repeat(QUERY_SIZE_MAX + 1), usize::MAX, usize::MAX),
        Some("query length")
    );
}
