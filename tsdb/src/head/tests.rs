//! The head against a model, and cases that the model does not reach.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use varve_context::QueryContext;
use varve_model::start_timestamps::Order;
use varve_model::{Labels, RejectionReason, Sample, SampleColumns, TimeRange};

use super::*;
use crate::batch::{NewFloat, SeriesRef};
use crate::isolation::ReadView;

fn series_labels(i: usize) -> Labels {
    let value = |k: usize| (i * 7919 % (k + 3)).to_string();
    let mut pairs = vec![
        ("__name__", format!("metric_{}", i % 3)),
        ("i", i.to_string()),
    ];
    pairs.extend([("a", value(2)), ("b", value(5))].into_iter().take(i % 3));
    Labels::from_pairs(pairs.iter().map(|(name, value)| (*name, value.as_str()))).unwrap()
}

fn make(head: &mut Head, i: usize) -> SlotRef {
    let (slot, _) = head
        .find_or_create(&series_labels(i), SeriesRef(i as u64))
        .unwrap();
    head.slot_ref(slot)
}

fn append(
    head: &mut Head,
    bounds: &Bounds,
    append_id: u32,
    of: SlotRef,
    t: i64,
    bits: u64,
) -> Result<Appended, RejectionReason> {
    let sample = Sample {
        timestamp_ms: t,
        value: f64::from_bits(bits),
    };
    let float = NewFloat {
        slot: of.slot,
        generation: of.generation,
        index: 0,
        position: 0,
        sample,
    };
    let mut result = Err(RejectionReason::Moved);
    head.append_all(&[float], |head, float| {
        result = head.append(bounds, append_id, float)
    });
    result
}

fn read(head: &Head, of: SlotRef, range: TimeRange, view: &ReadView) -> Vec<(i64, u64)> {
    let (mut copies, mut out) = (HeadCopies::default(), SampleColumns::default());
    // The same series three times: copies of several series share one buffer.
    head.copy(&[of, of, of], range, view, &mut copies);
    assert_eq!(copies.len(), 3);
    copies.read(1, range, &mut out).unwrap();
    assert!(out.len() <= copies.n_samples_max(1) && (copies.has(1) || out.is_empty()));
    assert_eq!(
        head.has_sample(of, range, view, &mut copies),
        !out.is_empty()
    );
    out.iter()
        .map(|s| (s.timestamp_ms, s.value.to_bits()))
        .collect()
}

const ANY: Bounds = Bounds {
    future_max_ms: i64::MAX,
    ahead_max_ms: 0,
    newest_ms: None,
    in_order_max_age_ms: i64::MAX,
    out_of_order_window_ms: i64::MAX,
};

fn all() -> ReadView {
    ReadView::new(1000, Vec::new())
}

/// Checks the outcome of each step for one series, given the newest timestamp of the store and the
/// window. The step `freeze` freezes the head. `flush` also drops the frozen samples.
fn check_accepted(
    newest_ms: i64,
    window_ms: i64,
    steps: &[(&str, i64, f64, Result<bool, RejectionReason>)],
) {
    let mut head = Head::new(0);
    let of = make(&mut head, 0);
    let bounds = Bounds {
        future_max_ms: newest_ms + 600_000,
        ahead_max_ms: 600_000,
        newest_ms: Some(newest_ms),
        in_order_max_age_ms: 3 * 3_600_000,
        out_of_order_window_ms: window_ms,
    };
    for (i, &(step, t, value, expected)) in steps.iter().enumerate() {
        if step != "append" {
            assert!(head.freeze().is_some(), "step {i}");
            assert!(head.freeze().is_none(), "one at a time");
            if step == "flush" {
                head.drop_frozen();
            }
            continue;
        }
        let result = append(&mut head, &bounds, 0, of, t, value.to_bits())
            .map(|done| done != Appended::Repeated);
        assert_eq!(result, expected, "step {i}: {value} at {t}");
    }
}

