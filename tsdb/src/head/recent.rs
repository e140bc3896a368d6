//! The label set that was looked up last, with its symbols.
//!
//! Senders write the series of a target one after the other: most labels of a series are those of the one before, which
//! need not be looked up again.

use std::collections::BTreeSet;

use crate::index::{SymbolId, Symbols};
use crate::labels::Labels;

/// A label set and its symbols, in order of names.
#[derive(Debug, Default)]
pub(super) struct Recent {
    labels: Labels,
    pub(super) names: Vec<SymbolId>,
    pub(super) values: Vec<SymbolId>,
    /// Those of the set before.
    before: (Vec<SymbolId>, Vec<SymbolId>),
}

impl Recent {
    /// Numbers the texts of a label set, without counting uses; `None` if numbers are used up.
    pub(super) fn number(&mut self, labels: &Labels, symbols: &mut Symbols) -> Option<()> {
        std::mem::swap(&mut self.names, &mut self.before.0);
        std::mem::swap(&mut self.values, &mut self.before.1);
        self.names.clear();
        self.values.clear();
        let before = std::mem::replace(&mut self.labels, labels.clone());
        let mut before = before.iter().zip(self.before.0.iter().zip(&self.before.1)).peekable();
        for (name, value) in labels {
            while before.next_if(|((other, _), _)| *other < name).is_some() {}
            match before.next_if(|((other, _), _)| *other == name) {
                Some(((_, same), (&name, &symbol))) if same == value => {
                    self.names.push(name);
                    self.values.push(symbol);
                }
                Some((_, (&name, _))) => {
                    self.names.push(name);
                    self.values.push(symbols.number(value)?);
                }
                None => {
                    self.names.push(symbols.number(name)?);
                    self.values.push(symbols.number(value)?);
                }
            }
        }
        Some(())
    }

    /// Returns all symbols of the set, each once.
    pub(super) fn into_symbols(self) -> impl Iterator<Item = SymbolId> {
        self.names.into_iter().chain(self.values).collect::<BTreeSet<_>>().into_iter()
    }
}
