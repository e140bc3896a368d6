//! Settings of rules, and of notifications of their alerts.

use std::num::NonZero;
use std::time::Duration;

use varve_promql::Features;
use varve_rules::RestoreOptions;
use varve_system::machine;

use super::automatic::or_default;
use super::query::QuerySettings;
use crate::flags::{RulesArgs, ServeArgs};

/// Maximum number of threads that evaluate rule groups.
const RULES_CONCURRENCY_MAX: usize = 256;
/// Maximum time to send queued alerts at shutdown.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause before a failed batch of alerts is sent again. Together with two timeouts of 10 s, it is
/// well below the resend delay of a minute.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Options of rules.
#[derive(Debug, Clone)]
pub struct RulesOptions {
    /// Minimum time between two notifications of an alert.
    pub resend_delay: Duration,
    /// How alerts are restored after an outage.
    pub restore: RestoreOptions,
    /// Longest outage after which missed evaluations are caught up.
    pub catch_up: Duration,
    /// Maximum number of alerts of all rules.
    pub alerts_max: usize,
    /// Threads that evaluate rules.
    pub concurrency: NonZero<usize>,
    /// Active write requests of known series above which rules pause.
    pub active_writes_max: usize,
    /// Maximum memory of all evaluations in bytes.
    pub memory_max: usize,
    /// The URL of the server, for links in alerts.
    pub external_url: String,
    /// The optional parts of PromQL that rules may use.
    pub features: Features,
}

/// Options of notifications to Alertmanagers.
#[derive(Debug, Clone, Copy)]
pub struct NotifierOptions {
    /// Maximum number of alerts in a queue.
    pub queue_capacity: usize,
    /// Maximum number of alerts in a request.
    pub batch_size: usize,
    /// `true` if queued alerts are sent at shutdown, and after a reload that removes their
    /// Alertmanager.
    pub drain_on_shutdown: bool,
    /// Maximum time to send them.
    pub drain_time_max: Duration,
    /// Pause before a failed batch is sent again.
    pub retry_pause: Duration,
}

/// Returns the options of rules. By default, their queries use a quarter of the memory of all
/// queries.
pub(super) fn rules(args: &RulesArgs, query: &QuerySettings, external_url: &str) -> RulesOptions {
    let cores = machine::cores();
    let concurrency = rules_concurrency(cores, args.concurrency);
    RulesOptions {
        resend_delay: args.resend_delay,
        restore: RestoreOptions {
            outage_tolerance: args.outage_tolerance,
            grace_period: args.grace_period,
        },
        catch_up: args.catch_up,
        alerts_max: args.alerts_max,
        concurrency,
        active_writes_max: active_writes_max(cores, concurrency.get()),
        memory_max: or_default(args.max_memory_total, || query.memory_total_max / 4),
        external_url: external_url.to_owned(),
        features: query.features,
    }
}

/// Returns the number of threads that evaluate rules.
fn rules_concurrency(cores: usize, given: usize) -> NonZero<usize> {
    let n_threads = or_default(given, || cores.div_ceil(2)).min(RULES_CONCURRENCY_MAX);
    NonZero::new(n_threads).unwrap_or(NonZero::<usize>::MIN)
}

/// Returns the number of active write requests above which rules pause: the number of cores that
/// rules leave, less one for connections and background tasks.
fn active_writes_max(cores: usize, concurrency: usize) -> usize {
    cores.saturating_sub(concurrency + 1)
}

/// Returns the options of the notifier.
pub(super) fn notifier(args: &ServeArgs) -> NotifierOptions {
    NotifierOptions {
        queue_capacity: args.notification_queue_capacity,
        batch_size: args.notification_batch_size,
        drain_on_shutdown: args.drain_notification_queue,
        drain_time_max: DRAIN_TIME_MAX,
        retry_pause: RETRY_PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_leave_cores_to_writes() {
        // Cores and the flag; threads of rules and active writes.
        let table = [
            ((1, 0), (1, 0)),
            ((2, 0), (1, 0)),
            ((3, 0), (2, 0)),
            ((4, 0), (2, 1)),
            ((5, 0), (3, 1)),
            ((16, 0), (8, 7)),
            ((1024, 0), (256, 767)),
            ((4, 1), (1, 2)),
            ((4, 3), (3, 0)),
            ((4, 64), (64, 0)),
            ((16, 2), (2, 13)),
            ((64, 1_000), (256, 0)),
        ];
        for ((cores, given), expect) in table {
            let n_threads = rules_concurrency(cores, given).get();
            assert_eq!(
                (n_threads, active_writes_max(cores, n_threads)),
                expect,
                "{cores} cores, {given}"
            );
        }
    }
}
