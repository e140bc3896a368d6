//! Hashes of encoded label sets: the keys of the route cache.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_secret;

/// Hashes label sets with a random secret per process, so that no sender can construct a collision.
#[derive(Clone)]
pub struct RouteHasher {
    secret: Box<[u8; SECRET_SIZE]>,
    /// Secret too, one for each lane.
    multipliers: [u64; 2],
    /// The powers of the multipliers for the first positions.
    powers: Box<[[u64; 2]; N_POWERS]>,
}

/// The combined hashes of the symbols of a label set: for each lane the sum of each hash times the power of the
/// multiplier for its position, modulo 2^64.
///
/// The hashes of different strings are independent, so two label sets collide with a probability of about 2^-128. A
/// sender that knew the multipliers could repeat symbols so that their coefficients cancel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyLanes([u64; 2]);

/// A 128-bit hash of the encoded bytes of a label set: the first 32 bits select the stripe, the others identify
/// the route in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RouteKey(pub(crate) [u32; 4]);

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
        let multipliers = lanes(u128::from_le_bytes(multipliers)).map(multiplier);
        let powers = Box::new(std::array::from_fn(|at| powers(multipliers, at)));
        Self { secret, multipliers, powers }
    }

    #[inline]
    pub(crate) fn hash(&self, labels: &[u8]) -> RouteKey {
        let hash = xxh3_128_with_secret(labels, &self.secret[..]);
        RouteKey([hash as u32, (hash >> 32) as u32, (hash >> 64) as u32, (hash >> 96) as u32])
    }

    /// Adds the hash of the symbol at a position of a label set.
    #[inline]
    pub(crate) fn add(&self, to: &mut KeyLanes, at: usize, symbol: RouteKey) {
        let ([low, high], [low_power, high_power]) = (lanes(symbol.to_bits()), self.powers(at));
        to.0[0] = to.0[0].wrapping_add(low.wrapping_mul(low_power));
        to.0[1] = to.0[1].wrapping_add(high.wrapping_mul(high_power));
    }

    /// Replaces the hash of the symbol at a position of a label set.
    #[inline]
    pub(crate) fn replace(&self, of: &mut KeyLanes, at: usize, from: RouteKey, to: RouteKey) {
        let mut removed = KeyLanes::default();
        self.add(&mut removed, at, from);
        self.add(of, at, to);
        of.0 = [0, 1].map(|lane| of.0[lane].wrapping_sub(removed.0[lane]));
    }

    #[inline]
    fn powers(&self, at: usize) -> [u64; 2] {
        self.powers.get(at).copied().unwrap_or_else(|| powers(self.multipliers, at))
    }
}

impl KeyLanes {
    #[inline]
    pub(crate) fn key(self) -> RouteKey {
        let [low, high] = self.0;
        RouteKey([low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32])
    }
}

fn lanes(bits: u128) -> [u64; 2] {
    [bits as u64, (bits >> 64) as u64]
}

/// Returns the powers of the multipliers for a position. A message has less than 2^32 references.
fn powers(multipliers: [u64; 2], at: usize) -> [u64; 2] {
    multipliers.map(|multiplier| multiplier.wrapping_pow(at as u32))
}

/// Returns 5 modulo 8, so that powers with different exponents differ in low bits and no coefficient loses many bits.
fn multiplier(bits: u64) -> u64 {
    bits & !7 | 5
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

/// Number of positions whose powers are stored: those of 32 labels.
const N_POWERS: usize = 64;
/// The size of secret that XXH3 uses by default.
const SECRET_SIZE: usize = 192;
