//! To which team a series belongs.

use super::*;

#[test]
fn the_team_that_a_sender_names_holds_for_the_whole_request() {
    let max = amounts(Some(1), None, None);
    let teams = [
        ("a", Amounts::default(), max),
        ("c", Amounts::default(), Amounts::default()),
    ];
    let fixture = Fixture::impatient(budgets(Amounts::default(), &teams));
    let write = |team, series: &[TimeSeries]| {
        fixture
            .write_as(&named(team, None), series)
            .unwrap()
            .stored
            .total
    };
    assert_eq!(write("a", &[of_team("b", 1, T), of_team("b", 2, T)]), 1);
    assert_eq!(write("c", &[of_team("a", 3, T), of_team("b", 1, T)]), 2);
    assert_eq!(
        (fixture.team("a"), fixture.team("c")),
        ((1, 1), (1, 1)),
        "a series counts for the team that created it"
    );
    let teams = fixture.receiver.team_stats().1;
    let samples: Vec<_> = teams
        .iter()
        .map(|team| (&*team.name, team.samples))
        .collect();
    assert_eq!(samples, [("", 0), ("a", 1), ("c", 2)]);
}

#[test]
fn invented_teams_share_one_budget_and_leave_the_rest_of_the_total() {
    let max = |n| amounts(Some(n), Some(1_000), Some(100));
    let own = [("a", Amounts::default(), max(600))];
    let team_maximum = amounts(Some(5), Some(1_000), Some(100));
    let fixture = Fixture::impatient(Budgets {
        team_maximum,
        ..budgets(max(1_000), &own)
    });
    for i in 0..1_000 {
        let written = fixture.write_as(
            &named(&format!("invented {i}"), None),
            &[of_team("b", i, T)],
        );
        match written {
            Ok(written) => assert_eq!(
                written.rejections.is_empty(),
                i < 5,
                "{i}: {}",
                written.rejections
            ),
            Err(refused) => assert!(
                matches!(refused, WriteError::Throttled { .. }),
                "{i}: {refused}"
            ),
        }
    }
    assert_eq!(fixture.team("(other)"), (5, 5));
    let names: Vec<_> = fixture
        .receiver
        .team_stats()
        .1
        .into_iter()
        .map(|team| team.name)
        .collect();
    assert_eq!(names, [Arc::from(""), Arc::from("(other)"), Arc::from("a")]);
    let many: Vec<_> = (0..500)
        .map(|i| of_team("b", format!("a {i}"), T))
        .collect();
    assert!(
        fixture
            .write_as(&named("a", None), &many)
            .unwrap()
            .rejections
            .is_empty()
    );
    assert_eq!(fixture.team("a").0, 500);
}

#[test]
fn a_user_names_only_teams_that_list_it() {
    let none = Amounts::default();
    let shared = [(
        "shared".to_owned(),
        ["ann", "bob"].map(str::to_owned).into(),
    )]
    .into();
    let all = budgets(
        none,
        &[
            ("ann", none, none),
            ("bob", none, none),
            ("shared", none, none),
        ],
    );
    let fixture = Fixture::impatient(Budgets {
        senders: shared,
        ..all
    });
    for (i, (team, user, expect)) in [
        ("ann", Some("ann"), "ann"),
        ("bob", Some("ann"), "(other)"),
        ("shared", Some("ann"), "shared"),
        ("shared", Some("shared"), "(other)"),
        ("eve", Some("eve"), "(other)"),
        ("bob", None, "bob"),
    ]
    .into_iter()
    .enumerate()
    {
        let before = fixture
            .receiver
            .team_stats()
            .1
            .iter()
            .find(|status| &*status.name == expect)
            .map_or(0, |status| status.samples);
        fixture
            .write_as(&named(team, user), &[of_team("x", i, T)])
            .unwrap();
        let after = fixture
            .receiver
            .team_stats()
            .1
            .iter()
            .find(|status| &*status.name == expect)
            .map_or(0, |status| status.samples);
        assert_eq!(after, before + 1, "{user:?} names {team}");
    }
}

