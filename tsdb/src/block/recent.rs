//! What was read of a block last, for whoever goes from series to series.
//!
//! Neighbouring series lie in one group, and those of a scrape target share timelines. So the map and the rows of the group
//! are looked up in the cache once, rows are found from those of the series before on, and a timeline is decoded once, not
//! once for each series. What is kept is charged to the request; where its budget refuses that, or too much would be kept,
//! each read stands for itself.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::directory::{Group, TimelinesRef};
use super::page::PageRef;
use super::reader::Block;
use super::rows::RowsPlace;
use super::timelines::{TimelineId, Timelines};
use super::timestamps::Line;
use crate::context::CHECK_INTERVAL;
use crate::error::Result;
use crate::memory::Charge;
use crate::sample::TimeRange;

/// Most bytes of pages that are kept: about a group.
pub(in crate::block) const PAGES_SIZE_MAX: usize = 4 << 20;
/// Listed timestamps that are kept before all are forgotten: those of a few hundred targets over two hours.
pub(in crate::block) const TIMES_MAX: usize = 128 << 10;
/// Timelines that are kept before all are forgotten: those of some thousand targets over a day.
pub(in crate::block) const TIMELINES_MAX: usize = 16 << 10;
/// What a timeline takes besides its timestamps, in a table that is at least half full.
pub(in crate::block) const TIMELINE_SIZE: usize = 2 * size_of::<(u32, KeptTimes)>();

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// What is kept; without, nothing is.
    charge: Option<Charge>,
    group: KeptGroup,
    /// The page that was asked for last, if it is not kept.
    passing: Option<KeptPage>,
    pages_size: usize,
    timelines: HashMap<u32, KeptTimes>,
    /// What is listed of timelines, one behind the other, at last of one that is not kept.
    times_ms: Vec<i64>,
    n_kept_times: usize,
    /// What may still be read before the request's context is looked at, in samples.
    unchecked_left: usize,
}

/// What reading a series takes besides its samples, in samples.
const SERIES_WORK: usize = 64;

#[derive(Debug, Default)]
struct KeptGroup {
    /// Its place among the groups of the block.
    idx: usize,
    /// None before the first.
    series: Range<u32>,
    /// By place in the group; the map comes first.
    pages: Vec<Option<KeptPage>>,
}

/// A page of the group that was gone to last.
#[derive(Debug)]
pub(in crate::block) struct KeptPage {
    pub(in crate::block) payload: Arc<[u8]>,
    /// Of a page of rows: those that were read last.
    pub(in crate::block) place: RowsPlace,
}

#[derive(Debug, Clone)]
enum KeptTimes {
    Line(Line),
    /// Places in the list.
    Listed(Range<usize>),
}

/// The timestamps of a timeline.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) enum Times<'a> {
    Line(Line),
    Listed(&'a [i64]),
}

impl Recent {
    /// Keeps what the budget allows.
    pub(crate) fn new(charge: Charge) -> Self {
        Self { charge: Some(charge), ..Self::default() }
    }

    /// Tells whether to look at the request's context before the next series is read: every [`CHECK_INTERVAL`] samples, and
    /// when pages had to be fetched. Whoever asks looks if so.
    #[inline]
    pub(crate) fn is_check_due(&mut self) -> bool {
        let is_due = self.unchecked_left == 0;
        if is_due {
            self.unchecked_left = CHECK_INTERVAL;
        }
        self.note_work(SERIES_WORK);
        is_due
    }

    /// Notes that so many samples were read.
    #[inline]
    pub(in crate::block) fn note_work(&mut self, n_samples: usize) {
        self.unchecked_left = self.unchecked_left.saturating_sub(n_samples);
    }

