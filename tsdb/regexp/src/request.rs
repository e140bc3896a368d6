//! The request that a pattern is compiled and matched for.

use std::any::Any;
use std::sync::Arc;

/// The deadline and the memory of a request.
///
/// The store implements it for its query context, so that this crate knows no clock and no memory
/// budget. No method waits: patterns are compiled under locks.
pub trait MatchRequest {
    /// The reason why a request must end.
    type Error: From<LimitExceeded>;
    /// Reserved memory, which is released when the value is dropped.
    type Charge;

    /// Returns `Ok` while the request may continue.
    ///
    /// # Errors
    /// If the request is interrupted.
    fn check(&self) -> Result<(), Self::Error>;

    /// Creates an empty charge.
    fn charge(&self) -> Self::Charge;

    /// Reserves `size` bytes more.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    fn grow(&self, charge: &mut Self::Charge, size: usize) -> Result<(), Self::Error>;

    /// Reserves `size` bytes until the request ends.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    fn hold(&self, size: usize) -> Result<(), Self::Error>;

    /// Holds a value of `size` bytes that other requests share, and reserves its memory, until the
    /// request ends. A value that is already held is not reserved again.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    fn hold_shared<T: Any + Send + Sync>(
        &self,
        value: &Arc<T>,
        size: usize,
    ) -> Result<(), Self::Error>;
}

/// A pattern or a text exceeds a fixed limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {used} exceeds the limit of {limit}")]
pub struct LimitExceeded {
    /// What is limited, with its unit.
    pub what: &'static str,
    /// The amount.
    pub used: usize,
    /// The limit.
    pub limit: usize,
}

impl LimitExceeded {
    /// Returns an error if `used` exceeds `limit`.
    pub(crate) fn check(what: &'static str, used: usize, limit: usize) -> Result<(), Self> {
        if used > limit {
            Err(Self { what, used, limit })
        } else {
            Ok(())
        }
    }
}

/// The absent request of patterns of the configuration and of tools, which have no limits.
pub(crate) enum NoRequest {}

impl MatchRequest for NoRequest {
    type Error = LimitExceeded;
    type Charge = ();

    fn check(&self) -> Result<(), LimitExceeded> {
        match *self {}
    }

    fn charge(&self) {
        match *self {}
    }

    fn grow(&self, _charge: &mut (), _size: usize) -> Result<(), LimitExceeded> {
        match *self {}
    }

    fn hold(&self, _size: usize) -> Result<(), LimitExceeded> {
        match *self {}
    }

    fn hold_shared<T: Any + Send + Sync>(
        &self,
        _value: &Arc<T>,
        _size: usize,
    ) -> Result<(), LimitExceeded> {
        match *self {}
    }
}

/// Reserves `size` bytes for memory of a short life.
pub(crate) fn reserve<R: MatchRequest>(request: &R, size: usize) -> Result<R::Charge, R::Error> {
    let mut charge = request.charge();
    request.grow(&mut charge, size)?;
    Ok(charge)
}
