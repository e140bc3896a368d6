//! Sends requests over one connection per stream. A full queue makes the generator wait.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::series::{Body, STREAMS};
use crate::client::Client;
use crate::message::Version;

/// Requests that wait for a connection.
const QUEUE_LEN: usize = 16;
const BACKOFF: Duration = Duration::from_millis(200);
/// Maximum time for which a request is retried.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The connections.
pub(super) struct Senders {
    queues: Vec<SyncSender<Vec<u8>>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Senders {
    pub(super) fn start(url: &str) -> Self {
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
                .push(thread::spawn(move || send_all(&client, &bodies)));
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

fn send_all(client: &Client, bodies: &Receiver<Vec<u8>>) -> Result<()> {
    for body in bodies {
        let since = Instant::now();
        loop {
            let response = client.write(&body, Version::V1);
            let is_retried = match &response {
                Ok(response) if response.is_success() => break,
                Ok(response) => response.status >= 500 || response.status == 429,
                Err(_) => true,
            };
            if !is_retried || since.elapsed() > RETRY_MAX {
                let response = response?;
                let error = anyhow!(
                    "the server returned {}: {}",
                    response.status,
                    response.text()
                );
                eprintln!("varve-bench: {error:#}");
                return Err(error);
            }
            thread::sleep(BACKOFF);
        }
    }
    Ok(())
}
