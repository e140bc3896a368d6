//! What is done a few times a second, and what is noted of requests at their start and end: the watch over memory and the web configuration, the
//! request ring, the query log.

use std::path::Path;
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use varve_tsdb::Interrupt;

use crate::http::App;
use crate::http::api::query::stats;
use crate::server::active_requests::log as ring;
use crate::server::active_requests::log::{Record, Ring, State};
use crate::server::active_requests::{Request, Stage};
use crate::server::query_log::LoggedQuery;
use crate::server::request_context::cut;

/// How often the server looks at its memory and notes what its requests hold.
const INTERVAL: Duration = Duration::from_millis(100);
/// Beats between two looks at the web configuration: a second.
const WEB_CONFIG_BEATS: u32 = 10;
/// Bytes of a query that stand in the log.
const LOGGED_SIZE_MAX: usize = 1000;

/// Starts the thread that looks after the server, until the server is gone.
///
/// # Errors
/// If the system gives no thread.
pub(crate) fn beat(app: Weak<App>) -> std::io::Result<()> {
    let work = move || {
        let mut n_beats: u32 = 0;
        while let Some(app) = app.upgrade() {
            app.look_after();
            if n_beats.is_multiple_of(WEB_CONFIG_BEATS) {
                app.web.reload_if_changed();
            }
            drop(app);
            n_beats = n_beats.wrapping_add(1);
            thread::sleep(INTERVAL);
        }
    };
    thread::Builder::new().name("beat".to_owned()).spawn(work).map(drop)
}

impl App {
    /// Sees that memory does not run out, and notes what requests hold.
    fn look_after(&self) {
        if self.pressure.look() {
            self.running.end_heaviest(Interrupt::Pressure);
        }
        for request in self.running.list() {
            let state = if request.stage() == Stage::Waiting { State::Waiting } else { State::Working };
            self.note(&request, state, "");
        }
    }

    /// Starts the request ring in the data directory, and tells what the process before left in its own.
    pub(crate) fn start_ring(&self, dir: &Path) {
        match Ring::start(dir, std::process::id(), self.started.as_millisecond()) {
            Ok(ring) => drop(self.ring.set(ring)),
            Err(error) => tracing::warn!(?dir, %error, "Requests are not noted for `varve status last-words`"),
        }
        if let Ok(before) = ring::read(&dir.join(ring::FILE_BEFORE))
            && !before.ended_in_order
        {
            let at_work = before.at_work();
            let n_at_work = at_work.len();
            let heaviest = at_work.first().map(|of| cut(&of.text, LOGGED_SIZE_MAX));
            tracing::warn!(
                n_at_work,
                heaviest,
                "The process before did not end in order, see `varve status last-words`"
            );
        }
    }

    /// Notes in the ring that the process ends in order.
    pub(crate) fn close_ring(&self) {
        self.ring.get().into_iter().for_each(Ring::close);
    }

    /// Notes that the work on a request begins.
    pub(crate) fn began(&self, request: &Request) {
        self.note(request, State::Working, "");
    }

    /// Notes that a request has ended, and why if it ended early.
    pub(crate) fn ended(&self, request: &Request, reason: Option<&str>) {
        self.note(request, if reason.is_some() { State::Failed } else { State::Answered }, reason.unwrap_or_default());
    }

    /// Writes a query that has ended to the query log, and why if it ended early.
    pub(crate) fn log_query(&self, request: &Request, reason: Option<&str>) {
        let call = &request.call;
        let Some(times) = call.times().filter(|_| self.query_log.is_enabled()) else { return };
        let waited = request.waited();
        self.query_log.log(&LoggedQuery {
            query: &call.asked().text,
            start_ms: times.start_ms,
            end_ms: times.end_ms,
            step_s: times.step_ms / 1000,
            error: reason,
            stats: match call.stats() {
                Some(stats) => stats::to_json(stats, waited),
                None => stats::of_cut_query(waited, request.age().saturating_sub(waited), request.ctx.n_samples()),
            },
            n_series: request.ctx.n_series(),
            memory_peak_bytes: request.ctx.memory().peak(),
            client_ip: call.client.map(|client| client.ip().to_string()).unwrap_or_default(),
            method: call.method.as_str(),
            path: &call.route,
        });
    }

    fn note(&self, request: &Request, state: State, reason: &str) {
        let Some(ring) = self.ring.get() else { return };
        let Request { call, ctx, .. } = request;
        request.note_in(
            ring,
            &Record {
                state,
                id: call.id,
                started_ms: call.started.as_millisecond(),
                noted_ms: Timestamp::now().as_millisecond(),
                held_bytes: ctx.memory().used() as u64,
                peak_bytes: ctx.memory().peak() as u64,
                n_series: ctx.n_series(),
                n_samples: ctx.n_samples(),
                route: call.route.clone(),
                client: call.client.map(|client| client.to_string()).unwrap_or_default(),
                user: call.user.to_string(),
                user_agent: call.user_agent.clone(),
                reason: reason.to_owned(),
                text: cut(&call.asked().text, ring::TEXT_SIZE_MAX).to_owned(),
            },
        );
    }
}
