//! Hashes of encoded label sets: the keys of the route cache.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_secret;

/// Hashes label sets with a secret of this process, so that nobody outside can make two of them collide.
#[derive(Clone)]
pub struct RouteHasher {
    secret: Box<[u8; SECRET_SIZE]>,
}

/// 128 bits that stand for the encoded bytes of a label set: the first 32 choose the stripe, the next 32 the home slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RouteKey(pub(crate) [u32; 4]);

impl RouteHasher {
    /// Draws a secret.
    ///
    /// # Panics
    /// If the operating system has no random bytes to give, as the standard library's hash maps do.
    #[must_use]
    pub fn new() -> Self {
        let mut secret = Box::new([0; SECRET_SIZE]);
        getrandom::fill(&mut secret[..]).expect("the operating system gives random bytes");
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
    /// Keeps the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteHasher")
    }
}

impl RouteKey {
    /// Returns 32 bits of the hash, for a [`Scope`].
    pub(crate) fn salt(self) -> u32 {
        self.0[2]
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let [a, b, c, d] = self.0;
        (u128::from(a) | u128::from(b) << 32 | u128::from(c) << 64 | u128::from(d) << 96).to_le_bytes()
    }
}

/// What XXH3 uses of a secret by default.
const SECRET_SIZE: usize = 192;
