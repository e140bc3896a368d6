//! Bytes in flight: what all requests being worked on may hold together. Where there is no room a request waits a little
//! before it takes any, and not at all for more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::error::WriteError;

/// The account that requests reserve from before they work.
#[derive(Debug)]
pub(crate) struct Admission {
    in_flight: AtomicU64,
    limit: u64,
    /// Held when bytes are given back, and by who waits for them while it looks.
    giving_back: Mutex<()>,
    given_back: Condvar,
}

/// Bytes reserved by one request; they are given back on drop.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    size: u64,
}

impl Admission {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            in_flight: AtomicU64::new(0),
            limit: limit as u64,
            giving_back: Mutex::default(),
            given_back: Condvar::new(),
        }
    }

    /// Reserves `size` bytes, or refuses at once: a sender that waits outside costs nothing.
    pub(crate) fn admit(&self, size: usize) -> Result<Permit<'_>, WriteError> {
        self.reserve(0, size as u64)?;
        Ok(Permit { admission: self, size: size as u64 })
    }

    /// Reserves `size` bytes for a request that has `own` already.
    fn reserve(&self, own: u64, size: u64) -> Result<(), WriteError> {
        let limit = self.limit;
        let grown = |in_flight: u64| {
            let alone = in_flight == own;
            let after = in_flight.saturating_add(size);
            (alone || after <= limit).then_some(after)
        };
        match self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(in_flight) => Err(WriteError::Busy { in_flight, size, limit }),
        }
    }

    /// Reserves `size` bytes, and waits for them until then.
    pub(crate) fn admit_until(&self, size: usize, until: Instant) -> Result<Permit<'_>, WriteError> {
        // Fast path: there is room.
        if let Ok(permit) = self.admit(size) {
            return Ok(permit);
        }
        let mut guard = self.giving_back.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let refused = match self.admit(size) {
                Ok(permit) => return Ok(permit),
                Err(refused) => refused,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refused);
            }
            guard = self.given_back.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Permit<'_> {
    /// Reserves `size` bytes more. What is refused leaves the permit as it was.
    pub(crate) fn grow(&mut self, size: usize) -> Result<(), WriteError> {
        self.admission.reserve(self.size, size as u64)?;
        self.size += size as u64;
        Ok(())
    }

    /// Returns the bytes that are reserved.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.in_flight.fetch_sub(self.size, Ordering::Relaxed);
        // Under the lock, so that nobody looks before and waits after this.
        drop(self.admission.giving_back.lock().unwrap_or_else(PoisonError::into_inner));
        self.admission.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_limit_is_refused_and_drops_give_back() {
        let admission = Admission::new(100);
        let mut first = admission.admit(60).unwrap();
        assert!(matches!(admission.admit(41), Err(WriteError::Busy { in_flight: 60, size: 41, limit: 100 })));
        let second = admission.admit(40).unwrap();
        assert!(first.grow(1).is_err());
        drop(second);
        first.grow(30).unwrap();
        assert_eq!(admission.in_flight(), 90);
        drop(first);
        assert_eq!(admission.in_flight(), 0);
    }

    #[test]
    fn who_waits_is_let_in_when_there_is_room() {
        let admission = Admission::new(100);
        let first = admission.admit(60).unwrap();
        assert!(admission.admit_until(41, Instant::now()).is_err());
        let late = Instant::now() + std::time::Duration::from_secs(600);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(admission.admit_until(41, late).unwrap()));
            drop(first);
            second.join().unwrap();
        });
        assert_eq!(admission.in_flight(), 0);
    }

    #[test]
    fn a_request_that_is_alone_is_admitted_whatever_its_size() {
        let admission = Admission::new(100);
        let mut alone = admission.admit(1000).unwrap();
        alone.grow(1000).unwrap();
        let busy = admission.admit(1).unwrap_err().to_string();
        assert_eq!(
            busy,
            "2000 bytes of write requests are in flight, 1 more would exceed 100, the limit of --ingest.bytes-in-flight-max"
        );
    }
}
