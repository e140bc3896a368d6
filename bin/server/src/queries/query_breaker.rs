//! A circuit breaker for queries that exceed a memory limit again and again.
//!
//! A query is identified by its user, its text, its step and the length of its range, so that the
//! refreshes of a dashboard are one query. A user has one tenant. The tenant itself is not a part:
//! after a reload with other limits, a success must close the breaker.
//!
//! ```text
//! closed --- `failures_max` failures in a row ---> open: rejected without evaluation
//!   ^                                               |
//!   |                              after `open_for` | evaluated again
//!   '----- success --------- half-open <------------'
//!                                 '------ failure --> open
//! ```
//!
//! Bounded: the [`QUERIES_MAX`] queries that failed last, each of at most [`TEXT_SIZE_MAX`] bytes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_system::excerpt::truncate;

use crate::requests::record::RequestRecord;

/// Maximum number of queries that have failed.
const QUERIES_MAX: usize = 1000;
/// Bytes of a query that are listed.
const TEXT_SIZE_MAX: usize = 1024;

/// The queries that exceeded a memory limit the last time they were evaluated.
#[derive(Debug)]
pub struct QueryBreaker {
    /// Number of failures in a row after which a query is rejected; 0: none is.
    failures_max: u32,
    /// `--query.breaker-timeout`.
    open_for: Duration,
    hasher: RandomState,
    failed: Mutex<HashMap<QueryHash, FailedQuery>>,
}

/// The hash of the user, the text, the step and the length of the range of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct QueryHash(u64);

/// A query that has failed.
#[derive(Debug, Clone)]
pub struct FailedQuery {
    /// The query, truncated.
    pub query: String,
    /// The user; empty without authentication.
    pub user: Arc<str>,
    /// Number of failures in a row.
    pub n_failures: u32,
    /// Number of requests that were rejected without evaluation.
    pub n_rejected: u64,
    /// The error of the last failure.
    pub error: String,
    failed_at: Instant,
}

impl QueryBreaker {
    pub(crate) fn new(failures_max: u32, open_for: Duration) -> Self {
        Self {
            failures_max,
            open_for,
            hasher: RandomState::new(),
            failed: Mutex::default(),
        }
    }

    /// Returns the reason why the query of a request is rejected, if it is.
    pub fn check(&self, request: &RequestRecord, now: Instant) -> Option<String> {
        let mut failed = self.failed.lock();
        // Fast path: no query has failed.
        if failed.is_empty() {
            return None;
        }
        let query = failed.get_mut(&self.key(request)?)?;
        let left = self.rejected_for(query, now)?;
        query.n_rejected += 1;
        let FailedQuery {
            n_failures, error, ..
        } = query;
        let left_s = left.as_secs() + 1;
        Some(format!(
            "{error}. The query failed {n_failures} times in a row and is not evaluated for {left_s}s"
        ))
    }

    /// Records the end of a query: with the error if it exceeded a memory limit, `None` if it
    /// succeeded.
    pub fn record(&self, request: &RequestRecord, error: Option<&str>, now: Instant) {
        let mut failed = self.failed.lock();
        if self.failures_max == 0 || (error.is_none() && failed.is_empty()) {
            return;
        }
        let Some(key) = self.key(request) else { return };
        let Some(error) = error else {
            failed.remove(&key);
            return;
        };
        if failed.len() >= QUERIES_MAX
            && !failed.contains_key(&key)
            && let Some(oldest) = failed
                .iter()
                .min_by_key(|(_, query)| query.failed_at)
                .map(|(&key, _)| key)
        {
            failed.remove(&oldest);
        }
        let query = failed.entry(key).or_insert_with(|| FailedQuery {
            query: truncate(&request.parameters().text, TEXT_SIZE_MAX).to_owned(),
            user: Arc::clone(&request.user),
            n_failures: 0,
            n_rejected: 0,
            error: String::new(),
            failed_at: now,
        });
        query.n_failures += 1;
        (query.error, query.failed_at) = (truncate(error, TEXT_SIZE_MAX).to_owned(), now);
    }

