//! A remote-write sender that remembers what it sent and what was acknowledged.

use crate::harness::{Http, Random, TimeSeries, WriteRequest, series};

const SERIES: u64 = 16;
/// Maximum number of samples of a series in one request.
const SAMPLES_MAX: u64 = 4;
/// Maximum number of milliseconds between two samples. All rounds together stay within the accepted
/// age of samples.
const STEP_MAX: u64 = 40;
const T0: i64 = 1_700_000_000_000;
const METRIC: &str = "crash";

/// A sent sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) writer: u64,
    pub(crate) series: u64,
    pub(crate) timestamp_ms: i64,
    pub(crate) bits: u64,
    /// `true` if the server has acknowledged it; otherwise it may or may not be stored.
    pub(crate) acknowledged: bool,
}

/// A sender with its own series.
#[derive(Debug)]
pub(crate) struct Writer {
    id: u64,
    random: Random,
    now_ms: i64,
    /// The request that got no response.
    lost: Option<(Vec<u8>, Vec<Sent>)>,
    sent: Vec<Sent>,
}

impl Writer {
    pub(crate) fn new(id: u64, seed: u64) -> Self {
        Self {
            id,
            random: Random::new(seed),
            now_ms: T0,
            lost: None,
            sent: Vec::new(),
        }
    }

    /// Writes one request after the other until one gets no response, and returns the error.
    pub(crate) fn write_until_lost(&mut self, http: &Http) -> String {
        // A real sender retries a request without a response; some of these do, others continue
        // with the next.
        let repeated = self.lost.take_if(|_| self.random.below(2) == 0);
        let mut next = repeated.unwrap_or_else(|| self.request());
        loop {
            if let Err(lost) = self.send(http, next.0, next.1) {
                return lost;
            }
            next = self.request();
        }
    }

    /// Returns the samples sent since the last call. A retried sample occurs twice.
    pub(crate) fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    fn send(&mut self, http: &Http, body: Vec<u8>, samples: Vec<Sent>) -> Result<(), String> {
        match http.try_write_body(&body) {
            Ok(answer) => {
                assert_eq!(answer.status, 204, "writer {}: {answer:?}", self.id);
                self.sent.extend(samples.into_iter().map(|sample| Sent {
                    acknowledged: true,
                    ..sample
                }));
                Ok(())
            }
            Err(lost) => {
                self.sent.extend(&samples);
                self.lost = Some((body, samples));
                Err(lost)
            }
        }
    }

    /// Returns a request with new samples of some of the series.
    fn request(&mut self) -> (Vec<u8>, Vec<Sent>) {
        let mut samples = Vec::new();
        let timeseries: Vec<_> = (0..SERIES)
            .filter_map(|id| self.series(id, &mut samples))
            .collect();
        let newest = samples.iter().map(|sample| sample.timestamp_ms).max();
        self.now_ms = newest.unwrap_or(self.now_ms);
        (WriteRequest::new(timeseries).to_body(), samples)
    }

    fn series(&mut self, id: u64, sent: &mut Vec<Sent>) -> Option<TimeSeries> {
        let n_samples = self.random.below(SAMPLES_MAX + 1);
        let mut timestamp_ms = self.now_ms;
        let samples: Vec<_> = (0..n_samples)
            .map(|_| {
                timestamp_ms += 1 + self.random.below(STEP_MAX) as i64;
                let bits = bits(&mut self.random);
                sent.push(Sent {
                    writer: self.id,
                    series: id,
                    timestamp_ms,
                    bits,
                    acknowledged: false,
                });
                (timestamp_ms, f64::from_bits(bits))
            })
            .collect();
        let (writer, id) = (self.id.to_string(), id.to_string());
        (n_samples > 0).then(|| {
            series(
                &[("__name__", METRIC), ("series", &id), ("writer", &writer)],
                &samples,
            )
        })
    }
}

/// Returns a random value: ordinary ones, and ones that a store might mistake for a marker.
fn bits(random: &mut Random) -> u64 {
    const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;
    let drawn = random.next();
    match drawn % 8 {
        0 => (drawn as f64).to_bits(),
        1 => f64::from(drawn as u16).to_bits(),
        2 => [
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
        ][drawn as usize / 8 % 7]
            .to_bits(),
        3 => STALE_NAN,
        // NaNs of any sign and payload, quiet and signalling.
        4 => drawn | 0x7ff0_0000_0000_0000,
        5 => 1.0f64.to_bits(),
        _ => drawn,
    }
}
