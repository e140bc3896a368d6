//! One connection: sends requests as Prometheus does, with retries until the server accepts or
//! rejects them.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::options::WriteOptions;
use super::requests::Request;
use super::written::Written;
use crate::client::{Client, Response};

/// Backoff, as Prometheus' `min_backoff` and `max_backoff`.
const BACKOFF_MIN: Duration = Duration::from_millis(30);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Maximum time for which a request is retried. Prometheus retries forever, but a benchmark must
/// end.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Schedules the requests of all connections at a rate.
#[derive(Debug)]
pub(crate) struct Pace {
    samples_per_s: Option<f64>,
    due: Mutex<Instant>,
}

/// One connection.
pub(crate) struct Sender<'a> {
    options: &'a WriteOptions,
    pace: &'a Pace,
    client: Client,
    pub(crate) written: Written,
}

impl Pace {
    pub(crate) fn new(samples_per_s: Option<f64>) -> Self {
        Self {
            samples_per_s,
            due: Mutex::new(Instant::now()),
        }
    }

    fn wait(&self, n_samples: u64) {
        let Some(samples_per_s) = self.samples_per_s else {
            return;
        };
        let due = {
            let mut next = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            // A delay is not followed by a burst.
            let due = (*next).max(Instant::now());
            *next = due + Duration::from_secs_f64(n_samples as f64 / samples_per_s);
            due
        };
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

impl<'a> Sender<'a> {
    pub(crate) fn new(options: &'a WriteOptions, pace: &'a Pace) -> Self {
        Self {
            options,
            pace,
            client: Client::new(&options.url),
            written: Written::default(),
        }
    }

    /// Sends a request when it is due, and retries until the server accepts or rejects it.
    pub(crate) fn send(&mut self, request: &Request) -> Result<()> {
        self.pace.wait(request.n_samples);
        let (response, latency) = self.send_until_decided(&request.body)?;
        self.written.latencies.push(latency);
        self.written.n_samples += request.n_samples;
        if !response.is_success() {
            self.written.n_rejected += request.n_samples;
            self.written
                .rejection
                .get_or_insert_with(|| format!("{}: {}", response.status, response.text()));
        }
        Ok(())
    }

    /// Sends a body until the server accepts or rejects it. Returns the response and its latency.
    fn send_until_decided(&mut self, body: &[u8]) -> Result<(Response, Duration)> {
        let since = Instant::now();
        let mut backoff = BACKOFF_MIN;
        loop {
            let started = Instant::now();
            let last = match self.client.write(body, self.options.version) {
                Ok(response) if !is_retried(response.status) => {
                    return Ok((response, started.elapsed()));
                }
                last => last,
            };
            let wait = last
                .as_ref()
                .ok()
                .and_then(|response| response.retry_after)
                .unwrap_or(backoff);
            if since.elapsed() + wait > RETRY_MAX {
                let response = last?;
                bail!(
                    "the server accepted nothing for {RETRY_MAX:?}; last response {}: {}",
                    response.status,
                    response.text()
                );
            }
            self.written.n_retries += 1;
            thread::sleep(wait);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }
}

/// Returns `true` if Prometheus retries a request with this status.
fn is_retried(status: u16) -> bool {
    status >= 500 || status == 429
}