    /// Returns all queries that have failed, and for how long each is rejected. The last failure
    /// comes first.
    pub fn list(&self, now: Instant) -> Vec<(FailedQuery, Option<Duration>)> {
        let mut all: Vec<_> = self.failed.lock().values().cloned().collect();
        all.sort_by_key(|query| std::cmp::Reverse(query.failed_at));
        all.into_iter()
            .map(|query| (query.clone(), self.rejected_for(&query, now)))
            .collect()
    }

    /// Forgets all failures.
    pub fn reset(&self) {
        self.failed.lock().clear();
    }

    fn rejected_for(&self, query: &FailedQuery, now: Instant) -> Option<Duration> {
        let left = self
            .open_for
            .checked_sub(now.duration_since(query.failed_at))?;
        (query.n_failures >= self.failures_max && !left.is_zero()).then_some(left)
    }

    fn key(&self, request: &RequestRecord) -> Option<QueryHash> {
        let steps = request.steps()?;
        let length_ms = steps.end_ms().wrapping_sub(steps.start_ms());
        Some(QueryHash(self.hasher.hash_one((
            &request.user,
            &request.parameters().text,
            steps.step_ms(),
            length_ms,
        ))))
    }
}

#[cfg(test)]
mod tests {
    use varve_query::Steps;

    use super::*;
    use crate::requests::record::Parameters;
    use crate::requests::tenant::User;
    use varve_wire::active_requests::GrafanaSource;

    const OPEN_FOR: Duration = Duration::from_secs(60);

    fn request(user: &str, text: &str, end_ms: i64) -> Arc<RequestRecord> {
        let user = User {
            name: Arc::from(user),
            tenant: None,
        };
        let request = RequestRecord::new(
            "GET",
            String::new(),
            None,
            "",
            GrafanaSource::default(),
            Some(user),
        );
        request.note_parameters(
            Parameters {
                text: text.to_owned(),
                ..Parameters::default()
            },
            None,
        );
        request.note_steps(Steps::range(end_ms - 1000, end_ms, 1));
        request
    }

    #[test]
    fn a_query_that_fails_in_a_row_is_rejected_until_it_succeeds() {
        let breaker = QueryBreaker::new(2, OPEN_FOR);
        let now = Instant::now();
        let bad = request("a", "bad", 5000);
        breaker.record(&bad, Some("too large"), now);
        breaker.record(&bad, None, now);
        assert!(breaker.list(now).is_empty());
        for _ in 0..2 {
            assert_eq!(breaker.check(&bad, now), None);
            breaker.record(&bad, Some("too large"), now);
        }
        let reason = "too large. The query failed 2 times in a row and is not evaluated for 61s";
        assert_eq!(
            breaker.check(&request("a", "bad", 9000), now).as_deref(),
            Some(reason),
            "a later refresh"
        );
        assert_eq!(breaker.check(&request("b", "bad", 5000), now), None);
        assert_eq!(breaker.check(&request("a", "good", 5000), now), None);
        assert_eq!(
            (breaker.list(now)[0].0.n_rejected, breaker.list(now)[0].1),
            (1, Some(OPEN_FOR))
        );

        let later = now + OPEN_FOR;
        assert_eq!(breaker.check(&bad, later), None, "half-open");
        breaker.record(&bad, Some("too large"), later);
        assert!(breaker.check(&bad, later).is_some());
        breaker.record(&bad, None, later + OPEN_FOR);
        assert!(breaker.list(later).is_empty());
        breaker.record(&bad, Some("too large"), later);
        breaker.reset();
        assert!(breaker.list(later).is_empty());
    }

    #[test]
    fn the_queries_that_failed_last_are_kept() {
        let breaker = QueryBreaker::new(1, OPEN_FOR);
        let now = Instant::now();
        for i in 0..=QUERIES_MAX {
            let query = request("", &i.to_string(), 0);
            breaker.record(
                &query,
                Some("too large"),
                now + Duration::from_millis(i as u64),
            );
        }
        assert_eq!(breaker.list(now).len(), QUERIES_MAX);
        assert_eq!(breaker.check(&request("", "0", 0), now), None);
        assert!(breaker.check(&request("", "1", 0), now).is_some());
    }

    #[test]
    fn a_disabled_breaker_rejects_nothing() {
        let breaker = QueryBreaker::new(0, OPEN_FOR);
        let now = Instant::now();
        breaker.record(&request("", "x", 0), Some("too large"), now);
        assert!(breaker.list(now).is_empty());
    }
}
