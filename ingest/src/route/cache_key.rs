//! [`CacheKey`]: the key of a route in the cache.

use crate::admission::Team;
use crate::batch::{RouteHasher, RouteKey};

/// The key of a route in the cache: the hash of a label set as sent and of the labels of the tenant
/// ([`SenderLabels::cache_key`](crate::sender_labels::SenderLabels::cache_key)), within a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct CacheKey(pub(super) [u32; 4]);

/// The state that a route depends on besides its label set: a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Scope(u32, u32);

impl Scope {
    /// Creates the scope of a request from the generation of relabeling, the salt of the HA pair, the
    /// generation of the budgets, and the team that the sender names.
    pub(crate) fn new(
        hasher: &RouteHasher,
        relabeling: u32,
        ha_salt: u32,
        budgets: u32,
        team: Team,
    ) -> Self {
        let mut bytes = [0; 16];
        let fields = [relabeling, ha_salt, budgets, u32::from(team.id())];
        for (target, field) in bytes.chunks_exact_mut(4).zip(fields) {
            target.copy_from_slice(&field.to_le_bytes());
        }
        let [a, b, ..] = hasher.hash(&bytes).0;
        // An entry uses the last bit as a flag.
        Self(a, b & !1)
    }
}

impl CacheKey {
    /// Returns the key of a label set whose hash contains the tenant of its sender. It finds no
    /// routes of other scopes.
    #[inline]
    pub(crate) fn new(of_tenant: RouteKey, scope: Scope) -> Self {
        let [a, b, c, d] = of_tenant.0;
        Self([a, b, c ^ scope.0, d ^ scope.1])
    }
}
