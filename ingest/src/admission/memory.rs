//! Memory of write requests: bounds the bytes that all active requests hold together.
//!
//! A request waits for its first reservation before it allocates anything. It never waits for
//! growth: two requests that wait for each other's bytes would both wait until their deadlines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use varve_context::Limit;

use crate::error::WriteError;

/// A request that runs alone may reserve this many times the limit.
const ALONE_FACTOR: u64 = 2;

/// The memory that requests reserve from.
#[derive(Debug)]
pub(crate) struct Memory {
    in_flight: AtomicU64,
    limit: u64,
    /// Held while a waiter checks for free memory, and taken by a release before it notifies, so
    /// that no wake-up is lost.
    checking: Mutex<()>,
    released: Condvar,
}

/// Bytes reserved by one request, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    memory: &'a Memory,
    size: u64,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            in_flight: AtomicU64::new(0),
            limit: limit as u64,
            checking: Mutex::default(),
            released: Condvar::new(),
        }
    }

    /// Reserves `size` bytes without waiting.
    ///
    /// # Errors
    /// [`WriteError::Busy`] if the bytes exceed the limit, or [`WriteError::TooLarge`] if they
    /// exceed the limit of a request that runs alone, so that a retry fails too.
    pub(crate) fn reserve(&self, size: usize) -> Result<Reservation<'_>, WriteError> {
        self.add(0, size as u64)?;
        Ok(Reservation {
            memory: self,
            size: size as u64,
        })
    }

    /// Returns a reservation of no bytes.
    pub(crate) fn reserve_nothing(&self) -> Reservation<'_> {
        Reservation {
            memory: self,
            size: 0,
        }
    }

    /// Reserves `size` bytes, waiting until the deadline if necessary.
    ///
    /// # Errors
    /// The errors of [`Memory::reserve`].
    pub(crate) fn reserve_until(
        &self,
        size: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, WriteError> {
        // Fast path: the bytes are free.
        if let Ok(reservation) = self.reserve(size) {
            return Ok(reservation);
        }
        let mut checking = self.checking.lock();
        loop {
            let busy = match self.reserve(size) {
                Err(busy @ WriteError::Busy { .. }) => busy,
                settled => return settled,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(busy);
            }
            self.released.wait_for(&mut checking, left);
        }
    }

    /// Returns the number of reserved bytes.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Adds `size` bytes for a request that already holds `own` bytes.
    fn add(&self, own: u64, size: u64) -> Result<(), WriteError> {
        let limit = self.limit;
        let alone_max = limit.saturating_mul(ALONE_FACTOR);
        let whole = own.saturating_add(size);
        if whole > alone_max {
            let what = "memory of the request in bytes";
            return Err(WriteError::TooLarge {
                what,
                size: whole,
                limit: alone_max,
                bound: Limit::LoneWriteMemory,
            });
        }
        let grown = |in_flight: u64| {
            let is_alone = in_flight == own;
            let after = in_flight.saturating_add(size);
            (after <= if is_alone { alone_max } else { limit }).then_some(after)
        };
        match self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
        {
            Ok(_) => Ok(()),
            Err(in_flight) => Err(WriteError::Busy {
                in_flight,
                size,
                limit,
            }),
        }
    }
}

impl Reservation<'_> {
    /// Reserves another `size` bytes.
    ///
    /// # Errors
    /// The errors of [`Memory::reserve`]. The reservation is unchanged after an error.
    pub(crate) fn grow(&mut self, size: usize) -> Result<(), WriteError> {
        self.memory.add(self.size, size as u64)?;
        self.size += size as u64;
        Ok(())
    }

    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.memory
            .in_flight
            .fetch_sub(self.size, Ordering::Relaxed);
        drop(self.memory.checking.lock());
        self.memory.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn reservations_over_the_limit_are_denied_and_drops_release() {
        let memory = Memory::new(100);
        let mut first = memory.reserve(60).unwrap();
        assert!(matches!(
            memory.reserve(41),
            Err(WriteError::Busy {
                in_flight: 60,
                size: 41,
                limit: 100
            })
        ));
        let second = memory.reserve(40).unwrap();
        assert!(first.grow(1).is_err());
        drop(second);
        first.grow(30).unwrap();
        assert_eq!(memory.in_flight(), 90);
        drop(first);
        assert_eq!(memory.in_flight(), 0);
    }

    #[test]
    fn a_waiter_is_served_when_bytes_are_released() {
        let memory = Memory::new(100);
        let first = memory.reserve(60).unwrap();
        assert!(memory.reserve_until(41, Instant::now()).is_err());
        let deadline = Instant::now() + Duration::from_secs(600);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(memory.reserve_until(41, deadline).unwrap()));
            drop(first);
            second.join().unwrap();
        });
        assert_eq!(memory.in_flight(), 0);
    }

    #[test]
    fn a_request_that_is_alone_gets_twice_the_limit() {
        let memory = Memory::new(100);
        let mut alone = memory.reserve(150).unwrap();
        alone.grow(50).unwrap();
        assert_eq!(
            memory.reserve(1).unwrap_err().to_string(),
            "write requests hold 200 bytes, 1 more exceed the limit of 100 (memory of write requests)"
        );
        let too_large = "memory of the request in bytes of 201 exceeds the limit of 200 (memory of a write request)";
        assert_eq!(alone.grow(1).unwrap_err().to_string(), too_large);
        let deadline = Instant::now() + Duration::from_secs(600);
        assert_eq!(
            memory.reserve_until(201, deadline).unwrap_err().to_string(),
            too_large
        );
    }
}
