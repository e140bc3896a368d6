//! Admission control, in a receiver.

mod teams;

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use crate::admission::{AdmissionStats, Amounts, Exhausted, TeamBudget};
use crate::sources::remote_write::message::exemplar;

impl Fixture {
    fn with_budgets(limits: Limits, budgets: Budgets) -> Self {
        let fixture = Self::new(limits);
        budgets.check().unwrap();
        fixture.receiver.set_budgets(budgets);
        fixture
    }

    /// A fixture with a queue timeout of zero.
    fn impatient(budgets: Budgets) -> Self {
        Self::with_budgets(
            Limits {
                queue_timeout: Duration::ZERO,
                ..Limits::for_tests()
            },
            budgets,
        )
    }

    fn write_as(
        &self,
        origin: &Origin<'_>,
        timeseries: &[TimeSeries],
    ) -> Result<Written, WriteError> {
        self.receiver
            .write(origin, Version::V1, &pack(&request(timeseries)))
    }

    /// Returns the number of samples of each series, by its label `i`.
    fn samples(&self) -> BTreeMap<String, usize> {
        let sample_count = |(labels, columns): (Labels, SampleColumns)| {
            (
                labels.get("i").unwrap_or_default().to_owned(),
                columns.len(),
            )
        };
        self.select(&[]).into_iter().map(sample_count).collect()
    }

    /// Returns the active series of a team, and those above its guarantee.
    fn team(&self, name: &str) -> (u64, u64) {
        let teams = self.receiver.team_stats().1;
        let team = teams
            .iter()
            .find(|team| &*team.name == name)
            .expect("the team is known");
        (team.use_now.active_series, team.borrowed.active_series)
    }
}

fn of_team(team: &str, i: impl ToString, t: i64) -> TimeSeries {
    series(
        &[("__name__", "m"), ("i", &i.to_string()), ("team", team)],
        &[(t, 1.0)],
    )
}

fn amounts(active_series: Option<u64>, new_series: Option<u64>, samples: Option<u64>) -> Amounts {
    Amounts {
        active_series,
        new_series_per_second: new_series,
        samples_per_second: samples,
    }
}

fn named<'a>(team: &'a str, user: Option<&'a str>) -> Origin<'a> {
    Origin {
        team: Some(team),
        user,
        ..Origin::default()
    }
}

/// Budgets by the label `team`.
fn budgets(total: Amounts, teams: &[(&str, Amounts, Amounts)]) -> Budgets {
    let teams = teams.iter().map(|&(name, guaranteed, maximum)| {
        (
            name.to_owned(),
            TeamBudget {
                guaranteed,
                maximum,
            },
        )
    });
    Budgets {
        team_label: Some("team".to_owned()),
        total,
        teams: teams.collect(),
        ..Budgets::default()
    }
}

fn throttled(outcome: Result<Written, WriteError>) -> (Exhausted, u64) {
    match outcome {
        Err(WriteError::Throttled {
            resource, n_series, ..
        }) => (resource, n_series),
        other => panic!("{other:?}"),
    }
}

#[test]
fn known_series_are_stored_while_no_permit_to_create_is_free() {
    let fixture = Fixture::impatient(Budgets::default());
    fixture.write(&[of_team("a", "known", T)]).unwrap();
    let permit = fixture.receiver.admission.hold_creation();
    let request = [
        of_team("a", "new", T),
        of_team("a", "known", T + 1),
        of_team("a", "known", T + 2),
    ];
    let refused = fixture.write(&request).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "too many requests create series (requests that create series); stored all but 1 series: send \
         the request again"
    );
    assert_eq!(fixture.samples(), [("known".to_owned(), 3)].into());
    drop(permit);
    // A retry stores the deferred part, and nothing twice.
    assert!(fixture.write(&request).unwrap().rejections.is_empty());
    assert_eq!(
        fixture.samples(),
        [("known".to_owned(), 3), ("new".to_owned(), 1)].into()
    );
    assert_eq!(
        fixture.receiver.stats().requests_throttled,
        [(Exhausted::SeriesCreation, 1)].into()
    );
}

#[test]
fn without_a_permit_few_new_series_do_not_delay_known_ones_and_many_are_not_looked_up() {
    for (n_new, n_left, n_stored) in [(63, 63, 2), (64, 65, 1)] {
        let fixture = Fixture::impatient(Budgets::default());
        fixture.write(&[of_team("a", "known", T)]).unwrap();
        // The store knows the series, the route cache does not.
        fixture
            .receiver
            .set_relabeling(Relabeling::new(vec![drop_where("job", "none")]).unwrap());
        let _permit = fixture.receiver.admission.hold_creation();
        let new = (0..n_new).map(|i| of_team("a", i, T));
        let request: Vec<_> = new.chain([of_team("a", "known", T + 1)]).collect();
        assert_eq!(
            throttled(fixture.write(&request)),
            (Exhausted::SeriesCreation, n_left)
        );
        assert_eq!(fixture.samples(), [("known".to_owned(), n_stored)].into());
    }
}