#[test]
fn with_a_window_out_of_order_samples_are_accepted_and_older_ones_are_too_old() {
    use RejectionReason::{Duplicate, TooFarInFuture, TooOld};
    let (h, m) = (3_600_000, 60_000);
    let none = Ok(false);
    check_accepted(
        10 * h,
        30 * m,
        &[
            ("append", 7 * h - 1, 1.0, Err(TooOld)),
            ("append", 7 * h, 1.0, Ok(true)),
            ("append", 7 * h, 1.0, none),
            ("append", 7 * h, 2.0, Err(Duplicate)),
            ("append", 7 * h - 1, 2.0, Err(TooOld)),
            ("append", 10 * h + 600_001, 1.0, Err(TooFarInFuture)),
            ("append", 10 * h + 600_000, 1.0, Ok(true)),
            ("append", 10 * h - 30 * m - 1, 1.0, Err(TooOld)),
            ("append", 10 * h - 30 * m, 1.0, Ok(true)),
            ("append", 10 * h - 30 * m, 1.0, none),
            ("append", 10 * h - 30 * m, 2.0, Err(Duplicate)),
            ("append", 7 * h, 1.0, none),
            ("append", 7 * h, 2.0, Err(Duplicate)),
            ("freeze", 0, 0.0, none),
            ("append", 10 * h - 30 * m, 1.0, none),
            ("append", 10 * h - 30 * m, 2.0, Ok(true)),
            ("append", 10 * h - 30 * m, 2.0, none),
            ("append", 10 * h - 30 * m, 3.0, Err(Duplicate)),
            ("append", 7 * h, 2.0, Err(TooOld)),
            ("append", 10 * h + 600_000, 1.0, none),
            ("append", 10 * h + 600_000, 2.0, Ok(true)),
        ],
    );
    // As old as the newest sample, which has left the head. The two may be equal, so reads compare
    // them.
    let steps = [
        ("append", 7 * h, 1.0, Ok(true)),
        ("flush", 0, 0.0, none),
        ("append", 7 * h, 2.0, Ok(true)),
    ];
    check_accepted(10 * h, 30 * m, &steps);
}

#[test]
fn without_a_window_bounds_are_those_of_prometheus() {
    use RejectionReason::{Duplicate, OutOfBounds, OutOfOrder};
    let h = 3_600_000;
    let none = Ok(false);
    check_accepted(
        10 * h,
        0,
        &[
            ("append", 9 * h - 1, 1.0, Err(OutOfBounds)),
            ("append", 9 * h, 1.0, Ok(true)),
            ("append", 9 * h + 1, 1.0, Ok(true)),
            ("append", 9 * h, 1.0, none),
            ("append", 9 * h, 2.0, Err(OutOfOrder)),
            ("append", 9 * h + 1, 2.0, Err(Duplicate)),
            ("append", 9 * h - 1, 2.0, Err(OutOfBounds)),
            ("freeze", 0, 0.0, none),
            ("append", 9 * h, 1.0, none),
            ("append", 9 * h + 1, 1.0, none),
            ("append", 9 * h + 1, 2.0, Err(OutOfOrder)),
            ("append", 9 * h, 2.0, Err(OutOfOrder)),
        ],
    );
}

#[test]
fn replay_has_no_bounds_and_the_first_of_two_values_wins() {
    let mut head = Head::new(0);
    let of = make(&mut head, 0);
    head.set_last(of.slot, 100);
    let mut replay = |t, value| {
        head.replay(
            of.slot,
            AnySample::Float(Sample {
                timestamp_ms: t,
                value,
            }),
        )
    };
    use Replayed::{Conflicting, New, Repeated};
    let steps = [
        (200, 1.0, New(Order::Newest)),
        (50, 2.0, New(Order::OutOfOrder)),
        (50, 2.0, Repeated),
        (50, 3.0, Conflicting),
        (200, 2.0, Conflicting),
    ];
    for (t, value, expected) in steps {
        assert_eq!(replay(t, value), expected, "{value} at {t}");
    }
    let expected = [(50, 2.0_f64.to_bits()), (200, 1.0_f64.to_bits())];
    assert_eq!(
        read(&head, of, TimeRange::ALL, &ReadView::new(0, Vec::new())),
        expected
    );
    assert_eq!(head.checkpoint_entry(of.slot), Some((SeriesRef(0), 199)));
}

