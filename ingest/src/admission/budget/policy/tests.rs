use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::admission::TeamNames;

const SECOND: Duration = Duration::from_secs(1);

/// Teams with a policy, and their series.
struct Model {
    policy: Policy,
    teams: Vec<Team>,
    active: Vec<u64>,
}

impl Model {
    fn new(budgets: &Budgets) -> Self {
        let mut policy = Policy::new(budgets, Duration::ZERO);
        let mut names = TeamNames::default();
        let teams: Vec<_> = budgets
            .teams
            .keys()
            .map(|name| names.get(name, |_| false))
            .collect();
        for (team, budget) in teams.iter().zip(budgets.teams.values()) {
            policy.open(*team, Some(*budget), Duration::ZERO);
        }
        Self {
            policy,
            active: vec![0; teams.len()],
            teams,
        }
    }

    fn total(&self) -> u64 {
        self.active.iter().sum()
    }

    /// Creates a series.
    fn create(&mut self, idx: usize, now: Duration) -> Result<(), Denied> {
        let active = Active {
            team: self.active[idx],
            total: self.total(),
        };
        self.policy
            .admit_series(self.teams[idx], active, None, now)?;
        self.policy.settle_series(self.teams[idx]);
        self.active[idx] += 1;
        Ok(())
    }
}

fn series(active_series: Option<u64>) -> Amounts {
    Amounts {
        active_series,
        ..Amounts::default()
    }
}

fn budget(guaranteed: Option<u64>, maximum: Option<u64>) -> TeamBudget {
    TeamBudget {
        guaranteed: series(guaranteed),
        maximum: series(maximum),
    }
}

/// An hour of three teams: from each minute on, the team wants so many series, and loses what it
/// has beyond.
const SCRIPT: &[(u64, &str, u64)] = &[
    (0, "a", 800),  // borrows 500
    (10, "b", 300), // returns for its guarantee
    (15, "a", 900), // nothing is left to borrow
    (20, "a", 400), // loses half of its series ...
    (21, "a", 800), // ... and regains only as many as there is room for
    (25, "c", 300), // gets its guarantee, and nothing above it
    (30, "b", 600),
    (40, "a", 100), // the others borrow what it returns, up to their maxima
    (50, "a", 400), // gets its guarantee; borrowed series stay
    (55, "b", 0),   // there is room to borrow, in the next minute
];

const HOUR: &str = "\
minute    a    b    c  all  lent
     0  800    0    0  800   500
     5  800    0    0  800   500
    10  800  300    0 1100   500
    15  800  300    0 1100   500
    20  400  300    0  700   100
    25  700  300  200 1200   400
    30  700  300  200 1200   400
    35  700  300  200 1200   400
    40  100  600  250  950   350
    45  100  600  250  950   350
    50  300  600  250 1150   350
    55  300    0  250  550    50
    59  400    0  250  650   150
";

#[test]
fn an_hour_of_borrowing() {
    let teams = [
        ("a", budget(Some(300), None)),
        ("b", budget(Some(300), Some(600))),
        ("c", budget(Some(200), Some(250))),
    ];
    let teams = teams.map(|(name, budget)| (name.to_owned(), budget)).into();
    let budgets = Budgets {
        total: series(Some(1000)),
        teams,
        ..Budgets::default()
    };
    budgets.check().unwrap();
    let mut model = Model::new(&budgets);
    let mut table = "minute    a    b    c  all  lent\n".to_owned();
    for minute in 0..60 {
        let now = SECOND * 60 * minute as u32;
        for (idx, name) in ["a", "b", "c"].iter().enumerate() {
            let of_team = SCRIPT
                .iter()
                .filter(|(from, team, _)| team == name && *from <= minute);
            let wants = of_team.map(|(_, _, n)| *n).next_back().unwrap_or(0);
            model.active[idx] = model.active[idx].min(wants);
            while model.active[idx] < wants && model.create(idx, now).is_ok() {}
        }
        if minute % 5 == 0 || minute == 59 {
            let name = Arc::from("x");
            let all = model.teams.iter().zip(&model.active);
            let lent: u64 = all
                .map(|(team, n)| {
                    model
                        .policy
                        .status(*team, &name, *n, now)
                        .borrowed
                        .active_series
                })
                .sum();
            let [a, b, c] = model.active[..] else {
                panic!("three teams")
            };
            table += &format!(
                "{minute:6} {a:4} {b:4} {c:4} {:4} {lent:5}\n",
                model.total()
            );
        }
    }
    assert_eq!(table, HOUR);
}

