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

impl Sections {
    /// Iterates over the pairs and the ranges of their sections.
    fn iter(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let ranges = self.starts.windows(2).map(|pair| pair[0]..pair[1]);
        self.pairs.clone().zip(ranges)
    }
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
    produce_in_order(
        sections.len(),
        SECTIONS_PER_WORKER * rayon::current_num_threads(),
        |idx| {
            let sections = &sections[idx];
            Ok((sections, make(sections, &counts, order, series, numbers)))
        },
        |(sections, bytes)| write_sections(sections, &bytes, &counts, order, writer),
    )
}

fn write_sections(
    sections: &Sections,
    bytes: &[u8],
    counts: &[u32],
    order: &LabelOrder<'_>,
    writer: &mut PostingsWriter<'_>,
) -> Result<()> {
    let each = sections
        .iter()
        .filter(|(pair, _)| counts[*pair] > 0)
        .map(|(pair, range)| {
            let (name, value) = order.pairs[pair];
            let name = order.strings[name as usize];
            let value = order.strings[value as usize];
            ((name, value), range.len())
        });
    writer.add(bytes, each)
}

/// Cuts pairs into ranges of about [`SECTIONS_SIZE`] bytes.
fn cut(counts: &[u32]) -> Vec<Sections> {
    let mut all = Vec::new();
    let mut start = 0;
    let mut starts = vec![0];
    for (pair, &n_series) in counts.iter().enumerate() {
        let section_start = starts.last().copied().unwrap_or(0);
        // A pair without series has no section.
        let section_size = if n_series == 0 {
            0
        } else {
            PostingsWriter::section_size(n_series as usize)
        };
        starts.push(section_start + section_size);
        if section_start >= SECTIONS_SIZE || pair + 1 == counts.len() {
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
            let offset = &mut next[pair - sections.pairs.start];
            bytes[*offset..*offset + size_of::<u32>()].copy_from_slice(&number.to_be_bytes());
            *offset += size_of::<u32>();
        }
    }
    for (pair, range) in sections.iter() {
        if counts[pair] > 0 {
            PostingsWriter::end_section(&mut bytes[range]);
        }
    }
    bytes
}
