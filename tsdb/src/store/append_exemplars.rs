//! Appending the exemplars of a batch.

use varve_model::Exemplar;

use crate::batch::{AppendExemplar, RejectExemplar, RejectedExemplar, SeriesHandle, WriteBatch};
use crate::head::SlotRef;
use crate::shard::SharedLog;
use crate::shard::exemplars::ring::Ring;
use crate::store::store::Store;
use crate::wal::Position;

impl Store {
    /// Appends the exemplars of a batch to the ring and to the buffers of the logs. Returns the log
    /// positions that the caller must commit.
    pub(crate) fn append_exemplars(
        &self,
        batch: &mut WriteBatch,
        future_max_ms: i64,
    ) -> Vec<(&SharedLog, Position)> {
        let WriteBatch {
            exemplars,
            rejected_exemplars,
            ..
        } = batch;
        // Fast path: a request without exemplars.
        if exemplars.is_empty() {
            return Vec::new();
        }
        let mut ring = self.exemplars.ring.lock();
        let mut affected = vec![false; self.logs.len()];
        for AppendExemplar {
            series,
            tag,
            exemplar,
        } in exemplars.iter()
        {
            affected[usize::from(series.shard) % self.logs.len()] = true;
            if let Err(reason) = self.append_exemplar(&mut ring, *series, exemplar, future_max_ms) {
                rejected_exemplars.push(RejectedExemplar {
                    tag: *tag,
                    exemplar: exemplar.clone(),
                    reason,
                });
            }
        }
        // Includes the logs of repeated exemplars: their first append may not be committed yet.
        let logs = self
            .logs
            .iter()
            .zip(affected)
            .filter(|(_, is_affected)| *is_affected);
        logs.map(|(shared_log, _)| (&**shared_log, shared_log.log().end()))
            .collect()
    }

    fn append_exemplar(
        &self,
        ring: &mut Ring,
        series: SeriesHandle,
        exemplar: &Exemplar,
        future_max_ms: i64,
    ) -> Result<(), RejectExemplar> {
        if self.options.exemplars_max == 0 {
            return Err(RejectExemplar::Disabled);
        }
        if exemplar.timestamp_ms > future_max_ms {
            return Err(RejectExemplar::OutOfBounds);
        }
        let shard = &self.shards[usize::from(series.shard)];
        // Holds the lock until the record is in the log: the series must not be evicted before a
        // checkpoint can contain the exemplar.
        let head = shard.head();
        let slot_ref = SlotRef {
            slot: series.slot,
            generation: series.generation,
        };
        let known = head
            .is_current(slot_ref)
            .then(|| head.series_ref(slot_ref.slot))
            .flatten();
        let Some(series_ref) = known else {
            return Err(RejectExemplar::Moved);
        };
        if let Some(id) = ring.append(
            head.labels(slot_ref.slot),
            exemplar,
            self.options.out_of_order_window_ms,
        )? {
            shard.log().append_exemplar(id, series_ref, exemplar);
        }
        Ok(())
    }
}
