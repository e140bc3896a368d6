//! Appending to the head: which samples are taken.

use super::series::{Head, SeriesRef};
use crate::batch::{Append, RejectReason};
use crate::sample::{Sample, TimeRange};

/// What bounds the times of new samples, fixed once a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Older samples are out of bounds.
    pub(crate) oldest_ms: i64,
    /// Newer samples are too far in the future.
    pub(crate) newest_ms: i64,
}

/// What became of a sample that was not rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is new.
    New(SeriesRef),
    /// The same sample was there.
    Repeated,
}

impl Head {
    /// Appends a sample unless Prometheus would refuse it (`tsdb/head_append.go`): it must lie within the bounds and be
    /// newer than the series' newest sample. Unlike there, a sample that the series has already, bit for bit, is welcome
    /// however old it is: the sender repeats it because it did not hear that we have it.
    #[inline]
    pub(crate) fn append(&mut self, bounds: Bounds, append: &Append) -> Result<Appended, RejectReason> {
        let slot = append.slot as usize;
        if self.generations.get(slot) != Some(&append.generation) {
            return Err(RejectReason::Moved);
        }
        let Sample { timestamp_ms, value } = append.sample;
        if timestamp_ms > bounds.newest_ms {
            return Err(RejectReason::TooFarInFuture);
        }
        let refused = match self.open[slot].last() {
            Some(last) if timestamp_ms == last.timestamp_ms => {
                let same = last.value.to_bits() == value.to_bits();
                return if same { Ok(Appended::Repeated) } else { Err(RejectReason::Duplicate) };
            }
            _ if timestamp_ms < bounds.oldest_ms => Some(RejectReason::OutOfBounds),
            Some(last) if timestamp_ms < last.timestamp_ms => Some(RejectReason::OutOfOrder),
            _ => None,
        };
        if let Some(reason) = refused {
            let same = self.view(append.slot).value_at(timestamp_ms).is_some_and(|v| v.to_bits() == value.to_bits());
            return if same { Ok(Appended::Repeated) } else { Err(reason) };
        }
        self.push(append.slot, append.sample);
        Ok(Appended::New(self.refs[slot]))
    }

    /// Appends a sample of the log; older ones than the series has, or as old, are left out.
    pub(crate) fn replay(&mut self, slot: u32, sample: Sample) -> bool {
        let newer = self.open[slot as usize].last().is_none_or(|last| last.timestamp_ms < sample.timestamp_ms);
        if newer {
            self.push(slot, sample);
        }
        newer
    }

    #[inline]
    fn push(&mut self, slot: u32, sample: Sample) {
        let open = &mut self.open[slot as usize];
        self.chunks_size += open.append(sample);
        let at = sample.timestamp_ms;
        let range = self.range.get_or_insert(TimeRange { start_ms: at, end_ms: at });
        *range = TimeRange { start_ms: range.start_ms.min(at), end_ms: range.end_ms.max(at) };
        if open.is_full() {
            self.close_chunk(slot);
        }
    }

    fn close_chunk(&mut self, slot: u32) {
        let (open, closed) = (&mut self.open[slot as usize], &mut self.closed[slot as usize]);
        let (open_size, capacity) = (open.capacity(), closed.capacity());
        if let Some(chunk) = open.close() {
            self.chunks_size += chunk.size();
            closed.push(chunk);
        }
        self.chunks_size += (closed.capacity() - capacity) * size_of::<crate::chunk::Chunk>();
        self.chunks_size -= open_size;
    }
}
