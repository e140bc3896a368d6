//! The identity of a trace: the header `traceparent` of W3C Trace Context, and the sampling
//! decision.

use anyhow::{Context, Result};
use data_encoding::HEXLOWER;

/// The identity of a trace, and of the span from which a request came, if it came from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: Option<[u8; 8]>,
    /// Whether the sender of the header records its span.
    pub(super) is_sampled: bool,
}

impl Parent {
    /// Returns the parent in the header `traceparent`, or a new trace without a parent if it is
    /// absent or invalid.
    ///
    /// # Errors
    /// If the operating system has no random numbers.
    pub(super) fn of(header: Option<&str>, fraction: f64) -> Result<Self> {
        if let Some(parent) = header.and_then(Self::parse) {
            return Ok(parent);
        }
        let trace_id = random()?;
        Ok(Self {
            trace_id,
            span_id: None,
            is_sampled: is_sampled(&trace_id, fraction),
        })
    }

    /// Parses `version-trace-span-flags`. Later versions may append fields.
    fn parse(header: &str) -> Option<Self> {
        let mut fields = header.trim().split('-');
        let [version] = hex(fields.next()?)?;
        let trace_id = hex(fields.next()?)?;
        let span_id = hex(fields.next()?)?;
        let [flags]: [u8; 1] = hex(fields.next()?)?;
        let is_complete = version > 0 || fields.next().is_none();
        let is_valid =
            version != u8::MAX && is_complete && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self {
            trace_id,
            span_id: Some(span_id),
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Returns random bytes that are not all zero.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut id = [0; N];
    getrandom::fill(&mut id).context("read random numbers")?;
    id[0] |= u8::from(id == [0; N]);
    Ok(id)
}

/// Decides by the trace, as OpenTelemetry's TraceIDRatioBased does, so that all services sample the
/// same traces.
fn is_sampled(trace_id: &[u8; 16], fraction: f64) -> bool {
    let (_, low) = trace_id
        .split_last_chunk::<8>()
        .expect("a trace id has 16 bytes");
    #[expect(clippy::big_endian_bytes, reason = "the specification demands it")]
    let low = u64::from_be_bytes(*low);
    ((low >> 1) as f64) < fraction * (1u64 << 63) as f64
}

/// Returns the bytes of a text of lower-case hexadecimal digits, or `None` if it has another
/// length.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn the_parent_is_read_from_the_header() {
        let parent = Parent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
        assert_eq!(
            (
                HEXLOWER.encode(&parent.trace_id).as_str(),
                parent.is_sampled
            ),
            (TRACE, true)
        );
        assert_eq!(
            HEXLOWER.encode(&parent.span_id.unwrap()),
            "00f067aa0ba902b7"
        );
        assert!(
            !Parent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-00"))
                .unwrap()
                .is_sampled
        );
        assert!(
            Parent::parse(&format!("01-{TRACE}-00f067aa0ba902b7-01-x")).is_some(),
            "a later version"
        );
        for invalid in [
            "",
            "x",
            &format!("00-{TRACE}-00f067aa0ba902b7-01-x"),
            &format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-{TRACE}-0000000000000000-01"),
            &format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            &format!("00-{TRACE}0-00f067aa0ba902b7-01"),
            &format!("00-{TRACE}-00f067aa0ba902b-01"),
        ] {
            assert_eq!(Parent::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_share_of_sampled_traces_is_the_fraction() {
        let sampled = |fraction: f64| {
            let ids = (0..1000).map(|_| random::<16>().unwrap());
            ids.filter(|id| is_sampled(id, fraction)).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 1000));
        // The bound is 12 standard deviations.
        assert!((60..440).contains(&sampled(0.25)), "{}", sampled(0.25));
        let mut id = [0; 16];
        id[8] = 0x7f;
        assert!(is_sampled(&id, 0.5) && !is_sampled(&id, 0.4));
    }
}
