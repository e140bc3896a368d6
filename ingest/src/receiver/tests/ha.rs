//! HA pairs in a receiver.

use std::time::Duration;

use varve_env::RealFs;

use super::*;
use crate::ha::{Elections, HaSettings};

const HOUR: Duration = Duration::from_secs(3_600);

struct Pairs {
    fixture: Fixture,
    elections: Arc<Elections>,
    dir: tempfile::TempDir,
}

impl Pairs {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let elections = Arc::new(Elections::open(Arc::new(RealFs), dir.path().join("ha")).0);
        let pairs = Self {
            fixture: Fixture::new(Limits::for_tests()),
            elections,
            dir,
        };
        pairs.set_timeout(HOUR);
        pairs
    }

    /// Forgets what is not on disk about the pairs.
    fn restart(&mut self) {
        let path = self.dir.path().join("ha");
        self.elections = Arc::new(Elections::open(Arc::new(RealFs), path).0);
        self.set_timeout(HOUR);
    }

    fn set_timeout(&self, failover_timeout: Duration) {
        let [cluster_label, replica_label] = ["cluster", "replica"].map(str::to_owned);
        let settings = HaSettings {
            cluster_label,
            replica_label,
            failover_timeout,
        };
        self.fixture
            .receiver
            .set_ha(Some(settings), &self.elections);
    }

    /// Writes a request; returns the number of stored and of deduplicated samples.
    fn write(&self, timeseries: &[TimeSeries]) -> (u64, u64) {
        let written = self.fixture.write(timeseries).unwrap();
        assert!(written.rejections.is_empty(), "{}", written.rejections);
        (written.stored.total, written.deduplicated.total)
    }

    /// All series with the times of their samples after [`T`].
    fn contents(&self) -> Vec<(String, Vec<i64>)> {
        let times = |samples: Vec<(i64, u64)>| samples.into_iter().map(|(at, _)| at - T).collect();
        self.fixture
            .contents()
            .into_iter()
            .map(|(labels, samples)| (labels, times(samples)))
            .collect()
    }
}

fn of(cluster: &str, replica: &str, t: i64) -> TimeSeries {
    series(
        &[
            ("__name__", "up"),
            ("cluster", cluster),
            ("replica", replica),
        ],
        &[(T + t, 1.0)],
    )
}

#[test]
fn the_leader_is_stored_without_its_replica_label_and_the_standby_is_deduplicated() {
    let pairs = Pairs::new();
    for t in 0..3 {
        assert_eq!(pairs.write(&[of("c", "a", 10 * t)]), (1, 0));
        assert_eq!(pairs.write(&[of("c", "b", 10 * t + 5)]), (0, 1));
    }
    // With a timeout of zero the standby takes over at once.
    pairs.set_timeout(Duration::ZERO);
    assert_eq!(pairs.write(&[of("c", "b", 35)]), (1, 0));
    pairs.set_timeout(HOUR);
    assert_eq!(pairs.write(&[of("c", "a", 40)]), (0, 1));
    assert_eq!(pairs.write(&[of("c", "b", 45)]), (1, 0));
    assert_eq!(
        pairs.contents(),
        [(
            r#"{__name__="up", cluster="c"}"#.to_owned(),
            vec![0, 10, 20, 35, 45]
        )]
    );
    let [cluster] = &pairs.elections.clusters()[..] else {
        panic!("one cluster")
    };
    assert_eq!(
        (
            cluster.leader.replica.as_str(),
            cluster.samples_deduplicated,
            cluster.n_changes
        ),
        ("b", 4, 1)
    );
    assert_eq!(pairs.fixture.receiver.stats().samples_deduplicated, 4);
}

