//! Periodic work of a running server: memory pressure, the active-request log, reload of the web
//! configuration.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use varve_context::Interrupt;
use varve_http::App;
use varve_http::web_config::LiveWebConfig;
use varve_server::notifications::RETENTION_HELD;

/// Interval at which memory is checked and active requests are recorded.
const INTERVAL: Duration = Duration::from_millis(100);
/// Rounds between two checks of the web configuration: a second.
const WEB_CONFIG_ROUNDS: u32 = 10;

/// Starts the housekeeping thread, which ends with the server.
///
/// # Errors
/// If the thread cannot be spawned.
pub(super) fn start(app: Weak<App>, web: Arc<LiveWebConfig>) -> io::Result<()> {
    let work = move || {
        for round in (0..WEB_CONFIG_ROUNDS).cycle() {
            let Some(app) = app.upgrade() else { return };
            relieve_pressure(&app);
            app.requests.active.record_all();
            if round == 0 {
                web.reload_if_changed(&app.metrics.web_config_failures);
                if let Some(store) = app.store() {
                    let names = web.tenant_label_names();
                    store.receiver.set_tenant_label_names(&names);
                }
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

/// Applies the state of memory pressure: interrupts the heaviest request, sets the memory of
/// queries, denies new series, clears the result cache and the kept selections. Notes whether
/// retention waits.
fn relieve_pressure(app: &App) {
    let store = app.store();
    if let Some(store) = &store {
        app.pressure.reserve(store.db.background_memory() as u64);
    }
    if app.pressure.check() {
        app.requests.active.interrupt_heaviest(Interrupt::Pressure);
    }
    let query_memory = app.requests.query_memory();
    let memory_max = app.settings.query.memory_total_max;
    query_memory.set_limit(
        app.pressure
            .query_memory_max(memory_max, query_memory.used()),
    );

    let has_held_blocks = store
        .as_ref()
        .is_some_and(|store| store.db.n_held_blocks() > 0);
    app.notifications.set(RETENTION_HELD, has_held_blocks);
    if let Some(store) = store {
        let denies_new_series = app.pressure.refuses_new_series();
        store.receiver.set_denies_new_series(denies_new_series);
        if app.pressure.needs_cached_memory() {
            store.engine.clear_cache();
            store.db.forget_selections();
        }
    }
}
