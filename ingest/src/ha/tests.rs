use std::io::ErrorKind;

use varve_env::testing::{Fault, MemFs, PowerCut};

use super::*;

const PATH: &str = "/data/ha";
const TIMEOUT: Duration = Duration::from_secs(30);

fn open(fs: &MemFs) -> (Elections, Result<(), StateFileError>) {
    Elections::open(Arc::new(fs.clone()), PATH.into())
}

fn member<'a>(cluster: &'a str, replica: &'a str) -> Member<'a> {
    Member { cluster, replica }
}

fn leaders(elections: &Elections) -> Vec<(String, String)> {
    elections
        .clusters()
        .into_iter()
        .map(|cluster| (cluster.cluster, cluster.leader.replica))
        .collect()
}

#[test]
fn a_leader_is_on_disk_before_its_decision_returns() {
    let fs = MemFs::with_dir("/data");
    let (elections, found) = open(&fs);
    assert_eq!(found, Ok(()));
    assert_eq!(
        elections.decide(&ClusterName::persisted("c"), "a", TIMEOUT),
        Decision::Leader
    );
    assert_eq!(
        elections.decide(&ClusterName::persisted("c"), "b", TIMEOUT),
        Decision::Standby
    );
    let (after, _) = open(&fs.crash(PowerCut::LosesAll));
    assert_eq!(leaders(&after), [("c".to_owned(), "a".to_owned())]);
    // Being heard first after a start does not make a leader.
    assert_eq!(
        after.decide(&ClusterName::persisted("c"), "b", TIMEOUT),
        Decision::Undecided
    );
    // A known leader causes no write.
    let n_operations = fs.n_operations();
    assert_eq!(
        elections.decide(&ClusterName::persisted("c"), "a", TIMEOUT),
        Decision::Leader
    );
    assert_eq!(fs.n_operations(), n_operations);
}

#[test]
fn a_failing_disk_or_a_power_cut_at_any_operation_leaves_the_old_leader_or_the_new_one() {
    let elect = |fs: &MemFs| {
        let (elections, found) = open(fs);
        assert_eq!(found, Ok(()));
        assert_eq!(
            elections.decide(&ClusterName::persisted("c"), "a", TIMEOUT),
            Decision::Leader
        );
        // With a timeout of zero the other replica takes over at once.
        assert_eq!(
            elections.decide(&ClusterName::persisted("c"), "b", Duration::ZERO),
            Decision::Leader
        );
        elections
    };
    let fs = MemFs::with_dir("/data");
    let before = fs.n_operations();
    elect(&fs);
    for operation in before..fs.n_operations() {
        for fault in [
            Fault::Fails(ErrorKind::StorageFull),
            Fault::Cut,
            Fault::Dies,
        ] {
            let fs = MemFs::with_dir("/data");
            fs.fail_at(operation, fault);
            let elections = elect(&fs);
            for cut in [PowerCut::LosesAll, PowerCut::KeepsAll] {
                let (after, found) = open(&fs.crash(cut));
                assert_eq!(found, Ok(()), "{operation} {fault:?}");
                let leaders = leaders(&after);
                assert!(leaders.len() <= 1, "{leaders:?}");
            }
            if fault != Fault::Dies && elections.save().is_ok() {
                let (after, _) = open(&fs.crash(PowerCut::LosesAll));
                assert_eq!(
                    leaders(&after),
                    [("c".to_owned(), "b".to_owned())],
                    "{operation} {fault:?}"
                );
            }
        }
    }
}

#[test]
fn a_pair_has_two_short_names_in_utf8() {
    let settings = HaSettings {
        cluster_label: "c".to_owned(),
        replica_label: "r".to_owned(),
        failover_timeout: TIMEOUT,
    };
    let ha = Ha::new(settings, Arc::new(open(&MemFs::with_dir("/data")).0));
    let long = "x".repeat(NAME_SIZE_MAX + 1);
    let check = |labels: &[(&str, &[u8])], expect: Option<Member<'_>>| {
        assert_eq!(
            ha.member(labels.iter().map(|(name, value)| (name.as_bytes(), *value))),
            expect,
            "{labels:?}"
        );
    };
    check(
        &[("c", b"1"), ("job", b"x"), ("r", b"2")],
        Some(member("1", "2")),
    );
    check(&[("c", b"1")], None);
    check(&[("c", b"1"), ("r", b"")], None);
    check(&[("c", b"\xff"), ("r", b"2")], None);
    check(&[("c", b"1"), ("r", long.as_bytes())], None);
}
