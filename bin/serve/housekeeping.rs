//! Periodic work of a running server: memory pressure, the active-request log, reload of the web
//! configuration.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use varve_context::Interrupt;
use varve_http::App;
use varve_http::web_config::LiveWebConfig;
use varve_server::notifications::{RETENTION_HELD, Topic};
use varve_server::store::Store;

/// Interval at which memory is checked and active requests are recorded.
const INTERVAL: Duration = Duration::from_millis(100);
/// Rounds between two checks of the web configuration: a second.
const WEB_CONFIG_ROUNDS: u32 = 10;
/// Interval at which the server looks for failures of which it notifies. Each look writes a file.
const FAILURES_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the housekeeping threads, which end with the server.
///
/// # Errors
/// If a thread cannot be spawned.
pub(super) fn start(app: Weak<App>, web: Arc<LiveWebConfig>) -> io::Result<()> {
    start_to_notify(Weak::clone(&app))?;
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

/// Starts the thread that notifies of failures. It may wait for a disk that hangs.
fn start_to_notify(app: Weak<App>) -> io::Result<()> {
    thread::Builder::new()
        .name("notify-failures".to_owned())
        .spawn(move || {
            while let Some(app) = app.upgrade() {
                let store = app.store();
                if let Some(store) = &store {
                    notify_of_failures(&app, store);
                }
                drop(app);
                let is_open = store.is_some();
                drop(store);
                thread::sleep(if is_open { FAILURES_INTERVAL } else { INTERVAL });
            }
        })
        .map(drop)
}

/// Sets the notifications of rejected writes and of missing samples. Logs when writes are stored again.
fn notify_of_failures(app: &App, store: &Store) {
    let refusals = store.db.write_refusals_now();
    let rejected = (!refusals.is_empty()).then(|| {
        format!(
            "Writes are rejected, queries are answered: {}. Senders retry. See \"Full disk\", \"Failed sync\" and \
             \"Memory limit\" in docs/operations.md.",
            refusals.join("; ")
        )
    });
    let were_rejected = app.notifications.has(Topic::Writes);
    if were_rejected && rejected.is_none() {
        tracing::info!("Writes are stored again");
    }
    app.notifications.set(Topic::Writes, rejected.as_deref());

    let missing = store.db.missing();
    let missing = missing.map(|text| {
        format!(
            "Results are incomplete: {text}. Restore the file from a snapshot, or move it away to accept the \
             loss. Then restart."
        )
    });
    app.notifications.set(Topic::Blocks, missing.as_deref());
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
    app.notifications
        .set(Topic::Retention, has_held_blocks.then_some(RETENTION_HELD));
    if let Some(store) = store {
        let denies_new_series = app.pressure.refuses_new_series();
        store.receiver.set_denies_new_series(denies_new_series);
        if app.pressure.needs_cached_memory() {
            store.engine.clear_cache();
            store.db.forget_selections();
        }
    }
}
