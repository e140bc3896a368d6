use std::io::ErrorKind;
use std::path::Path;

use varve_tsdb::fs::{Fault, MemFs, PowerCut};

use super::*;

const PATH: &str = "/data/ha";
const TIMEOUT: Duration = Duration::from_secs(30);

fn disk() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir(Path::new("/data")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    fs
}

fn open(fs: &MemFs) -> (Elections, StateFound) {
    Elections::open(Arc::new(fs.clone()), PATH.into())
}

fn pair<'a>(cluster: &'a str, replica: &'a str) -> Pair<'a> {
    Pair { cluster, replica }
}

fn leaders(elections: &Elections) -> Vec<(String, String)> {
    elections.clusters().into_iter().map(|of| (of.cluster, of.leader.replica)).collect()
}

#[test]
fn who_leads_is_on_disk_before_it_is_told() {
    let fs = disk();
    let (elections, found) = open(&fs);
    assert_eq!(found, StateFound::Sound);
    assert_eq!(elections.decide(pair("c", "a"), TIMEOUT), Decision::Leader);
    assert_eq!(elections.decide(pair("c", "b"), TIMEOUT), Decision::Standby);
    let (after, _) = open(&fs.crash(PowerCut::LosesAll));
    assert_eq!(leaders(&after), [("c".to_owned(), "a".to_owned())]);
    // The one that is heard first after a start is not the leader for that.
    assert_eq!(after.decide(pair("c", "b"), TIMEOUT), Decision::Standby);
    // One who leads already writes nothing.
    let n_operations = fs.n_operations();
    assert_eq!(elections.decide(pair("c", "a"), TIMEOUT), Decision::Leader);
    assert_eq!(fs.n_operations(), n_operations);
}

#[test]
fn a_failing_disk_or_a_power_cut_at_any_operation_leaves_the_old_leader_or_the_new_one() {
    let elect = |fs: &MemFs| {
        let (elections, found) = open(fs);
        assert_eq!(found, StateFound::Sound);
        assert_eq!(elections.decide(pair("c", "a"), TIMEOUT), Decision::Leader);
        // Without patience the other one takes over at once.
        assert_eq!(elections.decide(pair("c", "b"), Duration::ZERO), Decision::Leader);
        elections
    };
    let fs = disk();
    let before = fs.n_operations();
    elect(&fs);
    for operation in before..fs.n_operations() {
        for fault in [Fault::Fails(ErrorKind::StorageFull), Fault::Cut, Fault::Dies] {
            let fs = disk();
            fs.fail_at(operation, fault);
            let elections = elect(&fs);
            for cut in [PowerCut::LosesAll, PowerCut::KeepsAll] {
                let (after, found) = open(&fs.crash(cut));
                assert_eq!(found, StateFound::Sound, "{operation} {fault:?}");
                let leaders = leaders(&after);
                assert!(leaders.len() <= 1, "{leaders:?}");
            }
            if fault != Fault::Dies && elections.save().is_ok() {
                let (after, _) = open(&fs.crash(PowerCut::LosesAll));
                assert_eq!(leaders(&after), [("c".to_owned(), "b".to_owned())], "{operation} {fault:?}");
            }
        }
    }
}

#[test]
fn a_damaged_file_is_kept_aside_and_a_newer_one_left() {
    let fs = disk();
    open(&fs).0.decide(pair("c", "a"), TIMEOUT);
    fs.edit(Path::new(PATH), |bytes| bytes[20] ^= 1).unwrap();
    let (elections, found) = open(&fs);
    assert_eq!(found, StateFound::Damaged("its checksum is wrong".into()));
    assert!(leaders(&elections).is_empty());
    elections.decide(pair("c", "b"), TIMEOUT);
    assert_eq!(fs.list(Path::new("/data")).unwrap(), ["ha", "ha.damaged"]);

    fs.edit(Path::new(PATH), |bytes| bytes[4] = 2).unwrap();
    let newer = fs.read(Path::new(PATH), 1_000).unwrap();
    let (elections, found) = open(&fs);
    assert_eq!(found, StateFound::Newer(2));
    assert_eq!(elections.decide(pair("c", "c"), TIMEOUT), Decision::Leader);
    assert_eq!(fs.read(Path::new(PATH), 1_000).unwrap(), newer);
}

#[test]
fn a_pair_has_two_names_that_are_short_texts() {
    let settings =
        HaSettings { cluster_label: "c".to_owned(), replica_label: "r".to_owned(), failover_timeout: TIMEOUT };
    let ha = Ha::new(settings, Arc::new(open(&disk()).0));
    let long = "x".repeat(NAME_SIZE_MAX + 1);
    let check = |labels: &[(&str, &[u8])], expect: Option<Pair<'_>>| {
        assert_eq!(ha.pair(labels.iter().map(|(name, value)| (name.as_bytes(), *value))), expect, "{labels:?}");
    };
    check(&[("c", b"1"), ("job", b"x"), ("r", b"2")], Some(pair("1", "2")));
    check(&[("c", b"1")], None);
    check(&[("c", b"1"), ("r", b"")], None);
    check(&[("c", b"\xff"), ("r", b"2")], None);
    check(&[("c", b"1"), ("r", long.as_bytes())], None);
}