#[test]
fn the_reason_of_a_denied_series_is_returned() {
    let rate = |per_second| Amounts {
        new_series_per_second: Some(per_second),
        ..Amounts::default()
    };
    let teams = [
        ("full".to_owned(), budget(None, Some(2))),
        (
            "slow".to_owned(),
            TeamBudget {
                maximum: rate(1),
                ..TeamBudget::default()
            },
        ),
        (
            "sure".to_owned(),
            TeamBudget {
                guaranteed: rate(1),
                ..TeamBudget::default()
            },
        ),
    ];
    let total = Amounts {
        active_series: Some(7),
        new_series_per_second: Some(5),
        ..Amounts::default()
    };
    let mut model = Model::new(&Budgets {
        total,
        teams: teams.into(),
        ..Budgets::default()
    });
    let [full, slow, sure] = [0, 1, 2];
    assert_eq!(
        [model.create(full, SECOND), model.create(full, SECOND)],
        [Ok(()); 2]
    );
    assert_eq!(
        model.create(full, SECOND),
        Err(Denied::Permanent(SeriesLimit::Team { used: 2, limit: 2 }))
    );
    assert_eq!(model.create(slow, SECOND), Ok(()));
    assert_eq!(
        model.create(slow, SECOND),
        Err(Denied::Temporary(Exhausted::TeamNewSeries, SECOND))
    );
    // The guarantee holds although the total is exhausted.
    assert_eq!(
        [model.create(sure, SECOND), model.create(sure, SECOND)][0],
        Ok(())
    );
    model
        .policy
        .total
        .new_series
        .maximum
        .as_mut()
        .unwrap()
        .take(10);
    assert_eq!(
        model.create(sure, SECOND),
        Err(Denied::Temporary(Exhausted::TotalNewSeries, SECOND))
    );
    assert_eq!(model.create(sure, SECOND * 2), Ok(()));
    model.active[sure] += 2;
    assert_eq!(
        model.create(slow, SECOND * 60),
        Err(Denied::Permanent(SeriesLimit::Total { used: 8, limit: 7 }))
    );
}

#[test]
fn a_request_of_any_size_is_admitted_and_the_next_one_waits() {
    let rate = |per_second| Amounts {
        samples_per_second: Some(per_second),
        ..Amounts::default()
    };
    let sure = TeamBudget {
        guaranteed: rate(100),
        maximum: rate(1000),
    };
    let teams = [
        ("other".to_owned(), TeamBudget::default()),
        ("sure".to_owned(), sure),
    ];
    let budgets = Budgets {
        total: rate(200),
        teams: teams.into(),
        ..Budgets::default()
    };
    let Model {
        mut policy, teams, ..
    } = Model::new(&budgets);
    let other = teams[0];
    let sure = teams[1];
    assert!(policy.bounds_samples() && policy.guarantees_samples());
    assert_eq!(policy.admit_samples(other, 600, SECOND), Ok(()));
    let wait = SECOND * 2 + Duration::from_millis(5);
    assert_eq!(
        policy.admit_samples(other, 1, SECOND),
        Err(Denied::Temporary(Exhausted::TotalSamples, wait))
    );
    assert_eq!(
        policy.check_total_samples(SECOND),
        Err(Denied::Temporary(Exhausted::TotalSamples, wait))
    );
    // The guarantee is granted, once.
    assert_eq!(policy.admit_samples(sure, 200, SECOND), Ok(()));
    let wait = SECOND + Duration::from_millis(10);
    assert_eq!(
        policy.check_samples(sure, SECOND),
        Err(Denied::Temporary(Exhausted::TotalSamples, wait))
    );
    assert_eq!(policy.admit_samples(sure, 5000, SECOND * 3), Ok(()));
    let refused = policy.admit_samples(sure, 1, SECOND * 3);
    assert!(
        matches!(refused, Err(Denied::Temporary(Exhausted::TeamSamples, _))),
        "{refused:?}"
    );
    assert_eq!(policy.admit_samples(other, 1, SECOND * 3600), Ok(()));
}

#[test]
fn the_rate_is_that_of_the_last_complete_interval() {
    let mut policy = Policy::new(&Budgets::default(), Duration::ZERO);
    let mut rate = |n, at_s| {
        let now = SECOND * at_s;
        policy.count_samples(Team::NONE, n, now);
        let status = policy.status(Team::NONE, &Arc::from(""), 0, now);
        (status.use_now.samples_per_second, status.samples)
    };
    assert_eq!(rate(50, 1), (0, 50));
    assert_eq!(rate(50, 9), (0, 100));
    assert_eq!(rate(0, 10), (10, 100));
    assert_eq!(rate(30, 19), (10, 130));
    assert_eq!(rate(0, 25), (3, 130));
    assert_eq!(rate(0, 40), (0, 130));
}

