//! Write requests for the scrapes of a fleet, encoded while sending or in advance.
//!
//! Connections share a [`Round`]. Each request is sent on one of them. Encoding in advance keeps
//! the sender's CPU time out of the measurement if sender and server share a machine.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};
use varve_model::Sample;

use crate::fleet::{Fleet, SeriesId};
use crate::message::{EncodedLabels, Version, WriteRequest};

/// An encoded request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) body: Arc<[u8]>,
    pub(crate) n_samples: u64,
}

/// Callback that receives the requests of a round, one at a time.
pub(crate) type Sink<'a> = dyn FnMut(Request) -> Result<()> + 'a;

/// The requests of one round.
pub(crate) trait Round: Sync {
    /// Passes requests to `sink` until none is left. Threads that call this concurrently share the
    /// requests.
    ///
    /// # Errors
    /// The first error of `sink`, or if a request cannot be compressed.
    fn for_each_request(&self, sink: &mut Sink<'_>) -> Result<()>;
}

/// Encodes the scrapes of a fleet as requests of equal size.
pub(crate) struct Encoder<'a> {
    fleet: &'a Fleet,
    version: Version,
    samples_per_request: usize,
    machines: Vec<Machine>,
}

/// A machine and the encoded labels of its active series.
struct Machine {
    places: Range<u32>,
    labels: Mutex<Vec<CachedLabels>>,
}

/// The encoded labels of the series at a place.
struct CachedLabels {
    generation: u32,
    labels: EncodedLabels,
}

/// A round whose requests are encoded when they are sent. Each free connection takes the next
/// machine.
pub(crate) struct LiveRound<'a> {
    encoder: &'a Encoder<'a>,
    number: i64,
    n_taken: AtomicUsize,
}

/// A round whose requests are already encoded.
pub(crate) struct PreparedRound {
    requests: Vec<Request>,
    n_taken: AtomicUsize,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(fleet: &'a Fleet, version: Version, samples_per_request: usize) -> Self {
        let machines = fleet
            .machines()
            .map(|places| Machine {
                places,
                labels: Mutex::default(),
            })
            .collect();
        Self {
            fleet,
            version,
            samples_per_request,
            machines,
        }
    }

    pub(crate) fn round(&'a self, number: i64) -> LiveRound<'a> {
        LiveRound {
            encoder: self,
            number,
            n_taken: AtomicUsize::new(0),
        }
    }

    /// Encodes rounds, at least one, until their requests have `max_bytes` bytes or more. Removes
    /// the encoded rounds from `rounds`.
    pub(crate) fn ahead(
        &self,
        rounds: &mut Range<i64>,
        max_bytes: usize,
        n_threads: usize,
    ) -> Result<Vec<PreparedRound>> {
        let mut ahead = Vec::new();
        let mut n_bytes = 0;
        while n_bytes < max_bytes {
            let Some(number) = rounds.next() else { break };
            let requests = self.encode_round(number, n_threads)?;
            n_bytes += requests
                .iter()
                .map(|request| request.body.len())
                .sum::<usize>();
            ahead.push(PreparedRound {
                requests,
                n_taken: AtomicUsize::new(0),
            });
        }
        Ok(ahead)
    }

    fn encode_round(&self, number: i64, n_threads: usize) -> Result<Vec<Request>> {
        let round = self.round(number);
        let gather = || {
            let mut requests = Vec::new();
            round.for_each_request(&mut |request| {
                requests.push(request);
                Ok(())
            })?;
            Ok(requests)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(gather)).collect();
            let mut all = Vec::new();
            for thread in threads {
                let requests: Result<Vec<Request>> = thread
                    .join()
                    .map_err(|_| anyhow!("a thread that encodes requests panicked"))?;
                all.extend(requests?);
            }
            Ok(all)
        })
    }

    fn scrape(
        &self,
        machine: &Machine,
        round: i64,
        request: &mut WriteRequest,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut cached = machine
            .labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        self.fleet
            .scrape(machine.places.clone(), round, |series, sample| {
                if result.is_ok() {
                    let idx = (series.place - machine.places.start) as usize;
                    self.push(&mut cached, idx, series, sample, request);
                    if request.n_samples() == self.samples_per_request {
                        result = Request::new(request).and_then(&mut *sink);
                    }
                }
            });
        result
    }

    fn push(
        &self,
        cached: &mut Vec<CachedLabels>,
        idx: usize,
        series: SeriesId,
        sample: Sample,
        request: &mut WriteRequest,
    ) {
        let encode = || {
            let labels = EncodedLabels::new(&self.fleet.labels(series), self.version);
            CachedLabels {
                generation: series.generation,
                labels,
            }
        };
        match cached.get_mut(idx) {
            Some(labels) if labels.generation == series.generation => {}
            Some(labels) => *labels = encode(),
            None => cached.push(encode()),
        }
        request.push(&cached[idx].labels, sample);
    }
}

impl Round for LiveRound<'_> {
    fn for_each_request(&self, sink: &mut Sink<'_>) -> Result<()> {
        let mut request = WriteRequest::default();
        while let Some(machine) = self
            .encoder
            .machines
            .get(self.n_taken.fetch_add(1, Ordering::Relaxed))
        {
            self.encoder
                .scrape(machine, self.number, &mut request, sink)?;
        }
        if request.n_samples() > 0 {
            sink(Request::new(&mut request)?)
        } else {
            Ok(())
        }
    }
}

impl Round for PreparedRound {
    fn for_each_request(&self, sink: &mut Sink<'_>) -> Result<()> {
        while let Some(request) = self
            .requests
            .get(self.n_taken.fetch_add(1, Ordering::Relaxed))
        {
            sink(request.clone())?;
        }
        Ok(())
    }
}

impl Request {
    /// Compresses and clears the request under construction.
    fn new(request: &mut WriteRequest) -> Result<Self> {
        let n_samples = request.n_samples() as u64;
        Ok(Self {
            body: request.take_body()?.into(),
            n_samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::FleetOptions;

    #[test]
    fn requests_encoded_ahead_equal_live_ones_and_stay_within_their_size() {
        let fleet = Fleet::new(FleetOptions {
            active_series: 5_000,
            ..FleetOptions::default()
        });
        let encoder = Encoder::new(&fleet, Version::V1, 300);
        let requests = |round: &dyn Round| {
            let mut requests = Vec::new();
            round.for_each_request(&mut |request| {
                requests.push((request.n_samples, request.body));
                Ok(())
            })?;
            anyhow::Ok(requests)
        };
        let live: Vec<_> = (0..4)
            .map(|number| requests(&encoder.round(number)).unwrap())
            .collect();
        let round_bytes = live[0].iter().map(|(_, body)| body.len()).sum::<usize>();
        let mut rounds = 0..4;
        let first = encoder.ahead(&mut rounds, round_bytes + 1, 1).unwrap();
        assert_eq!(
            (first.len(), rounds.clone()),
            (2, 2..4),
            "the second round starts within the bound"
        );
        let rest = encoder.ahead(&mut rounds, usize::MAX, 1).unwrap();
        assert!(rounds.is_empty());
        let ahead: Vec<_> = first
            .iter()
            .chain(&rest)
            .map(|round| requests(round).unwrap())
            .collect();
        assert!(ahead == live, "one thread encodes in order");
        // Several threads encode machines in any order, so only their samples are counted.
        let shared = encoder.ahead(&mut (0..1), 1, 3).unwrap();
        let n_samples: u64 = requests(&shared[0]).unwrap().iter().map(|(n, _)| n).sum();
        assert_eq!(n_samples, 5_000);
    }
}
