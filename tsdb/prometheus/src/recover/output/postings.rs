//! Writes the postings of a block. They are built from the labels of the series, a range of label
//! pairs at a time, so that no second list of all labels is in memory.

use std::ops::Range;

use varve_tsdb::Result;

use super::pipeline::produce_in_order;
use crate::block::PostingsWriter;
use crate::recover::series::label_order::{LabelOrder, Position};

/// Size of postings that one thread builds at once. A single pair may have more.
const SECTIONS_SIZE: usize = 4 << 20;
/// Buffers per thread: one is built while another is written.
const SECTIONS_PER_WORKER: usize = 2;

/// Memory per thread, in bytes.
pub(crate) const MEMORY_PER_WORKER: usize = SECTIONS_PER_WORKER * SECTIONS_SIZE;

/// Postings of a range of pairs.
struct Sections {
    pairs: Range<usize>,
    /// The start of the section of each pair, and the end of the last section.
    starts: Vec<usize>,
}

/// Writes the postings of `series`, in order, which have these `numbers` in the index.
pub(crate) fn write(
    order: &LabelOrder<'_>,
    series: &[Position],
    numbers: &[u32],
    writer: &mut PostingsWriter<'_>,
) -> Result<()> {
    debug_assert_eq!(series.len(), numbers.len());
    let counts = order.count(series);
    let sections = cut(&counts);
    let make = |some: usize| Ok((some, make(&sections[some], &counts, order, series, numbers)));
    let write = |(some, bytes): (usize, Vec<u8>)| {
        write_some(&sections[some], &bytes, &counts, order, writer)
    };
    produce_in_order(
        sections.len(),
        SECTIONS_PER_WORKER * rayon::current_num_threads(),
        make,
        write,
    )
}

fn write_some(
    sections: &Sections,
    bytes: &[u8],
    counts: &[u32],
    order: &LabelOrder<'_>,
    writer: &mut PostingsWriter<'_>,
) -> Result<()> {
    let text = |text: u32| order.strings[text as usize];
    let each = sections
        .pairs
        .clone()
        .zip(sections.starts.windows(2))
        .filter(|(pair, _)| counts[*pair] > 0)
        .map(|(pair, at)| {
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
        // A pair without series has no section.
        starts.push(
            at + if n_series == 0 {
                0
            } else {
                PostingsWriter::section_size(n_series as usize)
            },
        );
        if at >= SECTIONS_SIZE || pair + 1 == counts.len() {
            all.push(Sections {
                pairs: start..pair + 1,
                starts: std::mem::replace(&mut starts, vec![0]),
            });
            start = pair + 1;
        }
    }
    all
}

/// Builds sections by scanning all series for the pairs of the range.
fn make(
    sections: &Sections,
    counts: &[u32],
    order: &LabelOrder<'_>,
    series: &[Position],
    numbers: &[u32],
) -> Vec<u8> {
    let mut bytes = vec![0; sections.starts.last().copied().unwrap_or(0)];
    let mut next: Vec<usize> = sections.starts.iter().map(|start| start + 8).collect();
    for (&series, number) in series.iter().zip(numbers) {
        let labels = order.labels(series);
        // A series has few labels: counting is faster than a search.
        let n_before = |end: usize| labels.iter().filter(|&&pair| (pair as usize) < end).count();
        for &pair in &labels[n_before(sections.pairs.start)..n_before(sections.pairs.end)] {
            let pair = pair as usize;
            let at = &mut next[pair - sections.pairs.start];
            bytes[*at..*at + size_of::<u32>()].copy_from_slice(&number.to_be_bytes());
            *at += size_of::<u32>();
        }
    }
    for (pair, at) in sections.pairs.clone().zip(sections.starts.windows(2)) {
        if counts[pair] > 0 {
            PostingsWriter::end_section(&mut bytes[at[0]..at[1]]);
        }
    }
    bytes
}
