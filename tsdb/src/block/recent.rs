//! What was read of a block last, for whoever goes from series to series.
//!
//! Neighbouring series lie in one group, and those of a scrape target share timelines. So the map and the rows of the group
//! are looked up in the cache once, and timestamps are decoded once, not once for each series. What is kept is charged to
//! the request; where its budget refuses that, or too much would be kept, each read stands for itself.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::directory::Group;
use super::page::PageRef;
use super::reader::Block;
use super::timelines::{TimelineId, Timelines};
use crate::error::Result;
use crate::memory::Charge;

/// Most bytes of pages that are kept: about a group.
const PAGES_SIZE_MAX: usize = 4 << 20;
/// Timestamps that are kept before all are forgotten: those of a few hundred targets over two hours.
const TIMES_MAX: usize = 128 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// What is kept; without, nothing is.
    charge: Option<Charge>,
    group: Option<KeptGroup>,
    pages_size: usize,
    /// Timelines one behind the other, at last one that is not kept.
    times_ms: Vec<i64>,
    n_kept_times: usize,
    timelines: HashMap<u32, Range<usize>>,
}

#[derive(Debug)]
struct KeptGroup {
    /// Its place among the groups of the block.
    idx: usize,
    series: Range<u32>,
    /// By place in the group; the map comes first.
    pages: Vec<Option<Arc<[u8]>>>,
}

impl Recent {
    /// Keeps what the budget allows.
    pub(crate) fn new(charge: Charge) -> Self {
        Self { charge: Some(charge), ..Self::default() }
    }

    /// Returns the group of a series of the block, and goes there.
    pub(in crate::block) fn group<'a>(&mut self, block: &'a Block, ordinal: u32) -> Group<'a> {
        // Fast path: the next series.
        if let Some(kept) = self.group.as_ref().filter(|kept| kept.series.contains(&ordinal)) {
            return block.groups.get(kept.idx);
        }
        let idx = block.groups.idx_of(ordinal);
        let group = block.groups.get(idx);
        if let Some(charge) = &mut self.charge {
            charge.shrink(std::mem::take(&mut self.pages_size));
        }
        let pages = self.group.take().map_or_else(Vec::new, |mut left| {
            left.pages.clear();
            left.pages
        });
        // A group has at most 256 series of fewer than 2^32.
        let series = group.first..group.first + group.n_series as u32;
        self.group = Some(KeptGroup { idx, series, pages });
        group
    }

    /// Returns the map of the group that was gone to last.
    pub(in crate::block) fn map(&mut self, block: &Block, group: Group<'_>) -> Result<Arc<[u8]>> {
        self.page(block, 0, group.map)
    }

    /// Returns the `i`-th page of rows of the group that was gone to last.
    pub(in crate::block) fn rows(&mut self, block: &Block, i: usize, page: PageRef) -> Result<Arc<[u8]>> {
        self.page(block, i + 1, page)
    }

    fn page(&mut self, block: &Block, place: usize, page: PageRef) -> Result<Arc<[u8]>> {
        let Some(KeptGroup { pages, .. }) = &mut self.group else { return block.pages.get(page) };
        if let Some(Some(kept)) = pages.get(place) {
            return Ok(Arc::clone(kept));
        }
        let payload = block.pages.get(page)?;
        let is_kept = self.pages_size + payload.len() <= PAGES_SIZE_MAX && hold(&mut self.charge, payload.len());
        if is_kept {
            if place >= pages.len() {
                pages.resize(place + 1, None);
            }
            pages[place] = Some(Arc::clone(&payload));
            self.pages_size += payload.len();
        }
        Ok(payload)
    }

    /// Returns the timestamps of a timeline; `None` if there is no such timeline.
    pub(in crate::block) fn times(&mut self, block: &Block, id: TimelineId) -> Option<Result<&[i64]>> {
        let range = match self.timelines.get(&id.0) {
            Some(range) => range.clone(),
            None => match self.decode_times(block, id)? {
                Ok(range) => range,
                Err(refused) => return Some(Err(refused)),
            },
        };
        Some(Ok(&self.times_ms[range]))
    }

    fn decode_times(&mut self, block: &Block, id: TimelineId) -> Option<Result<Range<usize>>> {
        let (at, in_page) = block.timelines.find(id)?;
        self.times_ms.truncate(self.n_kept_times);
        if self.n_kept_times > TIMES_MAX {
            if let Some(charge) = &mut self.charge {
                charge.shrink(self.n_kept_times * size_of::<i64>());
            }
            self.n_kept_times = 0;
            self.times_ms.clear();
            self.timelines.clear();
        }
        let payload = match block.pages.get(at.page) {
            Ok(payload) => payload,
            Err(refused) => return Some(Err(refused)),
        };
        let decoded = Timelines::parse(&payload, at.n).and_then(|of| of.decode(in_page, &mut self.times_ms));
        if let Err(why) = decoded {
            return Some(Err(block.pages.unreadable(at.page, why)));
        }
        let range = self.n_kept_times..self.times_ms.len();
        if hold(&mut self.charge, range.len() * size_of::<i64>()) {
            self.n_kept_times = range.end;
            self.timelines.insert(id.0, range.clone());
        }
        Some(Ok(range))
    }
}

fn hold(charge: &mut Option<Charge>, size: usize) -> bool {
    charge.as_mut().is_some_and(|charge| charge.grow(size).is_ok())
}
