//! The body of an answer, written piece by piece by a blocking thread while the client reads it.
//!
//! ```text
//! step()  held back: buffer grows up to --web.response-buffer ------ finish() --> status and length are known: Whole
//!           |                                              '-------- fail() ----> the error's own status
//!           v full: 200 goes out
//!         flowing: chunks through a bounded channel ---------------- finish() --> End, the final chunk
//!                                                      '------------ fail() ----> the body breaks off: Cut
//! ```
//!
//! Invariants
//! 1. The buffer's capacity is charged to the request's memory budget until the client's side asks for the next piece.
//! 2. A body whose writer went away without `finish` ends in an error, so that it never parses as complete.
//! 3. A writer never waits longer than the request's deadline, or `--web.write-stall-timeout` for one chunk. When it
//!    has waited for the client for a while, its place inside the gate is lent to others.
//! 4. When the client's side is dropped, the request is interrupted; one that several wait for, with the last of them.
//! 5. No answer is longer than `--web.max-response-size`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use varve_tsdb::{Charge, Interrupt, QueryContext};

use super::gate::Place;
use super::singleflight::Flight;
use crate::http::error::{ApiError, ErrorKind};

/// Size of the pieces in which a long answer flows.
const CHUNK_SIZE: usize = 64 << 10;
/// Pieces that may wait for the client.
const CHUNKS_WAITING_MAX: usize = 2;
/// Bytes that may be written between two steps without the buffer growing uncharged.
const STEP_ROOM: usize = 4 << 10;
/// How often a writer that waits for the client looks whether its request still stands.
const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// How long a writer waits for its client, all in all, before its place goes to another: a client that keeps up keeps the place, so
/// that no more answers are begun than there are places; one that does not keep up holds nobody up.
const LEND_AFTER: Duration = Duration::from_millis(100);

/// Where a handler writes its answer. Write to [`BodyWriter::buffer`], then call [`BodyWriter::step`].
#[derive(Debug)]
pub(crate) struct BodyWriter {
    ctx: QueryContext,
    buffer: Vec<u8>,
    charge: Charge,
    bounds: AnswerBounds,
    /// Bytes that were sent on.
    n_sent: usize,
    stage: Stage,
    /// `None` once nothing is left to compute.
    place: Option<Place>,
    /// How long the client was waited for since the place was taken.
    waited: Duration,
}

/// What bounds an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerBounds {
    /// Bytes that wait for its end.
    pub(crate) hold_back: usize,
    /// Bytes that it may have.
    pub(crate) size_max: usize,
    /// How long a client may take nothing.
    pub(crate) stall_timeout: Duration,
}

/// How far an answer has come.
#[derive(Debug)]
enum Stage {
    /// Nothing went out.
    Held(oneshot::Sender<Answer>),
    /// The head and the start went out.
    Flowing(mpsc::Sender<Piece>),
    /// Nobody reads on.
    Gone,
}

/// What a handler answers with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Success, all of it.
    Whole(Bytes, Charge),
    /// Success, more than could be held back.
    Stream(mpsc::Receiver<Piece>),
    /// Failure before anything went out.
    Error(ApiError),
}

/// A part of a flowing body.
#[derive(Debug)]
pub(crate) enum Piece {
    Chunk(Bytes, Charge),
    End,
}

/// What became of an answer, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was handed over whole, or its error was.
    Answered,
    /// It was cut after its start had gone out.
    Cut(ApiError),
}

impl BodyWriter {
    /// Starts an answer.
    pub(crate) fn new(
        ctx: QueryContext,
        bounds: AnswerBounds,
        answer: oneshot::Sender<Answer>,
        place: Option<Place>,
    ) -> Self {
        let charge = ctx.charge();
        Self {
            ctx,
            buffer: Vec::new(),
            charge,
            bounds,
            n_sent: 0,
            stage: Stage::Held(answer),
            place,
            waited: Duration::ZERO,
        }
    }

    /// Gives the place inside the gate away for good: from here on the answer is only written, at the client's pace.
    pub(crate) fn leave_gate(&mut self) {
        self.place = None;
    }

    /// Returns the buffer to append to; some [`STEP_ROOM`] bytes at a time, then comes a step.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Accounts for what was written and sends it on when it is enough.
    ///
    /// # Errors
    /// When the request ends: deadline, client gone or too slow, memory, an answer that is too long.
    pub(crate) fn step(&mut self) -> Result<(), ApiError> {
        self.ctx.check()?;
        self.check_size()?;
        if self.buffer.len() > self.threshold() {
            self.send_buffer()?;
        }
        self.make_room()
    }