#[test]
fn another_team_label_moves_series_to_other_teams() {
    let fixture = Fixture::impatient(Budgets::default());
    fixture
        .write(&[of_team("a", 1, T), of_team("a", 2, T), of_team("b", 2, T)])
        .unwrap();
    assert_eq!(fixture.team(""), (3, 3));
    fixture
        .receiver
        .set_budgets(budgets(Amounts::default(), &[]));
    assert_eq!(
        (fixture.team(""), fixture.team("a"), fixture.team("b")),
        ((0, 0), (2, 2), (1, 1))
    );
    let by_i = Budgets {
        team_label: Some("i".to_owned()),
        ..Budgets::default()
    };
    fixture.receiver.set_budgets(by_i);
    fixture
        .write(&[of_team("a", 1, T + 1), of_team("b", 2, T + 1)])
        .unwrap();
    let teams = fixture.receiver.team_stats().1;
    let team = |name: &str| teams.iter().find(|team| &*team.name == name).unwrap();
    assert_eq!(
        (
            team("2").use_now.active_series,
            team("2").samples,
            team("1").samples
        ),
        (2, 1, 1)
    );
}

/// Its samples used to count for the team of a later request, which panicked if there were fewer
/// rules than before.
#[test]
fn the_samples_of_a_request_that_fails_count_for_no_team() {
    let disk = MemFs::new();
    let options = Options {
        fs: Arc::new(disk.clone()),
        background: false,
        ..Options::default()
    };
    let fixture = Fixture::on(
        options,
        Limits {
            queue_timeout: Duration::ZERO,
            ..Limits::for_tests()
        },
    );
    fixture.receiver.set_relabeling(
        Relabeling::new(vec![drop_where("job", "a"), drop_where("job", "b")]).unwrap(),
    );
    fixture
        .receiver
        .set_budgets(budgets(Amounts::default(), &[]));
    let samples = || {
        let teams = fixture.receiver.team_stats().1;
        teams
            .iter()
            .map(|team| (team.name.to_string(), team.samples))
            .collect::<BTreeMap<_, _>>()
    };
    fixture.stored(&[of_team("a", 1, T), of_team("b", 1, T)]);
    disk.set_room(0);
    fixture.write(&[of_team("a", 1, T + 1)]).unwrap_err();
    disk.set_room(u64::MAX);
    fixture.stored(&[of_team("b", 1, T + 1)]);
    let expect = [("", 0), ("a", 1), ("b", 2)].map(|(team, n)| (team.to_owned(), n));
    assert_eq!(samples(), expect.clone().into());
    disk.set_room(0);
    fixture.write(&[of_team("a", 1, T + 2)]).unwrap_err();
    disk.set_room(u64::MAX);
    fixture.receiver.set_relabeling(Relabeling::default());
    fixture.receiver.set_budgets(Budgets::default());
    fixture.stored(&[of_team("b", 1, T + 2)]);
    assert_eq!(samples().values().sum::<u64>(), 4);
}

/// They used to count, and to be taken from the budget, in the pass that found the series evicted
/// and again in the pass that stored them. The invalid histogram was rejected twice.
#[test]
fn the_samples_of_an_evicted_series_count_once() {
    let maximum = amounts(None, None, Some(10));
    let fixture = Fixture::impatient(budgets(
        Amounts::default(),
        &[("a", Amounts::default(), maximum)],
    ));
    fixture
        .receiver
        .set_relabeling(Relabeling::new(vec![remove("zone")]).unwrap());
    let labels = [("__name__", "m"), ("team", "a"), ("zone", "z")];
    let samples: Vec<_> = (T..T + 7).map(|t| (t, 1.0)).collect();
    let mut evicted = series(&labels, &samples);
    let mut invalid = histogram(T + 7, &[1]);
    invalid.positive_spans[0].length = 2;
    evicted.histograms = vec![invalid];
    let request = [evicted];
    let team = fixture.receiver.admission.budgets().team_named("a");
    let attribution = fixture.receiver.relabeling().attributions.of(team, &[0]);
    fixture.cache_outdated_route(&request, 0, attribution);

    let written = fixture.write(&request).unwrap();
    assert_eq!(written.stored, SampleCounts::floats(7));
    assert_eq!(
        (
            written.rejections.n_samples(),
            fixture.receiver.stats().rejected
        ),
        (1, [(RejectionReason::InvalidHistogram, 1)].into())
    );
    let teams = fixture.receiver.team_stats().1;
    let team = teams.iter().find(|team| &*team.name == "a").unwrap();
    assert_eq!(team.samples, 8);
    assert_eq!(fixture.receiver.relabel_rule_stats()[0].samples, 8);
    // Two of the team's ten tokens are left.
    fixture.stored(&[series(&labels, &[(T + 8, 1.0)])]);
}
