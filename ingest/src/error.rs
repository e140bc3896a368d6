//! Why a whole write request was not accepted, by what the sender can do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a write request failed as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The body is not what it should be; nothing was stored and sending it again cannot help (HTTP 400).
    #[error("malformed write request: {0}")]
    Malformed(#[from] Malformed),
    /// The request exceeds a bound of its own; nothing was stored, a smaller request helps (HTTP 413).
    #[error("{what} of {size} exceeds {limit}, the limit of {flag}")]
    TooLarge {
        /// What is too large, with its unit.
        what: &'static str,
        /// What the request has or declares.
        size: u64,
        /// The bound.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// Too many bytes of other requests are being worked on; nothing was stored, later there is room (HTTP 503).
    #[error(
        "{in_flight} bytes of write requests are in flight, {size} more would exceed {limit}, the limit of --ingest.bytes-in-flight-max"
    )]
    Busy {
        /// Bytes in flight when the request came.
        in_flight: u64,
        /// Bytes that it asked for.
        size: u64,
        /// The bound.
        limit: u64,
    },
    /// Something is used up at the moment. What is not concerned is stored; sending the request again stores the rest
    /// (HTTP 503).
    #[error("{}", throttled(.scarce, .team, *.n_series))]
    Throttled {
        /// What is used up.
        scarce: Scarce,
        /// Of which team; empty for what belongs to none.
        team: Arc<str>,
        /// Series of the request that are not stored; 0 if nothing of it has been looked at.
        n_series: u64,
        /// After what time sending it again may help.
        retry_after: Duration,
    },
    /// A body that is stored part by part met another error after some parts. What it says of sending again holds for the
    /// whole body too: nothing is stored twice.
    #[error(
        "{cause}; the first {n_lines} lines of the body are stored, {n_samples} samples: send all of it again, or what follows them"
    )]
    Cut {
        /// Lines whose samples are stored.
        n_lines: u64,
        /// Samples of these lines that are stored.
        n_samples: u64,
        /// What ended the request.
        cause: Box<WriteError>,
    },
    /// Series kept leaving the store's memory while the request was written. Some samples may be stored; sending the
    /// request again is safe (HTTP 503).
    #[error("series kept moving while the request was written")]
    Moved,
    /// The store refused or failed. Some samples may be stored; sending the request again is safe (HTTP 503 for
    /// `Limit`, `Poisoned` and `Io`, else 500).
    #[error("storage: {0}")]
    Store(#[from] varve_tsdb::Error),
}

impl WriteError {
    /// Returns what ended the request, however much of it is stored.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::Cut { cause, .. } => cause,
            error => error,
        }
    }
}

/// Where a body stops being a write request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The body is not compressed as it says.
    #[error("{encoding}: {reason}")]
    Encoding {
        /// The content encoding.
        encoding: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The body is not a snappy block.
    #[error("snappy: {0}")]
    Snappy(String),
    /// A line of a scrape body cannot be read.
    #[error("line {line}: {reason}; {}", stored_before(*.n_stored))]
    Line {
        /// Counts from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
        /// Samples of the lines before that are stored.
        n_stored: u64,
    },
    /// A label set refers to a symbol that is not there. The words are Prometheus'.
    #[error("parsing labels for series: labelRefs {number} outside of symbols table (size {n_symbols})")]
    Symbol {
        /// The reference.
        number: u32,
        /// How many symbols there are.
        n_symbols: usize,
    },
    /// A label set has a name without a value.
    #[error("parsing labels for series: invalid labelRefs length {n_refs}")]
    LabelRefs {
        /// How many references it has.
        n_refs: usize,
    },
    /// A message in the request is none.
    #[error("protobuf: {reason}, in the message at byte {offset}")]
    Message {
        /// Where that message begins in the decompressed request.
        offset: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The decompressed bytes are not the protobuf message.
    #[error("protobuf: {reason} at byte {offset}")]
    Protobuf {
        /// Where in the decompressed message.
        offset: usize,
        /// What is wrong there.
        reason: &'static str,
    },
}

/// What is used up at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scarce {
    /// New series of the team.
    TeamNewSeries,
    /// New series of all.
    TotalNewSeries,
    /// Samples of the team.
    TeamSamples,
    /// Samples of all.
    TotalSamples,
    /// Turns to make series.
    Turns,
    /// Places to wait for any of these.
    Seats,
}

impl Scarce {
    /// Returns it as the value of a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TeamNewSeries => "team_new_series",
            Self::TotalNewSeries => "new_series",
            Self::TeamSamples => "team_samples",
            Self::TotalSamples => "samples",
            Self::Turns => "turns",
            Self::Seats => "seats",
        }
    }

    /// Returns the flag or key of the configuration that bounds it.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::TeamNewSeries => "ingest.teams new_series_per_second",
            Self::TotalNewSeries => "ingest.budget.new_series_per_second",
            Self::TeamSamples => "ingest.teams samples_per_second",
            Self::TotalSamples => "ingest.budget.samples_per_second",
            Self::Turns => "--ingest.creation-concurrency-max",
            Self::Seats => "--ingest.waiting-max",
        }
    }
}

impl fmt::Display for Scarce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::TeamNewSeries => "new series of the team come too fast",
            Self::TotalNewSeries => "new series come too fast",
            Self::TeamSamples => "samples of the team come too fast",
            Self::TotalSamples => "samples come too fast",
            Self::Turns => "too many requests have new series",
            Self::Seats => "too many requests wait already",
        };
        write!(f, "{what}, see {}", self.setting())
    }
}

fn throttled(scarce: &Scarce, team: &str, n_series: u64) -> String {
    let of_team = if team.is_empty() { String::new() } else { format!(" (team {team:?})") };
    match n_series {
        0 => format!("{scarce}{of_team}; nothing of the request is stored, send it again"),
        _ => {
            format!("{scarce}{of_team}; samples of {n_series} series wait, the rest is stored: send the request again")
        }
    }
}

fn stored_before(n_stored: u64) -> String {
    match n_stored {
        0 => "nothing of the body is stored".to_owned(),
        _ => format!("the first {n_stored} samples of the body are stored"),
    }
}