/// Appends continue while a checkpoint is written: their samples are in the log after it.
#[test]
fn samples_since_a_freeze_are_in_order_again_after_its_checkpoint() {
    let mut head = Head::new(0);
    let of = make(&mut head, 0);
    assert_eq!(head.checkpoint_entry(of.slot).unwrap().1, i64::MIN);
    append(&mut head, &ANY, 0, of, 100, 1).unwrap();
    head.freeze();
    head.drop_frozen();
    assert_eq!(head.checkpoint_entry(of.slot).unwrap().1, 100);
    // An out-of-order sample, and enough in-order ones to close chunks.
    let behind: Vec<_> = [50].into_iter().chain((0..1000).map(|i| 200 + i)).collect();
    for &t in behind.iter() {
        _ = append(&mut head, &ANY, 0, of, t, 7).unwrap()
    }
    let (series, last_ms) = head.checkpoint_entry(of.slot).unwrap();

    let mut loaded = Head::new(1);
    let slot = loaded.load_labels(&head.labels(of.slot), series).unwrap();
    loaded.finish_loading().unwrap();
    loaded.set_last(slot, last_ms);
    for &t in &behind {
        let sample = Sample {
            timestamp_ms: t,
            value: f64::from_bits(7),
        };
        let order = if t == 50 {
            Order::OutOfOrder
        } else {
            Order::Newest
        };
        assert_eq!(
            loaded.replay(slot, AnySample::Float(sample)),
            Replayed::New(order),
            "{t}"
        );
    }
}

/// Samples of appends in flight stay hidden when a chunk or an out-of-order buffer is closed or the
/// head is frozen.
#[test]
fn appends_in_flight_are_hidden_wherever_their_samples_are() {
    let mut head = Head::new(0);
    let of = make(&mut head, 0);
    let request_of = |t: i64| (t / 100 % 7) as u32;
    for t in 0..1000 {
        append(
            &mut head,
            &ANY,
            request_of(t),
            of,
            10_000 + 10 * t,
            t as u64,
        )
        .unwrap();
    }
    // Out-of-order samples lie between and before the in-order ones.
    for t in 0..1000 {
        append(
            &mut head,
            &ANY,
            10 + request_of(t),
            of,
            9_995 + 10 * (t * 17 % 1000),
            t as u64,
        )
        .unwrap();
    }
    for frozen in [false, true] {
        for in_flight in [vec![], vec![3], vec![0, 6, 12], (0..20).collect()] {
            let view = ReadView::new(20, in_flight.clone());
            let seen = read(&head, of, TimeRange::ALL, &view).len();
            let hidden = (0..1000)
                .map(request_of)
                .flat_map(|r| [r, 10 + r])
                .filter(|r| in_flight.contains(r));
            assert_eq!(
                seen,
                2000 - hidden.count(),
                "frozen {frozen}, in flight {in_flight:?}"
            );
        }
        head.freeze();
    }
    head.set_horizon(20);
    assert_eq!(
        read(&head, of, TimeRange::ALL, &ReadView::new(20, Vec::new())).len(),
        2000
    );
}

/// Evicts up to `n_max` series from the slots after `*from`, then from the slots before, and
/// reclaims their memory.
fn evict(head: &mut Head, before_ms: i64, from: &mut u32, n_max: usize) -> usize {
    let (mut n, end) = (0, head.table.end() as u32);
    for _ in 0..end {
        if n == n_max {
            break;
        }
        *from = if *from < end { *from } else { 0 };
        n += head.evict(before_ms, *from..*from + 1);
        *from += 1;
    }
    let tables = [
        ShrinkTarget::Tails,
        ShrinkTarget::LabelSets,
        ShrinkTarget::Strings,
        ShrinkTarget::Series,
        ShrinkTarget::Symbols,
    ];
    for target in tables
        .into_iter()
        .chain(head.names().into_iter().map(ShrinkTarget::Values))
    {
        (0..)
            .take_while(|&step| head.shrink(target, step))
            .for_each(drop);
    }
    n
}

