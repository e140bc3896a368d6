//! Writes a response body in pieces on a blocking thread while the client reads it.
//!
//! ```text
//! step()  Buffering: the buffer grows up to --web.response-buffer --- finish() --> status and length are known: Complete
//!           |                                                  '----- fail() ----> the error has its own status
//!           v full: 200 is sent
//!         Streaming: chunks through a bounded channel --------------- finish() --> End, the final chunk
//!                                                      '------------- fail() ----> the body is aborted: Truncated
//! ```
//!
//! Invariants
//! 1. The buffer's capacity is charged to the request's memory budget until its bytes are written
//!    to the socket.
//! 2. A body whose writer was dropped without `finish` ends in an error, so that it never parses as
//!    complete.
//! 3. A writer never waits longer than the request's deadline, or `--web.write-stall-timeout` for
//!    one chunk. When it has waited for the client for [`RELEASE_AFTER`], it releases its permit.
//! 4. When the client's side is dropped, the request is interrupted. A coalesced request is
//!    interrupted with its last client.
//! 5. No response is longer than `--web.max-response-size`.
//! 6. If too many writers wait for slow clients, those that have waited for the longest time end.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use varve_config::settings::ResponseLimits;
use varve_context::{Charge, Interrupt, scheduler};
use varve_tsdb::ReadContext;

use super::gate::Permit;
use super::output::{Chunk, Output, charged};
use super::singleflight::Computation;
use super::slow_clients::SlowClients;
use crate::error::{ApiError, ErrorKind, Result};

/// Size of the chunks of a streamed response, in bytes.
const CHUNK_SIZE: usize = 64 << 10;
/// Maximum number of chunks that wait for the client.
const CHUNKS_QUEUED_MAX: usize = 2;
/// Maximum bytes that may be written between two steps without uncharged growth of the buffer.
const STEP_ROOM: usize = 4 << 10;
/// Interval at which a writer that waits for the client checks the context of its request.
pub(super) const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Time spent waiting for the client after which a writer releases its permit: a slow client does not
/// block other requests. A client that keeps up keeps the permit of a job that reads the store while
/// it writes, so that there are no more such jobs than permits. Queries have dropped theirs before
/// they write, see [`ResponseWriter::drop_permit`].
const RELEASE_AFTER: Duration = Duration::from_millis(100);

/// The writer of a handler's response. Usage: append to [`ResponseWriter::buffer`], then call
/// [`ResponseWriter::step`].
#[derive(Debug)]
pub(crate) struct ResponseWriter {
    ctx: ReadContext,
    buffer: Vec<u8>,
    charge: Charge,
    limits: ResponseLimits,
    /// Number of bytes passed to the client's side.
    n_sent: usize,
    stage: Stage,
    /// Takes the response. Gone when all clients have disconnected.
    computation: Weak<Computation>,
    /// `None` before the request is admitted, and after its work has ended.
    permit: Option<Permit>,
    /// Time spent waiting for the client since the permit was acquired.
    waited: Duration,
    slow_clients: Arc<SlowClients>,
}

/// The progress of a response.
#[derive(Debug)]
enum Stage {
    /// Nothing has been sent.
    Buffering,
    /// Headers and the start of the body were sent.
    Streaming(mpsc::Sender<Chunk>),
    Closed,
}

impl ResponseWriter {
    /// Starts the response of a computation. If the writer is dropped before the first byte is sent,
    /// the computation ends in the error of a server that is stopping.
    pub(crate) fn new(
        computation: &Arc<Computation>,
        limits: ResponseLimits,
        slow_clients: Arc<SlowClients>,
    ) -> Self {
        let ctx = computation.ctx().clone();
        Self {
            buffer: Vec::new(),
            charge: ctx.charge(),
            ctx,
            limits,
            n_sent: 0,
            stage: Stage::Buffering,
            computation: Arc::downgrade(computation),
            permit: None,
            waited: Duration::ZERO,
            slow_clients,
        }
    }

    /// Returns the context of the computation.
    pub(crate) fn ctx(&self) -> &ReadContext {
        &self.ctx
    }

    /// Ends the response of a request that is not admitted.
    pub(crate) fn reject(mut self, error: ApiError) {
        self.stage = Stage::Closed;
        let _client_disconnected = self.complete(Output::Error(error));
    }

    /// Takes the permit of the request, whose work is about to read the store.
    pub(crate) fn admit(&mut self, permit: Permit) {
        self.permit = Some(permit);
        if let Some(computation) = self.computation.upgrade() {
            computation.begin();
        }
    }

