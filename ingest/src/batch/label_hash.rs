//! Hashes of encoded label sets: the keys of the route cache.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_secret;

/// Hashes label sets with a random secret per process, so that no sender can construct a collision.
#[derive(Clone)]
pub struct RouteHasher {
    secret: Box<[u8; SECRET_SIZE]>,
    /// Secret too, one for each lane. Odd, so that no power is 0.
    multipliers: [u64; 2],
    /// The powers of the multipliers for the first positions: the first powers for position 0.
    powers: Box<[[u64; 2]; N_POWERS]>,
}

/// The combined hashes of the symbols of a label set: in each lane the sum, modulo 2^64, of a term
/// for each symbol. A term depends on the hash of the symbol and on its position, and is not linear
/// in either.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyLanes {
    sums: [u64; 2],
    /// Those of the last position, from which those of the next one follow above [`N_POWERS`].
    powers: [u64; 2],
}

/// A 128-bit hash of the encoded bytes of a label set: the first 32 bits select the stripe, the
/// others identify the route in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RouteKey(pub(crate) [u32; 4]);

impl RouteKey {
    /// Returns the first half of the hash.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0[0]) << 32 | u64::from(self.0[1])
    }
}

impl RouteHasher {
    /// Creates a hasher with a random secret.
    ///
    /// # Panics
    /// If the operating system returns no random bytes, like the hash maps of the standard library.
    #[must_use]
    pub fn new() -> Self {
        let mut secret = Box::new([0; SECRET_SIZE]);
        let mut multipliers = [0; 16];
        for bytes in [&mut secret[..], &mut multipliers] {
            getrandom::fill(bytes).expect("read random bytes from the operating system");
        }
        let multipliers = lanes(u128::from_le_bytes(multipliers)).map(|bits| bits | 1);
        let mut power = [1; 2];
        let powers = Box::new(std::array::from_fn(|_| {
            power = product(power, multipliers);
            power
        }));
        Self {
            secret,
            multipliers,
            powers,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, labels: &[u8]) -> RouteKey {
        let hash = xxh3_128_with_secret(labels, &self.secret[..]);
        RouteKey([
            hash as u32,
            (hash >> 32) as u32,
            (hash >> 64) as u32,
            (hash >> 96) as u32,
        ])
    }

    /// Appends the hash of the symbol at position `at`, the number of symbols before.
    #[inline]
    pub(crate) fn push(&self, to: &mut KeyLanes, at: usize, symbol: RouteKey) {
        to.powers = match self.powers.get(at) {
            Some(powers) => *powers,
            None => product(to.powers, self.multipliers),
        };
        let term = self.term(to.powers, symbol);
        to.sums = [0, 1].map(|lane| to.sums[lane].wrapping_add(term[lane]));
    }

    /// Replaces the hash of the symbol at position `at`.
    ///
    /// # Panics
    /// If the position is [`N_POWERS`] or higher.
    #[inline]
    pub(crate) fn replace(&self, lanes: &mut KeyLanes, at: usize, from: RouteKey, to: RouteKey) {
        let from = self.term(self.powers[at], from);
        let to = self.term(self.powers[at], to);
        lanes.sums = [0, 1].map(|lane| {
            lanes.sums[lane]
                .wrapping_sub(from[lane])
                .wrapping_add(to[lane])
        });
    }

    #[inline]
    fn term(&self, powers: [u64; 2], symbol: RouteKey) -> [u64; 2] {
        let hash = lanes(symbol.to_bits());
        [0, 1].map(|lane| {
            // The halves of a product are combined: sums of low halves alone cancel in patterns
            // that need no secret.
            let product =
                u128::from(hash[lane] ^ powers[lane]) * u128::from(self.multipliers[lane]);
            product as u64 ^ (product >> 64) as u64
        })
    }
}

impl KeyLanes {
    #[inline]
    pub(crate) fn key(self) -> RouteKey {
        let [low, high] = self.sums;
        RouteKey([
            low as u32,
            (low >> 32) as u32,
            high as u32,
            (high >> 32) as u32,
        ])
    }
}

fn lanes(bits: u128) -> [u64; 2] {
    [bits as u64, (bits >> 64) as u64]
}

fn product(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [0, 1].map(|lane| a[lane].wrapping_mul(b[lane]))
}

impl Default for RouteHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RouteHasher {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteHasher")
    }
}

impl RouteKey {
    /// Returns 32 bits of the hash, to salt the keys of other label sets.
    pub(crate) fn salt(self) -> u32 {
        self.0[2]
    }

    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.to_bits().to_le_bytes()
    }

    #[inline]
    fn to_bits(self) -> u128 {
        let [a, b, c, d] = self.0;
        u128::from(a) | u128::from(b) << 32 | u128::from(c) << 64 | u128::from(d) << 96
    }
}

/// Number of positions whose powers are stored: at least as many as 127 bytes of references have.
const N_POWERS: usize = 128;
/// The size of secret that XXH3 uses by default.
const SECRET_SIZE: usize = 192;
