//! A request on its way through the gate, onto a blocking thread, and back to the client.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;
use varve_tsdb::QueryContext;

use super::App;
use super::body::{Answer, AnswerBody, BodyWriter, CancelOnDrop, Outcome};
use super::error::{ApiError, ErrorKind};
use super::json;
use crate::store::Store;

/// Which gate a request goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Query,
    Metadata,
}

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
    let gate = match class {
        Class::Query => &app.queries,
        Class::Metadata => &app.metadata_calls,
    };
    let arrived = Instant::now();
    let place = match gate.admit(&ctx).await {
        Ok(place) => place,
        Err(refused) => return refused.into_response(),
    };
    let queued = arrived.elapsed();
    let Some(store) = app.store() else { return ApiError::unavailable("the server is stopping").into_response() };
    let entry = app.running.enter(&ctx);
    let (sender, answer) = oneshot::channel();
    let settings = &app.settings;
    let out = BodyWriter::new(ctx.clone(), settings.response_buffer, settings.write_stall_timeout, sender, Some(place));
    let work = Work { store, ctx, out, queued };
    let app = Arc::clone(app);
    // Not awaited: the answer comes through the channel, and the thread may go on writing after its start.
    drop(tokio::task::spawn_blocking(move || {
        perform(&app, work, job);
        drop(entry);
    }));
    match answer.await {
        Ok(answer) => respond(answer, cancel),
        Err(_dropped) => ApiError::unavailable("the server is stopping").into_response(),
    }
}

/// Runs `job` and ends its answer, whatever happens.
fn perform(app: &App, mut work: Work, job: impl FnOnce(&mut Work) -> Result<(), ApiError>) {
    let result = catch_unwind(AssertUnwindSafe(|| job(&mut work))).unwrap_or_else(|_logged_by_the_hook| {
        app.metrics.panics.inc();
        Err(ApiError::new(ErrorKind::Internal, "the request ended in a panic, see the server's log"))
    });
    let outcome = match result {
        Ok(()) => work.out.finish(),
        Err(error) => work.out.fail(error),
    };
    if let Outcome::Cut(error) = outcome {
        app.metrics.answers_cut.inc();
        tracing::warn!(kind = error.kind.name(), reason = error.message, "Answer cut after its start was sent");
    }
}

fn respond(answer: Answer, cancel: CancelOnDrop) -> Response {
    let body = match answer {
        Answer::Whole(bytes, _) if bytes.is_empty() => return StatusCode::NO_CONTENT.into_response(),
        Answer::Whole(bytes, charge) => AnswerBody::whole(bytes, charge, cancel),
        Answer::Stream(pieces) => AnswerBody::stream(pieces, cancel),
        Answer::Error(error) => return error.into_response(),
    };
    ([(header::CONTENT_TYPE, json::MIME_TYPE)], Body::new(body)).into_response()
}
