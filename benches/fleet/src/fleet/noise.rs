//! Pseudorandom numbers that are computed from a seed and a position. Each can be computed without
//! the others.
//!
//! Integer arithmetic only, so that every machine computes the same numbers.

/// Steps between two anchors of a [`walk`]. A number costs one hash per step of its block.
const BLOCK: u64 = 16;

/// Returns a hash whose bits depend on all bits of `seed` (the finalizer of splitmix64).
pub(super) fn mix(seed: u64) -> u64 {
    let x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a hash of two numbers.
pub(crate) fn mix2(seed: u64, with: u64) -> u64 {
    mix(mix(seed) ^ with)
}

/// Maps a random number uniformly to `0..bound`. `bound` must not be 0.
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    let product = u128::from(random) * u128::from(bound);
    u64::try_from(product >> 64).expect("less than the bound")
}

/// Returns the sum of the first `n` steps of a random walk. Steps are never negative, and `mean` on
/// average.
///
/// A random walk has no random access, so this one has an anchor every [`BLOCK`] steps: a line plus
/// noise. Between two anchors, steps are drawn from `0..mean * 3 / 4`, and the remainder to the
/// next anchor is spread evenly. The remainder is never negative: anchors are at least `14 * mean`
/// apart and the steps sum to at most `12 * mean`.
pub(super) fn walk(seed: u64, n: u64, mean: u64) -> u64 {
    let block = n / BLOCK;
    let within = n % BLOCK;
    let anchor = |block: u64| below(mix2(seed, !block), 2 * mean);
    let start = block * BLOCK * mean + anchor(block);
    let spread = (mean * 3 / 4).max(1);
    let key = mix2(seed, block);
    let mut before = 0;
    let mut all = 0;
    for step in 0..BLOCK {
        before += if step < within {
            step_of(key, step, spread)
        } else {
            0
        };
        all += step_of(key, step, spread);
    }
    let left = (BLOCK * mean + anchor(block + 1)).saturating_sub(anchor(block) + all);
    start + before + left * within / BLOCK
}

fn step_of(key: u64, step: u64, spread: u64) -> u64 {
    // One multiplication suffices: the key is a hash.
    let random =
        (key ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    below(random ^ (random << 32), spread)
}

/// Returns the number of events up to round `n`. One happens at a random round of each `every`
/// rounds.
pub(super) fn events(seed: u64, n: u64, every: u64) -> u64 {
    let past = n / every;
    let within = n % every;
    past + u64::from(within >= below(mix2(seed, past), every))
}

/// Returns a number in `0..=swing` that drifts: linear between random heights every `length`
/// rounds.
pub(super) fn drift(seed: u64, n: u64, length: u64, swing: u64) -> u64 {
    let knot = n / length;
    let within = n % length;
    let height = |knot: u64| below(mix2(seed, knot), swing + 1);
    (height(knot) * (length - within) + height(knot + 1) * within) / length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_never_decrease_and_keep_their_mean() {
        for (seed, mean) in [(1, 1), (2, 2), (3, 7), (4, 1000), (5, 1 << 30)] {
            let values: Vec<_> = (0..5000).map(|n| walk(seed, n, mean)).collect();
            assert!(values.is_sorted(), "mean {mean}");
            let pace = values[4999].abs_diff(4999 * mean);
            assert!(pace <= 3 * mean, "mean {mean}: {pace} off");
            let longest = values.windows(2).map(|w| w[1] - w[0]).max();
            assert!(longest <= Some(3 * mean), "mean {mean}: {longest:?}");
        }
    }

    #[test]
    fn events_happen_once_per_period() {
        let counts: Vec<_> = (0..1000).map(|n| events(7, n, 40)).collect();
        assert!(
            counts.is_sorted() && counts[999] - counts[0] >= 24,
            "{counts:?}"
        );
    }

    #[test]
    fn drift_stays_within_its_swing() {
        assert!((0..1000).all(|n| drift(9, n, 32, 100) <= 100));
    }
}