#[test]
fn a_walk_visits_each_slot_once() {
    let mut head = Head::new(0);
    assert_eq!(head.slots_of_step(0), None);
    (0..1025).for_each(|i| _ = make(&mut head, i));
    let steps: Vec<_> = (0..).map_while(|step| head.slots_of_step(step)).collect();
    assert_eq!(steps, [0..512, 512..1024, 1024..1025]);
}

#[test]
fn memory_is_reclaimed_when_all_series_are_idle() {
    let mut head = Head::new(0);
    let (empty, mut from) = (head.size(), 0);
    let slots: Vec<_> = (0..20_000).map(|i| make(&mut head, i)).collect();
    for t in 0..10 {
        for &of in slots.iter() {
            assert!(append(&mut head, &ANY, 0, of, t, 7).is_ok());
        }
    }
    let full = head.size();
    assert_eq!(
        evict(&mut head, 100, &mut from, usize::MAX),
        0,
        "series with samples in memory stay"
    );
    let frozen = head.freeze().unwrap();
    assert_eq!(
        evict(&mut head, 100, &mut from, usize::MAX),
        0,
        "also while they are frozen"
    );
    assert_eq!(frozen.slots().count(), 20_000);
    drop(frozen);
    head.drop_frozen();
    assert_eq!(
        evict(&mut head, 9, &mut from, usize::MAX),
        0,
        "the newest sample is not that old"
    );
    assert_eq!(
        (evict(&mut head, 10, &mut from, 50), head.len()),
        (50, 19_950)
    );
    assert_eq!(
        (
            evict(&mut head, 10, &mut from, usize::MAX),
            head.len(),
            head.table.end()
        ),
        (19_950, 0, 0)
    );
    assert!(
        head.size() < full / 5,
        "the timestamps of their newest samples are remembered: {full} {}",
        head.size()
    );
    (0..)
        .take_while(|&piece| head.forget_evicted(piece, i64::MAX))
        .for_each(drop);
    assert!(
        head.size() < empty + full / 50,
        "{empty} {full} {}",
        head.size()
    );
    assert!(
        slots
            .iter()
            .all(|&of| append(&mut head, &ANY, 0, of, 100, 7) == Err(RejectionReason::Moved))
    );
    for i in 0..20_000 {
        let of = make(&mut head, i);
        assert!(
            !slots.contains(&of) || i > 100,
            "a reused slot has another generation"
        );
    }
}

fn all_slots(head: &Head) -> Vec<SlotRef> {
    head.slot_refs(0..head.table.end() as u32).collect()
}

fn started(head: &Head, slots: &[SlotRef]) -> SlotSort {
    let mut sort = SlotSort::new(head.n_removed());
    slots.chunks(1000).for_each(|slots| sort.add(head, slots));
    sort.sort_ranked();
    sort
}

fn sorted(head: &Head, slots: Vec<SlotRef>) -> Vec<SlotRef> {
    let mut sort = started(head, &slots);
    while !sort.step(head) {}
    sort.finish()
}

fn ranks_of(head: &Head, sorted: &[SlotRef]) -> Ranks {
    ranks_from(head, sorted, 0)
}

fn ranks_from(head: &Head, sorted: &[SlotRef], first: u32) -> Ranks {
    let order = SeriesOrder::new(
        sorted.to_vec(),
        head.n_removed(),
        QueryContext::unbounded().charge(),
    );
    let mut ranks = Ranks::new(&order);
    sorted
        .iter()
        .zip(first..)
        .for_each(|(of, rank)| ranks.set(of.slot, rank));
    ranks
}

