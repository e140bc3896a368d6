//! Errors of whole write requests. Each variant says whether a retry or a smaller request helps.

use std::sync::Arc;
use std::time::Duration;

use varve_context::Limit;

/// The error of a write request that failed as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The body is malformed. Nothing was stored, and a retry cannot help (HTTP 400).
    #[error("malformed write request: {0}")]
    Malformed(#[from] Malformed),
    /// The request exceeds a limit. Nothing was stored, and a smaller request helps (HTTP 413).
    #[error("{what} of {size} exceeds the limit of {limit} ({bound})")]
    TooLarge {
        /// The quantity that is too large, with its unit.
        what: &'static str,
        /// The size of the request, as measured or as declared.
        size: u64,
        /// The value of the limit.
        limit: u64,
        /// The limit.
        bound: Limit,
    },
    /// Other requests hold too much memory. Nothing was stored, and a retry helps (HTTP 503).
    #[error(
        "write requests hold {in_flight} bytes, {size} more exceed the limit of {limit} ({})",
        Limit::WritesMemory
    )]
    Busy {
        /// Bytes that requests hold.
        in_flight: u64,
        /// Bytes that the request needs.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The leader of an HA pair has not sent a request since the start, and another server of the
    /// pair did. Its series are not stored. A retry helps once the leader has sent one, or has been
    /// silent for the failover timeout (HTTP 503).
    #[error(
        "the leading server of the HA pair {cluster:?} has not sent a request since the start of Varve: send this request again"
    )]
    NoLeaderYet {
        /// The value of the cluster label.
        cluster: Box<str>,
    },
    /// A resource is exhausted. The series that needed it are not stored, all others are. A retry
    /// stores the missing ones (HTTP 503).
    #[error("{}", throttled(*.resource, .team, *.n_series))]
    Throttled {
        /// The resource.
        resource: Exhausted,
        /// The team whose budget is exhausted. Empty if the resource is not a team's.
        team: Arc<str>,
        /// Number of series of the request that are not stored; 0 if the request was not decoded.
        n_series: u64,
        /// Time after which a retry may help.
        retry_after: Duration,
    },
    /// The import of a body failed after earlier parts were stored. If the cause allows a retry,
    /// the whole body may be sent again: nothing is stored twice.
    #[error(
        "{cause}; the first {n_lines} lines of the body, {n_samples} samples, are stored: retry with all lines or the others"
    )]
    PartialImport {
        /// Number of lines whose samples are stored.
        n_lines: u64,
        /// Number of samples of these lines that are stored.
        n_samples: u64,
        /// The error that ended the request.
        cause: Box<WriteError>,
    },
    /// Series were evicted from memory repeatedly while the request was written. Some samples may
    /// be stored; a retry is safe (HTTP 503).
    #[error("series were evicted repeatedly while the request was written")]
    Moved,
    /// The store rejected the request or failed. Some samples may be stored; a retry is safe (HTTP
    /// 503 for `Limit`, `Poisoned` and `Io`, else 500).
    #[error("storage: {0}")]
    Store(#[from] varve_tsdb::Error),
}

impl WriteError {
    /// Returns the error that ended the request.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::PartialImport { cause, .. } => cause,
            error => error,
        }
    }

    /// Returns `true` if a memory limit rejected the request: that of all write requests
    /// ([`WriteError::Busy`]), or that of the heads ([`Limit::HeadMemory`]).
    #[must_use]
    pub fn exceeds_memory_limit(&self) -> bool {
        matches!(
            self.cause(),
            Self::Busy { .. }
                | Self::Store(varve_tsdb::Error::Limit {
                    what: Limit::HeadMemory,
                    ..
                })
        )
    }
}

