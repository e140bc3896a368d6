//! Chains of small slabs of one size, each linked to the slab before it.
//!
//! Vectors that grow together would leave free memory of each smaller size behind. A chain moves
//! nothing when it grows, and wastes half a slab on average. Slabs are never freed individually:
//! all chains are dropped together. Functions panic if a slab does not exist.
//!
//! ```text
//! offset  size  field    value
//! 0       4     before   number of the previous slab of the chain, 0 in the first
//! 4       28    payload  bytes of the string
//! ```

const SLAB_SIZE: usize = 32;
const PAYLOAD_OFFSET: usize = 4;
/// Number of slabs allocated at once. Pages do not move when more are allocated.
const PAGE_SLABS: usize = 512;

type Page = Box<[[u8; SLAB_SIZE]; PAGE_SLABS]>;

/// Chains of slabs. The slabs are numbered from 1.
#[derive(Debug, Default)]
pub struct SlabChains {
    pages: Vec<Page>,
    len: u32,
}

impl SlabChains {
    /// Payload of a slab in bytes.
    pub const PAYLOAD_SIZE: usize = SLAB_SIZE - PAYLOAD_OFFSET;

    /// Returns the size of the slabs in bytes.
    pub fn size(&self) -> usize {
        self.len as usize * SLAB_SIZE + self.pages.capacity() * size_of::<Page>()
    }

    /// Appends an empty slab to the chain that ends with the slab `before` (0 for a new chain).
    /// Returns its number.
    ///
    /// # Panics
    /// At 2^32 slabs (128 GiB): the caller bounds the size.
    pub fn push(&mut self, before: u32) -> u32 {
        let idx = self.len as usize;
        if idx == self.pages.len() * PAGE_SLABS {
            self.pages.push(new_page());
        }
        self.pages[idx / PAGE_SLABS][idx % PAGE_SLABS][..PAYLOAD_OFFSET]
            .copy_from_slice(&before.to_le_bytes());
        self.len = self
            .len
            .checked_add(1)
            .expect("the caller bounds the size far below 2^32 slabs");
        self.len
    }

    /// Returns the payload of a slab.
    #[inline]
    pub fn payload(&self, number: u32) -> &[u8] {
        &self.slab(number)[PAYLOAD_OFFSET..]
    }

    /// Returns the payload of a slab mutably.
    #[inline]
    pub fn payload_mut(&mut self, number: u32) -> &mut [u8] {
        let idx = number as usize - 1;
        &mut self.pages[idx / PAGE_SLABS][idx % PAGE_SLABS][PAYLOAD_OFFSET..]
    }

    /// Returns the numbers of the slabs of a chain, last to first.
    pub fn chain(&self, tail: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = tail;
        std::iter::from_fn(move || {
            let number = next;
            if number == 0 {
                return None;
            }
            next = self.before(number);
            Some(number)
        })
    }

    /// Prefetches up to `n_slabs_max` slabs of each chain, last to first. `tails` are the numbers
    /// of the last slabs; the vector is scratch memory and is overwritten.
    ///
    /// Each slab holds the number of the one before it, so a chain waits for one cache miss after
    /// the other. Walking many chains in turn overlaps their misses.
    pub fn prefetch(&self, tails: &mut Vec<u32>, n_slabs_max: usize) {
        tails.retain(|&number| number != 0);
        for _ in 0..n_slabs_max {
            tails.retain_mut(|number| {
                *number = self.before(*number);
                *number != 0
            });
            if tails.is_empty() {
                return;
            }
        }
    }

    /// Returns the number of the slab before a slab in its chain, or 0 for the first one.
    #[inline]
    fn before(&self, number: u32) -> u32 {
        let [a, b, c, d, ..] = *self.slab(number);
        u32::from_le_bytes([a, b, c, d])
    }

    #[inline]
    fn slab(&self, number: u32) -> &[u8; SLAB_SIZE] {
        let idx = number as usize - 1;
        &self.pages[idx / PAGE_SLABS][idx % PAGE_SLABS]
    }
}

fn new_page() -> Page {
    // On the heap from the beginning: a page is too large for the stack.
    let slabs = vec![[0; SLAB_SIZE]; PAGE_SLABS].into_boxed_slice();
    slabs.try_into().expect("a page has PAGE_SLABS slabs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_grow_in_turn_keep_their_slabs() {
        let mut slabs = SlabChains::default();
        let mut tails = [0; 3];
        // More slabs than a page has.
        for i in 0..600_u32 {
            for (chain, tail) in tails.iter_mut().enumerate() {
                *tail = slabs.push(*tail);
                slabs
                    .payload_mut(*tail)
                    .fill((i as u8).wrapping_mul(3).wrapping_add(chain as u8));
            }
        }
        slabs.prefetch(&mut tails.to_vec(), 1000);
        for (chain, &tail) in tails.iter().enumerate() {
            let bytes: Vec<u8> = slabs
                .chain(tail)
                .map(|number| slabs.payload(number)[27])
                .collect();
            let expected = (0..600_u32)
                .rev()
                .map(|i| (i as u8).wrapping_mul(3).wrapping_add(chain as u8));
            assert_eq!(bytes, expected.collect::<Vec<_>>());
        }
        assert_eq!(slabs.chain(0).count(), 0);
        assert!(slabs.size() >= 1800 * SLAB_SIZE);
    }
}
