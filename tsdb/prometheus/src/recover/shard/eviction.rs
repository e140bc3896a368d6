//! Eviction of a series that Prometheus moved to a block.

use super::series_state::SeriesState;
use super::shard::Shard;
use crate::recover::input::HeadChunkList;

impl Shard {
    /// Drops everything: the series was moved to a block at this point of the WAL.
    pub(super) fn evict(&mut self, slot: u32, head: HeadChunkList<'_>) {
        self.n_evicted += self.n_samples_of(slot, head);
        let state = &mut self.states[slot as usize];
        state.open.clear(&mut self.open);
        *state = SeriesState::NEW;
        self.encoders.remove(&slot);
        self.out_of_order.remove(&slot);
    }

    /// Returns the number of samples of a series, including its head chunks that have not been
    /// reached yet.
    fn n_samples_of(&self, slot: u32, head: HeadChunkList<'_>) -> u64 {
        let state = &self.states[slot as usize];
        let mut n_samples = u64::from(state.open.n_samples());
        if let Some(encoder) = self.encoders.get(&slot) {
            n_samples += encoder.n_open();
        }
        if let Some(samples) = self.out_of_order.get(&slot) {
            n_samples += samples.len() as u64;
        }
        if state.has_head_chunks {
            for index in self.head[slot as usize].clone() {
                let chunk = &head.chunks[index as usize];
                if !chunk.is_out_of_order && chunk.max_ms >= head.min_valid_ms {
                    n_samples += u64::from(chunk.n_samples);
                }
            }
        }
        let mut scratch = Vec::new();
        let mut position = state.last;
        // A chunk that cannot be read back counts as unaccounted.
        while let Ok(Some((part, before))) = self.finished.get(position, &mut scratch) {
            n_samples += u64::from(part.chunk.n_samples);
            position = before;
        }
        n_samples
    }
}