    /// Returns the group of a series of the block, and goes there.
    pub(in crate::block) fn group<'a>(&mut self, block: &'a Block, ordinal: u32) -> Group<'a> {
        // Fast path: the next series.
        if self.group.series.contains(&ordinal) {
            return block.groups.get(self.group.idx);
        }
        let idx = block.groups.idx_of(ordinal);
        let group = block.groups.get(idx);
        if let Some(charge) = &mut self.charge {
            charge.shrink(std::mem::take(&mut self.pages_size));
        }
        self.group.idx = idx;
        // A group has at most 256 series of fewer than 2^32.
        self.group.series = group.first..group.first + group.n_series as u32;
        self.group.pages.clear();
        group
    }

    /// Returns the map of the group that was gone to last.
    pub(in crate::block) fn map(&mut self, block: &Block, group: Group<'_>) -> Result<&mut KeptPage> {
        self.page(block, 0, group.map)
    }

    /// Returns the `i`-th page of rows of the group that was gone to last.
    pub(in crate::block) fn rows(&mut self, block: &Block, i: usize, page: PageRef) -> Result<&mut KeptPage> {
        self.page(block, i + 1, page)
    }

    fn page(&mut self, block: &Block, place: usize, page: PageRef) -> Result<&mut KeptPage> {
        let pages = &mut self.group.pages;
        if pages.get(place).is_none_or(Option::is_none) {
            let payload = block.pages.get(page)?;
            self.unchecked_left = 0;
            let size = payload.len();
            let page = KeptPage { payload, place: RowsPlace::default() };
            if self.pages_size + size > PAGES_SIZE_MAX || !hold(&mut self.charge, size) {
                return Ok(self.passing.insert(page));
            }
            if place >= pages.len() {
                pages.resize_with(place + 1, || None);
            }
            pages[place] = Some(page);
            self.pages_size += size;
        }
        Ok(pages[place].as_mut().expect("it was there or is now"))
    }

    /// Returns the timestamps of a timeline; `None` if there is no such timeline.
    pub(in crate::block) fn times(&mut self, block: &Block, id: TimelineId) -> Option<Result<Times<'_>>> {
        let kept = match self.timelines.get(&id.0) {
            Some(kept) => kept.clone(),
            None => {
                let (at, in_page) = block.timelines.find(id)?;
                match self.read_times(block, id, at, in_page) {
                    Ok(kept) => kept,
                    Err(refused) => return Some(Err(refused)),
                }
            }
        };
        Some(Ok(match kept {
            KeptTimes::Line(line) => Times::Line(line),
            KeptTimes::Listed(range) => Times::Listed(&self.times_ms[range]),
        }))
    }

    fn read_times(&mut self, block: &Block, id: TimelineId, at: TimelinesRef, in_page: usize) -> Result<KeptTimes> {
        self.times_ms.truncate(self.n_kept_times);
        if self.n_kept_times > TIMES_MAX || self.timelines.len() == TIMELINES_MAX {
            self.forget_times();
        }
        let payload = block.pages.get(at.page)?;
        self.unchecked_left = 0;
        let unreadable = |why| block.pages.unreadable(at.page, why);
        let timelines = Timelines::parse(&payload, at.n).map_err(unreadable)?;
        let kept = match timelines.line(in_page) {
            Some(line) => KeptTimes::Line(line),
            None => {
                timelines.decode(in_page, &mut self.times_ms).map_err(unreadable)?;
                KeptTimes::Listed(self.n_kept_times..self.times_ms.len())
            }
        };
        if hold(&mut self.charge, TIMELINE_SIZE + (self.times_ms.len() - self.n_kept_times) * size_of::<i64>()) {
            self.n_kept_times = self.times_ms.len();
            self.timelines.insert(id.0, kept.clone());
        }
        Ok(kept)
    }

    /// Returns how many timelines, listed timestamps and bytes of pages are kept.
    #[cfg(test)]
    pub(in crate::block) fn kept(&self) -> (usize, usize, usize) {
        (self.timelines.len(), self.n_kept_times, self.pages_size)
    }

    fn forget_times(&mut self) {
        if let Some(charge) = &mut self.charge {
            charge.shrink(self.timelines.len() * TIMELINE_SIZE + self.n_kept_times * size_of::<i64>());
        }
        self.n_kept_times = 0;
        self.times_ms.clear();
        self.timelines.clear();
    }
}

impl Times<'_> {
    /// Counts the timestamps.
    pub(in crate::block) fn len(self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Listed(times_ms) => times_ms.len(),
        }
    }

    /// Returns which of the timestamps lie in a range.
    pub(in crate::block) fn cut(self, range: TimeRange) -> Range<usize> {
        match self {
            // Fast path: all of them.
            _ if self.ends().is_some_and(|(start_ms, end_ms)| range.covers(TimeRange { start_ms, end_ms })) => {
                0..self.len()
            }
            Self::Line(line) => line.cut(range),
            Self::Listed(times_ms) => {
                let start = times_ms.partition_point(|&time_ms| time_ms < range.start_ms);
                start..start + times_ms[start..].partition_point(|&time_ms| time_ms <= range.end_ms)
            }
        }
    }

    /// Appends the timestamps at `wanted`.
    pub(in crate::block) fn append(self, wanted: Range<usize>, dst: &mut Vec<i64>) {
        match self {
            Self::Line(line) => line.append(wanted, dst),
            Self::Listed(times_ms) => dst.extend_from_slice(&times_ms[wanted]),
        }
    }

    fn ends(self) -> Option<(i64, i64)> {
        match self {
            Self::Line(line) => Some(line.ends()),
            Self::Listed(times_ms) => times_ms.first().copied().zip(times_ms.last().copied()),
        }
    }
}

fn hold(charge: &mut Option<Charge>, size: usize) -> bool {
    charge.as_mut().is_some_and(|charge| charge.grow_if_free(size))
}
