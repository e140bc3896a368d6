//! The delivery to one Alertmanager: a task that sends its queue in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use varve_client::{AsyncClient, ClientOptions, Remedies, Url};
use varve_config::file::alerting::AlertmanagerConfig;
use varve_config::settings::NotifierOptions;
use varve_system::printing::error_chain;
use varve_system::version::USER_AGENT;

use super::metrics::NotifierMetrics;
use super::queue::Queue;

/// Maximum age of a client. A new one reads its credentials and certificates again.
const CLIENT_AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum size of a response.
const RESPONSE_SIZE_MAX: usize = 64 << 10;

/// An Alertmanager with its queue.
#[derive(Debug)]
pub(super) struct Delivery {
    url: String,
    queue: Queue,
    settings: Mutex<DeliverySettings>,
    metrics: NotifierMetrics,
    /// Alerts of the batch being sent.
    in_flight: AtomicUsize,
    phase: watch::Sender<Phase>,
}

/// Settings that a reload may change.
#[derive(Debug, Clone)]
pub(super) struct DeliverySettings {
    pub(super) config: Arc<AlertmanagerConfig>,
    pub(super) options: NotifierOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Closed,
    Ended,
}

/// A client, and the configuration that it was created from.
struct Client {
    client: AsyncClient,
    config: Arc<AlertmanagerConfig>,
    created: Instant,
}

impl Client {
    /// Returns `true` if the client still has the configuration in force, and is not too old.
    fn is_fresh(&self, config: &Arc<AlertmanagerConfig>) -> bool {
        Arc::ptr_eq(&self.config, config) && self.created.elapsed() < CLIENT_AGE_MAX
    }
}

