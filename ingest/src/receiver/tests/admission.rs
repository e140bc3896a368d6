use std::cell::Cell;
use std::collections::BTreeMap;

use prost::Message;
use varve_tsdb::{Db, Options, QueryContext, SampleColumns, TimeRange};

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admission::{Amounts, Budgets, Origin, Scarce, TeamBudget};
use crate::batch::Version;
use crate::error::{Malformed, WriteError};
use crate::limits::Limits;
use crate::outcome::{Reason, Written};
use crate::receiver::Receiver;
use crate::remote_write::message::{Exemplar, Label, TimeSeries, WriteRequest, series};

const T: i64 = 1_700_000_000_000;

struct Fixture {
    receiver: Receiver,
    db: Arc<Db>,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(limits: Limits, budgets: Budgets) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Arc::new(Db::open(dir.path(), Options { shards: 2, ..Options::default() }).unwrap());
        budgets.check().unwrap();
        let receiver = Receiver::new(Arc::clone(&db), limits);
        receiver.set_budgets(budgets);
        Self { receiver, db, _dir: dir }
    }

    /// One whose requests wait for nothing.
    fn impatient(budgets: Budgets) -> Self {
        Self::new(Limits { admission_wait: Duration::ZERO, ..Limits::default() }, budgets)
    }

    fn write(&self, timeseries: &[TimeSeries]) -> Result<Written, WriteError> {
        self.write_as(&Origin::default(), timeseries)
    }

    fn write_as(&self, origin: &Origin<'_>, timeseries: &[TimeSeries]) -> Result<Written, WriteError> {
        self.receiver.write(origin, Version::V1, &body(timeseries))
    }

    /// Returns how many samples each series has, by its label `i`.
    fn stored(&self) -> BTreeMap<String, usize> {
        let found = self.db.select(&QueryContext::unbounded(), &[], TimeRange::ALL).unwrap();
        let samples = found.map(|series| {
            let series = series.unwrap();
            let mut columns = SampleColumns::default();
            series.read(&mut columns).unwrap();
            (series.labels().get("i").unwrap_or_default().to_owned(), columns.len())
        });
        samples.filter(|(_, n)| *n > 0).collect()
    }

    /// Returns the series in memory and those above the guarantee of a team.
    fn team(&self, name: &str) -> (u64, u64) {
        let teams = self.receiver.team_stats().1;
        let team = teams.iter().find(|team| &*team.name == name).expect("the team is known");
        (team.use_now.active_series, team.borrowed.active_series)
    }
}

fn body(timeseries: &[TimeSeries]) -> Vec<u8> {
    let message = WriteRequest { timeseries: timeseries.to_vec(), ..WriteRequest::default() }.encode_to_vec();
    snap::raw::Encoder::new().compress_vec(&message).unwrap()
}

fn of_team(team: &str, i: impl ToString, t: i64) -> TimeSeries {
    series(&[("__name__", "m"), ("i", &i.to_string()), ("team", team)], &[(t, 1.0)])
}

fn amounts(active_series: Option<u64>, new_series: Option<u64>, samples: Option<u64>) -> Amounts {
    Amounts { active_series, new_series_per_second: new_series, samples_per_second: samples }
}

/// Budgets by the label `team`.
fn budgets(total: Amounts, teams: &[(&str, Amounts, Amounts)]) -> Budgets {
    let teams = teams.iter().map(|&(name, guaranteed, maximum)| (name.to_owned(), TeamBudget { guaranteed, maximum }));
    Budgets { team_label: Some("team".to_owned()), total, teams: teams.collect(), ..Budgets::default() }
}

fn throttled(outcome: Result<Written, WriteError>) -> (Scarce, u64) {
    match outcome {
        Err(WriteError::Throttled { scarce, n_series, .. }) => (scarce, n_series),
        other => panic!("{other:?}"),
    }
}

#[test]
fn known_series_are_stored_while_nobody_gets_a_turn() {
    let fixture = Fixture::impatient(Budgets::default());
    fixture.write(&[of_team("a", "known", T)]).unwrap();
    let turn = fixture.receiver.door().turns.try_turn().unwrap();
    let request = [of_team("a", "new", T), of_team("a", "known", T + 1), of_team("a", "known", T + 2)];
    let refused = fixture.write(&request).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "too many requests have new series, see --ingest.creation-concurrency-max; samples of 1 series wait, the rest is \
         stored: send the request again"
    );
    assert_eq!(fixture.stored(), [("known".to_owned(), 3)].into());
    drop(turn);
    // The repetition stores the rest, and nothing twice.
    assert!(fixture.write(&request).unwrap().rejects.is_empty());
    assert_eq!(fixture.stored(), [("known".to_owned(), 3), ("new".to_owned(), 1)].into());
    assert_eq!(fixture.receiver.stats().requests_throttled, [(Scarce::Turns, 1)].into());
}

