//! Authentication and authorization of requests: users with passwords, bearer tokens with scopes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER_PERMISSIVE;
use parking_lot::Mutex;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::Semaphore;
use varve_client::Secret;
use varve_server::requests::tenant::User;

use super::Fingerprint;
use super::file::{BearerToken, File};
use super::scope::Scope;
use super::tenants::Tenants;

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
    users: BTreeMap<String, Secret>,
    tenants: Tenants,
    tokens: Vec<Token>,
    /// Whether the password is correct, by a digest of user, hash and password.
    cache: Mutex<HashMap<Digest, bool>>,
    comparisons: Arc<Semaphore>,
    /// Credentials whose comparison is queued or running: the client that sent them first, and the
    /// number of requests.
    queue: Mutex<HashMap<Digest, (Option<IpAddr>, usize)>>,
    /// The highest cost of all hashes. Every rejection takes as long as a comparison of this cost.
    cost_max: u32,
}

/// A request in the queue, until it is dropped.
struct Queued {
    auth: Arc<Auth>,
    key: Digest,
}

type Digest = [u8; SHA256_OUTPUT_LEN];

struct Token {
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
    /// Returns the users and tokens of a file, or `None` if there are none, which disables
    /// authentication.
    ///
    /// # Errors
    /// If a hash or a token is invalid, or a file cannot be read.
    pub(super) fn new(
        file: &File,
        folder: &Path,
        files: &mut Vec<Fingerprint>,
    ) -> Result<Option<Self>> {
        let mut cost_max = 0;
        for (user, hash) in &file.basic_auth_users {
            let Some(cost) = cost(&hash.0) else {
                bail!("basic_auth_users.{user}: the value is not a bcrypt hash")
            };
            cost_max = cost.max(cost_max);
        }
        let token = |(idx, config)| {
            read_token(config, folder, files).with_context(|| format!("bearer_tokens[{idx}]"))
        };
        let mut tokens = file
            .bearer_tokens
            .iter()
            .enumerate()
            .map(token)
            .collect::<Result<Vec<_>>>()?;
        let tenants = Tenants::new(file)?;
        tokens
            .iter_mut()
            .for_each(|token| token.user.tenant = tenants.of(&token.user.name));
        let users = file.basic_auth_users.clone();
        let is_open = users.is_empty() && tokens.is_empty();
        let comparisons = Arc::new(Semaphore::new(COMPARISONS_MAX));
        let cache = Mutex::default();
        let queue = Mutex::default();
        Ok((!is_open).then_some(Self {
            users,
            tenants,
            tokens,
            cache,
            comparisons,
            queue,
            cost_max,
        }))
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
        let hash = self.users.get(user).map_or("", |hash| &hash.0);
        // Includes the length of each part, so that different parts never have the same digest.
        let key = sha256(&[user.as_bytes(), hash.as_bytes(), password.as_bytes()]);
        let is_right = match self.cached(&key) {
            Some(is_right) => is_right,
            None => {
                self.compare(key, hash.to_owned(), password.to_owned(), client)
                    .await?
            }
        };
        let user = User {
            name: user.into(),
            tenant: self.tenants.of(user),
        };
        match is_right {
            true if user.tenant.is_some() && scope == Scope::Admin => Err(Denied::Scope(scope)),
            true => Ok(user),
            false => Err(Denied::Unknown),
        }
    }

