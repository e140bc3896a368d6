//! Sends requests over one connection per stream. A full queue makes the generator wait.

use std::sync::Once;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::series::{Body, STREAMS};
use crate::client::Client;
use crate::message::Version;

/// Requests that wait for a connection.
const QUEUE_LEN: usize = 16;
const BACKOFF: Duration = Duration::from_millis(200);
/// Maximum time for which a request is retried.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(300);

/// Reports the reason of the first retry of all connections.
static FIRST_RETRY: Once = Once::new();

/// The connections.
pub(super) struct Senders {
    queues: Vec<SyncSender<Vec<u8>>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Senders {
    /// Starts the connections. Each retries a request for `retry_max`.
    pub(super) fn start(url: &str, retry_max: Duration) -> Self {
        let mut senders = Self {
            queues: Vec::new(),
            threads: Vec::new(),
        };
        for _ in 0..STREAMS {
            let (queue, bodies) = sync_channel(QUEUE_LEN);
            let client = Client::new(url);
            senders.queues.push(queue);
            senders
                .threads
                .push(thread::spawn(move || send_all(&client, &bodies, retry_max)));
        }
        senders
    }

    /// Queues requests.
    ///
    /// # Errors
    /// If a connection has failed; [`Self::finish`] returns the reason.
    pub(super) fn send(&self, bodies: impl Iterator<Item = Body>) -> Result<()> {
        for body in bodies {
            let sent = self.queues[body.stream].send(body.bytes);
            // The thread has returned its error.
            if sent.is_err() {
                bail!("the server does not accept the samples");
            }
        }
        Ok(())
    }

    /// Waits until all requests are sent.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects samples.
    pub(super) fn finish(self) -> Result<()> {
        drop(self.queues);
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| anyhow!("a sender has panicked"))??;
        }
        Ok(())
    }
}

fn send_all(client: &Client, bodies: &Receiver<Vec<u8>>, retry_max: Duration) -> Result<()> {
    for body in bodies {
        let since = Instant::now();
        loop {
            let response = client.write(&body, Version::V1);
            let is_retried = match &response {
                Ok(response) if response.is_success() => break,
                Ok(response) => response.status >= 500 || response.status == 429,
                Err(_) => true,
            };
            let error = match response {
                Ok(response) => anyhow!(
                    "the server returned {}: {}",
                    response.status,
                    response.text()
                ),
                Err(error) => error,
            };
            if !is_retried {
                return Err(error);
            }
            if since.elapsed() >= retry_max {
                return Err(error).with_context(|| {
                    format!("a request failed for {} s", since.elapsed().as_secs())
                });
            }
            FIRST_RETRY.call_once(|| {
                let longest = retry_max.as_secs();
                eprintln!("varve-bench: requests are retried for up to {longest} s: {error:#}");
            });
            thread::sleep(BACKOFF);
        }
    }
    Ok(())
}
