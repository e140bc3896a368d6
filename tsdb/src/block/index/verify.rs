//! Verification of a whole index.

use std::ops::ControlFlow;

use varve_context::{CHECK_INTERVAL, QueryContext};

use super::postings::Part;
use super::reader::Index;
use crate::block::page::Access;
use crate::block::symbol::Symbol;
use crate::error::Result;

impl Index {
    /// Reads the index without the cache. Checks that it decodes, and that series table and
    /// postings agree.
    ///
    /// # Errors
    /// The errors of [`Index::open`]; if the request is interrupted.
    pub(crate) fn verify(&self, ctx: &QueryContext) -> Result<()> {
        let mut symbols = self.symbol_cursor();
        for i in 0.. {
            ctx.check_every(CHECK_INTERVAL, i)?;
            if symbols.next()?.is_none() {
                break;
            }
        }
        let in_series = self.sum_series(ctx)?;
        let (in_postings, symbols_seen) = self.sum_postings(ctx)?;
        if in_series != in_postings
            || symbols_seen != u64::from(self.dictionary.len() - self.n_unused)
        {
            return Err(self
                .postings
                .pages()
                .corrupt(0, "series and postings of the index disagree"));
        }
        Ok(())
    }

    fn sum_series(&self, ctx: &QueryContext) -> Result<Pairs> {
        let mut series = self.series_cursor(Access::Scan);
        let mut pairs = Pairs::default();
        for ordinal in 0..self.n_series {
            ctx.check_every(CHECK_INTERVAL, ordinal as usize)?;
            series.seek(ordinal)?;
            for &symbol in series.symbols() {
                pairs.add(symbol, ordinal);
            }
        }
        Ok(pairs)
    }

    /// Returns the pairs of the postings, and the number of used symbols.
    fn sum_postings(&self, ctx: &QueryContext) -> Result<(Pairs, u64)> {
        let mut n_used = 0;
        let mut postings = self.postings_cursor(Access::Scan);
        let mut pairs = Pairs::default();
        for symbol in (0..self.dictionary.len()).map(Symbol) {
            ctx.check_every(CHECK_INTERVAL, symbol.0 as usize)?;
            let n_before = pairs.n;
            postings.visit(symbol, |part| {
                match part {
                    Part::Run(run) => run.for_each(|ordinal| pairs.add(symbol, ordinal)),
                    Part::Set(set) => set.iter().for_each(|ordinal| pairs.add(symbol, ordinal)),
                }
                ControlFlow::Continue(())
            })?;
            n_used += u64::from(pairs.n > n_before);
        }
        Ok((pairs, n_used))
    }
}

/// A hash of a set of pairs of symbols and series, independent of their order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pairs {
    n: u64,
    sum: u64,
}

impl Pairs {
    fn add(&mut self, symbol: Symbol, ordinal: u32) {
        self.n += 1;
        self.sum = self
            .sum
            .wrapping_add(mixed(u64::from(symbol.0) << 32 | u64::from(ordinal)));
    }
}

/// The finalizer of SplitMix64.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
