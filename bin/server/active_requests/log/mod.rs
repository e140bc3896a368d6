//! The request ring: a file of fixed size that tells what the process was doing when it died.
//!
//! Used by `http`, which notes each request for data when its work begins, a few times a second while it goes on, and when it
//! has ended; read by `varve status last-words`. Format: docs/format/requests.md, version 1.
//!
//! Invariants
//! 1. The file never grows: a request has one slot, and a slot is used again when its request has ended, the one that has
//!    been unused for longest first, and that of a write that went well before all others. With no slot left a request is not noted, and counted.
//! 2. A slot is written with one call and has a checksum: a reader takes it whole or not at all.
//! 3. Nothing waits for the disk to keep it: it outlives the process, and not a power cut.
//!
//! Threads: any; one lock around a write of [`slot::SIZE`] bytes. Crash: at most one slot is torn.

mod read;
mod slot;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use read::{RingFile, read};
pub(crate) use slot::{Record, State};

/// The ring of the running process, or of the one that ran last.
pub(crate) const FILE: &str = "requests.ring";
/// The ring of the process before.
pub(crate) const FILE_BEFORE: &str = "requests.previous.ring";
/// Bytes of a text beyond which there is no room for it in a slot.
pub(crate) const TEXT_SIZE_MAX: usize = slot::SIZE;
/// Slots of a file: twice as many as there are connections by default.
const N_SLOTS: u32 = 1024;

/// The ring of this process.
#[derive(Debug)]
pub(crate) struct Ring {
    file: File,
    header: slot::Header,
    slots: Mutex<Slots>,
    n_unnoted: AtomicU64,
    n_failed: AtomicU64,
}

/// Who has which slot.
#[derive(Debug)]
struct Slots {
    /// The number of the request in a slot; 0 if it has ended.
    owners: Vec<u64>,
    /// Slots that are not in use, the one that has been so for longest first.
    unused: VecDeque<u32>,
}

impl Ring {
    /// Starts a ring in a data directory that this process has the lock of; the ring of the process before is kept beside it.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub(crate) fn start(dir: &Path, pid: u32, started_ms: i64) -> io::Result<Self> {
        let path = dir.join(FILE);
        match std::fs::rename(&path, dir.join(FILE_BEFORE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _renamed_or_first => {}
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let header = slot::Header { n_slots: N_SLOTS, pid, started_ms, ended_in_order: false };
        file.set_len(slot::HEADER_SIZE as u64 + u64::from(N_SLOTS) * slot::SIZE as u64)?;
        file.write_all_at(&header.encode(), 0)?;
        let slots = Slots { owners: vec![0; N_SLOTS as usize], unused: (0..N_SLOTS).collect() };
        Ok(Self { file, header, slots: Mutex::new(slots), n_unnoted: AtomicU64::new(0), n_failed: AtomicU64::new(0) })
    }

    /// Notes where a request stands, in its slot, or in a new one. One whose end has been noted is not noted again.
    pub(crate) fn note(&self, place: &mut Option<u32>, record: &Record) {
        let mut slots = self.slots();
        let at = match *place {
            Some(at) if slots.owners[at as usize] != record.id => return,
            Some(at) => at,
            None => match slots.unused.pop_front() {
                Some(at) => at,
                None => {
                    self.n_unnoted.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            },
        };
        *place = Some(at);
        slots.owners[at as usize] = record.id;
        let offset = slot::HEADER_SIZE as u64 + u64::from(at) * slot::SIZE as u64;
        if self.file.write_all_at(&record.encode(), offset).is_err() {
            // The next note may succeed; without a ring everything else goes on.
            self.n_failed.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(record.state, State::Answered | State::Failed) {
            slots.owners[at as usize] = 0;
            // Writes come by the thousand and ask nothing: one that went well gives its slot to the next, so that they do
            // not push out what is known of queries.
            if record.state == State::Answered && record.text.is_empty() {
                slots.unused.push_front(at);
            } else {
                slots.unused.push_back(at);
            }
        }
    }

    /// Notes that the process ends in order.
    pub(crate) fn close(&self) {
        let header = slot::Header { ended_in_order: true, ..self.header };
        if self.file.write_all_at(&header.encode(), 0).is_err() {
            self.n_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the requests that found no slot, and the writes that failed.
    pub(crate) fn n_lost(&self) -> u64 {
        self.n_unnoted.load(Ordering::Relaxed) + self.n_failed.load(Ordering::Relaxed)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the rings of a data directory, the newest first.
pub(crate) fn files(dir: &Path) -> [PathBuf; 2] {
    [dir.join(FILE), dir.join(FILE_BEFORE)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn record(id: u64, state: State) -> Record {
        Record { id, state, text: format!("query {id}"), ..Record::default() }
    }

    fn ring(dir: &TempDir) -> Ring {
        Ring::start(dir.path(), 7, 1_700_000_000_000).unwrap()
    }

    #[test]
    fn what_was_at_work_is_read_back() {
        let dir = TempDir::new().unwrap();
        let first = ring(&dir);
        let (mut a, mut b) = (None, None);
        first.note(&mut a, &record(1, State::Working));
        first.note(&mut b, &record(2, State::Waiting));
        first.note(&mut b, &Record { held_bytes: 5, ..record(2, State::Working) });
        first.note(&mut a, &record(1, State::Answered));
        let found = read(&dir.path().join(FILE)).unwrap();
        let states: Vec<_> = found.records.iter().map(|of| (of.id, of.state, of.held_bytes)).collect();
        assert_eq!(states, [(1, State::Answered, 0), (2, State::Working, 5)]);
        assert_eq!((found.pid, found.started_ms, found.ended_in_order), (7, 1_700_000_000_000, false));
        first.close();
        drop(ring(&dir));
        let before = read(&dir.path().join(FILE_BEFORE)).unwrap();
        assert!(before.ended_in_order && before.records.len() == 2);
        assert!(read(&dir.path().join(FILE)).unwrap().records.is_empty());
    }

    #[test]
    fn writes_do_not_push_out_queries() {
        let dir = TempDir::new().unwrap();
        let ring = ring(&dir);
        ring.note(&mut None, &record(1, State::Answered));
        for id in 2..10 * u64::from(N_SLOTS) {
            ring.note(&mut None, &Record { text: String::new(), ..record(id, State::Answered) });
        }
        let found = read(&dir.path().join(FILE)).unwrap();
        assert_eq!((found.records.len(), found.records[0].id), (2, 1));
    }

    #[test]
    fn a_slot_serves_the_next_request_when_its_own_has_ended() {
        let dir = TempDir::new().unwrap();
        let ring = ring(&dir);
        let mut places = vec![None; N_SLOTS as usize];
        for (id, place) in places.iter_mut().enumerate() {
            ring.note(place, &record(id as u64 + 1, State::Working));
        }
        let mut one_more = None;
        ring.note(&mut one_more, &record(5000, State::Working));
        assert_eq!((one_more, ring.n_lost()), (None, 1));
        ring.note(&mut places[3], &record(4, State::Failed));
        ring.note(&mut one_more, &record(5000, State::Working));
        assert_eq!(one_more, places[3]);
        // A note that comes too late does not overwrite it.
        ring.note(&mut places[3], &record(4, State::Working));
        let found = read(&dir.path().join(FILE)).unwrap();
        assert_eq!(found.records.len(), N_SLOTS as usize);
        assert!(found.records.iter().any(|of| of.id == 5000) && found.records.iter().all(|of| of.id != 4));
    }
}
