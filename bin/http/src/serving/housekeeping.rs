//! Periodic work of a running server: memory pressure, the active-request log, reload of the web
//! configuration.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use varve_server::app::App;

use crate::web_config::LiveWebConfig;

/// Interval at which memory is checked and active requests are recorded.
const INTERVAL: Duration = Duration::from_millis(100);
/// Rounds between two checks of the web configuration: a second.
const WEB_CONFIG_ROUNDS: u32 = 10;

/// Starts the housekeeping thread, which ends with the server.
///
/// # Errors
/// If the thread cannot be spawned.
pub fn start(app: Weak<App>, web: Arc<LiveWebConfig>) -> std::io::Result<()> {
    let work = move || {
        for round in (0..WEB_CONFIG_ROUNDS).cycle() {
            let Some(app) = app.upgrade() else { return };
            app.check_requests();
            if round == 0 {
                web.reload_if_changed(&app.metrics.web_config_failures);
            }
            drop(app);
            thread::sleep(INTERVAL);
        }
    };
    thread::Builder::new()
        .name("housekeeping".to_owned())
        .spawn(work)
        .map(drop)
}
