//! Noise: numbers that look random and are computed from what they belong to, so that any of them can be had by itself.
//!
//! Only integer arithmetic, so that every machine gets the same numbers.

/// Rounds after which a [`walk`] is on its anchor line again; the cost of a number is a hash for each of them.
const BLOCK: u64 = 16;

/// Mixes a number into another one, all bits of which depend on all of its bits (the finaliser of splitmix64).
pub(super) fn mix(seed: u64) -> u64 {
    let x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Mixes two numbers.
pub(super) fn mix2(seed: u64, with: u64) -> u64 {
    mix(mix(seed) ^ with)
}

/// Returns a number below `bound`, which is not 0, evenly drawn.
pub(super) fn below(random: u64, bound: u64) -> u64 {
    let product = u128::from(random) * u128::from(bound);
    u64::try_from(product >> 64).expect("less than the bound")
}

/// Returns a sum of `n` noisy steps, `mean` on average: never less than that of `n - 1`.
///
/// A random walk cannot be entered in the middle, so this one is pinned: each [`BLOCK`] steps it meets a line with
/// noise. In between, steps are drawn from `0..mean * 3 / 4` and what is left to the pin is spread evenly, which is
/// never negative: the pins are at least `14 * mean` apart and the steps sum to at most `12 * mean`.
pub(super) fn walk(seed: u64, n: u64, mean: u64) -> u64 {
    let (block, within) = (n / BLOCK, n % BLOCK);
    let pin = |block: u64| below(mix2(seed, !block), 2 * mean);
    let start = block * BLOCK * mean + pin(block);
    let spread = (mean * 3 / 4).max(1);
    let key = mix2(seed, block);
    let (mut before, mut all) = (0, 0);
    for step in 0..BLOCK {
        before += if step < within { step_of(key, step, spread) } else { 0 };
        all += step_of(key, step, spread);
    }
    let left = (BLOCK * mean + pin(block + 1)).saturating_sub(pin(block) + all);
    start + before + left * within / BLOCK
}

fn step_of(key: u64, step: u64, spread: u64) -> u64 {
    // One multiplication is enough here: the key is well mixed.
    let random = (key ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    below(random ^ (random << 32), spread)
}

/// Counts events that come once in each `every` rounds, at a random one of them.
pub(super) fn events(seed: u64, n: u64, every: u64) -> u64 {
    let (past, within) = (n / every, n % every);
    past + u64::from(within >= below(mix2(seed, past), every))
}

/// Returns a number in `0..=swing` that wanders: a line between random heights, one each `length` rounds.
pub(super) fn wander(seed: u64, n: u64, length: u64, swing: u64) -> u64 {
    let (knot, within) = (n / length, n % length);
    let height = |knot: u64| below(mix2(seed, knot), swing + 1);
    (height(knot) * (length - within) + height(knot + 1) * within) / length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_never_go_back_and_keep_their_pace() {
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
    fn events_come_once_in_their_time() {
        let counts: Vec<_> = (0..1000).map(|n| events(7, n, 40)).collect();
        assert!(counts.is_sorted() && counts[999] - counts[0] >= 24, "{counts:?}");
    }

    #[test]
    fn wandering_stays_within_its_swing() {
        assert!((0..1000).all(|n| wander(9, n, 32, 100) <= 100));
    }
}
