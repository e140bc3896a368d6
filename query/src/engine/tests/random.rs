//! Random and mutated queries, evaluated on one thread and on several. Checks that none panics,
//! that the results are equal, and that all memory is released.

use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

const LEAVES: &[&str] = &[
    "m",
    "m{i=\"3\"}",
    "m{i=~\"1.*\"} offset -3s",
    "m @ 40",
    "rate(m[9s])",
    "max_over_time(m[1s])",
    "quantile_over_time(1.5, m[5s])",
    "{i=~\"2.*\"}",
    "nothing",
    "vector(time())",
];

const SCALARS: &[&str] = &[
    "1",
    "0.5",
    "-Inf",
    "NaN",
    "time()",
    "scalar(sum(m))",
    "scalar(m{i=\"3\"})",
    "2 ^ 3",
];

/// Query templates: `V` stands for a vector, `S` for a scalar.
const TEMPLATES: &[&str] = &[
    "sum(V)",
    "avg by (i) (V)",
    "count without (i) (V)",
    "stddev(V)",
    "topk(S, V)",
    "bottomk(3, V)",
    "limitk(2, V)",
    "limit_ratio(0.5, V)",
    "quantile(S, V)",
    "count_values(\"v\", V)",
    "abs(V)",
    "round(V, S)",
    "clamp(V, S, S)",
    "-V",
    "V + S",
    "S / V > 1",
    "V == bool S",
    "V + V",
    "V * on (i) V",
    "V > on () group_left () V",
    "V and V",
    "V or V",
    "V unless on (i) V",
    "sort_desc(V)",
    "timestamp(V)",
    "absent(V)",
    "histogram_quantile(0.9, V)",
    "histogram_count(V)",
    "label_replace(V, \"i\", \"$1\", \"i\", \"(.).*\")",
    "sum_over_time(V[8s:3s])",
    "V @ 30",
    "V offset 2s",
    "(V",
];

fn any_query() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(LEAVES).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let scalars = prop::collection::vec(prop::sample::select(SCALARS), 2);
        let inner = prop::collection::vec(inner, 2);
        (prop::sample::select(TEMPLATES), inner, scalars).prop_map(
            |(template, vectors, scalars)| {
                let (mut vectors, mut scalars) = (vectors.iter(), scalars.iter());
                let fill = |text: &str| match text {
                    "V" => format!("({})", vectors.next().expect("at most two")),
                    "S" => (*scalars.next().expect("at most two")).to_owned(),
                    other => other.to_owned(),
                };
                let pieces = template
                    .split_inclusive(|c: char| !c.is_alphanumeric())
                    .flat_map(|piece| {
                        let (word, rest) = piece
                            .split_at(piece.trim_end_matches(|c: char| !c.is_alphanumeric()).len());
                        [word, rest]
                    });
                pieces.map(fill).collect()
            },
        )
    })
}

/// Returns the printed result, and the number of bytes still charged afterwards.
fn result_of(parallelism: usize, query: &str, times: Steps) -> (String, usize) {
    static STORE: OnceLock<(TempDir, Db)> = OnceLock::new();
    static ENGINES: OnceLock<[Engine; 2]> = OnceLock::new();
    let (_folder, db) = STORE.get_or_init(store);
    let engines = ENGINES.get_or_init(|| {
        let engine = |parallelism| {
            let options = EngineOptions {
                parallelism,
                samples_max: 100_000,
                features: Features::all(),
                ..test_options()
            };
            Engine::new(options)
        };
        [engine(1), engine(3)]
    });
    let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), 8 << 20);
    let ctx = ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory.clone()));
    let request = Request::new(query, times);
    let printed = match engines[usize::from(parallelism > 1)].run(db, &ctx, &request) {
        Ok(QueryResult {
            value, annotations, ..
        }) => {
            format!("{value:?} {:?}", annotations.all().collect::<Vec<_>>())
        }
        // Peak memory, and so the outcome, depends on the number of threads.
        Err(Error::Limit { .. }) => "limit".to_owned(),
        Err(error) => error.to_string(),
    };
    // The context holds compiled regular expressions.
    drop(ctx);
    (printed, memory.used())
}

fn check(query: &str) -> Result<(), TestCaseError> {
    for times in [Steps::instant(50_000), Steps::range(20_000, 60_000, 4000)] {
        let (one, many) = (result_of(1, query, times), result_of(3, query, times));
        prop_assert!(
            one.1 == 0 && many.1 == 0,
            "{}: {} and {} bytes are held",
            query,
            one.1,
            many.1
        );
        prop_assert!(
            one.0 == many.0 || [&one.0, &many.0].contains(&&"limit".to_owned()),
            "{}: {:?} {:?}",
            query,
            one.0,
            many.0
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_queries_give_the_same_result_on_any_number_of_threads(query in any_query()) {
        check(&query)?;
    }

    #[test]
    fn mutated_queries_give_a_result_or_an_error(
        query in any_query(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, "[a-z0-9(){}\\[\\]@,+ -]{0,3}"), 1..3),
    ) {
        let mut chars: Vec<char> = query.chars().collect();
        for (at, n_removed, piece) in edits {
            let at = at.index(chars.len() + 1);
            chars.splice(at..(at + n_removed).min(chars.len()), piece.chars());
        }
        check(&chars.into_iter().collect::<String>())?;
    }
}