#[test]
fn without_a_turn_few_new_series_keep_no_known_ones_waiting_and_many_are_not_looked_at() {
    for (n_new, n_left, n_stored) in [(63, 63, 2), (64, 65, 1)] {
        let fixture = Fixture::impatient(Budgets::default());
        fixture.write(&[of_team("a", "known", T)]).unwrap();
        // Known to the store, but its route is forgotten.
        fixture.receiver.set_rules(crate::relabel::Rules::default());
        let _turn = fixture.receiver.door().turns.try_turn().unwrap();
        let new = (0..n_new).map(|i| of_team("a", i, T));
        let request: Vec<_> = new.chain([of_team("a", "known", T + 1)]).collect();
        assert_eq!(throttled(fixture.write(&request)), (Scarce::Turns, n_left));
        assert_eq!(fixture.stored(), [("known".to_owned(), n_stored)].into());
    }
}

#[test]
fn who_waits_gives_its_place_back_and_is_served_when_there_is_a_turn() {
    let fixture =
        Fixture::new(Limits { admission_wait: Duration::from_secs(600), ..Limits::default() }, Budgets::default());
    fixture.write(&[of_team("a", "known", T)]).unwrap();
    let turn = fixture.receiver.door().turns.try_turn().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let has_lent = Cell::new(false);
            let lend = || has_lent.set(true);
            let origin = Origin { team: None, begins_to_wait: Some(&lend) };
            let mut new = of_team("a", "new", T);
            let label = Label { name: b"trace".to_vec(), value: b"1".to_vec() };
            new.exemplars = vec![Exemplar { labels: vec![label], value: 1.0, timestamp: T }];
            let written = fixture.write_as(&origin, &[new, of_team("a", "known", T + 1)]).unwrap();
            (written.samples_stored, written.exemplars.stored, has_lent.get())
        });
        while fixture.receiver.stats().turns.waiting == 0 || fixture.stored()["known"] < 2 {
            std::thread::yield_now();
        }
        for t in 2..10 {
            fixture.write(&[of_team("a", "known", T + t)]).unwrap();
        }
        assert_eq!(fixture.stored(), [("known".to_owned(), 10)].into());
        drop(turn);
        assert_eq!(waiting.join().unwrap(), (2, 1, true));
    });
    assert_eq!(fixture.stored()["new"], 1);
    assert_eq!(fixture.receiver.stats().turns, crate::admission::semaphore::TurnStats::default());
}

#[test]
fn seats_to_wait_are_bounded() {
    let limits = Limits { admission_wait: Duration::from_secs(600), waiting_max: 1, ..Limits::default() };
    let fixture = Fixture::new(limits, Budgets::default());
    let _turn = fixture.receiver.door().turns.try_turn().unwrap();
    let _seat = fixture.receiver.door().turns.seat(1).unwrap();
    assert_eq!(throttled(fixture.write(&[of_team("a", 1, T)])), (Scarce::Seats, 1));
}

#[test]
fn a_request_of_many_new_series_takes_several_turns() {
    let fixture = Fixture::impatient(Budgets::default());
    let request: Vec<_> = (0..2 * 2_000 + 1).map(|i| of_team("a", i, T)).collect();
    assert_eq!(fixture.write(&request).unwrap().samples_stored, 4_001);
    assert_eq!(fixture.stored().len(), 4_001);
}

#[test]
fn new_series_beyond_the_maximum_of_a_team_are_refused_for_good_and_others_are_not() {
    let max = |n| amounts(Some(n), None, None);
    let fixture = Fixture::impatient(budgets(Amounts::default(), &[("a", Amounts::default(), max(2))]));
    let request: Vec<_> = (0..4).map(|i| of_team("a", i, T)).chain((4..7).map(|i| of_team("b", i, T))).collect();
    for _repetition in 0..2 {
        let written = fixture.write(&request).unwrap();
        assert_eq!(written.samples_stored, 5);
        assert_eq!(
            written.rejects.to_string(),
            "new series of a team that has as many as it may, see ingest.teams: 2 series with 2 samples, e.g. series \
             {__name__=\"m\", i=\"2\", team=\"a\"} of team \"a\", with 2 of 2 active"
        );
    }
    assert_eq!((fixture.team("a"), fixture.team("b")), ((2, 2), (3, 3)));
    assert_eq!(fixture.receiver.stats().rejected, [(Reason::TeamSeries, 4)].into());
    // Another budget counts for what is there already.
    fixture.receiver.set_budgets(budgets(max(6), &[("a", max(2), Amounts::default())]));
    let written = fixture.write(&request).unwrap();
    assert!(written.rejects.to_string().starts_with("new series when all teams have as many as they may"));
    assert_eq!((written.samples_stored, fixture.team("a")), (6, (3, 1)));
}

#[test]
fn threads_together_do_not_exceed_a_maximum() {
    let max = amounts(Some(300), None, None);
    let limits = Limits { creation_concurrency_max: 4, ..Limits::default() };
    let fixture = Fixture::new(limits, budgets(Amounts::default(), &[("a", Amounts::default(), max)]));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                let request: Vec<_> = (0..200).map(|i| of_team("a", thread * 1000 + i, T)).collect();
                fixture.write(&request).unwrap();
            });
        }
    });
    assert_eq!((fixture.team("a").0, fixture.db.n_series()), (300, 300));
}

