//! Authentication and authorization of requests: users with passwords, bearer tokens with scopes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::Semaphore;
use varve_config::web::{Credentials, Digest, PasswordHash, Scope, TenantConfig, sha256};
use varve_model::labels::METRIC_NAME;
use varve_server::requests::tenant::{Tenant, User};

/// Maximum number of concurrent password comparisons: each takes a tenth of a second of CPU time or
/// more.
const COMPARISONS_MAX: usize = 1;
/// A wrong password delays the next comparison by this many times its own duration: guesses use at
/// most a quarter of a core.
const PAUSE_FACTOR: u32 = 3;
/// Maximum number of different credentials that wait for their comparison, of one client address
/// and of all.
const QUEUED_PER_CLIENT_MAX: usize = 8;
const QUEUED_MAX: usize = 64;
/// Maximum number of cached comparisons, as in exporter-toolkit.
const CACHE_LEN_MAX: usize = 100;
/// Maximum size of credentials.
const CREDENTIALS_SIZE_MAX: usize = 8 << 10;

/// The reason why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The credentials are missing or wrong.
    Unknown,
    /// The token lacks a scope.
    Scope(Scope),
    /// Too many other credentials wait for their comparison.
    Busy,
}

/// The users and tokens.
pub(crate) struct Auth {
    users: BTreeMap<String, PasswordHash>,
    tenants: BTreeMap<String, Arc<Tenant>>,
    tokens: Vec<KnownToken>,
    /// Whether the password is correct, by a digest of user, hash and password.
    cache: Mutex<HashMap<Digest, bool>>,
    comparisons: Arc<Semaphore>,
    /// Comparisons that are queued or running, by the digest of the credentials.
    queue: Mutex<HashMap<Digest, Comparison>>,
    /// The highest cost of all hashes. Every rejection takes as long as a comparison of this cost.
    cost_max: u32,
}

/// A comparison for all requests with the same credentials.
struct Comparison {
    /// The client that sent the credentials first.
    client: Option<IpAddr>,
    n_requests: usize,
}

/// A request in the queue, until it is dropped.
struct Queued {
    auth: Arc<Auth>,
    key: Digest,
}

struct KnownToken {
    user: User,
    digest: Digest,
    scopes: Vec<Scope>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Auth({} users, {} tokens)",
            self.users.len(),
            self.tokens.len()
        )
    }
}

impl Auth {
    /// Creates the state of authentication with these credentials.
    pub(super) fn new(credentials: Credentials) -> Self {
        let tenants = tenants_by_user(&credentials.tenants);
        let mut tokens = Vec::new();
        for token in credentials.tokens {
            let user = User {
                tenant: tenants.get(&token.name).cloned(),
                name: token.name.into(),
            };
            tokens.push(KnownToken {
                user,
                digest: token.digest,
                scopes: token.scopes,
            });
        }
        let costs = credentials.users.values().map(|hash| hash.cost);
        Self {
            cost_max: costs.max().unwrap_or(0),
            users: credentials.users,
            tenants,
            tokens,
            cache: Mutex::default(),
            comparisons: Arc::new(Semaphore::new(COMPARISONS_MAX)),
            queue: Mutex::default(),
        }
    }

