//! Hashes of encoded label sets: the keys of the route cache.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_secret;

/// Hashes label sets with a random secret per process, so that no sender can construct a collision.
#[derive(Clone)]
pub struct RouteHasher {
    secret: Box<[u8; SECRET_SIZE]>,
}

/// A 128-bit hash of the encoded bytes of a label set: the first 32 bits select the stripe, the next 32 the slot.
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
        getrandom::fill(&mut secret[..]).expect("read random bytes from the operating system");
        Self { secret }
    }

    #[inline]
    pub(crate) fn hash(&self, labels: &[u8]) -> RouteKey {
        let hash = xxh3_128_with_secret(labels, &self.secret[..]);
        RouteKey([hash as u32, (hash >> 32) as u32, (hash >> 64) as u32, (hash >> 96) as u32])
    }
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

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let [a, b, c, d] = self.0;
        (u128::from(a) | u128::from(b) << 32 | u128::from(c) << 64 | u128::from(d) << 96).to_le_bytes()
    }
}

/// The size of secret that XXH3 uses by default.
const SECRET_SIZE: usize = 192;
