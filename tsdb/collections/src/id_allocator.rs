//! Allocation of dense ids that are reused after they were freed.

use roaring::RoaringBitmap;

/// Allocates ids from 0, the lowest free one first, so that arrays indexed by them can be
/// truncated.
#[derive(Debug, Default)]
pub struct IdAllocator {
    /// One more than the highest id in use.
    end: u32,
    free: RoaringBitmap,
}

impl IdAllocator {
    /// Allocates an id below `end_max`. Returns `None` if all are in use.
    pub fn allocate(&mut self, end_max: u32) -> Option<u32> {
        if let Some(number) = self.free.min() {
            self.free.remove(number);
            return Some(number);
        }
        let number = self.end;
        self.end = number.checked_add(1).filter(|&end| end <= end_max)?;
        Some(number)
    }

    /// Frees an id that is in use. If it is the highest one, visits the free ids before it.
    pub fn free(&mut self, number: u32) {
        self.free.insert(number);
        while self.end > 0 && self.free.remove(self.end - 1) {
            self.end -= 1;
        }
    }

    /// Returns one more than the highest id in use.
    pub fn end(&self) -> usize {
        self.end as usize
    }

    /// Returns the number of ids in use.
    pub fn n_used(&self) -> usize {
        (u64::from(self.end) - self.free.len()) as usize
    }

    /// Returns the approximate size of the free ids in bytes.
    pub fn size(&self) -> usize {
        if self.free.is_empty() {
            0
        } else {
            self.free.len() as usize * size_of::<u16>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_id_is_allocated_first_and_the_end_decreases() {
        let mut ids = IdAllocator::default();
        assert_eq!(
            (0..4).map(|_| ids.allocate(4)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        assert_eq!(ids.allocate(4), None);
        ids.free(2);
        ids.free(0);
        assert_eq!((ids.end(), ids.n_used()), (4, 2));
        assert_eq!(ids.allocate(4), Some(0));
        ids.free(3);
        assert_eq!((ids.end(), ids.n_used()), (2, 2));
        ids.free(0);
        ids.free(1);
        assert_eq!((ids.end(), ids.n_used(), ids.size()), (0, 0, 0));
    }
}