    /// Hands over the rest; the answer is complete.
    pub(crate) fn finish(&mut self) -> Outcome {
        match self.send_rest() {
            Ok(()) => Outcome::Answered,
            Err(error) => self.fail(error),
        }
    }

    /// Ends the answer with an error: the client gets its status, or a body that breaks off if the start is out. That it does
    /// when the writer is dropped: until then it can be noted.
    pub(crate) fn fail(&mut self, error: ApiError) -> Outcome {
        if !matches!(self.stage, Stage::Held(_)) {
            return Outcome::Cut(error);
        }
        if let Stage::Held(answer) = std::mem::replace(&mut self.stage, Stage::Gone) {
            // A client that has gone needs no answer.
            let _gone = answer.send(Answer::Error(error));
        }
        Outcome::Answered
    }

    fn check_size(&self) -> Result<(), ApiError> {
        const FLAG: &str = "--web.max-response-size";
        let size_max = self.bounds.size_max;
        if self.n_sent.saturating_add(self.buffer.len()) > size_max {
            let text = format!("the answer is longer than {size_max} bytes, the limit of {FLAG}");
            return Err(ApiError::new(ErrorKind::Execution, text).of_limit(FLAG));
        }
        Ok(())
    }

    fn threshold(&self) -> usize {
        if matches!(self.stage, Stage::Held(_)) { self.bounds.hold_back } else { CHUNK_SIZE }
    }

    /// Doubles the buffer when it has little room left, up to what it may hold before it is sent.
    fn make_room(&mut self) -> Result<(), ApiError> {
        if self.buffer.capacity() - self.buffer.len() < STEP_ROOM {
            let size_max = self.threshold() + STEP_ROOM;
            let size = (2 * self.buffer.capacity()).min(size_max).max(self.buffer.len() + STEP_ROOM);
            self.charge_up_to(size)?;
            self.buffer.reserve_exact(size - self.buffer.len());
        }
        // A step may have written more than it should have; the account follows.
        self.charge_up_to(self.buffer.capacity())
    }

    fn charge_up_to(&mut self, size: usize) -> Result<(), ApiError> {
        Ok(self.charge.grow(size.saturating_sub(self.charge.size()))?)
    }

    fn send_buffer(&mut self) -> Result<(), ApiError> {
        if matches!(self.stage, Stage::Held(_)) {
            self.start_flowing()?;
        }
        let chunk = self.take_buffer();
        self.send(Piece::Chunk(chunk.0, chunk.1))
    }

    fn start_flowing(&mut self) -> Result<(), ApiError> {
        let (sender, receiver) = mpsc::channel(CHUNKS_WAITING_MAX);
        if let Stage::Held(answer) = std::mem::replace(&mut self.stage, Stage::Flowing(sender))
            && answer.send(Answer::Stream(receiver)).is_err()
        {
            return Err(self.client_gone());
        }
        Ok(())
    }

    fn take_buffer(&mut self) -> (Bytes, Charge) {
        let charge = std::mem::replace(&mut self.charge, self.ctx.charge());
        self.n_sent = self.n_sent.saturating_add(self.buffer.len());
        (Bytes::from(std::mem::take(&mut self.buffer)), charge)
    }

    fn send_rest(&mut self) -> Result<(), ApiError> {
        self.ctx.check()?;
        self.check_size()?;
        let (bytes, charge) = self.take_buffer();
        match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Held(answer) => match answer.send(Answer::Whole(bytes, charge)) {
                Ok(()) => Ok(()),
                Err(_) => Err(self.client_gone()),
            },
            flowing => {
                self.stage = flowing;
                self.send(Piece::Chunk(bytes, charge))?;
                self.send(Piece::End)
            }
        }
    }

    /// Waits until the channel takes a piece: that is the back-pressure of a slow client.
    fn send(&mut self, piece: Piece) -> Result<(), ApiError> {
        let Stage::Flowing(pieces) = &self.stage else { return Err(self.client_gone()) };
        let started = Instant::now();
        loop {
            let room = async { tokio::time::timeout(WAIT_CHECK_INTERVAL, pieces.reserve()).await };
            match Handle::current().block_on(room) {
                Ok(Ok(room)) => {
                    room.send(piece);
                    break;
                }
                Ok(Err(_closed)) => return Err(self.client_gone()),
                Err(_elapsed) if started.elapsed() >= self.bounds.stall_timeout => return Err(self.client_stalled()),
                Err(_elapsed) => self.ctx.check()?,
            }
            if self.waited + started.elapsed() >= LEND_AFTER {
                self.place.iter_mut().for_each(Place::lend);
            }
        }
        self.waited += started.elapsed();
        match &mut self.place {
            Some(place) if place.is_lent() => {
                self.waited = Duration::ZERO;
                Handle::current().block_on(place.take_back(&self.ctx))
            }
            _ => Ok(()),
        }
    }

    fn client_gone(&self) -> ApiError {
        self.ctx.interrupt(Interrupt::Canceled);
        ApiError::new(ErrorKind::Canceled, Interrupt::Canceled.to_string())
    }

    fn client_stalled(&self) -> ApiError {
        self.ctx.interrupt(Interrupt::Canceled);
        let text = "the client took too long to read, see --web.write-stall-timeout";
        ApiError::new(ErrorKind::Canceled, text).of_limit("--web.write-stall-timeout")
    }
}

