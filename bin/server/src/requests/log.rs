//! The active-request log: a file of fixed size with the activity of the process, to read after a
//! crash.
//!
//! The server records each request for data when its work begins, ten times a second, and when it
//! has ended. A write is not recorded when its work begins. A request that ends before it is
//! recorded leaves no record. The command `varve status last-words` reads the log. Its format is in
//! [`varve_wire::active_requests`].
//!
//! Invariants
//! 1. The file never grows: a request has one slot, which is reused after the request has ended.
//!    The slot of a successful write is reused first, then the slot that has been free for longest.
//!    A request that finds no free slot is not recorded, but counted.
//! 2. A slot is written with one call and has a checksum: a reader gets it whole or not at all.
//! 3. Nothing is synced: the log survives the process, not a power failure.
//!
//! Threads: any. One lock around a write of [`SIZE`] bytes. Crash: at most one slot is torn.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_wire::active_requests::{
    FILE, HEADER_SIZE, Header, PREVIOUS_FILE, Record, RequestState, SIZE, Version,
};

/// Maximum size of a text in a slot.
pub(crate) const TEXT_SIZE_MAX: usize = SIZE;
/// Slots of a file: twice the default of --web.max-connections.
const N_SLOTS: u32 = 1024;

/// The log of this process.
#[derive(Debug)]
pub(crate) struct ActiveRequestLog {
    file: File,
    header: Header,
    /// Free slots, the longest free first.
    free: Mutex<VecDeque<u32>>,
    /// Requests without a slot, and failed writes.
    n_dropped: AtomicU64,
}

/// The place of a request in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Place {
    /// The request has no slot yet.
    #[default]
    None,
    /// The number of its slot.
    Slot(u32),
    /// The request has ended.
    Ended,
}

impl ActiveRequestLog {
    /// Creates the log in a data directory that this process has locked. The log of the previous
    /// process is renamed.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(crate) fn create(dir: &Path, pid: u32, started_ms: i64) -> io::Result<Self> {
        let path = dir.join(FILE);
        match std::fs::rename(&path, dir.join(PREVIOUS_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _renamed_or_first => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        let header = Header {
            version: Version::default(),
            n_slots: N_SLOTS,
            pid,
            started_ms,
            is_clean_shutdown: false,
        };
        file.set_len(HEADER_SIZE as u64 + u64::from(N_SLOTS) * SIZE as u64)?;
        file.write_all_at(&header.encode(), 0)?;
        Ok(Self {
            file,
            header,
            free: Mutex::new((0..N_SLOTS).collect()),
            n_dropped: AtomicU64::new(0),
        })
    }

    /// Writes a record to the slot of a request, or to a free one. A record that comes after the
    /// end of its request is ignored.
    pub(crate) fn write(&self, place: &mut Place, record: &Record) {
        let mut free = self.free.lock();
        let slot = match *place {
            Place::None => free.pop_front(),
            Place::Slot(at) => Some(at),
            Place::Ended => return,
        };
        let Some(at) = slot else {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        *place = Place::Slot(at);
        let offset = HEADER_SIZE as u64 + u64::from(at) * SIZE as u64;
        self.write_at(&record.encode(), offset);
        if record.state.is_end() {
            *place = Place::Ended;
            // There are many writes, and they have no text. The slot of a successful one is reused
            // first, so that writes do not overwrite the records of queries.
            if record.state == RequestState::Completed && record.text.is_empty() {
                free.push_front(at);
            } else {
                free.push_back(at);
            }
        }
    }

    /// Records a clean shutdown.
    pub(crate) fn close(&self) {
        let header = Header {
            is_clean_shutdown: true,
            ..self.header
        };
        self.write_at(&header.encode(), 0);
    }

    /// Returns the number of records that found no slot or could not be written.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) {
        if self.file.write_all_at(bytes, offset).is_err() {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;
    use varve_wire::active_requests::read;

    fn record(id: u64, state: RequestState) -> Record {
        Record {
            id,
            state,
            text: format!("query {id}"),
            ..Record::default()
        }
    }

    fn log(dir: &TempDir) -> ActiveRequestLog {
        ActiveRequestLog::create(dir.path(), 7, 1_700_000_000_000).unwrap()
    }

    #[test]
    fn active_requests_are_read_back() {
        let dir = TempDir::new().unwrap();
        let first = log(&dir);
        let mut a = Place::None;
        let mut b = Place::None;
        first.write(&mut a, &record(1, RequestState::Working));
        first.write(&mut b, &record(2, RequestState::Waiting));
        first.write(
            &mut b,
            &Record {
                held_bytes: 5,
                ..record(2, RequestState::Working)
            },
        );
        first.write(&mut a, &record(1, RequestState::Completed));
        let found = read(&dir.path().join(FILE)).unwrap();
        let states: Vec<_> = found
            .records
            .iter()
            .map(|of| (of.id, of.state, of.held_bytes))
            .collect();
        assert_eq!(
            states,
            [
                (1, RequestState::Completed, 0),
                (2, RequestState::Working, 5)
            ]
        );
        assert_eq!(
            (found.pid, found.started_ms, found.is_clean_shutdown),
            (7, 1_700_000_000_000, false)
        );
        first.close();
        drop(log(&dir));
        let previous = read(&dir.path().join(PREVIOUS_FILE)).unwrap();
        assert!(previous.is_clean_shutdown && previous.records.len() == 2);
        assert!(read(&dir.path().join(FILE)).unwrap().records.is_empty());
    }

    #[test]
    fn writes_do_not_overwrite_queries() {
        let dir = TempDir::new().unwrap();
        let log = log(&dir);
        log.write(&mut Place::None, &record(1, RequestState::Completed));
        for id in 2..10 * u64::from(N_SLOTS) {
            log.write(
                &mut Place::None,
                &Record {
                    text: String::new(),
                    ..record(id, RequestState::Completed)
                },
            );
        }
        let found = read(&dir.path().join(FILE)).unwrap();
        assert_eq!((found.records.len(), found.records[0].id), (2, 1));
    }

    #[test]
    fn a_slot_is_reused_after_its_request_has_ended() {
        let dir = TempDir::new().unwrap();
        let log = log(&dir);
        let mut places = vec![Place::None; N_SLOTS as usize];
        for (id, place) in places.iter_mut().enumerate() {
            log.write(place, &record(id as u64 + 1, RequestState::Working));
        }
        let mut one_more = Place::None;
        log.write(&mut one_more, &record(5000, RequestState::Working));
        assert_eq!((one_more, log.n_dropped()), (Place::None, 1));
        let freed = places[3];
        log.write(&mut places[3], &record(4, RequestState::Failed));
        log.write(&mut one_more, &record(5000, RequestState::Working));
        assert_eq!((one_more, places[3]), (freed, Place::Ended));
        // A record after the end of its request does not overwrite it.
        log.write(&mut places[3], &record(4, RequestState::Working));
        let found = read(&dir.path().join(FILE)).unwrap();
        assert_eq!(found.records.len(), N_SLOTS as usize);
        assert!(
            found.records.iter().any(|of| of.id == 5000)
                && found.records.iter().all(|of| of.id != 4)
        );
    }
}