    /// Buffers the whole response, for a job that must not wait for its client.
    pub(crate) fn disable_streaming(&mut self) {
        self.limits = self.limits.without_streaming();
    }

    /// Drops the permit after the work: the remaining bytes are written at the client's
    /// pace.
    pub(crate) fn drop_permit(&mut self) {
        self.permit = None;
    }

    /// Returns the buffer to append to: about [`STEP_ROOM`] bytes, then call
    /// [`ResponseWriter::step`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Makes room for `size` more bytes, but at most for those of a full buffer.
    ///
    /// # Errors
    /// If memory is short.
    pub(crate) fn reserve(&mut self, size: usize) -> Result<()> {
        let size = self
            .buffer
            .len()
            .saturating_add(size)
            .min(self.size_when_full());
        self.grow_to(size)
    }

    /// Charges the bytes in the buffer to the memory budget, and sends them once they fill a chunk.
    ///
    /// # Errors
    /// If the request must end: its deadline has passed, the client has disconnected or is too
    /// slow, memory is short, or the response is too long.
    pub(crate) fn step(&mut self) -> Result<()> {
        scheduler::pause();
        self.ctx.check()?;
        self.check_size()?;
        // More than STEP_ROOM may have been written.
        self.charge_up_to(self.buffer.capacity())?;
        if self.buffer.len() > self.threshold() {
            self.send_buffer()?;
        }
        self.make_room()
    }