/// Interrupts a request when it is dropped: what waits for the request has gone.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) QueryContext);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // A request that is through already does not look at its context any more.
        self.0.interrupt(Interrupt::Canceled);
    }
}

/// What keeps a computation going: dropped when the client has its answer, or has gone.
#[derive(Debug)]
pub(crate) enum Interest {
    /// Of the only one who waits.
    Only { _cancel: CancelOnDrop },
    /// Of one of several.
    Shared { _flight: Arc<Flight> },
}

/// The body that goes to the client.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    source: Source,
    /// Of the piece that was handed over last; it counts until the connection asks for the next.
    charge: Option<Arc<Charge>>,
    _interest: Interest,
}

#[derive(Debug)]
enum Source {
    Whole(Bytes, Arc<Charge>),
    Stream(mpsc::Receiver<Piece>),
    End,
}

/// The writer went away before the end.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut")]
pub(crate) struct Cut;

impl AnswerBody {
    /// Makes the body of an answer that is known whole.
    pub(crate) fn whole(bytes: Bytes, charge: Arc<Charge>, interest: Interest) -> Self {
        Self { source: Source::Whole(bytes, charge), charge: None, _interest: interest }
    }

    /// Makes the body of an answer that is still being written.
    pub(crate) fn stream(pieces: mpsc::Receiver<Piece>, interest: Interest) -> Self {
        Self { source: Source::Stream(pieces), charge: None, _interest: interest }
    }

