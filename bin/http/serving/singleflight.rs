//! Identical requests that are there at the same time are computed once.
//!
//! The first of them boards a [`Flight`] and has it computed; those that come while it is under way board too, and all get
//! the same answer, if it could be held back whole. One that flows goes to the first; the others are sent to compute their
//! own, and so they are if the time of the first is over.
//!
//! Invariants
//! 1. Whoever boards sees all that was acknowledged to anybody before it came: a flight whose computation has begun takes
//!    nobody in once something was written since.
//! 2. A flight is given up when the last of those on board has gone, and not before.
//! 3. There are never more flights than requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use varve_tsdb::Charge;

use super::body::{Answer, CancelOnDrop, Piece};
use crate::http::error::{ApiError, ErrorKind};

/// The flights under way, by what is asked for.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    under_way: Mutex<HashMap<String, Weak<Flight>>>,
    /// Requests that may have changed the store and were answered.
    n_written: AtomicU64,
}

/// A computation that several wait for; those who do hold it.
#[derive(Debug)]
pub(crate) struct Flight {
    key: String,
    all: Arc<Flights>,
    /// What had been written when the computation began.
    began_at: OnceLock<u64>,
    landed: watch::Sender<Option<Landed>>,
    task: OnceLock<AbortHandle>,
    /// Ends the computation when the last has gone.
    _cancel: CancelOnDrop,
}

/// What those on board get.
#[derive(Debug, Clone)]
pub(crate) enum Landed {
    /// The answer.
    Whole(Bytes, Arc<Charge>),
    /// Why there is none.
    Error(ApiError),
    /// An answer that one of them can take.
    Stream(Arc<Mutex<Option<mpsc::Receiver<Piece>>>>),
}

/// How somebody boarded.
#[derive(Debug)]
pub(crate) enum Boarded {
    /// As the first, who has to have it computed.
    First(Arc<Flight>),
    /// On one that is under way.
    UnderWay(Arc<Flight>),
}

impl Flights {
    /// Notes that something may have been written, before anybody is told so.
    pub(crate) fn note_written(&self) {
        self.n_written.fetch_add(1, Ordering::SeqCst);
    }

