//! Accepted, returned and evicted exemplars, and their order.

use proptest::prelude::*;

use super::*;

const WINDOW_MS: i64 = 100;

fn labels(name: &str, value: &str) -> Labels {
    Labels::from_pairs([(name, value)]).unwrap()
}

fn exemplar(trace: &str, timestamp_ms: i64, value: f64) -> Exemplar {
    Exemplar {
        labels: labels("trace_id", trace),
        value,
        timestamp_ms,
    }
}

/// Times and values of a series, in order.
fn of(ring: &Ring, series: &Labels) -> Vec<(i64, f64)> {
    let all = ring
        .series()
        .find(|(labels, _)| *labels == series)
        .map(|(_, all)| all.collect::<Vec<_>>());
    all.unwrap_or_default()
        .into_iter()
        .map(|(_, e)| (e.timestamp_ms, e.value))
        .collect()
}

/// The rules of Prometheus, tested in sequence on one series.
#[test]
fn exemplars_are_accepted_as_in_prometheus() {
    use RejectExemplar::{LabelsTooLong, OutOfOrder};
    let (mut ring, series) = (Ring::new(10, usize::MAX), labels("__name__", "up"));
    for (trace, timestamp_ms, value, expect) in [
        ("a", 1000, 1.0, Ok(true)),
        ("a", 1000, 1.0, Ok(false)),
        ("a", 1000, 0.5, Err(OutOfOrder)),
        ("a", 1000, 2.0, Ok(true)),
        ("a", 901, 1.0, Ok(true)),
        ("b", 901, 9.0, Ok(false)),
        ("a", 900, 1.0, Err(OutOfOrder)),
        ("a", 950, 7.0, Ok(true)),
        ("a", 2000, f64::NAN, Ok(true)),
        ("a", 2000, f64::NAN, Ok(true)),
        (&*"x".repeat(120), 3000, 1.0, Ok(true)),
        (&*"x".repeat(121), 4000, 1.0, Err(LabelsTooLong)),
    ] {
        let got = ring.append(
            series.clone(),
            &exemplar(trace, timestamp_ms, value),
            WINDOW_MS,
        );
        assert_eq!(
            got.map(|number| number.is_some()),
            expect,
            "{trace} {timestamp_ms} {value}"
        );
    }
    let times: Vec<_> = of(&ring, &series)
        .into_iter()
        .map(|(time, _)| time)
        .collect();
    assert_eq!(times, [901, 950, 1000, 1000, 2000, 2000, 3000]);
    assert_eq!(ring.stats().n_out_of_order, 2);
}

#[test]
fn without_a_window_older_exemplars_are_out_of_order() {
    let (mut ring, series) = (Ring::new(10, usize::MAX), labels("__name__", "up"));
    ring.append(series.clone(), &exemplar("a", 10, 1.0), 0)
        .unwrap();
    assert_eq!(
        ring.append(series, &exemplar("a", 9, 1.0), 0),
        Err(RejectExemplar::OutOfOrder)
    );
}

#[test]
fn the_oldest_exemplars_are_evicted_first() {
    let mut ring = Ring::new(2, usize::MAX);
    for i in 0..5 {
        ring.append(labels("s", &i.to_string()), &exemplar("a", 100 - i, 1.0), 0)
            .unwrap();
    }
    assert_eq!((ring.len(), ring.series().count()), (2, 2));
    assert_eq!(ring.stats().oldest_ms, Some(97));
    let mut none = Ring::new(0, usize::MAX);
    assert!(!none.has_room_for(7));
    none.append(labels("s", "1"), &exemplar("a", 1, 1.0), 0)
        .unwrap();
    assert_eq!((none.len(), none.size, none.series.len()), (0, 0, 0));
}

#[test]
fn large_labels_of_series_are_bounded_as_well() {
    let mut ring = Ring::new(10, usize::MAX);
    for i in 0..10 {
        let series = labels("s", &format!("{i}{}", "x".repeat(3 * EXEMPLAR_LABELS_SIZE)));
        ring.append(series, &exemplar("a", 1, 1.0), 0).unwrap();
    }
    assert!(
        ring.len() == 3 && ring.size <= 10 * EXEMPLAR_LABELS_SIZE,
        "{} of {} bytes",
        ring.len(),
        ring.size
    );
    ring.append(
        labels("s", &"x".repeat(20 * EXEMPLAR_LABELS_SIZE)),
        &exemplar("a", 1, 1.0),
        0,
    )
    .unwrap();
    assert_eq!(ring.len(), 1, "a single exemplar may be larger");
    let mut small = Ring::new(1000, 500);
    (0..100).for_each(|i| {
        assert!(
            small
                .append(labels("s", &i.to_string()), &exemplar("a", 1, 1.0), 0)
                .is_ok()
        )
    });
    assert!(
        (2..90).contains(&small.len()) && small.size <= 500,
        "{} of {} bytes",
        small.len(),
        small.size
    );
}

proptest! {
    /// A replay restores the same ring, in any order of the records.
    #[test]
    fn a_restored_ring_equals_the_original(
        appends in proptest::collection::vec((0..4_u8, 0..300_i64, 0..3_u8, 0..2_u8), 0..60),
        n_max in 0..20_usize,
        seed in any::<u64>(),
    ) {
        let (mut ring, mut log) = (Ring::new(n_max, usize::MAX), Vec::new());
        for (series, timestamp_ms, value, trace) in appends {
            let (series, exemplar) = (labels("s", &series.to_string()), exemplar(&trace.to_string(), timestamp_ms, value.into()));
            if let Ok(Some(number)) = ring.append(series.clone(), &exemplar, WINDOW_MS) {
                log.push((number, series, exemplar));
            }
        }
        prop_assert_eq!(ring.len(), log.len().min(n_max));
        for (_, times) in &ring.series {
            prop_assert!(!times.is_empty());
        }
        log.sort_by_key(|(number, ..)| number.wrapping_mul(seed | 1));
        let mut back = Ring::new(n_max, usize::MAX);
        // Checkpoint and segment may both have one.
        for (number, series, exemplar) in log.iter().chain(&log) {
            if back.has_room_for(*number) {
                back.insert(*number, series.clone(), exemplar.clone());
            }
        }
        prop_assert_eq!((back.size, back.next), (ring.size, ring.next));
        prop_assert_eq!(&back.series, &ring.series);
        prop_assert_eq!(back.taken.keys().collect::<Vec<_>>(), ring.taken.keys().collect::<Vec<_>>());
    }
}
