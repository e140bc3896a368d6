//! Reports the state of the server to the service manager, for `systemctl status`.

use std::sync::Arc;
use std::time::Duration;

use varve_http::App;
use varve_server::lifecycle::Phase;
use varve_server::store::Store;
use varve_system::service_manager::{self, ServiceState, notify};
use varve_tsdb::stats::ReplayState;

/// Maximum time between two looks at the state.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Reports changes of the state until the server ends. Sends the watchdog keep-alive, which shows
/// that the runtime still runs tasks.
pub(super) async fn report(app: Arc<App>) {
    let watchdog = service_manager::watchdog_interval();
    // Two keep-alives in each interval: one may be late.
    let interval = watchdog.map_or(INTERVAL_MAX, |interval| (interval / 2).min(INTERVAL_MAX));
    let mut reported = String::new();
    loop {
        let text = status(&app);
        if text != reported {
            notify(ServiceState::Status(&text));
            reported = text;
        }
        if watchdog.is_some() {
            notify(ServiceState::Alive);
        }
        tokio::time::sleep(interval).await;
    }
}

/// Returns one line.
fn status(app: &App) -> String {
    match app.phase() {
        Phase::Starting => "Loading the series of the write-ahead log".to_owned(),
        Phase::Open => match app.store() {
            Some(store) => store_status(&store),
            None => "Shutting down".to_owned(),
        },
        Phase::Stopping => "Shutting down".to_owned(),
    }
}

fn store_status(store: &Store) -> String {
    let replay = store.db.replay_status();
    if replay.state == ReplayState::Running {
        return format!("Ready, replaying the write-ahead log: {}", replay.text);
    }
    let refusals = store.db.write_refusals();
    if refusals.is_empty() {
        "Ready".to_owned()
    } else {
        format!("Ready for queries, not for writes: {}", refusals.join(", "))
    }
}