#[test]
fn slots_are_sorted_by_labels_ranked_or_not_and_during_evictions() {
    let mut head = Head::new(0);
    let is_sorted = |head: &Head, slots: &[SlotRef]| {
        slots
            .iter()
            .map(|of| head.labels(of.slot))
            .collect::<Vec<_>>()
            .is_sorted_by(|a, b| a < b)
    };
    let (mut n_ranked, mut from) = (0, 0);
    for n_series in [10, 3000, 9000, 9020] {
        (n_ranked..n_series).for_each(|i| {
            make(&mut head, i);
        });
        let mut slots = all_slots(&head);
        slots.rotate_left(n_series / 2);
        let in_order = sorted(&head, slots);
        assert!(
            in_order.len() == n_series && is_sorted(&head, &in_order),
            "{n_series}"
        );
        if n_series != 3000 {
            let ranks = ranks_of(&head, &in_order);
            head.set_ranks(ranks, 1);
        }
        n_ranked = n_series;
    }
    // Series are evicted during a sort, and others reuse their slots.
    let mut sort = started(&head, &all_slots(&head));
    assert!(sort.step(&head), "all are ranked");
    (9020..14_000).for_each(|i| {
        make(&mut head, i);
    });
    let mut sort = started(&head, &all_slots(&head));
    for round in 0.. {
        let done = sort.step(&head);
        if round % 3 == 0 && round < 15 {
            assert_eq!(evict(&mut head, 0, &mut from, 500), 500);
            (0..200).for_each(|i| {
                make(&mut head, 20_000 + round * 1000 + i);
            });
        }
        if done {
            break;
        }
    }
    let in_order: Vec<_> = sort
        .finish()
        .into_iter()
        .filter(|&of| head.is_current(of))
        .collect();
    assert!(
        in_order.len() == 14_000 - 2500 && is_sorted(&head, &in_order),
        "{}",
        in_order.len()
    );
    // A ranking replaces the ranks while slots are added.
    let ranks = ranks_of(&head, &in_order);
    head.set_ranks(ranks, 2);
    let slots = all_slots(&head);
    let (first, rest) = slots.split_at(slots.len() / 2);
    let mut sort = SlotSort::new(head.n_removed());
    sort.add(&head, first);
    let higher = ranks_from(&head, &in_order, 5000);
    head.set_ranks(higher, 3);
    sort.add(&head, rest);
    sort.sort_ranked();
    while !sort.step(&head) {}
    assert!(is_sorted(&head, &sort.finish()));
    // Series are evicted while ranks are computed, and others reuse their slots.
    let ranks = ranks_of(&head, &in_order);
    assert_eq!(evict(&mut head, 0, &mut from, 300), 300);
    (0..300).for_each(|i| {
        make(&mut head, 50_000 + i);
    });
    head.set_ranks(ranks, 4);
    let slots = all_slots(&head);
    let in_order = sorted(&head, slots);
    assert!(in_order.len() == head.len() && is_sorted(&head, &in_order));
}

#[test]
fn series_are_found_by_exactly_their_labels() {
    let mut head = Head::new(0);
    let slots: Vec<_> = (0..500).map(|i| make(&mut head, i)).collect();
    for (i, &of) in slots.iter().enumerate() {
        assert_eq!(head.find(&series_labels(i)), Some(of.slot));
        assert_eq!(head.labels(of.slot), series_labels(i));
        assert_eq!(make(&mut head, i), of);
        assert_eq!(head.find(&series_labels(i).with("i", "")), None);
        assert_eq!(head.find(&series_labels(i).with("i", "x")), None);
    }
    let empty = head
        .find_or_create(&Labels::empty(), SeriesRef(1000))
        .unwrap()
        .0;
    assert_eq!(
        (head.find(&Labels::empty()), head.labels(empty)),
        (Some(empty), Labels::empty())
    );
}

