//! The last label set that was looked up, with its symbols.
//!
//! Senders write the series of a target consecutively. So a series shares most labels with the
//! previous series, and these labels need no second look-up.

use std::collections::BTreeSet;

use varve_model::Labels;

use crate::index::{SymbolId, Symbols};

/// A label set and its symbols, in order of names.
#[derive(Debug, Default)]
pub(in crate::head) struct LastLabels {
    labels: Labels,
    pub(in crate::head) names: Vec<SymbolId>,
    pub(in crate::head) values: Vec<SymbolId>,
    /// The symbols of the previous set.
    before: (Vec<SymbolId>, Vec<SymbolId>),
}

impl LastLabels {
    /// Finds or adds the symbols of a label set without counting uses. Returns `None` if no symbols
    /// are left.
    pub(in crate::head) fn resolve(
        &mut self,
        labels: &Labels,
        symbols: &mut Symbols,
    ) -> Option<()> {
        std::mem::swap(&mut self.names, &mut self.before.0);
        std::mem::swap(&mut self.values, &mut self.before.1);
        self.names.clear();
        self.values.clear();
        let before = std::mem::replace(&mut self.labels, labels.clone());
        let mut before = before
            .iter()
            .zip(self.before.0.iter().zip(&self.before.1))
            .peekable();
        for (name, value) in labels {
            while before.next_if(|((other, _), _)| *other < name).is_some() {}
            match before.next_if(|((other, _), _)| *other == name) {
                Some(((_, same), (&name, &symbol))) if same == value => {
                    self.names.push(name);
                    self.values.push(symbol);
                }
                Some((_, (&name, _))) => {
                    self.names.push(name);
                    self.values.push(symbols.find_or_add(value)?);
                }
                None => {
                    self.names.push(symbols.find_or_add(name)?);
                    self.values.push(symbols.find_or_add(value)?);
                }
            }
        }
        Some(())
    }

    /// Returns all symbols of the set, each once.
    pub(in crate::head) fn into_symbols(self) -> impl Iterator<Item = SymbolId> {
        self.names
            .into_iter()
            .chain(self.values)
            .collect::<BTreeSet<_>>()
            .into_iter()
    }
}
