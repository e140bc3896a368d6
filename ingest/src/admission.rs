//! Bytes in flight: what all requests being worked on may hold together.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::WriteError;

/// The account that requests reserve from before they work.
#[derive(Debug)]
pub(crate) struct Admission {
    in_flight: AtomicU64,
    limit: u64,
}

/// Bytes reserved by one request; they are given back on drop.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    size: u64,
}

impl Admission {
    pub(crate) fn new(limit: usize) -> Self {
        Self { in_flight: AtomicU64::new(0), limit: limit as u64 }
    }

    /// Reserves `size` bytes, or refuses at once: a sender that waits outside costs nothing.
    pub(crate) fn admit(&self, size: usize) -> Result<Permit<'_>, WriteError> {
        let mut permit = Permit { admission: self, size: 0 };
        permit.grow(size)?;
        Ok(permit)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Permit<'_> {
    /// Reserves `size` bytes more. What is refused leaves the permit as it was.
    pub(crate) fn grow(&mut self, size: usize) -> Result<(), WriteError> {
        let (size, own, limit) = (size as u64, self.size, self.admission.limit);
        let grown = |in_flight: u64| {
            let alone = in_flight == own;
            let after = in_flight.saturating_add(size);
            (alone || after <= limit).then_some(after)
        };
        match self.admission.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => {
                self.size += size;
                Ok(())
            }
            Err(in_flight) => Err(WriteError::Busy { in_flight, size, limit }),
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.in_flight.fetch_sub(self.size, Ordering::Relaxed);
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
