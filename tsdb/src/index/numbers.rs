//! Dense numbers that are given, given back, and given again.

use roaring::RoaringBitmap;

/// Gives numbers from 0, the lowest free one first, so that arrays that they index can be cut short.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// One more than the highest number in use.
    end: u32,
    free: RoaringBitmap,
}

impl Numbers {
    /// Gives a number below `end_max`, or `None` if all are in use.
    pub(crate) fn take(&mut self, end_max: u32) -> Option<u32> {
        if let Some(number) = self.free.min() {
            self.free.remove(number);
            return Some(number);
        }
        let number = self.end;
        self.end = number.checked_add(1).filter(|&end| end <= end_max)?;
        Some(number)
    }

    /// Takes a number back that was given.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.free.insert(number);
        while self.end > 0 && self.free.remove(self.end - 1) {
            self.end -= 1;
        }
    }

    /// Returns one more than the highest number in use.
    pub(crate) fn end(&self) -> usize {
        self.end as usize
    }

    /// Counts the numbers in use.
    pub(crate) fn len(&self) -> usize {
        (u64::from(self.end) - self.free.len()) as usize
    }

    /// Returns about how many bytes the free numbers take.
    pub(crate) fn size(&self) -> usize {
        if self.free.is_empty() { 0 } else { self.free.len() as usize * size_of::<u16>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first_and_the_end_falls_back() {
        let mut numbers = Numbers::default();
        assert_eq!((0..4).map(|_| numbers.take(4)).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(numbers.take(4), None);
        numbers.give_back(2);
        numbers.give_back(0);
        assert_eq!((numbers.end(), numbers.len()), (4, 2));
        assert_eq!(numbers.take(4), Some(0));
        numbers.give_back(3);
        assert_eq!((numbers.end(), numbers.len()), (2, 2));
        numbers.give_back(0);
        numbers.give_back(1);
        assert_eq!((numbers.end(), numbers.len(), numbers.size()), (0, 0, 0));
    }
}