#[derive(Debug, Clone)]
enum Step {
    /// An append with runs of samples: series, first timestamp, interval, number, bits. It stays in
    /// flight.
    Begin(Vec<(usize, i64, i64, i64, u64)>),
    /// Finishes the n-th append in flight, modulo their number.
    Finish(usize),
    /// Begins a reader, or ends the n-th one.
    Reader(Option<usize>),
    Freeze,
    DropFrozen,
    Evict(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let run = (
        0..4_usize,
        0..400_i64,
        1..4_i64,
        prop_oneof![8 => 1..4_i64, 1 => 100..300_i64],
        0..3_u64,
    );
    prop_oneof![
        8 => proptest::collection::vec(run, 1..6).prop_map(Step::Begin),
        6 => (0..10_usize).prop_map(Step::Finish),
        3 => proptest::option::of(0..4_usize).prop_map(Step::Reader),
        2 => Just(Step::Freeze),
        2 => Just(Step::DropFrozen),
        1 => (0..800_i64).prop_map(Step::Evict),
    ]
}

/// A series of the model: bits and append id by timestamp.
#[derive(Debug, Default)]
struct Model {
    of: Option<SlotRef>,
    last: Option<i64>,
    live: BTreeMap<i64, (u64, u32)>,
    frozen: BTreeMap<i64, (u64, u32)>,
}

impl Model {
    fn append(
        &mut self,
        newest: Option<i64>,
        window: i64,
        append_id: u32,
        t: i64,
        bits: u64,
    ) -> Result<bool, RejectionReason> {
        let reaches = |age: i64| newest.is_none_or(|newest| t >= newest - age);
        let in_order = reaches(if window == 0 {
            3_600_000
        } else {
            200.max(window)
        });
        let refused = if window > 0 {
            RejectionReason::TooOld
        } else {
            RejectionReason::OutOfOrder
        };
        let take = if self.last.is_none_or(|last| t > last) {
            in_order
        } else if let Some(&(known, _)) = self.live.get(&t) {
            if known == bits {
                return Ok(false);
            }
            let duplicate = window > 0 || self.last == Some(t);
            return Err(if duplicate {
                RejectionReason::Duplicate
            } else {
                refused
            });
        } else if let Some(&(known, _)) = self.frozen.get(&t) {
            if known == bits {
                return Ok(false);
            }
            window > 0 && reaches(window)
        } else {
            window > 0 && reaches(window) || self.last == Some(t) && in_order
        };
        if !take {
            return Err(refused);
        }
        self.last = self.last.max(Some(t));
        self.live.insert(t, (bits, append_id));
        Ok(true)
    }

