use super::*;

const S: Duration = Duration::from_secs(1);

fn at(seconds: f64) -> Time {
    Time::from_ns((seconds * 1e9) as i64)
}

/// Sends a sample at each of `times`, `lag_s` later.
fn send(senders: &Lags, name: &str, times: impl IntoIterator<Item = f64>, lag_s: f64) {
    for time in times {
        senders.note(name, at(time + lag_s), at(time).ms(), at(time).ms());
    }
}

fn every(interval_s: f64, from_s: f64, to_s: f64) -> impl Iterator<Item = f64> {
    (0..)
        .map(move |i| from_s + f64::from(i) * interval_s)
        .take_while(move |&time| time <= to_s)
}

#[test]
fn without_senders_nothing_is_waited_for() {
    assert_eq!(
        Lags::default().readiness(at(30.0), at(30.0), 30 * S),
        Readiness::Ready
    );
}

#[test]
fn a_late_sender_is_waited_for_until_its_lag_has_passed() {
    let senders = Lags::default();
    send(&senders, "a", every(1.0, 0.0, 301.0), 5.0);
    assert_eq!(
        senders.readiness(at(320.0), at(320.0), 30 * S),
        Readiness::Unknown
    );
    send(&senders, "a", every(1.0, 302.0, 321.0), 5.0);
    let Readiness::At(ready) = senders.readiness(at(320.0), at(321.0), 30 * S) else {
        panic!("lag has not passed")
    };
    assert!(
        (5.0..=5.6).contains(&(ready.since(at(320.0)).as_secs_f64())),
        "{ready:?}"
    );
    assert_eq!(
        senders.readiness(at(320.0), at(326.0), 30 * S),
        Readiness::Ready
    );
}

#[test]
fn a_timestamp_in_the_future_is_no_progress() {
    let senders = Lags::default();
    senders.note("a", at(100.0), at(95.0).ms(), at(1e6).ms());
    assert_eq!(
        senders.readiness(at(110.0), at(110.0), 30 * S),
        Readiness::Unknown
    );
}

#[test]
fn one_slow_connection_of_a_sender_counts() {
    let senders = Lags::default();
    let lag = |time: f64| {
        if (time as u64).is_multiple_of(10) {
            20.0
        } else {
            5.0
        }
    };
    let mut requests: Vec<_> = every(1.0, 0.0, 300.0)
        .map(|time| (time, lag(time)))
        .collect();
    requests.sort_by(|(a, of_a), (b, of_b)| (a + of_a).total_cmp(&(b + of_b)));
    for (time, lag) in requests {
        send(&senders, "a", [time], lag);
    }
    assert!(
        matches!(senders.readiness(at(299.0), at(310.0), 30 * S), Readiness::At(ready) if ready > at(319.0))
    );
    assert_eq!(
        senders.readiness(at(299.0), at(321.5), 30 * S),
        Readiness::Ready
    );
}

#[test]
fn a_sender_that_scrapes_every_minute_does_not_delay_a_faster_group() {
    let senders = Lags::default();
    send(&senders, "slow", every(60.0, 0.0, 600.0), 0.0);
    for tick in [610.0, 640.0, 655.0] {
        assert_eq!(
            senders.readiness(at(tick), at(tick + 0.1), 30 * S),
            Readiness::Ready,
            "{tick}"
        );
    }
    // The next sample is due.
    assert_eq!(
        senders.readiness(at(670.0), at(670.1), 30 * S),
        Readiness::Unknown
    );
}

#[test]
fn a_silent_sender_does_not_count() {
    let senders = Lags::default();
    send(&senders, "gone", every(1.0, 0.0, 100.0), 0.0);
    assert_eq!(
        senders.readiness(at(150.0), at(159.0), 30 * S),
        Readiness::Unknown
    );
    assert_eq!(
        senders.readiness(at(150.0), at(161.0), 30 * S),
        Readiness::Ready
    );
}

#[test]
fn a_refill_changes_neither_lag_nor_interval() {
    let senders = Lags::default();
    send(&senders, "a", every(1.0, 0.0, 100.0), 1.0);
    let usual = senders.status();
    senders.note("a", at(900.0), at(101.0).ms(), at(500.0).ms());
    let status = senders.status();
    assert_eq!(
        (status[0].lag, status[0].interval),
        (usual[0].lag, usual[0].interval)
    );
    assert!(!senders.have_refilled(at(900.0), 30 * S));
    assert!(
        senders.have_refilled(at(961.0), 30 * S),
        "a sender that has gone silent does not count"
    );
    senders.note("a", at(905.0), at(500.0).ms(), at(904.0).ms());
    assert!(senders.have_refilled(at(905.0), 30 * S));
}

#[test]
fn a_backlog_does_not_change_the_usual_lag() {
    let senders = Lags::default();
    // A sender starts with 40 s of samples, then pauses for 30 s. It needs 2 s to send a backlog.
    let backlog = |from_s: f64, to_s: f64| {
        for time in every(1.0, from_s, to_s) {
            let arrival = at(to_s + 2.0 * (time - from_s) / (to_s - from_s));
            senders.note("a", arrival, at(time).ms(), at(time).ms());
        }
    };
    backlog(0.0, 40.0);
    send(&senders, "a", every(1.0, 41.0, 100.0), 1.0);
    assert_eq!(
        senders.readiness(at(99.0), at(101.0), 30 * S),
        Readiness::Ready
    );
    backlog(101.0, 131.0);
    send(&senders, "a", every(1.0, 132.0, 160.0), 1.0);
    assert_eq!(
        senders.readiness(at(159.0), at(161.0), 30 * S),
        Readiness::Ready
    );
    assert!(senders.status()[0].lag < 2 * S, "{:?}", senders.status());
}

#[test]
fn the_sender_that_is_silent_longest_is_forgotten() {
    let senders = Lags::default();
    for i in 0..=SENDERS_MAX {
        send(&senders, &format!("s{i}"), [i as f64], 0.0);
    }
    let names: Vec<_> = senders
        .status()
        .into_iter()
        .map(|sender| sender.name)
        .collect();
    assert_eq!(names.len(), SENDERS_MAX);
    assert!(!names.contains(&"s0".into()) && names.contains(&"s1".into()));
}