    /// Authenticates a request by its `Authorization` header, and returns the user or token. Users
    /// have all scopes, except users of a tenant, who are no administrators.
    ///
    /// # Errors
    /// The reason why the request is denied.
    pub(crate) async fn check(
        self: &Arc<Self>,
        header: Option<&[u8]>,
        scope: Scope,
        client: Option<IpAddr>,
    ) -> Result<User, Denied> {
        let header = header
            .filter(|header| header.len() <= CREDENTIALS_SIZE_MAX)
            .ok_or(Denied::Unknown)?;
        let (scheme, credentials) = std::str::from_utf8(header)
            .ok()
            .and_then(|header| header.split_once(' '))
            .map(|(scheme, credentials)| (scheme, credentials.trim()))
            .ok_or(Denied::Unknown)?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.check_token(credentials, scope);
        }
        if scheme.eq_ignore_ascii_case("basic") {
            return self.check_user(credentials, scope, client).await;
        }
        Err(Denied::Unknown)
    }

    /// Returns the names of the labels that the matchers of tenants have, ascending.
    pub(crate) fn tenant_label_names(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        for tenant in self.tenants.values() {
            for matcher in &*tenant.matchers {
                if matcher.name() != METRIC_NAME {
                    names.insert(matcher.name().to_owned());
                }
            }
        }
        names.into_iter().collect()
    }

    fn check_token(&self, token: &str, scope: Scope) -> Result<User, Denied> {
        let given = sha256(&[token.as_bytes()]);
        // Compares all tokens: the time must not depend on the token.
        let found = self.tokens.iter().fold(None, |found, token| {
            let is_same: Choice = token.digest.ct_eq(&given);
            if bool::from(is_same) {
                Some(token)
            } else {
                found
            }
        });
        match found.ok_or(Denied::Unknown)? {
            token if token.scopes.contains(&scope) => Ok(token.user.clone()),
            _ => Err(Denied::Scope(scope)),
        }
    }

    async fn check_user(
        self: &Arc<Self>,
        credentials: &str,
        scope: Scope,
        client: Option<IpAddr>,
    ) -> Result<User, Denied> {
        if self.users.is_empty() {
            return Err(Denied::Unknown);
        }
        let decoded = STANDARD
            .decode(credentials)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or(Denied::Unknown)?;
        let (user, password) = decoded.split_once(':').ok_or(Denied::Unknown)?;
        let hash = self.users.get(user);
        let hash_text = hash.map_or("", |hash| &hash.text.0);
        // Includes the length of each part, so that different parts never have the same digest.
        let key = sha256(&[user.as_bytes(), hash_text.as_bytes(), password.as_bytes()]);
        let is_right = match self.cached(&key) {
            Some(is_right) => is_right,
            None => {
                self.compare(key, hash.cloned(), password.to_owned(), client)
                    .await?
            }
        };
        let user = User {
            name: user.into(),
            tenant: self.tenants.get(user).cloned(),
        };
        if !is_right {
            return Err(Denied::Unknown);
        }
        if user.tenant.is_some() && scope == Scope::Admin {
            return Err(Denied::Scope(scope));
        }
        Ok(user)
    }

    /// Compares a password with its hash, which an unknown user does not have, on a blocking thread.
    /// The result is cached even if the client disconnects.
    async fn compare(
        self: &Arc<Self>,
        key: Digest,
        hash: Option<PasswordHash>,
        password: String,
        client: Option<IpAddr>,
    ) -> Result<bool, Denied> {
        let queued = self.enqueue(key, client).ok_or(Denied::Busy)?;
        let Ok(permit) = Arc::clone(&self.comparisons).acquire_owned().await else {
            return Err(Denied::Busy);
        };
        // Another request may have cached it meanwhile.
        if let Some(is_right) = self.cached(&key) {
            return Ok(is_right);
        }
        let auth = Arc::clone(self);
        let compared = tokio::spawn(async move {
            let started = Instant::now();
            let cost_max = auth.cost_max;
            let compared =
                tokio::task::spawn_blocking(move || verify(&password, hash.as_ref(), cost_max));
            let is_right = compared.await.unwrap_or(false);
            auth.keep(key, is_right);
            drop(queued);
            if !is_right {
                let pause = PAUSE_FACTOR * started.elapsed();
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    drop(permit);
                });
            }
            is_right
        });
        Ok(compared.await.unwrap_or(false))
    }

    /// Adds a request to the queue of comparisons. Returns `None` if the queue is full. Equal
    /// credentials take one slot.
    fn enqueue(self: &Arc<Self>, key: Digest, client: Option<IpAddr>) -> Option<Queued> {
        let mut queue = self.queue.lock();
        let n_of_client = queue
            .values()
            .filter(|queued| queued.client == client)
            .count();
        if !queue.contains_key(&key)
            && (queue.len() >= QUEUED_MAX || n_of_client >= QUEUED_PER_CLIENT_MAX)
        {
            return None;
        }
        let comparison = queue.entry(key).or_insert(Comparison {
            client,
            n_requests: 0,
        });
        comparison.n_requests += 1;
        Some(Queued {
            auth: Arc::clone(self),
            key,
        })
    }

    fn cached(&self, key: &Digest) -> Option<bool> {
        self.cache.lock().get(key).copied()
    }

    fn keep(&self, key: Digest, is_right: bool) {
        let mut cache = self.cache.lock();
        if cache.len() >= CACHE_LEN_MAX {
            // Evicts failures first: guesses must not evict correct passwords.
            let wrong = cache
                .iter()
                .find(|(_, is_right)| !**is_right)
                .map(|(key, _)| *key);
            let evicted = wrong.or_else(|| cache.keys().next().copied());
            evicted.map(|evicted| cache.remove(&evicted));
        }
        cache.insert(key, is_right);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut queue = self.auth.queue.lock();
        if let Entry::Occupied(mut comparison) = queue.entry(self.key) {
            comparison.get_mut().n_requests -= 1;
            if comparison.get().n_requests == 0 {
                comparison.remove();
            }
        }
    }
}