impl From<varve_context::Error> for WriteError {
    fn from(error: varve_context::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<varve_protobuf::Error> for WriteError {
    #[inline]
    fn from(error: varve_protobuf::Error) -> Self {
        Self::Malformed(error.into())
    }
}

impl From<varve_otlp::Error> for WriteError {
    fn from(error: varve_otlp::Error) -> Self {
        match error {
            varve_otlp::Error::Protobuf(error) => error.into(),
            varve_otlp::Error::Message { offset, reason } => {
                Malformed::Message { offset, reason }.into()
            }
            varve_otlp::Error::Json(reason) => Malformed::Json(reason).into(),
            varve_otlp::Error::TooLarge { what, size, limit } => Self::TooLarge {
                what,
                size,
                limit,
                bound: Limit::Other("OTLP"),
            },
        }
    }
}

/// The reason why a body is not a write request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The body cannot be decompressed.
    #[error("{encoding}: {reason}")]
    Encoding {
        /// The content encoding.
        encoding: &'static str,
        /// The error.
        reason: String,
    },
    /// The body is compressed, and its request does not say so.
    #[error("the body looks like {encoding}, but the header Content-Encoding does not say so")]
    LooksCompressed {
        /// The content encoding.
        encoding: &'static str,
    },
    /// The body is not a snappy block.
    #[error("snappy: {0}")]
    Snappy(String),
    /// A line of a scrape body is invalid.
    #[error("line {line}: {reason}; {}", stored_before(*.n_stored))]
    Line {
        /// Line number, from 1.
        line: u64,
        /// The error.
        reason: String,
        /// Number of stored samples of earlier lines.
        n_stored: u64,
    },
    /// A label set refers to a missing symbol. The text is that of Prometheus.
    #[error(
        "parsing labels for series: labelRefs {number} outside of symbols table (size {n_symbols})"
    )]
    Symbol {
        /// The reference.
        number: u32,
        /// The number of symbols.
        n_symbols: usize,
    },
    /// The first symbol is not the empty string, as remote write 2.0 demands.
    #[error("the first symbol is not the empty string")]
    FirstSymbol,
    /// A label set has a name without a value.
    #[error("parsing labels for series: invalid labelRefs length {n_refs}")]
    LabelRefs {
        /// The number of references.
        n_refs: usize,
    },
    /// An inner message is invalid.
    #[error("protobuf: {reason}, in the message at byte {offset}")]
    Message {
        /// Byte offset of the inner message in the decompressed request.
        offset: usize,
        /// The error.
        reason: String,
    },
    /// The decompressed bytes are not the JSON of an OTLP request.
    #[error("json: {0}")]
    Json(String),
    /// The decompressed bytes are not the protobuf message.
    #[error("protobuf: {0}")]
    Protobuf(#[from] varve_protobuf::Error),
}

/// An exhausted resource that is available again after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Exhausted {
    /// New series per second of a team.
    #[error("the team exceeds its rate of new series ({})", self.limit())]
    TeamNewSeries,
    /// New series per second of all teams.
    #[error("requests exceed the rate of new series ({})", self.limit())]
    TotalNewSeries,
    /// Samples per second of a team.
    #[error("the team exceeds its rate of samples ({})", self.limit())]
    TeamSamples,
    /// Samples per second of all teams.
    #[error("requests exceed the rate of samples ({})", self.limit())]
    TotalSamples,
    /// Permits to create series.
    #[error("too many requests create series ({})", self.limit())]
    SeriesCreation,
    /// Slots of the queue.
    #[error("too many requests are queued ({})", self.limit())]
    Queue,
    /// Memory of the process.
    #[error("too little memory is free for new series ({})", self.limit())]
    Memory,
}

impl Exhausted {
    /// Returns the resource as the value of a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TeamNewSeries => "team_new_series",
            Self::TotalNewSeries => "new_series",
            Self::TeamSamples => "team_samples",
            Self::TotalSamples => "samples",
            Self::SeriesCreation => "series_creation",
            Self::Queue => "queue",
            Self::Memory => "memory",
        }
    }

    /// Returns the limit that bounds the resource.
    #[must_use]
    pub fn limit(self) -> Limit {
        match self {
            Self::TeamNewSeries => Limit::TeamNewSeries,
            Self::TotalNewSeries => Limit::TotalNewSeries,
            Self::TeamSamples => Limit::TeamSampleRate,
            Self::TotalSamples => Limit::TotalSampleRate,
            Self::SeriesCreation => Limit::SeriesCreation,
            Self::Queue => Limit::Other("queued write requests"),
            Self::Memory => Limit::ProcessMemory,
        }
    }
}

fn throttled(resource: Exhausted, team: &str, n_series: u64) -> String {
    let team_suffix = if team.is_empty() {
        String::new()
    } else {
        format!(" (team {team:?})")
    };
    match n_series {
        0 => format!("{resource}{team_suffix}; nothing is stored, send the request again"),
        _ => {
            format!(
                "{resource}{team_suffix}; stored all but {n_series} series: send the request again"
            )
        }
    }
}

fn stored_before(n_stored: u64) -> String {
    match n_stored {
        0 => "nothing of the body is stored".to_owned(),
        _ => format!("the first {n_stored} samples of the body are stored"),
    }
}