#[test]
fn series_of_other_pairs_in_a_request_get_their_own_decisions() {
    let pairs = Pairs::new();
    assert_eq!(pairs.write(&[of("c", "a", 0)]), (1, 0));
    assert_eq!(pairs.write(&[of("d", "b", 0)]), (1, 0));
    let lone = |t: i64| series(&[("__name__", "lone"), ("cluster", "c")], &[(T + t, 1.0)]);
    for t in 1..4 {
        // In both orders, so that each request meets routes that the other has cached.
        assert_eq!(
            pairs.write(&[of("c", "b", t), of("d", "b", 10 * t), lone(10 * t)]),
            (2, 1)
        );
        assert_eq!(
            pairs.write(&[of("d", "a", t), lone(10 * t + 1), of("c", "a", 10 * t + 1)]),
            (2, 1)
        );
        assert_eq!(
            pairs.write(&[lone(10 * t + 2), of("c", "b", t), of("d", "a", t)]),
            (1, 2)
        );
        assert_eq!(
            pairs.write(&[of("c", "a", 10 * t + 3), of("d", "a", t), lone(10 * t + 3)]),
            (2, 1)
        );
    }
    let deduplicated: Vec<_> = pairs
        .elections
        .clusters()
        .iter()
        .map(|cluster| cluster.samples_deduplicated)
        .collect();
    assert_eq!(deduplicated, [6, 9]);
    let lone_times: Vec<_> = (1..4)
        .flat_map(|t| (0..4).map(move |i| 10 * t + i))
        .collect();
    assert_eq!(
        pairs.contents(),
        [
            (r#"{__name__="lone", cluster="c"}"#.to_owned(), lone_times),
            (
                r#"{__name__="up", cluster="c"}"#.to_owned(),
                vec![0, 11, 13, 21, 23, 31, 33]
            ),
            (
                r#"{__name__="up", cluster="d"}"#.to_owned(),
                vec![0, 10, 20, 30]
            ),
        ]
    );
}

#[test]
fn rules_see_labels_without_replica_and_exemplars_follow_their_series() {
    let pairs = Pairs::new();
    pairs
        .fixture
        .receiver
        .set_relabeling(Relabeling::new(vec![drop_where("replica", ".+")]).unwrap());
    let with_exemplar = |replica: &str, t: i64| {
        let mut series = of("c", replica, t);
        series.exemplars.push(Exemplar {
            timestamp_ms: T + t,
            ..Exemplar::default()
        });
        [series]
    };
    let taken = pairs.fixture.write(&with_exemplar("a", 1)).unwrap();
    assert_eq!((taken.stored.total, taken.exemplars.stored), (1, 1));
    let standby = pairs.fixture.write(&with_exemplar("b", 2)).unwrap();
    assert_eq!(
        (
            standby.deduplicated.total,
            standby.exemplars.rejected[&ExemplarRejection::Standby]
        ),
        (1, 1)
    );
}

#[test]
fn a_request_of_a_standby_is_checked_too_and_pairs_can_be_disabled() {
    let pairs = Pairs::new();
    assert_eq!(pairs.write(&[of("c", "a", 0)]), (1, 0));
    let mut malformed = request(&[of("c", "b", 1)]);
    // The label's name is longer than its label.
    let at = malformed
        .windows(8)
        .position(|bytes| bytes == b"__name__")
        .unwrap();
    malformed[at - 1] = 0x7f;
    assert!(matches!(
        pairs.fixture.write_message(&malformed),
        Err(WriteError::Malformed(_))
    ));
    let refused = pairs
        .fixture
        .write(&[of("c", "b", 1), series(&[("job", "x")], &[(T, 1.0)])])
        .unwrap();
    assert_eq!(
        (refused.rejections.n_samples(), refused.deduplicated.total),
        (1, 1)
    );
    pairs.fixture.receiver.set_ha(None, &pairs.elections);
    assert_eq!(pairs.write(&[of("c", "b", 1), of("c", "a", 1)]), (2, 0));
    assert_eq!(pairs.contents().len(), 3);
}

/// A token could lead a cluster that its forced labels exclude, and its own samples were lost if
/// another replica led.
#[test]
fn forced_labels_replace_the_cluster_that_a_token_sends() {
    let pairs = Pairs::new();
    assert_eq!(pairs.write(&[of("other", "x", 0)]), (1, 0));
    let labels = [("cluster".to_owned(), "own".to_owned())];
    let write = |replica, t| {
        let origin = Origin {
            labels: &labels,
            ..Origin::default()
        };
        let message = request(&[of("other", replica, t)]);
        let written = pairs
            .fixture
            .receiver
            .write(&origin, Version::V1, &pack(&message))
            .unwrap();
        (written.stored.total, written.deduplicated.total)
    };
    for t in 1..4 {
        assert_eq!(write("y", 10 * t), (1, 0));
        assert_eq!(write("x", 10 * t + 1), (0, 1));
    }
    let leaders: Vec<_> = pairs
        .elections
        .clusters()
        .into_iter()
        .map(|cluster| cluster.leader.replica)
        .collect();
    assert_eq!(
        (leaders, pairs.fixture.receiver.stats().route.hits),
        (vec!["x".to_owned(), "y".to_owned()], 2)
    );
    let stored: Vec<_> = pairs
        .contents()
        .into_iter()
        .map(|(_, times)| times)
        .collect();
    assert_eq!(stored, [vec![0], vec![10, 20, 30]]);
}

/// Two tenants that used the same names were one pair: a tenant lost its samples while the other
/// one's replica led.
#[test]
fn tenants_with_the_same_cluster_have_pairs_of_their_own() {
    let pairs = Pairs::new();
    let write = |tenant: &str, replica, t| {
        let labels = [("team".to_owned(), tenant.to_owned())];
        let origin = Origin {
            labels: &labels,
            ..Origin::default()
        };
        let message = request(&[of("c", replica, t)]);
        let written = pairs
            .fixture
            .receiver
            .write(&origin, Version::V1, &pack(&message))
            .unwrap();
        (written.stored.total, written.deduplicated.total)
    };
    assert_eq!(pairs.write(&[of("c", "a", 0)]), (1, 0));
    for t in 1..3 {
        assert_eq!(
            (write("s", "b", 10 * t), write("s", "a", 10 * t + 1)),
            ((1, 0), (0, 1))
        );
        assert_eq!(
            (write("t", "c", 10 * t), write("t", "b", 10 * t + 1)),
            ((1, 0), (0, 1))
        );
    }
    // A name that is too long for the file of the leaders is no cluster.
    let long = "x".repeat(250);
    assert_eq!(
        (write(&long, "a", 1), write(&long, "b", 2)),
        ((1, 0), (1, 0))
    );
    let clusters = pairs.elections.clusters().into_iter();
    let clusters: Vec<_> = clusters
        .map(|cluster| {
            (
                cluster.cluster,
                cluster.leader.replica,
                cluster.samples_deduplicated,
            )
        })
        .collect();
    let expect = [
        ("c", "a", 0),
        (r#"c{team="s"}"#, "b", 2),
        (r#"c{team="t"}"#, "c", 2),
    ];
    assert_eq!(
        clusters,
        expect.map(|(cluster, leader, n)| (cluster.to_owned(), leader.to_owned(), n))
    );
}

/// Two tenants of a router that used the same names were one pair, and a sender without tenant
/// could take part in the pair of a tenant.
#[test]
fn neither_a_router_nor_a_name_mixes_the_pairs_of_tenants() {
    let pairs = Pairs::new();
    let routed = |tenant: &str, replica, t| {
        let tenant_field = [&[0x12, tenant.len() as u8], tenant.as_bytes()].concat();
        let message = [request(&[of("c", replica, t)]), tenant_field].concat();
        let written = pairs
            .fixture
            .receiver
            .write_routed(&Origin::default(), "tenant_id", &message, |body, _| {
                Ok(body)
            })
            .unwrap();
        (written.stored.total, written.deduplicated.total)
    };
    assert_eq!((routed("s", "a", 0), routed("s", "b", 1)), ((1, 0), (0, 1)));
    assert_eq!((routed("t", "b", 2), routed("t", "a", 3)), ((1, 0), (0, 1)));
    assert_eq!(pairs.write(&[of(r#"c{tenant_id="s"}"#, "b", 4)]), (1, 0));
    let clusters: Vec<_> = pairs
        .elections
        .clusters()
        .into_iter()
        .map(|cluster| cluster.cluster)
        .collect();
    assert_eq!(
        clusters,
        [
            r#"c{tenant_id="s"}"#,
            r#"c{tenant_id="s"}{}"#,
            r#"c{tenant_id="t"}"#
        ]
    );
}

/// Without a count, nothing showed why both replicas were stored.
#[test]
fn series_with_names_that_are_too_long_are_stored_and_counted() {
    let pairs = Pairs::new();
    let long = "x".repeat(257);
    for replica in ["a", "b"] {
        assert_eq!(pairs.write(&[of(&long, replica, 0)]), (1, 0));
        assert_eq!(pairs.write(&[of(&long, replica, 10)]), (1, 0));
    }
    assert_eq!(pairs.write(&[of("c", &long, 0)]), (1, 0));
    assert_eq!(pairs.write(&[of("c", "a", 0)]), (1, 0));
    assert_eq!(pairs.elections.n_oversized(), 3);
}

/// The leader and the server died together, and the other replica has queued its samples.
#[test]
fn after_a_start_a_standby_sends_again_until_the_leader_has_sent_or_was_silent() {
    let mut pairs = Pairs::new();
    assert_eq!(pairs.write(&[of("c", "a", 0)]), (1, 0));
    pairs.restart();
    let undecided = pairs.fixture.write(&[of("c", "b", 5)]).unwrap_err();
    assert!(
        matches!(&undecided, WriteError::NoLeaderYet { cluster } if &**cluster == "c"),
        "{undecided}"
    );
    // The leader was silent for the timeout.
    pairs.set_timeout(Duration::ZERO);
    assert_eq!(pairs.write(&[of("c", "b", 5)]), (1, 0));
    pairs.set_timeout(HOUR);
    assert_eq!(pairs.write(&[of("c", "a", 10)]), (0, 1));
    // The leader sends.
    pairs.restart();
    assert!(pairs.fixture.write(&[of("c", "a", 10)]).is_err());
    assert_eq!(pairs.write(&[of("c", "b", 15)]), (1, 0));
    assert_eq!(pairs.write(&[of("c", "a", 20)]), (0, 1));
}

/// A relay sends series of two pairs in one request.
#[test]
fn after_a_start_a_request_with_series_of_an_undecided_pair_is_sent_again() {
    let mut pairs = Pairs::new();
    assert_eq!(pairs.write(&[of("c", "a", 0), of("d", "a", 0)]), (2, 0));
    pairs.restart();
    let request = [of("c", "a", 5), of("d", "b", 5)];
    let undecided = pairs.fixture.write(&request).unwrap_err();
    assert!(
        matches!(&undecided, WriteError::NoLeaderYet { cluster } if &**cluster == "d"),
        "{undecided}"
    );
    pairs.set_timeout(Duration::ZERO);
    assert_eq!(pairs.write(&request), (2, 0));
    let times = vec![0, 5];
    let name = |cluster| format!(r#"{{__name__="up", cluster="{cluster}"}}"#);
    assert_eq!(
        pairs.contents(),
        [(name("c"), times.clone()), (name("d"), times)]
    );
}
