//! Scrapes of a fleet as requests, made while they are sent or ahead of it.
//!
//! Connections share a [`Round`], and each request goes to one of them. Requests that are made ahead cost the sender next
//! to nothing while it sends, so that on a machine that server and sender share the server is what is measured.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};
use varve_tsdb::Sample;

use crate::fleet::{Fleet, SeriesId};
use crate::message::{EncodedLabels, Version, WriteRequest};

/// A body, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) body: Arc<[u8]>,
    pub(crate) n_samples: u64,
}

/// Takes requests one after the other.
pub(crate) type Take<'a> = dyn FnMut(Request) -> Result<()> + 'a;

/// The requests of one round.
pub(crate) trait Round: Sync {
    /// Hands out requests until none is left; threads that call this together share them.
    ///
    /// # Errors
    /// The first of `take`; or if a request cannot be compressed.
    fn share(&self, take: &mut Take<'_>) -> Result<()>;
}

/// Turns a fleet's scrapes into requests of equal size.
pub(crate) struct Encoder<'a> {
    fleet: &'a Fleet,
    version: Version,
    samples_per_request: usize,
    machines: Vec<Machine>,
}

/// A machine, with the labels of what was sent of it last.
struct Machine {
    places: Range<u32>,
    known: Mutex<Vec<Known>>,
}

/// The labels of the series at a place.
struct Known {
    generation: u32,
    labels: EncodedLabels,
}

/// A round whose requests are made while they are handed out: connections take machine after machine, whoever is free.
pub(crate) struct Live<'a> {
    encoder: &'a Encoder<'a>,
    number: i64,
    n_taken: AtomicUsize,
}

/// A round whose requests were made before.
pub(crate) struct Ahead {
    requests: Vec<Request>,
    n_taken: AtomicUsize,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(fleet: &'a Fleet, version: Version, samples_per_request: usize) -> Self {
        let machines = fleet.machines().map(|places| Machine { places, known: Mutex::default() }).collect();
        Self { fleet, version, samples_per_request, machines }
    }

    pub(crate) fn round(&'a self, number: i64) -> Live<'a> {
        Live { encoder: self, number, n_taken: AtomicUsize::new(0) }
    }

    /// Makes the requests of the next rounds, as many as `max_bytes` hold and one at least, and takes these rounds away.
    pub(crate) fn ahead(&self, rounds: &mut Range<i64>, max_bytes: usize, n_threads: usize) -> Result<Vec<Ahead>> {
        let (mut ahead, mut n_bytes) = (Vec::new(), 0);
        while n_bytes < max_bytes {
            let Some(number) = rounds.next() else { break };
            let requests = self.all_of(number, n_threads)?;
            n_bytes += requests.iter().map(|request| request.body.len()).sum::<usize>();
            ahead.push(Ahead { requests, n_taken: AtomicUsize::new(0) });
        }
        Ok(ahead)
    }

    fn all_of(&self, number: i64, n_threads: usize) -> Result<Vec<Request>> {
        let round = self.round(number);
        let gather = || {
            let mut requests = Vec::new();
            round.share(&mut |request| {
                requests.push(request);
                Ok(())
            })?;
            Ok(requests)
        };
        let gathered: Vec<Result<Vec<Request>>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(gather)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread that makes requests panicked")))
            };
            threads.into_iter().map(join).collect()
        });
        gathered.into_iter().try_fold(Vec::new(), |mut all, requests| {
            all.extend(requests?);
            Ok(all)
        })
    }

    fn machine(&self, machine: &Machine, round: i64, request: &mut WriteRequest, take: &mut Take<'_>) -> Result<()> {
        let mut known = machine.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        self.fleet.scrape(machine.places.clone(), round, |series, sample| {
            if result.is_ok() {
                let at = (series.place - machine.places.start) as usize;
                self.push(&mut known, at, series, sample, request);
                if request.n_samples() == self.samples_per_request {
                    result = Request::of(request).and_then(&mut *take);
                }
            }
        });
        result
    }

    fn push(&self, known: &mut Vec<Known>, at: usize, series: SeriesId, sample: Sample, request: &mut WriteRequest) {
        let encode = || {
            let labels = EncodedLabels::new(&self.fleet.labels(series), self.version);
            Known { generation: series.generation, labels }
        };
        match known.get_mut(at) {
            Some(known) if known.generation == series.generation => {}
            Some(known) => *known = encode(),
            None => known.push(encode()),
        }
        request.push(&known[at].labels, sample);
    }
}

impl Round for Live<'_> {
    fn share(&self, take: &mut Take<'_>) -> Result<()> {
        let mut request = WriteRequest::default();
        while let Some(machine) = self.encoder.machines.get(self.n_taken.fetch_add(1, Ordering::Relaxed)) {
            self.encoder.machine(machine, self.number, &mut request, take)?;
        }
        if request.n_samples() > 0 { take(Request::of(&mut request)?) } else { Ok(()) }
    }
}

impl Round for Ahead {
    fn share(&self, take: &mut Take<'_>) -> Result<()> {
        while let Some(request) = self.requests.get(self.n_taken.fetch_add(1, Ordering::Relaxed)) {
            take(request.clone())?;
        }
        Ok(())
    }
}

impl Request {
    /// Takes what has gathered.
    fn of(gathered: &mut WriteRequest) -> Result<Self> {
        let n_samples = gathered.n_samples() as u64;
        Ok(Self { body: gathered.take_body()?.into(), n_samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::FleetOptions;

    /// Two threads may take machines in any order, so requests are compared by what they hold, not by their bytes.
    #[test]
    fn requests_made_ahead_hold_what_live_ones_hold_and_stay_within_their_bytes() {
        let fleet = Fleet::new(FleetOptions { active_series: 5_000, ..FleetOptions::default() });
        let encoder = Encoder::new(&fleet, Version::V1, 300);
        let sizes = |round: &dyn Round| {
            let mut sizes = Vec::new();
            round.share(&mut |request| {
                sizes.push((request.n_samples, request.body.len()));
                Ok(())
            })?;
            anyhow::Ok(sizes)
        };
        let live: Vec<_> = (0..4).map(|number| sizes(&encoder.round(number)).unwrap()).collect();
        let round_bytes = live[0].iter().map(|(_, len)| len).sum::<usize>();
        let mut rounds = 0..4;
        let first = encoder.ahead(&mut rounds, round_bytes + 1, 1).unwrap();
        assert_eq!((first.len(), rounds.clone()), (2, 2..4), "the second round begins within the bound");
        let rest = encoder.ahead(&mut rounds, usize::MAX, 1).unwrap();
        assert!(rounds.is_empty());
        let ahead: Vec<_> = first.iter().chain(&rest).map(|round| sizes(round).unwrap()).collect();
        assert_eq!(ahead, live);
        let shared = encoder.ahead(&mut (0..1), 1, 3).unwrap();
        let n_samples: u64 = sizes(&shared[0]).unwrap().iter().map(|(n, _)| n).sum();
        assert_eq!(n_samples, 5_000);
    }
}