    /// Compares a password with its hash, which is empty for an unknown user, on a blocking thread.
    /// The result is cached even if the client disconnects.
    async fn compare(
        self: &Arc<Self>,
        key: Digest,
        hash: String,
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
                tokio::task::spawn_blocking(move || compare(&password, &hash, cost_max).0);
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
        let of_client = queue.values().filter(|(other, _)| *other == client).count();
        if !queue.contains_key(&key)
            && (queue.len() >= QUEUED_MAX || of_client >= QUEUED_PER_CLIENT_MAX)
        {
            return None;
        }
        queue.entry(key).or_insert((client, 0)).1 += 1;
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
        if let Entry::Occupied(mut entry) = queue.entry(self.key) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

/// Compares a password with its hash. Returns `true` if it matches, and the time that the
/// comparison took, in units of a comparison of cost 0. The time of a comparison that fails depends
/// only on `cost_max`.
fn compare(password: &str, hash: &str, cost_max: u32) -> (bool, u64) {
    let cost = cost(hash);
    if let Some(cost) = cost
        && bcrypt::verify(password, hash).unwrap_or(false)
    {
        return (true, 1 << cost);
    }
    // Comparisons of the costs c, c, c + 1, c + 2, ..., m - 1 take as long as one of cost m.
    let padding = cost.map_or(cost_max..cost_max + 1, |cost| cost..cost_max);
    let mut time = cost.map_or(0, |cost| 1 << cost);
    for cost in padding {
        drop(bcrypt::hash_with_salt(password, cost, [0; 16]));
        time += 1 << cost;
    }
    (false, time)
}

/// Returns the cost of a bcrypt hash, or `None` if `hash` is not a bcrypt hash.
fn cost(hash: &str) -> Option<u32> {
    hash.parse::<bcrypt::HashParts>()
        .ok()
        .map(|parts| parts.get_cost())
}

fn read_token(config: &BearerToken, folder: &Path, files: &mut Vec<Fingerprint>) -> Result<Token> {
    let BearerToken {
        name,
        token,
        token_file,
        token_sha256,
        scopes,
    } = config;
    let digest = match (
        &*token.0,
        token_file.as_os_str().is_empty(),
        &**token_sha256,
    ) {
        ("", false, "") => {
            let path = folder.join(token_file);
            files.push(Fingerprint::of(&path));
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {path:?}"))?;
            of_token(text.trim())?
        }
        ("", true, hex) if !hex.is_empty() => {
            parse_hex(hex).context("token_sha256: expected 64 hex digits")?
        }
        (token, true, "") => of_token(token)?,
        _ => bail!("exactly one of token, token_file and token_sha256 is required"),
    };
    if name.is_empty() || scopes.is_empty() {
        bail!("a name and at least one of the scopes read, write and admin are required");
    }
    let user = User {
        name: Arc::from(name.as_str()),
        tenant: None,
    };
    Ok(Token {
        user,
        digest,
        scopes: scopes.clone(),
    })
}

fn of_token(token: &str) -> Result<Digest> {
    if token.is_empty() {
        bail!("the token is empty");
    }
    Ok(sha256(&[token.as_bytes()]))
}

fn parse_hex(hex: &str) -> Option<Digest> {
    HEXLOWER_PERMISSIVE
        .decode(hex.as_bytes())
        .ok()?
        .try_into()
        .ok()
}

/// Returns the digest of strings.
fn sha256(parts: &[&[u8]]) -> Digest {
    let whole = match parts {
        [one] => one.to_vec(),
        parts => parts
            .iter()
            .flat_map(|part| [&(part.len() as u64).to_le_bytes()[..], part].concat())
            .collect(),
    };
    digest(&SHA256, &whole)
        .as_ref()
        .try_into()
        .expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;
    use crate::web_config::file::parse;

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
        Arc::new(
            Auth::new(&parse(&text).unwrap(), Path::new(""), &mut Vec::new())
                .unwrap()
                .unwrap(),
        )
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
        let hashes: Vec<_> = (COST..COST + 3)
            .map(|cost| bcrypt::hash("s3cret", cost).unwrap())
            .collect();
        for hash in &hashes {
            assert_eq!(
                compare("wrong", hash, COST + 2),
                (false, 1 << (COST + 2)),
                "{hash}"
            );
        }
        // An unknown user.
        assert_eq!(compare("", "", COST + 2), (false, 1 << (COST + 2)));
        assert_eq!(compare("s3cret", &hashes[0], COST + 2), (true, 1 << COST));
    }

    #[test]
    fn invalid_users_and_tokens_are_rejected() {
        let check = |text: &str, expect: &str| {
            let rejected =
                Auth::new(&parse(text).unwrap(), Path::new(""), &mut Vec::new()).unwrap_err();
            assert!(format!("{rejected:#}").contains(expect), "{rejected:#}");
        };
        check(
            "basic_auth_users: {ann: s3cret}",
            "basic_auth_users.ann: the value is not a bcrypt hash",
        );
        check(
            "bearer_tokens: [{name: x, scopes: [read]}]",
            "bearer_tokens[0]: the token is empty",
        );
        check(
            "bearer_tokens: [{token: x, scopes: [read]}]",
            "a name and at least one of the scopes",
        );
        check(
            "bearer_tokens: [{name: x, token: x}]",
            "at least one of the scopes",
        );
        check(
            "bearer_tokens: [{name: x, token_sha256: abc, scopes: [read]}]",
            "expected 64 hex digits",
        );
        check(
            "bearer_tokens: [{name: x, token: a, token_file: b, scopes: [read]}]",
            "exactly one of",
        );
        check(
            "bearer_tokens: [{name: x, token_file: nowhere, scopes: [read]}]",
            "read \"nowhere\"",
        );
    }
}
