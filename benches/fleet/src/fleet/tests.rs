use std::collections::{BTreeMap, HashSet};

use varve_model::staleness::is_stale_nan;

use super::*;

fn fleet(active_series: usize, churn_per_hour: f64) -> Fleet {
    Fleet::new(FleetOptions {
        active_series,
        churn_per_hour,
        ..FleetOptions::default()
    })
}

fn first(place: u32) -> SeriesId {
    SeriesId {
        place,
        generation: 0,
    }
}

#[test]
fn equal_options_give_equal_fleets_and_other_seeds_differ() {
    let (a, b) = (fleet(30_000, 0.0), fleet(30_000, 0.0));
    let c = Fleet::new(FleetOptions {
        seed: 2,
        ..*a.options()
    });
    let mut differs = 0;
    for place in (0..a.n_places()).step_by(7) {
        let series = first(place);
        assert_eq!(a.labels(series), b.labels(series));
        assert_eq!(a.value(series, 17), b.value(series, 17));
        differs += u32::from(a.labels(series) != c.labels(series));
    }
    assert!(differs > 1000, "{differs}");
}

#[test]
fn no_two_series_have_equal_labels() {
    let fleet = fleet(60_000, 0.0);
    let all: HashSet<_> = (0..fleet.n_places())
        .map(|place| fleet.labels(first(place)))
        .collect();
    assert_eq!(all.len(), 60_000);
}

#[test]
fn labels_have_the_number_and_size_of_real_ones() {
    let fleet = fleet(50_000, 0.0);
    let mut size = 0;
    for place in 0..fleet.n_places() {
        let labels = fleet.labels(first(place));
        size += labels
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>();
        if fleet.place(place).row.subject.slot().is_some() {
            assert!(labels.len() >= 10, "{labels}");
        }
    }
    let mean = size as f64 / 50_000.0;
    assert!((313.0..353.0).contains(&mean), "{mean} bytes of text");
}

#[test]
fn two_in_five_series_are_constant_for_an_hour() {
    let fleet = fleet(50_000, 0.0);
    let is_constant = |place: &u32| {
        let value = |round| fleet.value(first(*place), round);
        let start = value(0);
        (1..120).all(|round| value(round) == start)
    };
    let places: Vec<_> = (0..fleet.n_places()).step_by(5).collect();
    let n_constant = places.iter().copied().filter(is_constant).count();
    let share = n_constant as f64 / places.len() as f64;
    assert!((0.35..0.41).contains(&share), "{share}");
}

#[test]
fn buckets_of_a_round_ascend_and_end_at_the_count() {
    let fleet = fleet(20_000, 0.0);
    for round in [0, 1, 60, 119] {
        let mut histograms: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        for place in 0..fleet.n_places() {
            let (series, labels) = (first(place), fleet.labels(first(place)));
            let value = fleet.value(series, round).expect("the series is active");
            let of = labels
                .filter(|name| name != "le" && name != "__name__")
                .to_string();
            if let Some(name) = labels.metric_name().strip_suffix("_bucket") {
                histograms
                    .entry((name.to_owned(), of))
                    .or_default()
                    .push(value);
            } else if let Some(name) = labels.metric_name().strip_suffix("_count") {
                counts.insert((name.to_owned(), of), value);
            }
        }
        assert!(histograms.len() > 100);
        for (key, buckets) in histograms {
            assert!(buckets.is_sorted(), "{key:?}: {buckets:?}");
            assert_eq!(counts.get(&key), buckets.last(), "{key:?}");
        }
    }
}

#[test]
fn series_of_pods_end_with_a_marker_and_their_successors_begin_in_the_same_round() {
    let fleet = fleet(30_000, 2.0);
    let mut n_ends = 0;
    let mut last = BTreeMap::new();
    for round in 0..120 {
        fleet.scrape(0..fleet.n_places(), round, |series, sample| {
            assert_eq!(
                fleet.value(series, round).map(f64::to_bits),
                Some(sample.value.to_bits())
            );
            let ended = last.insert(series, is_stale_nan(sample.value));
            assert_ne!(ended, Some(true), "{series:?} continues after its end");
            n_ends += usize::from(is_stale_nan(sample.value));
        });
    }
    let n_series = 30_000 + n_ends;
    assert_eq!(last.len(), n_series);
    assert!(
        n_ends > 15_000,
        "{n_ends} in an hour that replaces every pod twice"
    );
    let labels: HashSet<_> = last.keys().map(|&series| fleet.labels(series)).collect();
    assert_eq!(labels.len(), n_series, "a new pod has series of its own");
}

#[test]
fn machines_cover_all_places_in_order() {
    for active_series in [1, 2_000, 2_100, 77_777] {
        let fleet = fleet(active_series, 0.0);
        let mut end = 0;
        for machine in fleet.machines() {
            assert_eq!(machine.start, end);
            end = machine.end;
        }
        assert_eq!(end, fleet.n_places());
    }
}

#[test]
fn restarted_processes_keep_their_series() {
    let fleet = fleet(5_000, 0.0);
    let place = (0..fleet.n_places())
        .find(|&p| fleet.labels(first(p)).metric_name() == "node_context_switches_total");
    let values: Vec<_> = (0..20_000)
        .filter_map(|round| fleet.value(first(place.expect("the metric exists")), round))
        .collect();
    let n_resets = values.windows(2).filter(|w| w[1] < w[0]).count();
    assert_eq!((values.len(), n_resets), (20_000, 2));
}