#[test]
fn new_series_that_come_too_fast_come_again_until_all_are_there() {
    let fixture = Fixture::impatient(Budgets { total: amounts(None, Some(1000), None), ..Budgets::default() });
    let request: Vec<_> = (0..1_500).map(|i| of_team("a", i, T)).collect();
    let (scarce, n_left) = throttled(fixture.write(&request));
    assert!(scarce == Scarce::TotalNewSeries && n_left <= 500, "{n_left}");
    let started = Instant::now();
    while let Err(refused) = fixture.write(&request) {
        assert!(matches!(refused, WriteError::Throttled { .. }), "{refused}");
        assert!(started.elapsed() < Duration::from_secs(60), "{refused}");
    }
    assert_eq!(fixture.stored().values().sum::<usize>(), 1_500);
}

#[test]
fn too_many_samples_are_sent_away_before_they_are_decompressed() {
    let fixture = Fixture::impatient(budgets(amounts(None, None, Some(10)), &[]));
    let many: Vec<_> = (0..1_000_000 / 1000).map(|i| of_team("a", i, T)).collect();
    assert_eq!(fixture.write(&many).unwrap().samples_stored, 1000);
    let garbage = [9, 1, 0xff, 0xff, 0xff];
    let write = |origin: &Origin<'_>| fixture.receiver.write(origin, Version::V1, &garbage);
    assert_eq!(throttled(write(&Origin::default())), (Scarce::TotalSamples, 0));
    // Who has a guarantee is let in.
    let sure = [("sure", amounts(None, None, Some(1)), Amounts::default())];
    fixture.receiver.set_budgets(budgets(amounts(None, None, Some(10)), &sure));
    fixture.write(&many).unwrap();
    let refused = write(&Origin { team: Some("sure"), begins_to_wait: None }).unwrap_err();
    assert!(matches!(refused, WriteError::Malformed(Malformed::Snappy(_))), "{refused}");
    assert_eq!(throttled(write(&Origin { team: Some("x"), begins_to_wait: None })), (Scarce::TotalSamples, 0));
}

#[test]
fn samples_of_a_team_that_sends_too_many_wait_and_those_of_others_do_not() {
    let slow = ("slow", Amounts::default(), amounts(None, None, Some(1)));
    let fixture = Fixture::impatient(budgets(Amounts::default(), &[slow]));
    let request = |t: i64| [of_team("slow", 1, t), of_team("slow", 2, t), of_team("quick", 3, t)];
    fixture.write(&request(T)).unwrap();
    assert_eq!(throttled(fixture.write(&request(T + 1))), (Scarce::TeamSamples, 2));
    assert_eq!(fixture.stored(), [("1", 1), ("2", 1), ("3", 2)].map(|(i, n)| (i.to_owned(), n)).into());
    assert!(fixture.write(&[of_team("quick", 3, T + 2)]).is_ok());
}

#[test]
fn a_team_that_a_sender_names_stands_for_its_whole_request() {
    let fixture =
        Fixture::impatient(budgets(Amounts::default(), &[("a", Amounts::default(), amounts(Some(1), None, None))]));
    let named = |name| Origin { team: Some(name), begins_to_wait: None };
    assert_eq!(fixture.write_as(&named("a"), &[of_team("b", 1, T), of_team("b", 2, T)]).unwrap().samples_stored, 1);
    assert_eq!(fixture.write_as(&named("c"), &[of_team("a", 3, T), of_team("b", 1, T)]).unwrap().samples_stored, 2);
    assert_eq!((fixture.team("a"), fixture.team("c")), ((1, 1), (1, 1)), "a series counts for who had it first");
    let teams = fixture.receiver.team_stats().1;
    let samples: Vec<_> = teams.iter().map(|team| (&*team.name, team.samples)).collect();
    assert_eq!(samples, [("", 0), ("a", 1), ("c", 2)]);
}

#[test]
fn with_another_label_series_belong_to_other_teams() {
    let fixture = Fixture::impatient(Budgets::default());
    fixture.write(&[of_team("a", 1, T), of_team("a", 2, T), of_team("b", 2, T)]).unwrap();
    assert_eq!(fixture.team(""), (3, 3));
    fixture.receiver.set_budgets(budgets(Amounts::default(), &[]));
    assert_eq!((fixture.team(""), fixture.team("a"), fixture.team("b")), ((0, 0), (2, 2), (1, 1)));
    let by_i = Budgets { team_label: Some("i".to_owned()), ..Budgets::default() };
    fixture.receiver.set_budgets(by_i);
    fixture.write(&[of_team("a", 1, T + 1), of_team("b", 2, T + 1)]).unwrap();
    let teams = fixture.receiver.team_stats().1;
    let team = |name: &str| teams.iter().find(|team| &*team.name == name).unwrap();
    assert_eq!((team("2").use_now.active_series, team("2").samples, team("1").samples), (2, 1, 1));
}