impl Delivery {
    /// Starts a delivery.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn start(
        url: String,
        settings: DeliverySettings,
        metrics: NotifierMetrics,
    ) -> Arc<Self> {
        metrics.create(&url);
        let delivery = Arc::new(Self {
            queue: Queue::new(settings.options.queue_capacity),
            settings: Mutex::new(settings),
            url,
            metrics,
            in_flight: AtomicUsize::new(0),
            phase: watch::Sender::new(Phase::Open),
        });
        tokio::spawn(Arc::clone(&delivery).run());
        delivery
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Replaces the settings. The new ones apply from the next batch on.
    pub(super) fn set(&self, settings: DeliverySettings) {
        *self.settings.lock() = settings;
    }

    /// Queues encoded alerts.
    pub(super) fn push(&self, alerts: &[Bytes]) {
        let n_dropped = self.queue.push(alerts);
        if n_dropped > 0 {
            tracing::warn!(
                alertmanager = self.url,
                count = n_dropped,
                "Alert notification queue full, dropping alerts (--alertmanager.notification-queue-capacity)"
            );
            self.count_dropped(n_dropped);
        }
        self.show_length();
    }

    /// Accepts no further alerts. Sends queued alerts for up to `drain_time_max` if
    /// `drain_on_shutdown` is set, and ends.
    pub(super) fn close(&self) {
        self.queue.close();
        self.phase.send_if_modified(|phase| {
            let was_open = *phase == Phase::Open;
            *phase = if was_open { Phase::Closed } else { *phase };
            was_open
        });
    }

    pub(super) fn is_ended(&self) -> bool {
        *self.phase.borrow() == Phase::Ended
    }

    /// Waits until the delivery has ended.
    pub(super) async fn ended(&self) {
        self.reached(|phase| phase == Phase::Ended).await;
    }

    async fn closed(&self) {
        self.reached(|phase| phase != Phase::Open).await;
    }

    async fn reached(&self, is_reached: impl Fn(Phase) -> bool) {
        let mut phase = self.phase.subscribe();
        // An error would mean that the channel is closed, but `self` owns its other end.
        drop(phase.wait_for(|phase| is_reached(*phase)).await);
    }

    async fn run(self: Arc<Self>) {
        let expired = async {
            self.closed().await;
            let NotifierOptions {
                drain_on_shutdown,
                drain_time_max,
                ..
            } = self.settings().options;
            if drain_on_shutdown {
                tokio::time::sleep(drain_time_max).await;
            }
        };
        tokio::select! {
            biased;
            () = expired => {}
            () = self.work() => {}
        }
        let n_unsent = self.queue.len() + self.in_flight.load(Ordering::Relaxed);
        if n_unsent > 0 {
            tracing::warn!(
                alertmanager = self.url,
                count = n_unsent,
                "Alert notification queue not drained, dropping alerts"
            );
        }
        self.metrics.remove(&self.url);
        self.phase.send_replace(Phase::Ended);
    }

    /// Sends batches until the queue is closed and empty.
    async fn work(&self) {
        let mut client = None;
        loop {
            let Some(batch) = self.queue.next(self.settings().options.batch_size).await else {
                return;
            };
            self.show_length();
            self.in_flight.store(batch.len(), Ordering::Relaxed);
            if !self.send(&mut client, &batch).await {
                self.count_dropped(batch.len());
            }
            self.in_flight.store(0, Ordering::Relaxed);
        }
    }

    /// Sends a batch, and repeats it once after a temporary failure. Returns `false` if the alerts
    /// are lost.
    async fn send(&self, client: &mut Option<Client>, batch: &[Bytes]) -> bool {
        let body = json_array(batch);
        let mut may_repeat = true;
        loop {
            let started = Instant::now();
            let failed = match self.post(client, body.clone()).await {
                Ok(()) => {
                    self.metrics
                        .count_sent(&self.url, batch.len(), started.elapsed());
                    return true;
                }
                Err(failed) => failed,
            };
            self.metrics
                .errors
                .with_label_values(&[&self.url])
                .inc_by(batch.len() as u64);
            let will_repeat = may_repeat && failed.is_temporary;
            let error = error_chain(&failed.error);
            tracing::error!(
                alertmanager = self.url,
                count = batch.len(),
                will_repeat,
                error,
                "Error sending alerts"
            );
            if !will_repeat {
                return false;
            }
            may_repeat = false;
            tokio::select! {
                () = tokio::time::sleep(self.settings().options.retry_pause) => {}
                // With draining, the batch is repeated at once. Otherwise `run` will drop this
                // future. It may notice the close after this branch does, so this waits for that
                // and sends nothing.
                () = self.closed() => if !self.settings().options.drain_on_shutdown {
                    std::future::pending().await
                },
            }
        }
    }

    async fn post(&self, client: &mut Option<Client>, body: Bytes) -> Result<(), Failed> {
        let config = self.settings().config;
        let open = match client.take() {
            Some(open) if open.is_fresh(&config) => open,
            _ => self.connect(config).await.map_err(|error| Failed {
                is_temporary: true,
                error,
            })?,
        };
        let response = client.insert(open).client.post_json(body).await;
        let response = response.map_err(|error| Failed {
            is_temporary: true,
            error,
        })?;
        if response.is_success() {
            return Ok(());
        }
        let error = anyhow!(
            "bad response status {}: {}",
            response.status,
            response.text()
        );
        let is_denied = matches!(response.status, 401 | 403);
        if is_denied {
            // The next client reads the credentials again.
            *client = None;
        }
        Err(Failed {
            is_temporary: is_denied
                || response.status >= 500
                || matches!(response.status, 408 | 429),
            error,
        })
    }

    async fn connect(&self, config: Arc<AlertmanagerConfig>) -> Result<Client> {
        let options = ClientOptions {
            timeout: config.timeout,
            response_size_max: RESPONSE_SIZE_MAX,
            user_agent: USER_AGENT,
            remedies: Remedies::default(),
        };
        let url = Url::parse(&self.url).map_err(|error| anyhow!("{:?}: {error}", self.url))?;
        let client_config = Arc::clone(&config);
        // Files are read on a thread that may block.
        let client = tokio::task::spawn_blocking(move || {
            AsyncClient::new(&url, client_config.access()?, options)
        })
        .await;
        Ok(Client {
            client: client.context("create a client")??,
            config,
            created: Instant::now(),
        })
    }

    fn settings(&self) -> DeliverySettings {
        self.settings.lock().clone()
    }

    fn count_dropped(&self, n: usize) {
        self.metrics
            .dropped
            .with_label_values(&[&self.url])
            .inc_by(n as u64);
    }

    fn show_length(&self) {
        self.metrics
            .queue_length
            .with_label_values(&[&self.url])
            .set(self.queue.len() as i64);
    }
}

/// The reason why a batch was not accepted.
struct Failed {
    error: anyhow::Error,
    /// `true` if the same batch may be accepted later.
    is_temporary: bool,
}

fn json_array(elements: &[Bytes]) -> Bytes {
    let mut text = Vec::with_capacity(
        elements
            .iter()
            .map(|element| element.len() + 1)
            .sum::<usize>()
            + 1,
    );
    for (idx, element) in elements.iter().enumerate() {
        text.push(if idx == 0 { b'[' } else { b',' });
        text.extend_from_slice(element);
    }
    text.push(b']');
    text.into()
}
