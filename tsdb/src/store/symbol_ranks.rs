//! Ranks of label names and values: positions among the strings of all shards. Equal strings have equal ranks, so label
//! sets of any shards can be compared as numbers.
//!
//! Strings are sorted by their first bytes. Those that have these in common are copied and sorted in groups.
//!
//! Threads: heads are locked for a few thousand strings at a time. Series must not be evicted meanwhile: a symbol could
//! get another string. Memory: 20 bytes per string, and the strings of the largest group.

use crate::index::SymbolId;
use crate::shard::Shard;

/// Ranks by shard and symbol.
pub(super) struct SymbolRanks(Vec<Vec<u32>>);

/// The rank of a symbol that was added later.
const UNRANKED: u32 = u32::MAX;
/// Number of strings that are copied per acquisition of a head's lock.
const BATCH_STRINGS: usize = 1024;

/// A string of a head.
#[derive(Clone, Copy)]
struct Symbol {
    /// The first bytes of the string.
    prefix: u64,
    id: SymbolId,
    shard: u32,
}

impl SymbolRanks {
    /// Ranks the strings of all shards.
    pub(super) fn new(shards: &[Shard]) -> Self {
        let (mut symbols, mut ranks) = (Vec::new(), Vec::new());
        for (number, shard) in (0..).zip(shards) {
            let mut end = 0;
            for step in 0.. {
                let head = shard.head();
                let Some(strings) = head.symbols_of_step(step) else { break };
                for (id, text) in strings {
                    end = id.0 as usize + 1;
                    symbols.push(Symbol { prefix: prefix(text.as_bytes()), id, shard: number });
                }
            }
            ranks.push(vec![UNRANKED; end]);
        }
        symbols.sort_unstable_by_key(|symbol| (symbol.prefix, symbol.shard));
        let mut ranks = Self(ranks);
        let mut next = 0;
        for group in symbols.chunk_by(|a, b| a.prefix == b.prefix) {
            next = ranks.add_group(shards, group, next);
        }
        ranks
    }

    /// Ranks symbols with the same first bytes, from `next` on. Returns the rank after theirs.
    fn add_group(&mut self, shards: &[Shard], group: &[Symbol], mut next: u32) -> u32 {
        // Fast path: only one shard has the string.
        if let [symbol] = group {
            self.set(symbol, next);
            return next + 1;
        }
        let mut texts: Vec<(Box<str>, &Symbol)> = Vec::with_capacity(group.len());
        for symbols in group.chunk_by(|a, b| a.shard == b.shard).flat_map(|of_shard| of_shard.chunks(BATCH_STRINGS)) {
            let head = shards[symbols[0].shard as usize].head();
            texts.extend(symbols.iter().map(|symbol| (head.symbol(symbol.id).into(), symbol)));
        }
        let first = &*texts[0].0;
        let n_common = texts.iter().map(|(text, _)| common_len(first, text)).min().unwrap_or(0);
        let mut texts: Vec<_> =
            texts.iter().map(|(text, symbol)| (prefix(&text.as_bytes()[n_common..]), &**text, *symbol)).collect();
        texts.sort_unstable_by(|(a, text_a, _), (b, text_b, _)| a.cmp(b).then_with(|| text_a.cmp(text_b)));
        for equal in texts.chunk_by(|(_, a, _), (_, b, _)| a == b) {
            equal.iter().for_each(|(_, _, symbol)| self.set(symbol, next));
            next += 1;
        }
        next
    }

    fn set(&mut self, symbol: &Symbol, rank: u32) {
        self.0[symbol.shard as usize][symbol.id.0 as usize] = rank;
    }

    /// Returns the rank of a symbol, or `None` if it was added after the ranking.
    pub(super) fn get(&self, shard: usize, id: SymbolId) -> Option<u32> {
        self.0[shard].get(id.0 as usize).copied().filter(|&rank| rank != UNRANKED)
    }
}

/// Returns the first eight bytes as a number in their order. Zeros follow fewer bytes.
fn prefix(bytes: &[u8]) -> u64 {
    (0..8).fold(0, |prefix, at| prefix << 8 | u64::from(bytes.get(at).copied().unwrap_or(0)))
}

/// Returns the number of bytes at the start that two strings have in common.
fn common_len(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}