    fn hand_over(&mut self, bytes: Bytes, charge: Arc<Charge>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.charge = Some(charge);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.charge = None;
        if let Source::Stream(pieces) = &mut self.source {
            return match ready!(pieces.poll_recv(cx)) {
                Some(Piece::Chunk(bytes, charge)) => self.hand_over(bytes, Arc::new(charge)),
                Some(Piece::End) => {
                    self.source = Source::End;
                    Poll::Ready(None)
                }
                None => Poll::Ready(Some(Err(Cut))),
            };
        }
        match std::mem::replace(&mut self.source, Source::End) {
            Source::Whole(bytes, charge) if !bytes.is_empty() => self.hand_over(bytes, charge),
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes, _) => bytes.is_empty(),
            Source::Stream(_) => false,
            Source::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream(_) => SizeHint::default(),
            Source::End => SizeHint::with_exact(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::runtime::Runtime;
    use varve_tsdb::MemoryBudget;

    const HOLD_BACK: usize = 1 << 10;
    const SIZE_MAX: usize = 100 * CHUNK_SIZE;

    struct Run {
        answer: Option<Answer>,
        outcome: Outcome,
        ctx: QueryContext,
        runtime: Runtime,
    }

    /// Runs a writer as the server does, on a blocking thread, until it has ended. Nobody reads what flows.
    fn run(write: impl FnOnce(&mut BodyWriter) -> Result<(), ApiError> + Send + 'static) -> Run {
        let runtime = runtime();
        let ctx = QueryContext::new(Duration::from_secs(60), MemoryBudget::new("memory", 1 << 20));
        let (sender, receiver) = oneshot::channel();
        let mut writer = BodyWriter::new(ctx.clone(), bounds(Duration::from_millis(50)), sender, None);
        let (answer, outcome) = runtime.block_on(async {
            let work = tokio::task::spawn_blocking(move || match write(&mut writer) {
                Ok(()) => writer.finish(),
                Err(error) => writer.fail(error),
            });
            (receiver.await.ok(), work.await.unwrap())
        });
        Run { answer, outcome, ctx, runtime }
    }

    fn bounds(stall_timeout: Duration) -> AnswerBounds {
        AnswerBounds { hold_back: HOLD_BACK, size_max: SIZE_MAX, stall_timeout }
    }

    fn only(ctx: &QueryContext) -> Interest {
        Interest::Only { _cancel: CancelOnDrop(ctx.clone()) }
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
    }

    fn write(writer: &mut BodyWriter, n_bytes: usize) -> Result<(), ApiError> {
        for _ in 0..n_bytes / 100 {
            writer.buffer().extend_from_slice(&[b'x'; 100]);
            writer.step()?;
        }
        Ok(())
    }

    #[test]
    fn a_short_answer_is_whole_and_charged_until_it_is_gone() {
        let run = run(|writer| write(writer, HOLD_BACK));
        assert_eq!(run.outcome, Outcome::Answered);
        let Some(Answer::Whole(bytes, charge)) = run.answer else { panic!("{:?}", run.answer) };
        assert_eq!(bytes.len(), 1000);
        assert!(run.ctx.memory().used() >= 1000, "{}", run.ctx.memory().used());
        let body = AnswerBody::whole(bytes, Arc::new(charge), only(&run.ctx));
        assert_eq!(body.size_hint().exact(), Some(1000));
        assert_eq!(run.runtime.block_on(body.collect()).unwrap().to_bytes().len(), 1000);
        assert_eq!((run.ctx.memory().used(), run.ctx.interrupted()), (0, Some(Interrupt::Canceled)));
    }

    #[test]
    fn an_error_before_the_buffer_is_full_has_its_own_status() {
        let run = run(|writer| {
            write(writer, HOLD_BACK)?;
            Err(ApiError::bad_data("no"))
        });
        assert!(matches!(run.answer, Some(Answer::Error(ref error)) if error.message == "no"), "{:?}", run.answer);
        assert_eq!((run.outcome, run.ctx.memory().used()), (Outcome::Answered, 0));
    }

    #[test]
    fn an_error_after_the_start_cuts_the_body() {
        let run = run(|writer| {
            write(writer, 2 * HOLD_BACK)?;
            Err(ApiError::bad_data("late"))
        });
        assert_eq!(run.outcome, Outcome::Cut(ApiError::bad_data("late")));
        let Some(Answer::Stream(pieces)) = run.answer else { panic!("{:?}", run.answer) };
        let body = AnswerBody::stream(pieces, only(&run.ctx));
        run.runtime.block_on(body.collect()).unwrap_err();
        assert_eq!(run.ctx.memory().used(), 0);
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up() {
        let run = run(|writer| write(writer, 10 * CHUNK_SIZE));
        let Outcome::Cut(error) = run.outcome else { panic!("{:?}", run.outcome) };
        assert!(error.message.contains("--web.write-stall-timeout"), "{error:?}");
        assert_eq!(run.ctx.interrupted(), Some(Interrupt::Canceled));
        drop(run.answer);
        assert_eq!(run.ctx.memory().used(), 0);
    }

    #[test]
    fn a_long_answer_flows_to_its_end() {
        let ctx = QueryContext::unbounded();
        let (sender, receiver) = oneshot::channel();
        let mut writer = BodyWriter::new(ctx.clone(), bounds(Duration::from_secs(60)), sender, None);
        let size = runtime().block_on(async {
            tokio::task::spawn_blocking(move || {
                write(&mut writer, 10 * CHUNK_SIZE).unwrap();
                assert_eq!(writer.finish(), Outcome::Answered);
            });
            let Ok(Answer::Stream(pieces)) = receiver.await else { panic!("the answer is longer than is held back") };
            AnswerBody::stream(pieces, only(&ctx)).collect().await.unwrap().to_bytes().len()
        });
        assert_eq!((size, ctx.memory().used()), (10 * CHUNK_SIZE / 100 * 100, 0));
    }

    #[test]
    fn an_answer_that_is_too_long_ends() {
        let refused = |outcome: Outcome| match outcome {
            Outcome::Cut(error) => error.limit,
            Outcome::Answered => None,
        };
        let run = run(|writer| {
            writer.bounds.size_max = 2 * HOLD_BACK;
            write(writer, 3 * HOLD_BACK)
        });
        assert_eq!(refused(run.outcome), Some("--web.max-response-size"));
        assert!(matches!(run.answer, Some(Answer::Stream(_))));
    }

    #[test]
    fn memory_that_is_used_up_ends_the_answer() {
        let run = run(|writer| {
            let mut all = writer.ctx.charge();
            all.grow(1 << 20)?;
            write(writer, HOLD_BACK)
        });
        assert!(matches!(run.answer, Some(Answer::Error(ref error)) if error.kind == ErrorKind::Execution));
    }
}