    /// Boards the flight of `key`, or starts one that `cancel` ends.
    pub(crate) fn board(self: &Arc<Self>, key: String, cancel: impl FnOnce() -> CancelOnDrop) -> Boarded {
        let mut under_way = self.under_way();
        if let Some(flight) = under_way.get(&key).and_then(Weak::upgrade) {
            if flight.takes_in() {
                return Boarded::UnderWay(flight);
            }
            // Not dropped under the lock, which its end takes.
            drop(under_way);
            drop(flight);
            under_way = self.under_way();
        }
        let flight = Arc::new(Flight {
            key: key.clone(),
            all: Arc::clone(self),
            began_at: OnceLock::new(),
            landed: watch::Sender::new(None),
            task: OnceLock::new(),
            _cancel: cancel(),
        });
        under_way.insert(key, Arc::downgrade(&flight));
        Boarded::First(flight)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<String, Weak<Flight>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Tells the task that computes; it is given up when the last has gone.
    pub(crate) fn is_computed_by(&self, task: AbortHandle) {
        self.task.get_or_init(|| task);
    }

    /// Notes that the computation looks at the store from now on.
    pub(crate) fn begin(&self) {
        let _all_who_board_see_this = self.all.under_way();
        self.began_at.get_or_init(|| self.all.n_written.load(Ordering::SeqCst));
    }

    /// Hands the answer to all on board. Nobody boards any more.
    pub(crate) fn land(&self, answer: Answer) {
        self.forget();
        self.landed.send_replace(Some(match answer {
            Answer::Whole(bytes, charge) => Landed::Whole(bytes, Arc::new(charge)),
            Answer::Stream(pieces) => Landed::Stream(Arc::new(Mutex::new(Some(pieces)))),
            Answer::Error(error) => Landed::Error(error),
        }));
    }

    /// Waits for the answer.
    pub(crate) async fn landed(&self) -> Landed {
        let mut landed = self.landed.subscribe();
        let arrived = landed.wait_for(Option::is_some).await.map(|landed| landed.clone());
        arrived.ok().flatten().unwrap_or_else(|| Landed::Error(ApiError::unavailable("the server is stopping")))
    }

    fn takes_in(&self) -> bool {
        self.began_at.get().is_none_or(|&began_at| began_at == self.all.n_written.load(Ordering::SeqCst))
    }

    /// Takes this flight off the list, unless another has its place.
    fn forget(&self) {
        let mut under_way = self.all.under_way();
        if under_way.get(&self.key).is_some_and(|listed| std::ptr::eq(listed.as_ptr(), self)) {
            under_way.remove(&self.key);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.forget();
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Landed {
    /// Tells whether those that boarded later get this as well. A stream has one reader; and the time of the one that came first
    /// is over before theirs.
    pub(crate) fn is_for_all(&self) -> bool {
        match self {
            Self::Whole(..) => true,
            Self::Error(error) => error.kind != ErrorKind::Timeout,
            Self::Stream(_) => false,
        }
    }

    /// Takes the stream, if this is one that nobody has taken.
    pub(crate) fn take_stream(pieces: &Mutex<Option<mpsc::Receiver<Piece>>>) -> Option<mpsc::Receiver<Piece>> {
        pieces.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::{Interrupt, QueryContext};

    fn board(flights: &Arc<Flights>, ctx: &QueryContext) -> Boarded {
        flights.board("up".into(), || CancelOnDrop(ctx.clone()))
    }

    #[track_caller]
    fn first(boarded: Boarded) -> Arc<Flight> {
        let Boarded::First(flight) = boarded else { panic!("one is under way already") };
        flight
    }

    #[track_caller]
    fn under_way(boarded: Boarded) -> Arc<Flight> {
        let Boarded::UnderWay(flight) = boarded else { panic!("none is under way") };
        flight
    }

    #[tokio::test]
    async fn all_on_board_get_the_answer() {
        let (flights, ctx) = (Arc::new(Flights::default()), QueryContext::unbounded());
        let leader = first(board(&flights, &ctx));
        let follower = under_way(board(&flights, &ctx));
        leader.land(Answer::Whole(Bytes::from_static(b"1"), ctx.charge()));
        for flight in [&leader, &follower] {
            assert!(matches!(flight.landed().await, Landed::Whole(ref bytes, _) if bytes == "1"));
        }
        drop(first(board(&flights, &ctx)));
        assert!(flights.under_way().is_empty());
    }

    #[tokio::test]
    async fn a_stream_goes_to_one() {
        let (flights, ctx) = (Arc::new(Flights::default()), QueryContext::unbounded());
        let flight = first(board(&flights, &ctx));
        flight.land(Answer::Stream(mpsc::channel(1).1));
        assert!(!flight.landed().await.is_for_all());
        let Landed::Stream(pieces) = flight.landed().await else { panic!("it is a stream") };
        assert!(Landed::take_stream(&pieces).is_some() && Landed::take_stream(&pieces).is_none());
    }

    #[test]
    fn it_ends_with_the_last_on_board() {
        let (flights, ctx) = (Arc::new(Flights::default()), QueryContext::unbounded());
        let leader = first(board(&flights, &ctx));
        let follower = under_way(board(&flights, &ctx));
        drop(leader);
        assert_eq!(ctx.interrupted(), None);
        drop(follower);
        assert_eq!(ctx.interrupted(), Some(Interrupt::Canceled));
        assert!(flights.under_way().is_empty());
    }

    #[test]
    fn nobody_boards_what_has_not_seen_the_latest_write() {
        let (flights, ctx) = (Arc::new(Flights::default()), QueryContext::unbounded());
        let early = first(board(&flights, &ctx));
        // It has not looked at the store yet.
        flights.note_written();
        drop(under_way(board(&flights, &ctx)));
        early.begin();
        drop(under_way(board(&flights, &ctx)));
        flights.note_written();
        let late = first(board(&flights, &ctx));
        drop(early);
        drop(under_way(board(&flights, &ctx)));
        drop(late);
    }
}