#[test]
fn a_queued_request_notifies_its_caller_and_proceeds_when_a_permit_is_free() {
    let fixture = Fixture::with_budgets(
        Limits {
            queue_timeout: Duration::from_secs(600),
            ..Limits::for_tests()
        },
        Budgets::default(),
    );
    fixture.write(&[of_team("a", "known", T)]).unwrap();
    let permit = fixture.receiver.admission.hold_creation();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let was_notified = Cell::new(false);
            let notify = || was_notified.set(true);
            let origin = Origin {
                on_queued: Some(&notify),
                ..Origin::default()
            };
            let mut new = of_team("a", "new", T);
            new.exemplars = vec![exemplar(&[("trace", "1")], 1.0, T)];
            // Prometheus sends each exemplar as a series of its own.
            let alone = TimeSeries {
                samples: Vec::new(),
                exemplars: vec![exemplar(&[("trace", "2")], 2.0, T + 1)],
                ..new.clone()
            };
            let written = fixture
                .write_as(&origin, &[new, of_team("a", "known", T + 1), alone])
                .unwrap();
            (
                written.stored.total,
                written.exemplars.stored,
                was_notified.get(),
            )
        });
        while fixture.receiver.stats().admission.queued_requests == 0
            || fixture.samples()["known"] < 2
        {
            std::thread::yield_now();
        }
        for t in 2..10 {
            fixture.write(&[of_team("a", "known", T + t)]).unwrap();
        }
        assert_eq!(fixture.samples(), [("known".to_owned(), 10)].into());
        drop(permit);
        assert_eq!(waiting.join().unwrap(), (2, 2, true));
    });
    assert_eq!(fixture.samples()["new"], 1);
    assert_eq!(
        fixture.receiver.stats().admission,
        AdmissionStats::default()
    );
}

#[test]
fn under_memory_pressure_new_series_are_denied_at_once_and_known_ones_are_stored() {
    let limits = Limits {
        queue_timeout: Duration::from_secs(600),
        ..Limits::for_tests()
    };
    let fixture = Fixture::with_budgets(limits, Budgets::default());
    fixture.write(&[of_team("a", "known", T)]).unwrap();
    fixture.receiver.set_denies_new_series(true);
    let request = [
        of_team("a", "new", T),
        of_team("a", "known", T + 1),
        of_team("b", "newer", T),
    ];
    assert_eq!(throttled(fixture.write(&request)), (Exhausted::Memory, 2));
    assert_eq!(fixture.samples(), [("known".to_owned(), 2)].into());
    assert_eq!(
        fixture.receiver.team_stats().0.new_series,
        1,
        "denied series are not created"
    );
    fixture.receiver.set_denies_new_series(false);
    assert!(fixture.write(&request).unwrap().rejections.is_empty());
    assert_eq!(
        (
            fixture.samples().len(),
            fixture.receiver.team_stats().0.new_series
        ),
        (3, 3)
    );
}

#[test]
fn the_queue_is_bounded() {
    let limits = Limits {
        queue_timeout: Duration::from_secs(600),
        queued_requests_max: 1,
        ..Limits::for_tests()
    };
    let fixture = Fixture::with_budgets(limits, Budgets::default());
    let _permit = fixture.receiver.admission.hold_creation();
    let _slot = fixture.receiver.admission.hold_slot(1);
    assert_eq!(
        throttled(fixture.write(&[of_team("a", 1, T)])),
        (Exhausted::Queue, 1)
    );
}

#[test]
fn a_request_of_many_new_series_takes_several_permits() {
    let fixture = Fixture::impatient(Budgets::default());
    let request: Vec<_> = (0..2 * 2_000 + 1).map(|i| of_team("a", i, T)).collect();
    assert_eq!(fixture.write(&request).unwrap().stored.total, 4_001);
    assert_eq!(fixture.samples().len(), 4_001);
}

