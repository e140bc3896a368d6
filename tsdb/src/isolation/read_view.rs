//! Read views: the appends that a reader sees.
//!
//! Appends are numbered in the order in which they begin. Ids wrap and are compared by their
//! difference, so two compared ids must be less than 2^31 apart.

/// Returns `true` if append `a` comes before append `b`.
#[inline]
pub(crate) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The appends that a reader sees: all appends that had finished when the reader began.
#[derive(Debug, Clone)]
pub(crate) struct ReadView {
    next: u32,
    in_flight: Vec<u32>,
    /// Appends below this id are visible.
    horizon: u32,
}

impl ReadView {
    /// Creates a view of all appends before `next` except the appends in `in_flight`.
    pub(crate) fn new(next: u32, in_flight: Vec<u32>) -> Self {
        let horizon = in_flight
            .iter()
            .copied()
            .reduce(|a, b| if before(a, b) { a } else { b })
            .unwrap_or(next);
        Self {
            next,
            in_flight,
            horizon,
        }
    }

    /// Returns the oldest append that is not visible.
    #[cfg(test)]
    pub(crate) fn horizon(&self) -> u32 {
        self.horizon
    }

    /// Returns `true` if the samples of an append are visible.
    #[inline]
    pub(crate) fn sees(&self, append: u32) -> bool {
        // Fast path: the append finished long ago.
        before(append, self.horizon)
            || before(append, self.next) && !self.in_flight.contains(&append)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_appends_are_visible_even_when_ids_wrap() {
        for base in [0_u32, 1000, u32::MAX - 4, u32::MAX / 2] {
            let at = |i: u32| base.wrapping_add(i);
            let view = ReadView::new(at(8), vec![at(5), at(3)]);
            let seen: Vec<_> = (0..12).filter(|&i| view.sees(at(i))).collect();
            assert_eq!(seen, [0, 1, 2, 4, 6, 7], "from {base}");
            assert_eq!(view.horizon(), at(3));
            assert_eq!(ReadView::new(at(8), vec![]).horizon(), at(8));
        }
    }
}
