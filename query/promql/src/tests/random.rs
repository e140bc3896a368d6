//! Random text and mutated queries.

use proptest::prelude::*;

use super::*;

/// Pieces of queries. `Inf` is missing here and in the queries below: as in Prometheus, it is
/// printed with a sign, which `Inf ^ x` parses as an operator.
const PIECES: &str = r#"
    x sum rate ( ) { } [ ] 5m 300 0x1f 1e3 NaN + - * / % ^ == != <= < >= > </ >/ =~ !~ = @ , : "a" 'b' `c` "\xff" "["
    # and or unless atan2 offset by without on ignoring bool group_left group_right fill fill_left fill_right anchored
    smoothed start end step() range() min_of max_of start() end() topk(2,x) x[5m] x[5m:1m] x{a="b"} {__name__="x"}
    rate(x[5m]) count_values("a",x) quantile info(x,{a="b"}) 1 0 (x) -x a:b é \ by(a) on(a)group_left(b)
"#;

/// Queries to mutate.
const QUERIES: [&str; 6] = [
    r#"sum by (job, "a.b") (rate(http_requests_total{code=~"5..",path!="/x"}[5m] offset 1h)) / on (job) group_left x"#,
    "max_over_time(deriv(x[1m:10s] @ end())[5m + step() * 2:max_of(10s, range())] @ 1609746000.5) > bool -0x1F",
    r#"label_replace({"ütf.8", a="\u00e9\xff"}, 'b', `$1`, "c", "(.*)") or vector(1e3) unless on () (a ^ b ^ -1)"#,
    "x anchored + ignoring (a) fill_left (-1) fill_right (5m) rate(y[5m] smoothed offset -(1h + 5m))",
    "topk(3, a) by (b,) </ 1h30m >/ NaN atan2 +7 # comment",
    "histogram_quantile(0.9, sum without (pod) (x_bucket{le!~\"a|b\"}))",
];

fn pieces() -> Vec<&'static str> {
    PIECES.split_whitespace().chain([" ", "\n"]).collect()
}

/// Checks that parsing a text returns an error, or a tree whose printed text parses to the same
/// tree.
fn check(text: &str) -> Result<(), TestCaseError> {
    for features in [Features::all(), Features::default()] {
        let _ = parse_selector(text);
        let Ok(expr) = parse(text, &features) else {
            continue;
        };
        for printed in [print(&expr), prettify(&expr)] {
            let again = parse(&printed, &features)
                .map_err(|e| TestCaseError::fail(format!("{printed}: {e}")))?;
            prop_assert_eq!(canonical(&again), canonical(&expr), "{}", printed);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn random_pieces_of_queries_print_to_themselves(pieces in prop::collection::vec(prop::sample::select(pieces()), 1..12)) {
        check(&pieces.concat())?;
        check(&pieces.join(" "))?;
    }

    #[test]
    fn mutated_queries_print_to_themselves(
        query in prop::sample::select(QUERIES.to_vec()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, prop::sample::select(pieces())), 0..4),
    ) {
        let mut chars: Vec<char> = query.chars().collect();
        for (at, n_removed, piece) in edits {
            let at = at.index(chars.len() + 1);
            chars.splice(at..(at + n_removed).min(chars.len()), piece.chars());
        }
        check(&chars.iter().collect::<String>())?;
    }

    // As in Prometheus, durations of many weeks may lose a millisecond because seconds are floats.
    #[test]
    fn numbers_of_any_size_print_to_themselves(value in any::<f64>(), milliseconds in 0..1_000_000_000_i64) {
        check(&format!("{value} + x @ {value:e} + x offset {milliseconds}ms + {milliseconds}ms"))?;
    }
}