/// Budgets of three teams whose guarantees are within the total.
fn budgets() -> impl Strategy<Value = Budgets> {
    let amount = || proptest::option::of(1_u64..40);
    (
        vec((amount(), amount()), 3),
        proptest::option::of(0_u64..40),
    )
        .prop_map(|(teams, spare)| {
            let teams = teams.into_iter().map(|(guaranteed, above)| {
                budget(
                    guaranteed,
                    above.map(|above| above + guaranteed.unwrap_or(0)),
                )
            });
            let teams: std::collections::BTreeMap<_, _> =
                ('a'..).map(String::from).zip(teams).collect();
            let sum: u64 = teams
                .values()
                .filter_map(|team| team.guaranteed.active_series)
                .sum();
            Budgets {
                total: series(spare.map(|spare| (sum + spare).max(1))),
                teams,
                ..Budgets::default()
            }
        })
}

#[derive(Debug, Clone)]
enum Step {
    /// A team wants this many more series.
    Want(usize, u64),
    /// A team loses this many series.
    Lose(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..3, 1_u64..50).prop_map(|(team, n)| Step::Want(team, n)),
        (0_usize..3, 1_u64..50).prop_map(|(team, n)| Step::Lose(team, n)),
    ]
}

#[test]
fn an_id_is_reused_only_long_after_its_last_use() {
    let mut policy = Policy::new(&Budgets::default(), Duration::ZERO);
    policy.note_use(Team::OTHER, Duration::from_secs(5));
    assert!(!policy.is_idle(Team::OTHER, 0, Duration::from_secs(604)));
    assert!(!policy.is_idle(Team::OTHER, 1, Duration::from_secs(605)));
    assert!(policy.is_idle(Team::OTHER, 0, Duration::from_secs(605)));
}

proptest! {
    #[test]
    fn maxima_and_guarantees_hold(budgets in budgets(), steps in vec(step(), 1..40)) {
        prop_assert_eq!(budgets.check(), Ok(()));
        let mut model = Model::new(&budgets);
        let own: Vec<TeamBudget> = budgets.teams.values().copied().collect();
        let total_max = budgets.total.active_series.unwrap_or(u64::MAX);
        for step in steps {
            match step {
                Step::Lose(idx, n) => model.active[idx] = model.active[idx].saturating_sub(n),
                Step::Want(idx, n) => for _ in 0..n {
                    let of_team = model.active[idx];
                    let total = model.total();
                    let made = model.create(idx, Duration::ZERO);
                    let is_below_max = own[idx].maximum.active_series.is_none_or(|maximum| of_team < maximum);
                    let is_guaranteed = own[idx].guaranteed.active_series.is_some_and(|guaranteed| of_team < guaranteed);
                    prop_assert_eq!(made.is_ok(), is_below_max && (is_guaranteed || total < total_max), "{:?}", made);
                }
            }
            let borrowed: u64 = model.active.iter().zip(&own)
                .map(|(n, own)| n.saturating_sub(own.guaranteed.active_series.unwrap_or(0)))
                .sum();
            prop_assert!(model.total() <= total_max.saturating_add(borrowed));
        }
    }

    #[test]
    fn granted_series_count_as_active(maximum in 1_u64..20, n_made in 0_u64..30) {
        let budgets = Budgets {
            teams: [("a".to_owned(), budget(None, Some(maximum)))].into(),
            ..Budgets::default()
        };
        let Model { mut policy, teams, .. } = Model::new(&budgets);
        let made = n_made.min(maximum);
        let active = Active { team: made, total: made };
        let n_allowed = (0..30).filter(|_| policy.admit_series(teams[0], active, None, Duration::ZERO).is_ok()).count();
        prop_assert_eq!(made + n_allowed as u64, maximum);
        (0..n_allowed).for_each(|_| policy.settle_series(teams[0]));
        prop_assert_eq!(policy.is_idle(teams[0], 0, Duration::MAX), false);
    }

    #[test]
    fn a_rate_holds_on_average(rate in 1_u64..1000, asks in vec((0_u64..2000, 0_u64..500), 1..100)) {
        let amounts = Amounts { samples_per_second: Some(rate), ..Amounts::default() };
        let budgets = Budgets { total: amounts, ..Budgets::default() };
        let mut policy = Policy::new(&budgets, Duration::ZERO);
        let mut now_ms = 0;
        let mut n_before_last = 0;
        let mut n_last = 0;
        for (n, pause_ms) in asks {
            now_ms += pause_ms;
            if policy.admit_samples(Team::NONE, n, Duration::from_millis(now_ms)).is_ok() {
                n_before_last += n_last;
                n_last = n;
            }
            // A full bucket holds one second, and the last request may leave a debt.
            prop_assert!(n_before_last <= rate * now_ms / 1000 + rate);
        }
    }
}
