//! The definitions of a log: series, metadata, and what its checkpoint has of exemplars.

use std::path::Path;

use varve_model::Labels;
use varve_model::metadata::Metadata;

use super::context::ReplayContext;
use super::locations::SeriesLocation;
use super::log::{LogReplay, file_size};
use super::series_loader::{CheckpointLoader, SegmentLoader};
use crate::batch::SeriesRef;
use crate::error::Result;
use crate::shard::shard_of;
use crate::wal::checkpoint::{self, Entry, Texts};
use crate::wal::record::{self, DefinedLabel};
use crate::wal::{Decompressor, SegmentKind, is_closed};

impl LogReplay {
    /// Loads the checkpoint, then the series segments.
    pub(super) fn load_definitions(&mut self, context: &ReplayContext<'_>) -> Result<()> {
        if let Some(number) = self.checkpoint {
            let path = self.path(SegmentKind::Checkpoint, number);
            let size = file_size(context.fs, &path)?;
            self.load_checkpoint(&path, number, context)?;
            self.count_read(size, context);
            context.progress.finish_file();
        }
        let mut loader = SegmentLoader::default();
        let mut decompressor = Decompressor::default();
        let numbers = std::mem::take(&mut self.series_segments);
        for &number in &numbers {
            let is_closed = is_closed(&numbers, number);
            self.replay_segment(
                SegmentKind::Series,
                number,
                is_closed,
                context,
                |log, frame| {
                    let Some((record, payload)) =
                        decompressor.decompress(frame.record, frame.payload)
                    else {
                        return Ok(None);
                    };
                    match record {
                        record::SERIES => log.load_series(payload, &mut loader, context),
                        record::METADATA => {
                            Ok(record::decode_metadata(payload, |family, metadata| {
                                set_metadata(context, family, metadata);
                            }))
                        }
                        _ => Ok(None),
                    }
                },
            )?;
        }
        self.locations.sort();
        self.stats.n_series += self.locations.len() as u64;
        Ok(())
    }

    fn load_checkpoint(
        &mut self,
        path: &Path,
        number: u64,
        context: &ReplayContext<'_>,
    ) -> Result<()> {
        let mut loader = CheckpointLoader::default();
        let mut texts = match self.only_shard {
            Some(shard) => Texts::OfHead(context.shards[shard].head_mut().take_strings()),
            None => Texts::default(),
        };
        let large = &context.large_frames;
        let loaded = checkpoint::load(context.fs, path, number, large, &mut texts, |entry| {
            self.load_entry(entry, &mut loader, context)
        });
        if let Some(shard) = self.only_shard
            && let Texts::OfHead(strings) = texts
        {
            context.shards[shard].head_mut().restore_strings(strings);
        }
        loaded
    }

    fn load_entry(
        &mut self,
        entry: Entry<'_>,
        loader: &mut CheckpointLoader,
        context: &ReplayContext<'_>,
    ) -> Result<()> {
        match entry {
            Entry::Series(series) => {
                let (shard, labels) = self.shard_of_series(|| series.labels(), context);
                let mut head = context.shards[shard].head_mut();
                let slot = match labels {
                    None => loader.load(&mut head, series)?,
                    Some(labels) => head.load_labels(&labels, series.series)?,
                };
                if series.last_ms != i64::MIN {
                    head.set_last(slot, series.last_ms);
                }
                drop(head);
                self.add_location(
                    series.series,
                    SeriesLocation {
                        shard: shard as u16,
                        slot,
                    },
                );
            }
            Entry::LostSeries => self.stats.n_lost_series += 1,
            Entry::Exemplars((labels, exemplars)) => {
                for (id, exemplar) in exemplars {
                    self.restore_exemplar(id, exemplar, context, || Some(labels.clone()));
                }
            }
            Entry::Metadata(family, metadata) => set_metadata(context, &family, metadata),
            Entry::NextRef(next_ref) => self.next_ref = self.next_ref.max(next_ref),
        }
        Ok(())
    }

    fn load_series(
        &mut self,
        payload: &[u8],
        loader: &mut SegmentLoader,
        context: &ReplayContext<'_>,
    ) -> Result<Option<()>> {
        let mut failed = Ok(());
        let decoded = record::decode_series(payload, |series, labels| {
            if failed.is_ok() {
                failed = self.define(series, labels, loader, context);
            }
        });
        failed.map(|()| decoded)
    }

    fn define(
        &mut self,
        series: SeriesRef,
        labels: &[DefinedLabel<'_>],
        loader: &mut SegmentLoader,
        context: &ReplayContext<'_>,
    ) -> Result<()> {
        let (shard, set) = self.shard_of_series(|| record::to_labels(labels), context);
        let mut head = context.shards[shard].head_mut();
        let slot = match set {
            None => loader.load(&mut head, series, labels)?,
            Some(set) => head.load_labels(&set, series)?,
        };
        drop(head);
        self.add_location(
            series,
            SeriesLocation {
                shard: shard as u16,
                slot,
            },
        );
        Ok(())
    }

    /// Returns the shard of a series, and its labels if they had to be decoded to find it.
    fn shard_of_series(
        &self,
        labels: impl FnOnce() -> Labels,
        context: &ReplayContext<'_>,
    ) -> (usize, Option<Labels>) {
        match self.only_shard {
            Some(only_shard) => (only_shard, None),
            None => {
                let labels = labels();
                (shard_of(&labels, context.shards.len()), Some(labels))
            }
        }
    }

    fn add_location(&mut self, series: SeriesRef, location: SeriesLocation) {
        self.reserve_ref(series);
        self.locations.push(series, location);
    }
}

fn set_metadata(context: &ReplayContext<'_>, family: &str, metadata: Metadata) {
    let mut all = context.metadata.lock();
    all.set(family, metadata);
}
