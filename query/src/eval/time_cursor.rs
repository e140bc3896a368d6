//! A position in ascending timestamps that moves with the steps of a query.

/// A position between timestamps. The default is before the first.
///
/// Steps have equal intervals, and so have most samples. Therefore a move tries the distance of the
/// previous move first: its cost depends neither on the number of samples between two steps nor on
/// the number of all samples. Where samples are irregular, it visits those in between.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeCursor {
    n_before: usize,
    last_distance: usize,
}

impl TimeCursor {
    /// Returns the number of timestamps before the position.
    #[inline]
    pub(super) fn n_before(self) -> usize {
        self.n_before
    }

    /// Moves after the last timestamp that is at most `time_ms`. `timestamps_ms` are those of the
    /// previous moves, and `time_ms` is not before the time of the previous move.
    #[inline]
    pub(super) fn move_after(&mut self, time_ms: i64, timestamps_ms: &[i64]) {
        let start = self.n_before;
        let mut n_before = start;
        let guess = (start + self.last_distance).min(timestamps_ms.len());
        if guess > start && timestamps_ms[guess - 1] <= time_ms {
            n_before = guess;
        }
        while timestamps_ms
            .get(n_before)
            .is_some_and(|&timestamp_ms| timestamp_ms <= time_ms)
        {
            n_before += 1;
        }
        self.n_before = n_before;
        self.last_distance = n_before - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_move_ends_after_the_last_timestamp_up_to_its_time(
            intervals_ms in proptest::collection::vec(prop_oneof![8 => Just(15_i64), 1 => 1..200_i64], 0..80),
            moves_ms in proptest::collection::vec(prop_oneof![8 => Just(60_i64), 1 => 0..300_i64], 1..40),
        ) {
            let mut timestamps_ms = vec![0];
            for interval_ms in intervals_ms {
                timestamps_ms.push(timestamps_ms[timestamps_ms.len() - 1] + interval_ms);
            }
            let mut cursor = TimeCursor::default();
            let mut time_ms = -30;
            for move_ms in moves_ms {
                time_ms += move_ms;
                cursor.move_after(time_ms, &timestamps_ms);
                prop_assert_eq!(cursor.n_before(), timestamps_ms.partition_point(|&t| t <= time_ms));
            }
        }
    }
}
