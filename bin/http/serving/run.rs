//! A request on its way through the gate, onto a blocking thread, and back to the client.
//!
//! ```text
//! run ----------------------------.
//! run_shared -> flight (first) ----+-> compute: running (list) -> gate -> blocking thread -> answer
//!           '-> flight (others) ----- wait for the first one's answer; compute if it flows
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;
use varve_tsdb::QueryContext;

use super::body::{Answer, AnswerBody, BodyWriter, CancelOnDrop, Interest, Outcome};
use super::gate::Place;
use super::singleflight::{Boarded, Flight, Landed};
use crate::http::App;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::json;
use crate::server::active_requests::Entry;
use crate::server::request_context::Call;
use crate::server::store::Store;

pub(crate) use crate::server::active_requests::Class;

/// What a handler works with on its blocking thread.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) store: Arc<Store>,
    pub(crate) ctx: QueryContext,
    pub(crate) out: BodyWriter,
    /// How long the request has waited at the gate.
    pub(crate) queued: Duration,
}

impl Work {
    /// Writes the start of a successful answer, up to its data.
    pub(crate) fn open(&mut self) {
        self.out.buffer().extend_from_slice(b"{\"status\":\"success\",\"data\":");
    }

    /// Writes the end of a successful answer, behind its data. What its reads left out is a warning more.
    pub(crate) fn close(&mut self, warnings: &[String], infos: &[String]) -> Result<(), ApiError> {
        let partial = self.ctx.partial().map(str::to_owned);
        let warnings: Vec<&String> = warnings.iter().chain(&partial).collect();
        for (name, texts) in [("warnings", warnings), ("infos", infos.iter().collect())] {
            if !texts.is_empty() {
                self.out.buffer().extend_from_slice(format!(",\"{name}\":").as_bytes());
                self.array(texts, |out, text| json::write_html_string(out, text.as_bytes()))?;
            }
        }
        self.out.buffer().push(b'}');
        self.out.step()
    }

    /// Writes an array, element by element as they come.
    pub(crate) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Vec<u8>, T),
    ) -> Result<(), ApiError> {
        self.out.buffer().push(b'[');
        for (i, item) in items.into_iter().enumerate() {
            self.comma(i);
            write(self.out.buffer(), item);
            self.out.step()?;
        }
        self.out.buffer().push(b']');
        Ok(())
    }

    /// Writes the comma before all elements but the first.
    pub(crate) fn comma(&mut self, idx: usize) {
        if idx > 0 {
            self.out.buffer().push(b',');
        }
    }
}

/// The warning that a `limit` cut an answer.
pub(crate) const TRUNCATED: &str = "results truncated due to limit";

/// Runs `job` on a blocking thread once there is a place, and answers with what it writes, or with 204 if that is nothing.
///
/// When the returned future or the body of the response is dropped, the request is interrupted.
pub(crate) async fn run(
    app: &Arc<App>,
    class: Class,
    timeout: Option<Duration>,
    job: impl FnOnce(&mut Work) -> Result<(), ApiError> + Send + 'static,
) -> Response {
    let ctx = app.context(timeout);
    let cancel = CancelOnDrop(ctx.clone());
    let answer = compute(Arc::clone(app), class, ctx, || (), job).await;
    respond(answer, Interest::Only { _cancel: cancel })
}

/// Runs `job` as [`run`] does, or waits for an identical request that is there already: one of the same path and `asked`,
/// which must tell all that the answer depends on, times that are filled in by default and the time out included.
pub(crate) async fn run_shared(
    app: &Arc<App>,
    class: Class,
    timeout: Option<Duration>,
    asked: String,
    job: impl FnOnce(&mut Work) -> Result<(), ApiError> + Send + 'static,
) -> Response {
    let came = Instant::now();
    let call = Call::current();
    call.note_read();
    let key = format!("{} {} {timeout:?} {asked}", call.route, call.user);
    let ctx = app.context(timeout);
    match app.flights.board(key, || CancelOnDrop(ctx.clone())) {
        Boarded::First(flight) => {
            take_off(app, class, ctx, &flight, job);
            respond_on_board(flight.landed().await, flight)
        }
        Boarded::UnderWay(flight) => {
            let landed = flight.landed().await;
            if landed.is_for_all() {
                app.metrics.answers_shared(class.name()).inc();
                return respond_on_board(landed, flight);
            }
            drop((landed, flight));
            let left = timeout.unwrap_or(app.settings.query_timeout).saturating_sub(came.elapsed());
            run(app, class, Some(left), job).await
        }
    }
}