/// Returns the tenants by the names of their users and tokens.
fn tenants_by_user(configs: &[TenantConfig]) -> BTreeMap<String, Arc<Tenant>> {
    let mut tenants = BTreeMap::new();
    for config in configs {
        let tenant = Arc::new(Tenant::new(config));
        for user in &config.users {
            tenants.insert(user.clone(), Arc::clone(&tenant));
        }
    }
    tenants
}

/// Returns `true` if a password matches its hash, which an unknown user does not have. The time of a
/// comparison that fails depends only on `cost_max`.
fn verify(password: &str, hash: Option<&PasswordHash>, cost_max: u32) -> bool {
    if let Some(hash) = hash
        && bcrypt::verify(password, &hash.text.0).unwrap_or(false)
    {
        return true;
    }
    for cost in padding_costs(hash, cost_max) {
        drop(bcrypt::hash_with_salt(password, cost, [0; 16]));
    }
    false
}

/// Returns the costs of the comparisons that follow one that failed. Comparisons of the costs c, c,
/// c + 1, c + 2, ..., m - 1 take as long as one of cost m.
fn padding_costs(hash: Option<&PasswordHash>, cost_max: u32) -> Range<u32> {
    match hash {
        Some(hash) => hash.cost..cost_max,
        None => cost_max..cost_max + 1,
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;
    use varve_client::Secret;
    use varve_config::web::WebConfig;

    /// bcrypt's lowest cost, to keep tests fast.
    const COST: u32 = 4;

    fn auth() -> Arc<Auth> {
        let hash = bcrypt::hash("s3cret", COST).unwrap();
        let text = format!(
            "basic_auth_users: {{ann: {hash}}}\n\
             bearer_tokens:\n\
             - {{name: reader, token: r3ad, scopes: [read]}}\n\
             - {{name: writer, token_sha256: {}, scopes: [write, admin]}}\n",
            HEXLOWER.encode(&sha256(&[b"wr1te"]))
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.yml");
        std::fs::write(&path, text).unwrap();
        let credentials = WebConfig::read(&path).unwrap().credentials;
        Arc::new(Auth::new(credentials.unwrap()))
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", STANDARD.encode(credentials))
    }

    #[tokio::test]
    async fn known_users_and_tokens_are_admitted_within_their_scopes() {
        let auth = auth();
        let check = async |header: &str, scope, expect: Result<&str, Denied>| {
            let got = auth.check(Some(header.as_bytes()), scope, None).await;
            assert_eq!(
                got.map(|user| user.name.to_string()),
                expect.map(str::to_owned),
                "{header}"
            );
        };
        check(&basic("ann:s3cret"), Scope::Admin, Ok("ann")).await;
        check(&basic("ann:s3cret"), Scope::Read, Ok("ann")).await;
        check(&basic("ann:wrong"), Scope::Read, Err(Denied::Unknown)).await;
        check(&basic("ann:"), Scope::Read, Err(Denied::Unknown)).await;
        check("bearer r3ad", Scope::Read, Ok("reader")).await;
        check(
            "Bearer r3ad",
            Scope::Write,
            Err(Denied::Scope(Scope::Write)),
        )
        .await;
        check("Bearer wr1te", Scope::Admin, Ok("writer")).await;
        check("Bearer wr1te", Scope::Read, Err(Denied::Scope(Scope::Read))).await;
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Basic !",
            "Basic",
            "Digest x",
            &basic("ann"),
        ] {
            check(header, Scope::Read, Err(Denied::Unknown)).await;
        }
        assert_eq!(
            auth.check(None, Scope::Read, None).await.err(),
            Some(Denied::Unknown)
        );
    }

    #[tokio::test]
    async fn comparisons_are_cached_within_a_bound() {
        let auth = auth();
        auth.check(Some(basic("ann:s3cret").as_bytes()), Scope::Read, None)
            .await
            .unwrap();
        let kept = || auth.cache.lock().len();
        assert_eq!(kept(), 1);
        auth.check(Some(basic("ann:s3cret").as_bytes()), Scope::Read, None)
            .await
            .unwrap();
        assert_eq!(kept(), 1);
        for i in 0..2 * CACHE_LEN_MAX {
            auth.keep(sha256(&[&i.to_le_bytes()]), false);
        }
        assert_eq!(kept(), CACHE_LEN_MAX);
        assert!(
            auth.cache.lock().values().any(|&is_right| is_right),
            "guesses do not push out who is right"
        );
    }

    #[tokio::test]
    async fn a_client_cannot_fill_the_queue_of_comparisons() {
        let auth = auth();
        let client = |last| Some(IpAddr::from([10, 0, 0, last]));
        let key = |i: usize| sha256(&[&i.to_le_bytes()]);
        let queued: Vec<_> = (0..QUEUED_PER_CLIENT_MAX)
            .map(|i| auth.enqueue(key(i), client(1)).unwrap())
            .collect();
        assert!(
            auth.enqueue(key(QUEUED_PER_CLIENT_MAX), client(1))
                .is_none()
        );
        assert!(
            auth.enqueue(key(0), client(1)).is_some(),
            "equal credentials are compared once"
        );
        let others: Vec<_> = (QUEUED_PER_CLIENT_MAX..QUEUED_MAX)
            .map(|i| {
                auth.enqueue(key(i), client(1 + (i / QUEUED_PER_CLIENT_MAX) as u8))
                    .unwrap()
            })
            .collect();
        assert!(auth.enqueue(key(QUEUED_MAX), client(200)).is_none());
        drop((queued, others));
        assert!(auth.queue.lock().is_empty());
    }

    /// The response to an unknown user took another time than that to a user whose hash has a low
    /// cost.
    #[test]
    fn all_rejections_take_the_same_time() {
        let mut hashes = Vec::new();
        for cost in COST..COST + 3 {
            let text = Secret(bcrypt::hash("s3cret", cost).unwrap());
            hashes.push(PasswordHash { text, cost });
        }
        let longest = 1 << (COST + 2);
        // In units of a comparison of cost 0.
        let padding = |hash| -> u64 { padding_costs(hash, COST + 2).map(|cost| 1 << cost).sum() };
        for hash in &hashes {
            assert!(!verify("wrong", Some(hash), COST + 2));
            assert_eq!(
                (1 << hash.cost) + padding(Some(hash)),
                longest,
                "{}",
                hash.cost
            );
        }
        // An unknown user.
        assert!(!verify("", None, COST + 2));
        assert_eq!(padding(None), longest);
        assert!(verify("s3cret", Some(&hashes[0]), COST + 2));
    }
}
