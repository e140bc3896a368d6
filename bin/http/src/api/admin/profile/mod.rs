//! /debug/pprof: CPU profiles of the running server, in the format of `go tool pprof`
//! ([decision 25](docs/decisions/server/0025-cpu-profiles.md)), and empty profiles of the kinds that
//! only Go has.
//!
//! While a profile is taken, the kernel sends SIGPROF for each 10 ms of CPU time that the process
//! uses, and the handler records the stack. Without a profile there are no timer and no handler.
//! The profile ends early if the client disconnects or the server stops.

mod empty;
mod message;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{ProfilerGuard, Report};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use varve_server::lifecycle::Phase;
use varve_server::requests::record::RequestRecord;

pub(crate) use empty::EmptyProfile;

use super::request::{audit, check_enabled};
use crate::error::{ApiError, Result};
use crate::params::Form;
use crate::response::plain;
use crate::serving::app::App;

/// Samples per second of CPU time, as in Go.
const FREQUENCY_HZ: i32 = 100;

/// Duration of a profile without `seconds`, as in Go.
const SECONDS_DEFAULT: u64 = 30;

/// Maximum duration of a profile.
const SECONDS_MAX: u64 = 120;

/// How often a profile checks whether the server stops.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// GET /debug/pprof/profile.
pub(crate) async fn profile(
    State(app): State<Arc<App>>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let result = take(&app, &form).await;
    audit(&record, result.as_ref().err().map(|error| &*error.message));
    result.map_err(ApiError::plain)
}

/// GET /debug/pprof/heap and the other profiles that only Go has.
pub(crate) async fn empty(kind: EmptyProfile) -> Result {
    Ok(respond(compress(&kind.encode())?))
}

/// GET /debug/pprof/trace.
pub(crate) async fn trace() -> Response {
    plain(
        StatusCode::NOT_IMPLEMENTED,
        "execution traces are those of Go; see --web.enable-admin-api and /debug/pprof/profile\n",
    )
}

async fn take(app: &App, form: &Form) -> Result {
    let duration = Duration::from_secs(seconds(form.first("seconds"))?);
    check_enabled(app)?;
    // The first profile reads the unwind tables of the program.
    let profiler = spawn_blocking(|| ProfilerGuard::new(FREQUENCY_HZ))
        .await
        .map_err(ApiError::internal)?;
    let profiler = profiler.map_err(|error| match error {
        pprof::Error::Running => {
            ApiError::unavailable("another CPU profile is being taken; there is one at a time")
        }
        // The profiler writes rare stacks to a temporary file.
        error => ApiError::internal(format!(
            "cannot take a CPU profile: {error}; is the directory {:?} ($TMPDIR) writable?",
            std::env::temp_dir()
        )),
    })?;
    let started = Instant::now();
    while started.elapsed() < duration && app.phase() != Phase::Stopping {
        sleep(CHECK_INTERVAL.min(duration.saturating_sub(started.elapsed()))).await;
    }
    let body = spawn_blocking(move || finish(profiler))
        .await
        .map_err(ApiError::internal)??;
    Ok(respond(body))
}

fn respond(body: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"profile\"",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

/// Parses the parameter `seconds`.
fn seconds(text: &str) -> Result<u64> {
    let seconds = if text.is_empty() {
        Ok(SECONDS_DEFAULT)
    } else {
        text.parse()
    };
    match seconds {
        Ok(seconds @ 1..=SECONDS_MAX) => Ok(seconds),
        _ => Err(ApiError::invalid_parameter(
            "seconds",
            format_args!("{text:?} is not from 1 to {SECONDS_MAX}"),
        )),
    }
}

/// Ends a profile and returns it, compressed.
fn finish(profiler: ProfilerGuard<'static>) -> Result<Vec<u8>> {
    let report = profiler.report().build();
    drop(profiler);
    // The symbolizer keeps the debug information of the program otherwise.
    backtrace::clear_symbol_cache();
    let report: Report = report.map_err(ApiError::internal)?;
    compress(&message::encode(&report))
}

fn compress(message: &[u8]) -> Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(message).map_err(ApiError::internal)?;
    out.finish().map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duration_is_bounded() {
        let read = |text: &str| seconds(text).map_err(|error| error.message);
        assert_eq!((read(""), read("1"), read("120")), (Ok(30), Ok(1), Ok(120)));
        for text in ["0", "121", "-1", "1.5", "x"] {
            let expect = format!("invalid parameter \"seconds\": \"{text}\" is not from 1 to 120");
            assert_eq!(read(text), Err(expect), "{text}");
        }
    }
}
