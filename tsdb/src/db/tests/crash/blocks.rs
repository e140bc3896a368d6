//! Whole blocks, removed by retention and linked into snapshots, with failures at every operation.

use super::*;
use crate::retention::RetentionRule;

const WINDOW_MS: i64 = 7_200_000;
const RETENTION_MS: i64 = 2 * WINDOW_MS;

/// Writes one window after the other, so that the oldest expire.
fn age(fs: &MemFs, told: &mut Told) -> Result<()> {
    let options = Options {
        retention_ms: Some(RETENTION_MS),
        ..options(fs, 2)
    };
    let db = Db::open(DATA.as_ref(), options)?;
    for window in 0..5 {
        write(&db, NOW_MS + window * WINDOW_MS, told)?;
        db.flush()?;
        db.compact()?;
    }
    Ok(())
}

#[test]
fn young_blocks_survive_whatever_operation_of_retention_fails() {
    let (fs, mut told) = (MemFs::new(), Told::default());
    age(&fs, &mut told).unwrap();
    let kept =
        found(&Db::open(DATA.as_ref(), options(&fs.crash(PowerCut::LosesAll), 2)).unwrap()).len();
    assert!(
        (2 * N_SERIES..4 * N_SERIES).contains(&kept),
        "retention took some windows: {kept}"
    );
    for operation in 0..fs.n_operations() {
        for fault in [Fault::Dies, Fault::Cut] {
            let (fs, mut told) = (MemFs::new(), Told::default());
            fs.fail_at(operation, fault);
            let ended = age(&fs, &mut told);
            let newest_ms = told.sent.iter().map(|&(_, t)| t).max().unwrap_or(NOW_MS);
            told.maybe_deleted = told
                .sent
                .iter()
                .copied()
                .filter(|&(_, t)| newest_ms - t >= RETENTION_MS)
                .collect();
            for cut in [PowerCut::LosesAll, PowerCut::Seeded(operation)] {
                check(
                    &fs.crash(cut),
                    &told,
                    &format!("{:?}, then {ended:?}, then {cut:?}", fs.failed()),
                );
            }
        }
    }
}

/// Writes one window after the other, so that the samples of series 0 become too old for a rule.
fn age_for_a_rule(fs: &MemFs, told: &mut Told) -> Result<()> {
    let db = Db::open(DATA.as_ref(), options(fs, 2))?;
    let matchers = vec![Matcher::equal("i", "0")];
    db.set_retention(
        None,
        None,
        vec![RetentionRule {
            matchers,
            time_ms: Some(RETENTION_MS),
        }],
    );
    for window in 0..4 {
        let newest_ms = NOW_MS + window * WINDOW_MS;
        write(&db, newest_ms, told)?;
        db.flush()?;
        let too_old = |&(i, t): &(usize, i64)| i == 0 && newest_ms - t >= RETENTION_MS;
        told.maybe_deleted = told.sent.iter().copied().filter(too_old).collect();
        db.compact()?;
        // Once they are removed, they do not reappear.
        told.deleted = told.maybe_deleted.clone();
    }
    Ok(())
}

#[test]
fn a_rule_removes_only_its_series_and_for_good_whatever_operation_fails() {
    let (fs, mut told) = (MemFs::new(), Told::default());
    age_for_a_rule(&fs, &mut told).unwrap();
    assert_eq!(told.deleted.len(), 2, "the rule rewrote two blocks");
    let n_operations = fs.n_operations();
    check(&fs, &told, "without a fault");
    for operation in 0..n_operations {
        for fault in [Fault::Dies, Fault::Cut] {
            let (fs, mut told) = (MemFs::new(), Told::default());
            fs.fail_at(operation, fault);
            let ended = age_for_a_rule(&fs, &mut told);
            for cut in [PowerCut::LosesAll, PowerCut::Seeded(operation)] {
                check(
                    &fs.crash(cut),
                    &told,
                    &format!("{:?}, then {ended:?}, then {cut:?}", fs.failed()),
                );
            }
        }
    }
}

/// Opens a store with flushed and logged samples.
fn filled(fs: &MemFs) -> (Db, Told) {
    let mut told = Told::default();
    let db = Db::open(DATA.as_ref(), options(fs, 2)).unwrap();
    write(&db, NOW_MS, &mut told).unwrap();
    db.flush().unwrap();
    write(&db, NOW_MS + WINDOW_MS, &mut told).unwrap();
    (db, told)
}

#[test]
fn a_completed_snapshot_is_durable_and_a_failed_one_loses_nothing() {
    let fs = MemFs::new();
    let (db, _) = filled(&fs);
    let start = fs.n_operations();
    let path = db.snapshot("a", false).unwrap();
    for operation in 0..fs.n_operations() - start {
        for fault in [
            Fault::Dies,
            Fault::Cut,
            Fault::Fails(ErrorKind::StorageFull),
        ] {
            let fs = MemFs::new();
            let (db, told) = filled(&fs);
            fs.fail_at(start + operation, fault);
            let ended = db.snapshot("a", false);
            let case = format!("{:?}, then {ended:?}", fs.failed());
            if fs.failed().is_some() && fault != Fault::Dies {
                assert_eq!(found(&db).len(), told.stored.len(), "{case}");
                let again = db.snapshot("b", false);
                // A log that could not be synced or truncated accepts no more writes.
                assert!(
                    matches!(again, Ok(_) | Err(Error::Poisoned { .. })),
                    "{case}: {again:?}"
                );
            }
            drop(db);
            for cut in [PowerCut::LosesAll, PowerCut::Seeded(operation)] {
                let fs = fs.crash(cut);
                if ended.is_ok() {
                    let snapshot = Db::open(&path, options(&fs, 1))
                        .unwrap_or_else(|e| panic!("{case}, {cut:?}: {e}"));
                    let seen: BTreeSet<_> = found(&snapshot).into_keys().collect();
                    assert_eq!(seen, told.stored, "{case}, {cut:?}");
                }
                check(&fs, &told, &format!("{case}, then {cut:?}"));
            }
        }
    }
}