#[test]
fn new_series_beyond_the_maximum_of_a_team_are_rejected_and_others_are_not() {
    let max = |n| amounts(Some(n), None, None);
    let fixture = Fixture::impatient(budgets(
        Amounts::default(),
        &[("a", Amounts::default(), max(2))],
    ));
    let request: Vec<_> = (0..4)
        .map(|i| of_team("a", i, T))
        .chain((4..7).map(|i| of_team("b", i, T)))
        .collect();
    for _repetition in 0..2 {
        let written = fixture.write(&request).unwrap();
        assert_eq!(written.stored.total, 5);
        assert_eq!(
            written.rejections.to_string(),
            "new series exceeds the maximum of active series of its team (active series of a team): 2 series with 2 samples, e.g. series \
             {__name__=\"m\", i=\"2\", team=\"a\"} of team \"a\", with 2 of 2 active"
        );
    }
    assert_eq!((fixture.team("a"), fixture.team("b")), ((2, 2), (3, 3)));
    assert_eq!(
        fixture.receiver.stats().rejected,
        [(RejectionReason::TeamSeries, 4)].into()
    );
    // A new budget applies to existing series.
    fixture
        .receiver
        .set_budgets(budgets(max(6), &[("a", max(2), Amounts::default())]));
    let written = fixture.write(&request).unwrap();
    assert!(
        written
            .rejections
            .to_string()
            .starts_with("new series exceeds the maximum of active series of all teams")
    );
    assert_eq!((written.stored.total, fixture.team("a")), (6, (3, 1)));
}

#[test]
fn threads_together_do_not_exceed_a_maximum() {
    let max = amounts(Some(300), None, None);
    let limits = Limits {
        creation_concurrency_max: 4,
        ..Limits::for_tests()
    };
    let fixture = Fixture::with_budgets(
        limits,
        budgets(Amounts::default(), &[("a", Amounts::default(), max)]),
    );
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                let request: Vec<_> = (0..200)
                    .map(|i| of_team("a", thread * 1000 + i, T))
                    .collect();
                fixture.write(&request).unwrap();
            });
        }
    });
    assert_eq!(
        (fixture.team("a").0, fixture.receiver.db.n_series()),
        (300, 300)
    );
}

#[test]
fn new_series_beyond_the_rate_are_stored_by_retries() {
    let fixture = Fixture::impatient(Budgets {
        total: amounts(None, Some(1000), None),
        ..Budgets::default()
    });
    let request: Vec<_> = (0..1_500).map(|i| of_team("a", i, T)).collect();
    let (resource, n_left) = throttled(fixture.write(&request));
    assert!(
        resource == Exhausted::TotalNewSeries && n_left <= 500,
        "{n_left}"
    );
    let started = Instant::now();
    while let Err(refused) = fixture.write(&request) {
        assert!(matches!(refused, WriteError::Throttled { .. }), "{refused}");
        assert!(started.elapsed() < Duration::from_secs(60), "{refused}");
    }
    assert_eq!(fixture.samples().values().sum::<usize>(), 1_500);
}

#[test]
fn samples_beyond_the_rate_are_refused_before_decompression() {
    let fixture = Fixture::impatient(budgets(amounts(None, None, Some(10)), &[]));
    let many: Vec<_> = (0..1_000_000 / 1000).map(|i| of_team("a", i, T)).collect();
    assert_eq!(fixture.write(&many).unwrap().stored.total, 1000);
    let garbage = [9, 1, 0xff, 0xff, 0xff];
    let write = |origin: &Origin<'_>| fixture.receiver.write(origin, Version::V1, &garbage);
    assert_eq!(
        throttled(write(&Origin::default())),
        (Exhausted::TotalSamples, 0)
    );
    // A team with a guarantee is let in.
    let sure = [("sure", amounts(None, None, Some(1)), Amounts::default())];
    fixture
        .receiver
        .set_budgets(budgets(amounts(None, None, Some(10)), &sure));
    fixture.write(&many).unwrap();
    let refused = write(&named("sure", None)).unwrap_err();
    assert!(
        matches!(refused, WriteError::Malformed(Malformed::Snappy(_))),
        "{refused}"
    );
    assert_eq!(
        throttled(write(&named("x", None))),
        (Exhausted::TotalSamples, 0)
    );
}

#[test]
fn samples_of_a_team_beyond_its_rate_are_deferred_and_those_of_others_are_not() {
    let slow = ("slow", Amounts::default(), amounts(None, None, Some(1)));
    let fixture = Fixture::impatient(budgets(Amounts::default(), &[slow]));
    let request = |t: i64| {
        [
            of_team("slow", 1, t),
            of_team("slow", 2, t),
            of_team("quick", 3, t),
        ]
    };
    fixture.write(&request(T)).unwrap();
    assert_eq!(
        throttled(fixture.write(&request(T + 1))),
        (Exhausted::TeamSamples, 2)
    );
    assert_eq!(
        fixture.samples(),
        [("1", 1), ("2", 1), ("3", 2)]
            .map(|(i, n)| (i.to_owned(), n))
            .into()
    );
    assert!(fixture.write(&[of_team("quick", 3, T + 2)]).is_ok());
}
