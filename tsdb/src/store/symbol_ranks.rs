//! Ranks of label names and values: positions in the order of the strings of all shards. Equal
//! strings have equal ranks, so label sets of any shards can be compared as numbers.
//!
//! Used by the ranking of series, and by flushes, which write the labels of a part in this order.
//!
//! Strings are sorted by eight bytes at a time: first all of them, then each group that has these
//! bytes in common, by the bytes that follow.
//!
//! Threads: heads are locked for at most 4,096 strings at a time. Series must not be evicted
//! meanwhile: a symbol could get another string. Memory: 20 bytes per string.

use crate::index::{Pair, SymbolId};
use crate::shard::Shard;

/// Ranks by shard and symbol.
pub(super) struct SymbolRanks(Vec<Vec<u32>>);

/// The rank of a symbol that was added later.
const UNRANKED: u32 = u32::MAX;
/// Number of strings that are read per acquisition of a head's lock.
const BATCH_STRINGS: usize = 1024;
/// Number of bytes that are compared at once.
const KEY_LEN: usize = 8;

/// A string of a head, and the bytes by which it is sorted next.
#[derive(Clone, Copy)]
struct Symbol {
    /// The bytes as a number in their order. Zeros follow if the string ends.
    bytes: u64,
    n_bytes: u8,
    shard: u16,
    id: SymbolId,
}

impl SymbolRanks {
    /// Ranks the strings of all shards.
    pub(super) fn new(shards: &[Shard]) -> Self {
        let mut symbols = Vec::new();
        let mut ranks = Vec::new();
        for (number, shard) in (0..).zip(shards) {
            let mut end = 0;
            for step in 0.. {
                let head = shard.head();
                let Some(strings) = head.symbols_of_step(step) else {
                    break;
                };
                for (id, text) in strings {
                    end = id.0 as usize + 1;
                    let mut symbol = Symbol {
                        bytes: 0,
                        n_bytes: 0,
                        shard: number,
                        id,
                    };
                    symbol.read(text.as_bytes());
                    symbols.push(symbol);
                }
            }
            ranks.push(vec![UNRANKED; end]);
        }
        // Ranges of symbols, with the number of bytes that their strings have in common.
        let mut unsorted = vec![(0..symbols.len(), 0)];
        while let Some((range, mut n_common)) = unsorted.pop() {
            let group = &mut symbols[range.clone()];
            if n_common > 0 {
                n_common = read_next(shards, group, n_common);
            }
            group.sort_unstable_by_key(|symbol| (symbol.key(), symbol.shard));
            let mut start = range.start;
            for same in group.chunk_by(|a, b| a.key() == b.key()) {
                let end = start + same.len();
                if same.len() > 1 && usize::from(same[0].n_bytes) == KEY_LEN {
                    unsorted.push((start..end, n_common + KEY_LEN));
                } else {
                    // One string, or equal ones of several shards.
                    for symbol in same {
                        ranks[usize::from(symbol.shard)][symbol.id.0 as usize] = start as u32;
                    }
                }
                start = end;
            }
        }
        Self(ranks)
    }

    /// Returns a number, more than 0, that orders labels as the ranks of their names and values do.
    /// Returns `None` if the name or the value was added after the ranking.
    pub(super) fn key(&self, shard: usize, pair: Pair) -> Option<u64> {
        let name = self.get(shard, pair.0)?;
        let value = self.get(shard, pair.1)?;
        Some((u64::from(name) << 32 | u64::from(value)) + 1)
    }

    /// Returns the rank of a symbol, or `None` if it was added after the ranking.
    fn get(&self, shard: usize, id: SymbolId) -> Option<u32> {
        self.0[shard]
            .get(id.0 as usize)
            .copied()
            .filter(|&rank| rank != UNRANKED)
    }
}

impl Symbol {
    /// Sets the bytes by which the string is sorted next: the first ones of `rest`.
    fn read(&mut self, rest: &[u8]) {
        self.bytes = (0..KEY_LEN).fold(0, |bytes, idx| {
            bytes << 8 | u64::from(rest.get(idx).copied().unwrap_or(0))
        });
        self.n_bytes = rest.len().min(KEY_LEN) as u8;
    }

    fn key(&self) -> (u64, u8) {
        (self.bytes, self.n_bytes)
    }
}

/// Reads the next bytes of strings that have their first `n_known` bytes in common, after all bytes
/// that they have in common. Returns the number of these. The strings are in the order of their
/// shards.
fn read_next(shards: &[Shard], group: &mut [Symbol], n_known: usize) -> usize {
    let first = {
        let head = shards[usize::from(group[0].shard)].head();
        head.symbol(group[0].id).as_bytes()[n_known..].to_vec()
    };
    let mut n_more = first.len();
    for_each(shards, group, |_, text| {
        n_more = common_len(&first[..n_more], &text[n_known..])
    });
    for_each(shards, group, |symbol, text| {
        symbol.read(&text[n_known + n_more..])
    });
    n_known + n_more
}

/// Calls `visit` with each string.
fn for_each(shards: &[Shard], group: &mut [Symbol], mut visit: impl FnMut(&mut Symbol, &[u8])) {
    let by_shard = group.chunk_by_mut(|a, b| a.shard == b.shard);
    for batch in by_shard.flat_map(|symbols| symbols.chunks_mut(BATCH_STRINGS)) {
        let head = shards[usize::from(batch[0].shard)].head();
        for symbol in batch {
            visit(symbol, head.symbol(symbol.id).as_bytes());
        }
    }
}

/// Returns the number of bytes at the start that two strings have in common.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
