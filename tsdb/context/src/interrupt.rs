//! [`Interrupt`]: why a request was interrupted.

use crate::limit::Limit;

/// Why a request was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Interrupt {
    /// The deadline has passed.
    #[error("query timed out")]
    Deadline = 1,
    /// The client disconnected.
    #[error("query was canceled")]
    Canceled = 2,
    /// The server is stopping.
    #[error("query was canceled: the server is shutting down")]
    Shutdown = 3,
    /// An operator ended the request.
    #[error("query was canceled: an operator ended it")]
    Killed = 4,
    /// The memory shared by all queries was exhausted, and this request held the most.
    #[error(
        "query was ended to free memory: it held the most of all, and {} was used up",
        Limit::QueryMemoryTotal
    )]
    Heaviest = 5,
    /// The process approached its memory limit, and this request held the most.
    #[error(
        "query was ended to free memory: it held the most of all, and the process was above {}",
        Limit::ProcessMemory
    )]
    Pressure = 6,
}

impl Interrupt {
    const ALL: [Self; 6] = [
        Self::Deadline,
        Self::Canceled,
        Self::Shutdown,
        Self::Killed,
        Self::Heaviest,
        Self::Pressure,
    ];

    /// Returns the interrupt with a number, or `None` for 0, the state of a running request.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&reason| reason as u8 == number)
    }
}