/// Has the answer of a flight computed on a task of its own, which outlives the one that came first.
fn take_off(
    app: &Arc<App>,
    class: Class,
    ctx: QueryContext,
    flight: &Arc<Flight>,
    job: impl FnOnce(&mut Work) -> Result<(), ApiError> + Send + 'static,
) {
    let on_board: Weak<Flight> = Arc::downgrade(flight);
    let begin = {
        let on_board = on_board.clone();
        move || drop(on_board.upgrade().inspect(|flight| flight.begin()))
    };
    let computing = compute(Arc::clone(app), class, ctx, begin, job);
    let task = tokio::spawn(Call::current().scope(async move {
        let answer = computing.await;
        if let Some(flight) = on_board.upgrade() {
            flight.land(answer);
        }
    }));
    flight.is_computed_by(task.abort_handle());
}

/// Waits for a place and has `job` done; `begin` is told when it is about to look at the store.
async fn compute(
    app: Arc<App>,
    class: Class,
    ctx: QueryContext,
    begin: impl FnOnce(),
    job: impl FnOnce(&mut Work) -> Result<(), ApiError> + Send + 'static,
) -> Answer {
    let call = Call::current();
    call.note_read();
    let entry = app.running.enter(call, class, &ctx);
    let place = match app.admit(class, &ctx).await {
        Ok(place) => place,
        Err(refused) => return Answer::Error(refused),
    };
    let Some(store) = app.store() else { return Answer::Error(ApiError::unavailable("the server is stopping")) };
    begin();
    let answer = work_on(&app, Admitted { entry, place }, ctx, store, job);
    answer.await.unwrap_or_else(|_dropped| Answer::Error(ApiError::unavailable("the server is stopping")))
}

/// A request that was let in.
struct Admitted {
    entry: Entry,
    place: Place,
}

/// Does `job` on a blocking thread. Its end is not waited for: the answer comes through the channel, and the thread may go on
/// writing after its start.
fn work_on(
    app: &Arc<App>,
    admitted: Admitted,
    ctx: QueryContext,
    store: Arc<Store>,
    job: impl FnOnce(&mut Work) -> Result<(), ApiError> + Send + 'static,
) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    let Admitted { entry, place } = admitted;
    let out = BodyWriter::new(ctx.clone(), app.settings.answer, sender, Some(place));
    let app = Arc::clone(app);
    drop(tokio::task::spawn_blocking(move || {
        entry.request.begin();
        let work = Work { store, ctx, out, queued: entry.request.waited() };
        perform(&app, &entry, work, job);
    }));
    answer
}

/// Runs `job` and ends its answer, whatever happens.
fn perform(app: &App, entry: &Entry, mut work: Work, job: impl FnOnce(&mut Work) -> Result<(), ApiError>) {
    app.began(&entry.request);
    let result = catch_unwind(AssertUnwindSafe(|| job(&mut work))).unwrap_or_else(|_logged_by_the_hook| {
        app.metrics.panics.inc();
        Err(ApiError::new(ErrorKind::Internal, "the request ended in a panic, see the server's log"))
    });
    let failed = result.as_ref().err().cloned();
    let outcome = match result {
        Ok(()) => work.out.finish(),
        Err(error) => work.out.fail(error),
    };
    let cut = match outcome {
        Outcome::Answered => None,
        Outcome::Cut(error) => {
            app.metrics.answers_cut.inc();
            app.metrics.count_limit(error.limit);
            tracing::warn!(kind = error.kind.name(), reason = error.message, "Answer cut after its start was sent");
            Some(error)
        }
    };
    let error = failed.or(cut);
    let reason = error.as_ref().map(|error| error.message.as_str());
    app.ended(&entry.request, reason);
    // As in Prometheus, what does not parse is no query yet.
    if error.as_ref().is_none_or(|error| error.kind != ErrorKind::BadData) {
        app.log_query(&entry.request, reason);
    }
}

fn respond_on_board(landed: Landed, flight: Arc<Flight>) -> Response {
    let interest = Interest::Shared { _flight: flight };
    match landed {
        Landed::Whole(bytes, _) if bytes.is_empty() => StatusCode::NO_CONTENT.into_response(),
        Landed::Whole(bytes, charge) => json_body(AnswerBody::whole(bytes, charge, interest)),
        Landed::Error(error) => error.into_response(),
        // Only the one that came first asks for it.
        Landed::Stream(pieces) => match Landed::take_stream(&pieces) {
            Some(pieces) => json_body(AnswerBody::stream(pieces, interest)),
            None => ApiError::unavailable("an identical request took the answer").into_response(),
        },
    }
}

fn respond(answer: Answer, interest: Interest) -> Response {
    match answer {
        Answer::Whole(bytes, _) if bytes.is_empty() => StatusCode::NO_CONTENT.into_response(),
        Answer::Whole(bytes, charge) => json_body(AnswerBody::whole(bytes, Arc::new(charge), interest)),
        Answer::Stream(pieces) => json_body(AnswerBody::stream(pieces, interest)),
        Answer::Error(error) => error.into_response(),
    }
}

fn json_body(body: AnswerBody) -> Response {
    ([(header::CONTENT_TYPE, json::MIME_TYPE)], Body::new(body)).into_response()
}
