//! Which armed rules have fallen back to shadow, kept across restarts: docs/format/fallen.md, version 1.
//!
//! A rule is known by the fingerprint of its entry in the configuration, so that another entry, also one of another name, is a
//! rule that has not fallen. What is kept are the fallen rules among those in force.
//!
//! Invariants
//! 1. That a rule has fallen is on disk before the query that let it fall goes on, unless the disk fails: that is counted, and
//!    [`FallenRules::save`] tries again.
//! 2. Rules change under the lock of this state, so that the file has those of the rules in force.
//!
//! Crash: the old file or the new one.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use varve_tsdb::fs::{Fs, StateFile};
use xxhash_rust::xxh3::xxh3_128;

use super::config::{RelabelConfig, RuleState};
use super::rule::Fallen;
use super::{RULES_MAX, Rules};
use crate::persisted_state::{Kept, StateFound};

/// Bytes of a selector that are kept, and of who asked.
const SELECTOR_SIZE_MAX: usize = 1_024;
const WHO_SIZE_MAX: usize = 256;

/// The file; the largest has as many rules as there can be, with texts of full length.
const FILE: StateFile = StateFile {
    magic: *b"VFAL",
    version: 1,
    payload_size_max: 2 + RULES_MAX * (16 + 8 + 2 + SELECTOR_SIZE_MAX + 2 + WHO_SIZE_MAX),
};

/// Which armed rules have fallen back.
#[derive(Debug)]
pub struct FallenRules {
    state: Mutex<State>,
}

/// By the fingerprint of the rule's entry.
type ByRule = BTreeMap<u128, Fallen>;

/// What is kept, locked.
#[derive(Debug)]
pub(crate) struct State {
    fallen: ByRule,
    kept: Kept,
}

impl Default for FallenRules {
    /// Forgets all at the end of the process.
    fn default() -> Self {
        Self { state: Mutex::new(State { fallen: ByRule::default(), kept: Kept::nowhere(FILE) }) }
    }
}

impl FallenRules {
    /// Reads which rules had fallen, from the file `path` in a folder that exists.
    pub fn open(fs: Arc<dyn Fs>, path: PathBuf) -> (Self, StateFound) {
        let (fallen, kept, found) = Kept::open(FILE, fs, path, decode);
        (Self { state: Mutex::new(State { fallen, kept }) }, found)
    }

    /// Counts the times that a change could not be written.
    #[must_use]
    pub fn n_unsaved(&self) -> u64 {
        self.lock().kept.n_unsaved()
    }

    /// Writes what could not be written before. Waits for the disk.
    ///
    /// # Errors
    /// If it cannot be written now either; what was there is there still.
    pub fn save(&self) -> io::Result<()> {
        let State { fallen, kept } = &mut *self.lock();
        kept.save(|| encode(fallen))
    }

    /// Locks the state: nobody else puts rules into force, or lets some fall, until it is let go.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets rules fall that have fallen before.
    pub(crate) fn restore(&self, rules: &Rules) {
        for rule in rules.rules.iter().filter(|rule| rule.config.armed) {
            if let Some(fallen) = self.fallen.get(&fingerprint(&rule.config)) {
                // One that has fallen since it was made says so better.
                let _has_fallen = rule.fallen.set(fallen.clone());
            }
        }
    }

    /// Keeps which of the rules in force have fallen, and nothing of others. Waits for the disk if that is another thing than
    /// before.
    pub(crate) fn keep(&mut self, rules: &Rules) {
        let entry = |rule: &super::Rule| Some((fingerprint(&rule.config), rule.fallen.get()?.cut()));
        let fallen: ByRule = rules.rules.iter().filter_map(entry).collect();
        if fallen != self.fallen {
            self.fallen = fallen;
            self.kept.change(&encode(&self.fallen));
        }
    }
}

impl Fallen {
    /// Returns what of it is kept: texts up to their bounds.
    fn cut(&self) -> Self {
        let cut = |text: &str, size_max: usize| text[..text.floor_char_boundary(size_max)].to_owned();
        Self { at_ms: self.at_ms, selector: cut(&self.selector, SELECTOR_SIZE_MAX), who: cut(&self.who, WHO_SIZE_MAX) }
    }
}

