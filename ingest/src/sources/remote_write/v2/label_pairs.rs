//! The labels of a decoded series or exemplar.

use varve_protobuf::{Key, Reader, Span, len_key, varint_key};

use crate::batch::Symbol;

/// Iterator over the label names and values of a decoded series or exemplar, in the order of the
/// message.
#[derive(Debug)]
pub(crate) struct LabelPairs<'a> {
    message: &'a [u8],
    symbols: &'a [Symbol],
    reader: Reader<'a>,
    /// The current packed field.
    packed: Reader<'a>,
}

impl<'a> LabelPairs<'a> {
    pub(crate) fn new(message: &'a [u8], symbols: &'a [Symbol], labels: Span) -> Self {
        Self {
            message,
            symbols,
            reader: Reader::over(message, labels),
            packed: Reader::new(b""),
        }
    }

    /// Returns the next string. Checked bytes have no errors. An error in unchecked bytes ends the
    /// iteration.
    fn next_string(&mut self) -> Option<&'a [u8]> {
        loop {
            if !self.packed.rest().is_empty() {
                let number = self.packed.varint().ok()? as u32;
                return self.string(number);
            }
            match self.reader.key().ok()?? {
                LABELS_REFS => self.packed = self.reader.message().ok()?,
                LABELS_REF => {
                    let number = self.reader.varint().ok()? as u32;
                    return self.string(number);
                }
                key => self.reader.skip_unknown(key, 0).ok()?,
            }
        }
    }

    fn string(&self, number: u32) -> Option<&'a [u8]> {
        Some(self.symbols.get(number as usize)?.text.slice(self.message))
    }
}

impl<'a> Iterator for LabelPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.next_string()?, self.next_string()?))
    }
}

/// Packed references.
pub(super) const LABELS_REFS: Key = len_key(1);
/// An unpacked reference.
pub(super) const LABELS_REF: Key = varint_key(1);
