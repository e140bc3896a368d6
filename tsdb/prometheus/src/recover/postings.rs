//! The postings of a block: by label, which series have it. Made of the labels of the series, which are there anyway, some
//! pairs at a time, so that no second list of all of them is in memory.

use std::ops::Range;

use varve_tsdb::Result;

use super::in_order::in_order;
use super::order::{Order, Position};
use crate::block::PostingsWriter;

/// Bytes of postings that one thread makes at once; one pair may have more.
const SECTIONS_SIZE: usize = 4 << 20;
/// How many of these there are for each thread: one is made while one is written.
const SECTIONS_OF_WORKER: usize = 2;

/// Bytes that a thread needs in all.
pub(super) const MEMORY_OF_WORKER: usize = SECTIONS_OF_WORKER * SECTIONS_SIZE;

/// Postings of pairs that follow each other.
struct Sections {
    pairs: Range<usize>,
    /// By pair, where its section begins; at the end, where the last one ends.
    starts: Vec<usize>,
}

/// Writes the postings of `series`, which are in order and have these numbers in the index.
pub(super) fn write(
    order: &Order<'_>,
    series: &[Position],
    numbers: &[u32],
    writer: &mut PostingsWriter<'_>,
) -> Result<()> {
    debug_assert_eq!(series.len(), numbers.len());
    let counts = order.count(series);
    let sections = cut(&counts);
    let make = |some: usize| Ok((some, make(&sections[some], &counts, order, series, numbers)));
    let write = |(some, bytes): (usize, Vec<u8>)| write_some(&sections[some], &bytes, &counts, order, writer);
    in_order(sections.len(), SECTIONS_OF_WORKER * rayon::current_num_threads(), make, write)
}

fn write_some(
    of: &Sections,
    bytes: &[u8],
    counts: &[u32],
    order: &Order<'_>,
    writer: &mut PostingsWriter<'_>,
) -> Result<()> {
    let text = |text: u32| order.texts[text as usize];
    let each = of.pairs.clone().zip(of.starts.windows(2)).filter(|(pair, _)| counts[*pair] > 0).map(|(pair, at)| {
        let (name, value) = order.pairs[pair];
        ((text(name), text(value)), at[1] - at[0])
    });
    writer.add(bytes, each)
}

/// Cuts pairs into ranges of about [`SECTIONS_SIZE`] bytes.
fn cut(counts: &[u32]) -> Vec<Sections> {
    let (mut all, mut start, mut starts) = (Vec::new(), 0, vec![0]);
    for (pair, &n_series) in counts.iter().enumerate() {
        let at = starts.last().copied().unwrap_or(0);
        // A pair that no series of the block has has no section.
        starts.push(at + if n_series == 0 { 0 } else { PostingsWriter::section_size(n_series as usize) });
        if at >= SECTIONS_SIZE || pair + 1 == counts.len() {
            all.push(Sections { pairs: start..pair + 1, starts: std::mem::replace(&mut starts, vec![0]) });
            start = pair + 1;
        }
    }
    all
}

/// Makes sections: all series are looked at, and those that have one of the pairs stand there in order.
fn make(of: &Sections, counts: &[u32], order: &Order<'_>, series: &[Position], numbers: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; of.starts.last().copied().unwrap_or(0)];
    let mut next: Vec<usize> = of.starts.iter().map(|start| start + 8).collect();
    for (&series, number) in series.iter().zip(numbers) {
        let labels = order.labels(series);
        // Labels ascend. There are few of a series: to count is faster than to search.
        let n_before = |end: usize| labels.iter().filter(|&&pair| (pair as usize) < end).count();
        for &pair in &labels[n_before(of.pairs.start)..n_before(of.pairs.end)] {
            let pair = pair as usize;
            let at = &mut next[pair - of.pairs.start];
            bytes[*at..*at + size_of::<u32>()].copy_from_slice(&number.to_be_bytes());
            *at += size_of::<u32>();
        }
    }
    for (pair, at) in of.pairs.clone().zip(of.starts.windows(2)) {
        if counts[pair] > 0 {
            PostingsWriter::end_section(&mut bytes[at[0]..at[1]]);
        }
    }
    bytes
}