/// Tells an entry of the configuration from any other: the hash of what is written in it.
fn fingerprint(config: &RelabelConfig) -> u128 {
    let RelabelConfig {
        source_labels,
        separator,
        regex,
        modulus,
        target_label,
        replacement,
        action,
        name,
        state,
        armed,
    } = config;
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(source_labels.len() as u64).to_le_bytes());
    for label in source_labels {
        put(&mut bytes, Some(label));
    }
    for text in [separator, regex, &Some(target_label.clone()), replacement, action, name] {
        put(&mut bytes, text.as_deref());
    }
    bytes.extend_from_slice(&modulus.to_le_bytes());
    bytes.extend_from_slice(&[u8::from(*state == RuleState::Shadow), u8::from(*armed)]);
    xxh3_128(&bytes)
}

/// Puts a text behind its size and a 1, or a 0 if there is none.
fn put(bytes: &mut Vec<u8>, text: Option<&str>) {
    bytes.push(u8::from(text.is_some()));
    let text = text.unwrap_or_default();
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Returns the payload of the file.
fn encode(fallen: &ByRule) -> Vec<u8> {
    let len = |n: usize| u16::try_from(n).expect("rules and their texts are bounded").to_le_bytes();
    let mut bytes = len(fallen.len()).to_vec();
    for (fingerprint, Fallen { at_ms, selector, who }) in fallen {
        bytes.extend_from_slice(&fingerprint.to_le_bytes());
        bytes.extend_from_slice(&at_ms.to_le_bytes());
        for text in [selector, who] {
            bytes.extend_from_slice(&len(text.len()));
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// Returns what a payload says; `None` if no state has such a payload.
fn decode(payload: &[u8]) -> Option<ByRule> {
    let mut bytes = payload;
    let mut fallen = ByRule::new();
    for _ in 0..take_len(&mut bytes, RULES_MAX)? {
        let fingerprint = u128::from_le_bytes(take(&mut bytes)?);
        let at_ms = i64::from_le_bytes(take(&mut bytes)?);
        let selector = take_text(&mut bytes, SELECTOR_SIZE_MAX)?;
        let who = take_text(&mut bytes, WHO_SIZE_MAX)?;
        fallen.insert(fingerprint, Fallen { at_ms, selector, who });
    }
    bytes.is_empty().then_some(fallen)
}

fn take_text(bytes: &mut &[u8], size_max: usize) -> Option<String> {
    let size = take_len(bytes, size_max)?;
    let (text, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

fn take_len(bytes: &mut &[u8], len_max: usize) -> Option<usize> {
    let len = usize::from(u16::from_le_bytes(take(bytes)?));
    (len <= len_max).then_some(len)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use varve_tsdb::Matcher;
    use varve_tsdb::fs::{MemFs, PowerCut};

    use super::*;
    use crate::relabel::Builder;

    const PATH: &str = "/data/fallen";

    fn disk() -> MemFs {
        let fs = MemFs::new();
        fs.create_dir(Path::new("/data")).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        fs
    }

    fn open(fs: &MemFs) -> (FallenRules, StateFound) {
        FallenRules::open(Arc::new(fs.clone()), PATH.into())
    }

    /// An armed rule that drops what has a value of the label `job`.
    fn armed(name: &str, job: &str) -> RelabelConfig {
        RelabelConfig {
            source_labels: vec!["job".to_owned()],
            regex: Some(job.to_owned()),
            action: Some("drop".to_owned()),
            name: Some(name.to_owned()),
            armed: true,
            ..RelabelConfig::default()
        }
    }

    fn rules(configs: &[RelabelConfig]) -> Rules {
        Rules::new(configs.to_vec()).unwrap()
    }

    /// Lets the rules fall that drop a job, as a query does.
    fn ask(rules: &Rules, job: &str, who: &str) {
        let labels = varve_tsdb::Labels::from_pairs([("__name__", "up"), ("job", job)]).unwrap();
        let mut builder = Builder::new(&labels);
        for (idx, rule) in (0..).zip(&rules.rules) {
            if rule.apply(&mut builder) == super::super::rule::Effect::Drops {
                rules.dropped.note(idx, rule.looks_at(), &builder);
            }
        }
        let fallen = || Fallen { at_ms: 7, selector: format!("up{{job={job:?}}}"), who: who.to_owned() };
        assert_eq!(rules.fall_back(&[Matcher::equal("job", job)], fallen).len(), 1);
    }

    /// Puts rules into force and tells which of them have fallen.
    fn fallen_of(state: &FallenRules, configs: &[RelabelConfig]) -> Vec<String> {
        let rules = rules(configs);
        let mut state = state.lock();
        state.restore(&rules);
        state.keep(&rules);
        rules.rules.iter().filter(|rule| rule.fallen.get().is_some()).map(|rule| rule.name.clone()).collect()
    }

    #[test]
    fn a_rule_that_has_fallen_is_so_after_a_restart_until_its_entry_changes() {
        let fs = disk();
        let (state, found) = open(&fs);
        assert_eq!(found, StateFound::Sound);
        let configs = [armed("a", "x"), armed("b", "y")];
        let in_force = rules(&configs);
        ask(&in_force, "x", &"é".repeat(WHO_SIZE_MAX));
        state.lock().keep(&in_force);

        let after = fs.crash(PowerCut::LosesAll);
        let restarted = || open(&after).0;
        assert_eq!(fallen_of(&restarted(), &configs), ["a"]);
        assert_eq!(fallen_of(&restarted(), &[armed("b", "y"), armed("a", "x")]), ["a"], "its place does not count");
        let n_operations = after.n_operations();
        assert_eq!(fallen_of(&restarted(), &configs), ["a"]);
        assert_eq!(after.n_operations(), n_operations, "nothing has changed");
        for changed in [armed("a2", "x"), armed("a", "x|z"), RelabelConfig { armed: false, ..armed("a", "x") }] {
            let fs = fs.crash(PowerCut::LosesAll);
            assert!(fallen_of(&open(&fs).0, std::slice::from_ref(&changed)).is_empty(), "{changed:?}");
            // It was not in force for a while: it begins anew.
            assert!(fallen_of(&open(&fs).0, &configs).is_empty(), "{changed:?}");
        }
    }

    #[test]
    fn a_damaged_file_is_kept_aside_and_a_newer_one_left_alone() {
        let configs = [armed("a", "x")];
        let written = || {
            let fs = disk();
            let in_force = rules(&configs);
            ask(&in_force, "x", "w");
            open(&fs).0.lock().keep(&in_force);
            fs
        };
        let read = |fs: &MemFs, path: &str| fs.read(Path::new(path), 1 << 20).unwrap();
        let bytes = read(&written(), PATH);
        let put = |bytes: &[u8]| {
            let fs = disk();
            fs.create(Path::new(PATH)).unwrap().append(bytes).unwrap();
            fs
        };
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            for damaged in [&flipped[..], &bytes[..at]] {
                let fs = put(damaged);
                match open(&fs) {
                    (state, StateFound::Damaged(_)) => {
                        assert!(fallen_of(&state, &configs).is_empty());
                        assert_eq!(read(&fs, "/data/fallen.damaged"), damaged);
                    }
                    (_, StateFound::Newer(_)) => assert_eq!(at, 4, "the version"),
                    (_, StateFound::Sound) => panic!("{at}: taken as it is"),
                }
            }
        }
        let mut newer = bytes.clone();
        newer[4] = 2;
        let fs = put(&newer);
        let (state, found) = open(&fs);
        assert_eq!(found, StateFound::Newer(2));
        let in_force = rules(&configs);
        ask(&in_force, "x", "w");
        state.lock().keep(&in_force);
        assert_eq!(read(&fs, PATH), newer);
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_written_later() {
        let fs = disk();
        let (state, _) = open(&fs);
        let in_force = rules(&[armed("a", "x")]);
        ask(&in_force, "x", "w");
        fs.fail_at(fs.n_operations() + 1, varve_tsdb::fs::Fault::Fails(io::ErrorKind::StorageFull));
        state.lock().keep(&in_force);
        assert_eq!(state.n_unsaved(), 1);
        state.save().unwrap();
        assert_eq!(fallen_of(&open(&fs.crash(PowerCut::LosesAll)).0, &[armed("a", "x")]), ["a"]);
    }

    #[test]
    fn a_payload_beyond_a_bound_is_refused() {
        let too_many = (RULES_MAX as u16 + 1).to_le_bytes();
        let of_one = |tail: &[u8]| [&[1, 0][..], &[0; 24], tail].concat();
        assert!(decode(&of_one(&[0, 0, 1, 0, b'w'])).is_some());
        for tail in [&[0, 0, 1, 0, 0xff][..], &[1, 4], &[0, 0, 1, 1], &[0, 0, 1, 0, b'w', 0]] {
            assert!(decode(&of_one(tail)).is_none(), "{tail:?}");
        }
        assert!(decode(&too_many).is_none());
    }
}