    /// Sends the remaining bytes and completes the response.
    ///
    /// # Errors
    /// The reason why the body is truncated.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.drop_permit();
        match self.send_rest() {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    /// Ends the response with an error: the client gets its status, or an aborted body if the start
    /// was sent. The body is aborted when the writer is dropped.
    ///
    /// # Errors
    /// `error`, if the body is truncated.
    pub(crate) fn fail(&mut self, error: ApiError) -> Result<()> {
        if self.is_past_buffering() {
            return Err(error);
        }
        self.stage = Stage::Closed;
        let _client_disconnected = self.complete(Output::Error(error));
        Ok(())
    }

    /// Passes the response to all clients.
    ///
    /// # Errors
    /// If all of them have disconnected.
    fn complete(&self, output: Output) -> Result<()> {
        match self.computation.upgrade() {
            Some(computation) => {
                computation.complete(output);
                Ok(())
            }
            None => Err(self.interrupt_as_disconnected()),
        }
    }

    fn check_size(&self) -> Result<()> {
        const FLAG: &str = "--web.max-response-size";
        let size_max = self.limits.size_max;
        if self.n_sent.saturating_add(self.buffer.len()) > size_max {
            let text = format!("response exceeds its size limit of {size_max} bytes ({FLAG})");
            return Err(ApiError::new(ErrorKind::Execution, text).with_limit(FLAG));
        }
        Ok(())
    }

    /// Returns `true` once something was sent or the response has ended.
    fn is_past_buffering(&self) -> bool {
        !matches!(self.stage, Stage::Buffering)
    }

    fn threshold(&self) -> usize {
        if self.is_past_buffering() {
            CHUNK_SIZE
        } else {
            self.limits.buffer_size
        }
    }

    /// Grows the buffer if less than [`STEP_ROOM`] is left: to a full chunk of a streamed response,
    /// otherwise to twice its size, up to a full buffer.
    fn make_room(&mut self) -> Result<()> {
        if self.buffer.capacity() - self.buffer.len() < STEP_ROOM {
            let size_max = self.size_when_full();
            let grown = if self.is_past_buffering() {
                size_max
            } else {
                size_max.min(2 * self.buffer.capacity())
            };
            self.grow_to(grown.max(self.buffer.len() + STEP_ROOM))?;
        }
        // The allocator may have rounded up.
        self.charge_up_to(self.buffer.capacity())
    }

    /// Returns the size of a full buffer, which the next step sends.
    fn size_when_full(&self) -> usize {
        self.threshold().saturating_add(STEP_ROOM)
    }

    /// Grows the buffer to at least `size` bytes in all.
    fn grow_to(&mut self, size: usize) -> Result<()> {
        self.charge_up_to(size)?;
        self.buffer
            .reserve_exact(size.saturating_sub(self.buffer.len()));
        Ok(())
    }

    fn charge_up_to(&mut self, size: usize) -> Result<()> {
        Ok(self.charge.grow(size.saturating_sub(self.charge.size()))?)
    }

    fn send_buffer(&mut self) -> Result<()> {
        if !self.is_past_buffering() {
            self.start_streaming()?;
        }
        let bytes = self.take_buffer();
        self.send(Chunk::Data(bytes))
    }

    fn start_streaming(&mut self) -> Result<()> {
        let (sender, receiver) = mpsc::channel(CHUNKS_QUEUED_MAX);
        self.stage = Stage::Streaming(sender);
        self.complete(Output::stream(receiver))
    }

    fn take_buffer(&mut self) -> Bytes {
        let charge = std::mem::replace(&mut self.charge, self.ctx.charge());
        self.n_sent = self.n_sent.saturating_add(self.buffer.len());
        charged(std::mem::take(&mut self.buffer), charge)
    }

    fn send_rest(&mut self) -> Result<()> {
        self.ctx.check()?;
        self.check_size()?;
        let bytes = self.take_buffer();
        if self.is_past_buffering() {
            self.send(Chunk::Data(bytes))?;
            return self.send(Chunk::End);
        }
        self.stage = Stage::Closed;
        self.complete(Output::Complete(bytes))
    }

    /// Sends a chunk, waiting until the channel has room. This applies the backpressure of a slow
    /// client.
    fn send(&mut self, chunk: Chunk) -> Result<()> {
        let Stage::Streaming(chunks) = &self.stage else {
            return Err(self.interrupt_as_disconnected());
        };
        // Fast path: the channel has room.
        if let Ok(room) = chunks.try_reserve() {
            room.send(chunk);
            return Ok(());
        }
        scheduler::blocking(|| self.wait_and_send(chunk))
    }

    fn wait_and_send(&mut self, chunk: Chunk) -> Result<()> {
        let Stage::Streaming(chunks) = &self.stage else {
            return Err(self.interrupt_as_disconnected());
        };
        let started = Instant::now();
        let mut slow = None;
        loop {
            let room = async { tokio::time::timeout(WAIT_CHECK_INTERVAL, chunks.reserve()).await };
            match Handle::current().block_on(room) {
                Ok(Ok(room)) => {
                    room.send(chunk);
                    break;
                }
                Ok(Err(_closed)) => return Err(self.interrupt_as_disconnected()),
                Err(_elapsed) if started.elapsed() >= self.limits.stall_timeout => {
                    return Err(self.interrupt_as_stalled());
                }
                Err(_elapsed) => self.ctx.check()?,
            }
            if self.waited + started.elapsed() < RELEASE_AFTER {
                continue;
            }
            if let Some(permit) = &mut self.permit {
                permit.release();
            }
            if slow
                .get_or_insert_with(|| self.slow_clients.add())
                .must_end()
            {
                return Err(self.interrupt_as_one_of_too_many());
            }
        }
        drop(slow);
        self.waited += started.elapsed();
        match &mut self.permit {
            Some(permit) if permit.is_released() => {
                self.waited = Duration::ZERO;
                Handle::current().block_on(permit.reacquire(&self.ctx))
            }
            _ => Ok(()),
        }
    }

    /// Interrupts the request, and returns the error for a client that has disconnected.
    fn interrupt_as_disconnected(&self) -> ApiError {
        self.ctx.interrupt(Interrupt::Canceled);
        ApiError::new(ErrorKind::Canceled, Interrupt::Canceled.to_string())
    }

    /// Interrupts the request, and returns the error for a client that reads too slowly.
    fn interrupt_as_stalled(&self) -> ApiError {
        self.ctx.interrupt(Interrupt::Canceled);
        let text = "the client took too long to read, see --web.write-stall-timeout";
        ApiError::new(ErrorKind::Canceled, text).with_limit("--web.write-stall-timeout")
    }

    /// Interrupts the request, and returns the error for a client that reads too slowly while too
    /// many others do.
    fn interrupt_as_one_of_too_many(&self) -> ApiError {
        self.ctx.interrupt(Interrupt::Canceled);
        let text = format!(
            "more than {} responses wait for slow clients, the maximum for the memory of the process, \
             and this one has waited for the longest time",
            self.slow_clients.len_max()
        );
        ApiError::new(ErrorKind::Canceled, text).with_limit("slow clients")
    }
}

impl Drop for ResponseWriter {
    fn drop(&mut self) {
        // A job that does not run, because the server is stopping, writes no response.
        if matches!(self.stage, Stage::Buffering) {
            let _client_disconnected = self.complete(Output::Error(ApiError::stopping()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::response_body::ResponseBody;
    use axum::body::HttpBody;
    use http_body_util::BodyExt;
    use tokio::runtime::Runtime;
    use varve_context::{Limit, MemoryBudget, QueryContext};

    const BUFFER_SIZE: usize = 1 << 10;
    const SIZE_MAX: usize = 100 * CHUNK_SIZE;

    /// A response that has ended.
    struct Ended {
        output: Output,
        sent: Result<()>,
        computation: Arc<Computation>,
        runtime: Runtime,
    }

    impl Ended {
        fn ctx(&self) -> &ReadContext {
            self.computation.ctx()
        }
    }

    /// Runs a writer on a blocking thread, as the server does, until it has ended. Nobody reads the
    /// stream.
    fn run(write: impl FnOnce(&mut ResponseWriter) -> Result<()> + Send + 'static) -> Ended {
        let runtime = runtime();
        let ctx = ReadContext::unrestricted(QueryContext::new(
            Duration::from_secs(60),
            MemoryBudget::new(Limit::Other("memory"), 1 << 20),
        ));
        let computation = Computation::alone(ctx);
        let limits = limits(Duration::from_millis(50));
        let mut writer = ResponseWriter::new(&computation, limits, slow_clients(9));
        let (output, sent) = runtime.block_on(async {
            let work = tokio::task::spawn_blocking(move || match write(&mut writer) {
                Ok(()) => writer.finish(),
                Err(error) => writer.fail(error),
            });
            (computation.result().await, work.await.unwrap())
        });
        Ended {
            output,
            sent,
            computation,
            runtime,
        }
    }

    fn limits(stall_timeout: Duration) -> ResponseLimits {
        ResponseLimits {
            buffer_size: BUFFER_SIZE,
            size_max: SIZE_MAX,
            stall_timeout,
        }
    }

    fn slow_clients(len_max: usize) -> Arc<SlowClients> {
        let metric = prometheus::IntGauge::new("waiting", "x").unwrap();
        Arc::new(SlowClients::new(len_max, metric))
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap()
    }

    fn write(writer: &mut ResponseWriter, n_bytes: usize) -> Result<()> {
        for _ in 0..n_bytes / 100 {
            writer.buffer().extend_from_slice(&[b'x'; 100]);
            writer.step()?;
        }
        Ok(())
    }

    #[test]
    fn a_short_response_is_complete_and_charged_until_it_is_sent() {
        let Ended {
            output,
            sent,
            computation,
            runtime,
        } = run(|writer| write(writer, BUFFER_SIZE));
        assert_eq!(sent, Ok(()));
        let Output::Complete(bytes) = output else {
            panic!("{output:?}")
        };
        assert_eq!(bytes.len(), 1000);
        let ctx = computation.ctx().clone();
        assert!(ctx.memory().used() >= 1000, "{}", ctx.memory().used());
        let mut body = ResponseBody::complete(bytes, computation);
        assert_eq!(body.size_hint().exact(), Some(1000));
        let frame = runtime.block_on(body.frame()).unwrap().unwrap();
        let mut sent = frame.into_data().unwrap();
        // The connection has the whole body. Its client may have read nothing.
        drop(body);
        assert_eq!(ctx.interrupted(), Some(Interrupt::Canceled));
        drop(sent.split_to(900));
        assert!(ctx.memory().used() >= 1000, "{}", ctx.memory().used());
        drop(sent);
        assert_eq!(ctx.memory().used(), 0);
    }

    #[test]
    fn a_long_step_is_charged_until_it_is_sent() {
        let ended = run(|writer| {
            writer.buffer().resize(8 * CHUNK_SIZE, b'x');
            writer.step()
        });
        let ctx = ended.ctx().clone();
        assert!(
            ctx.memory().used() >= 8 * CHUNK_SIZE,
            "{}",
            ctx.memory().used()
        );
        drop(ended);
        assert_eq!(ctx.memory().used(), 0);
    }

    #[test]
    fn an_error_before_the_buffer_is_full_has_its_own_status() {
        let ended = run(|writer| {
            write(writer, BUFFER_SIZE)?;
            Err(ApiError::bad_data("no"))
        });
        assert!(
            matches!(ended.output, Output::Error(ref error) if error.message == "no"),
            "{:?}",
            ended.output
        );
        assert_eq!((&ended.sent, ended.ctx().memory().used()), (&Ok(()), 0));
    }

    #[test]
    fn an_error_after_the_start_truncates_the_body() {
        let ended = run(|writer| {
            write(writer, 2 * BUFFER_SIZE)?;
            Err(ApiError::bad_data("no"))
        });
        assert_eq!(ended.sent, Err(ApiError::bad_data("no")));
        let Output::Stream(chunks) = ended.output else {
            panic!("{:?}", ended.output)
        };
        let ctx = ended.computation.ctx().clone();
        let body = ResponseBody::stream(chunks.lock().take().unwrap(), ended.computation);
        ended.runtime.block_on(body.collect()).unwrap_err();
        assert_eq!(ctx.memory().used(), 0);
    }

    #[test]
    fn a_client_that_reads_nothing_is_aborted() {
        let ended = run(|writer| write(writer, 10 * CHUNK_SIZE));
        let error = ended.sent.clone().unwrap_err();
        assert!(
            error.message.contains("--web.write-stall-timeout"),
            "{error:?}"
        );
        let ctx = ended.ctx().clone();
        assert_eq!(ctx.interrupted(), Some(Interrupt::Canceled));
        drop(ended);
        assert_eq!(ctx.memory().used(), 0);
    }

    #[test]
    fn the_response_that_waited_longest_ends_if_too_many_wait() {
        let slow_clients = slow_clients(1);
        let runtime = runtime();
        let start = || {
            let computation = Computation::alone(ReadContext::unbounded());
            let limits = limits(Duration::from_secs(2));
            let mut writer = ResponseWriter::new(&computation, limits, Arc::clone(&slow_clients));
            let sent = runtime.spawn_blocking(move || write(&mut writer, 10 * CHUNK_SIZE));
            (computation, sent)
        };
        let first = start();
        std::thread::sleep(2 * RELEASE_AFTER);
        let second = start();
        let error = runtime.block_on(first.1).unwrap().unwrap_err();
        assert!(
            error.message.starts_with("more than 1 responses wait"),
            "{error:?}"
        );
        assert_eq!(first.0.ctx().interrupted(), Some(Interrupt::Canceled));
        assert_eq!(second.0.ctx().interrupted(), None);
        let error = runtime.block_on(second.1).unwrap().unwrap_err();
        assert!(
            error.message.contains("--web.write-stall-timeout"),
            "{error:?}"
        );
    }

    #[test]
    fn a_long_response_streams_to_its_end() {
        let ctx = ReadContext::unbounded();
        let computation = Computation::alone(ctx.clone());
        let mut writer = ResponseWriter::new(
            &computation,
            limits(Duration::from_secs(60)),
            slow_clients(9),
        );
        let size = runtime().block_on(async {
            tokio::task::spawn_blocking(move || {
                write(&mut writer, 10 * CHUNK_SIZE).unwrap();
                assert_eq!(writer.finish(), Ok(()));
            });
            let Output::Stream(chunks) = computation.result().await else {
                panic!("the response is larger than the buffer")
            };
            let chunks = chunks.lock().take().unwrap();
            ResponseBody::stream(chunks, computation)
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .len()
        });
        assert_eq!(
            (size, ctx.memory().used()),
            (10 * CHUNK_SIZE / 100 * 100, 0)
        );
    }

    #[test]
    fn a_response_that_is_too_long_is_aborted() {
        let ended = run(|writer| {
            writer.limits.size_max = 2 * BUFFER_SIZE;
            write(writer, 3 * BUFFER_SIZE)
        });
        let limit = ended.sent.as_ref().unwrap_err().limit.map(Limit::name);
        assert_eq!(limit, Some("--web.max-response-size"));
        assert!(matches!(ended.output, Output::Stream(_)));
    }

    #[test]
    fn exhausted_memory_fails_the_response() {
        let ended = run(|writer| {
            let mut all = writer.ctx.charge();
            all.grow(1 << 20)?;
            write(writer, BUFFER_SIZE)
        });
        assert!(
            matches!(ended.output, Output::Error(ref error) if error.kind == ErrorKind::Execution)
        );
    }

    #[tokio::test]
    async fn a_job_that_does_not_run_completes_its_computation() {
        let computation = Computation::alone(ReadContext::unbounded());
        let writer = ResponseWriter::new(&computation, limits(Duration::ZERO), slow_clients(9));
        drop(writer);
        assert!(matches!(computation.result().await, Output::Error(_)));

        let mut writer = ResponseWriter::new(&computation, limits(Duration::ZERO), slow_clients(9));
        drop(computation);
        writer.step().unwrap_err();
    }
}