    fn read(&self, range: TimeRange, view: &ReadView) -> Vec<(i64, u64)> {
        let mut samples = BTreeMap::new();
        for (&t, &(bits, append_id)) in self.frozen.iter().chain(&self.live) {
            if range.contains(t) && view.sees(append_id) {
                samples.entry(t).or_insert(bits);
            }
        }
        samples.into_iter().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A head is a map from series to samples. Readers see appends entirely or not at all.
    #[test]
    fn a_head_is_a_map(
        steps in proptest::collection::vec(step(), 1..40),
        window in prop_oneof![Just(0_i64), Just(80), Just(1000)],
        base in prop_oneof![Just(0_u32), Just(u32::MAX - 5), Just((1 << 29) - 5)],
        start_ms in 0..800_i64, len_ms in 0..300_i64,
    ) {
        let mut head = Head::new(0);
        head.set_horizon(base);
        let mut models: Vec<Model> = (0..4).map(|_| Model::default()).collect();
        let (mut next, mut in_flight, mut readers) = (base, Vec::new(), Vec::<ReadView>::new());
        let (mut newest, mut gone) = (None, Vec::new());
        for step in steps {
            match step {
                Step::Begin(runs) => {
                    let append_id = next;
                    in_flight.push(append_id);
                    next = next.wrapping_add(1);
                    let bounds = Bounds {
                        future_max_ms: i64::MAX, ahead_max_ms: 0, newest_ms: newest, in_order_max_age_ms: 200, out_of_order_window_ms: window,
                    };
                    for (i, first, distance, n, bits) in runs {
                        let of = make(&mut head, i);
                        prop_assert!(models[i].of.is_none_or(|before| before == of));
                        models[i].of = Some(of);
                        for t in (0..n).map(|k| first + k * distance) {
                            let expected = models[i].append(bounds.newest_ms, window, append_id, t, bits);
                            let result = append(&mut head, &bounds, append_id, of, t, bits);
                            prop_assert_eq!(result.map(|done| done != Appended::Repeated), expected, "series {} at {}", i, t);
                            newest = newest.max(expected.ok().filter(|new| *new).map(|_| t));
                        }
                    }
                }
                Step::Finish(n) => if !in_flight.is_empty() {
                    in_flight.remove(n % in_flight.len());
                },
                Step::Reader(None) => readers.push(ReadView::new(next, in_flight.clone())),
                Step::Reader(Some(n)) => if n < readers.len() {
                    readers.remove(n);
                },
                Step::Freeze => {
                    let expected = models.iter().all(|m| m.frozen.is_empty()) && models.iter().any(|m| !m.live.is_empty());
                    prop_assert_eq!(head.freeze().is_some(), expected);
                    if expected {
                        for m in models.iter_mut() { m.frozen = std::mem::take(&mut m.live); }
                        let frozen = head.frozen().unwrap();
                        let with_samples: BTreeSet<_> = models.iter().filter(|m| !m.frozen.is_empty()).filter_map(|m| m.of).map(|of| of.slot).collect();
                        prop_assert_eq!(frozen.slots().collect::<BTreeSet<_>>(), with_samples);
                        for model in models.iter().filter(|m| !m.frozen.is_empty()) {
                            let (mut scratch, mut out) = (HeadCopies::default(), SampleColumns::default());
                            frozen.read(model.of.unwrap().slot, TimeRange::ALL, &mut scratch, &mut out).unwrap();
                            let expected: Vec<_> = model.frozen.iter().map(|(&t, &(bits, _))| (t, bits)).collect();
                            prop_assert_eq!(out.iter().map(|s| (s.timestamp_ms, s.value.to_bits())).collect::<Vec<_>>(), expected);
                        }
                    }
                }
                Step::DropFrozen => {
                    head.drop_frozen();
                    for m in models.iter_mut() { m.frozen.clear(); }
                }
                Step::Evict(before) => {
                    let stale = |m: &Model| m.of.is_some() && m.live.is_empty() && m.frozen.is_empty() && m.last.is_none_or(|last| last < before);
                    prop_assert_eq!(evict(&mut head, before, &mut 0, 100), models.iter().filter(|m| stale(m)).count());
                    for model in models.iter_mut().filter(|m| stale(m)) {
                        // Whether a sample is accepted does not depend on evictions.
                        gone.push(model.of.take().unwrap());
                    }
                }
            }
            let now = ReadView::new(next, in_flight.clone());
            let horizon = readers.iter().chain([&now]).map(ReadView::horizon).min_by_key(|h| h.wrapping_sub(base) as i32).unwrap();
            head.set_horizon(horizon);
            let in_memory = models.iter().flat_map(|m| m.frozen.keys().chain(m.live.keys()).copied());
            let range = in_memory.clone().min().zip(in_memory.max());
            prop_assert_eq!(head.range().map(|range| (range.start_ms, range.end_ms)), range);
            for view in readers.iter().chain([&now]) {
                for range in [TimeRange::ALL, TimeRange { start_ms, end_ms: start_ms + len_ms }] {
                    for model in &models {
                        let Some(of) = model.of else { continue };
                        prop_assert_eq!(read(&head, of, range, view), model.read(range, view), "{:?}", view);
                    }
                }
            }
            for &of in &gone {
                prop_assert!(read(&head, of, TimeRange::ALL, &all()).is_empty(), "a reused slot is not the old series");
            }
            prop_assert_eq!(head.len(), models.iter().filter(|m| m.of.is_some()).count());
        }
    }
}
