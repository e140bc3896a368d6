//! Decodes series definitions: record type 1.

use super::items::{RecordError, SeriesDefinition, decode};

pub(super) fn decode_definitions<'a>(
    record: &'a [u8],
    dst: &mut Vec<SeriesDefinition<'a>>,
) -> Result<(), RecordError> {
    decode(record, |src| {
        let series = src.be_u64()?;
        let n_labels = src.n_items()?;
        let labels = *src;
        for _ in 0..n_labels {
            src.string()?;
            src.string()?;
        }
        dst.push(SeriesDefinition {
            series,
            labels,
            n_labels,
        });
        Some(())
    })
}

/// A label of a series definition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefinedLabel<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    /// The series before has the same label at the same position.
    pub(crate) is_same: bool,
}

/// Decodes a record of type 1 and calls `each` with ref and labels of each series.
///
/// Consecutive series have most labels in common. These are recognized by their bytes and not
/// decoded again.
pub(crate) fn for_each_definition<'a>(
    record: &'a [u8],
    mut each: impl FnMut(u64, &[DefinedLabel<'a>]),
) -> Result<(), RecordError> {
    // Bytes and strings of the labels of the series before.
    let mut encoded = Vec::<&[u8]>::new();
    let mut labels = Vec::<DefinedLabel<'_>>::new();
    decode(record, |src| {
        let series = src.be_u64()?;
        let n_labels = src.n_items()?;
        encoded.truncate(n_labels);
        labels.truncate(n_labels);
        for index in 0..n_labels {
            // Length prefixes make an equal prefix an equal label.
            if let Some(rest) = encoded
                .get(index)
                .and_then(|&before| src.rest.strip_prefix(before))
            {
                src.rest = rest;
                labels[index].is_same = true;
                continue;
            }
            let start = src.rest;
            let label = DefinedLabel {
                name: src.string()?,
                value: src.string()?,
                is_same: false,
            };
            let bytes = &start[..start.len() - src.len()];
            match labels.get_mut(index) {
                Some(before) => {
                    *before = label;
                    encoded[index] = bytes;
                }
                None => {
                    labels.push(label);
                    encoded.push(bytes);
                }
            }
        }
        each(series, &labels);
        Some(())
    })
}
