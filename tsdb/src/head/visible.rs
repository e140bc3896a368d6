//! Which requests a reader sees.
//!
//! Requests are numbered in the order in which they begin; numbers wrap and are compared by their difference, so those
//! compared must be less than 2^31 apart.

/// Tells whether request `a` comes before request `b`.
#[inline]
pub(super) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The requests that a reader sees: those that were finished when it began.
#[derive(Debug, Clone)]
pub(crate) struct Visible {
    next: u32,
    in_flight: Vec<u32>,
    /// All before this one are seen.
    horizon: u32,
}

impl Visible {
    /// Makes a view of all requests before `next` but those in flight.
    pub(crate) fn new(next: u32, in_flight: Vec<u32>) -> Self {
        let horizon = in_flight.iter().copied().reduce(|a, b| if before(a, b) { a } else { b }).unwrap_or(next);
        Self { next, in_flight, horizon }
    }

    /// Returns the oldest request that is not seen: all before it are.
    #[cfg(test)]
    pub(crate) fn horizon(&self) -> u32 {
        self.horizon
    }

    /// Tells whether the samples of a request are seen.
    #[inline]
    pub(crate) fn sees(&self, request: u32) -> bool {
        // Fast path: the request was finished long ago.
        before(request, self.horizon) || before(request, self.next) && !self.in_flight.contains(&request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_requests_are_seen_also_where_numbers_wrap() {
        for base in [0_u32, 1000, u32::MAX - 4, u32::MAX / 2] {
            let at = |i: u32| base.wrapping_add(i);
            let visible = Visible::new(at(8), vec![at(5), at(3)]);
            let seen: Vec<_> = (0..12).filter(|&i| visible.sees(at(i))).collect();
            assert_eq!(seen, [0, 1, 2, 4, 6, 7], "from {base}");
            assert_eq!(visible.horizon(), at(3));
            assert_eq!(Visible::new(at(8), vec![]).horizon(), at(8));
        }
    }
}
