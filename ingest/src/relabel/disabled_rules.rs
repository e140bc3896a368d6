//! The rules that were disabled by use, or would have been in a dry run, persisted across restarts.
//! Format: docs/format/disabled-rules.md, version 1.
//!
//! A rule is identified by the fingerprint of its entry in the configuration. A changed entry is a
//! new rule, even if only the name has changed. The file contains the rules in force that are
//! disabled.
//!
//! Invariants
//! 1. The file is written before the query that disabled a rule proceeds. A failed write is
//!    counted, and [`DisabledRelabelRules::save`] repeats it.
//! 2. Rules are applied under the lock of this state, so the file matches the rules in force.
//!
//! Crash: the old file or the new one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_env::{Error, Fs, StateFile, StateFileError};
use xxhash_rust::xxh3::xxh3_128;

use super::config::{RelabelConfig, RelabelRuleState};
use super::relabeling::{RELABEL_RULES_MAX, Relabeling};
use super::rule::DisabledByUse;
use crate::persisted_state::{Cursor, PersistedState, put_string};

/// Maximum persisted bytes of a selector, and of the sender of the query.
const SELECTOR_SIZE_MAX: usize = 1_024;
const WHO_SIZE_MAX: usize = 256;

/// The file. The maximum payload has [`RELABEL_RULES_MAX`] rules with strings of maximum length.
const FILE: StateFile = StateFile {
    magic: *b"VDIS",
    version: 1,
    payload_size_max: 2 + RELABEL_RULES_MAX * (16 + 8 + 2 + SELECTOR_SIZE_MAX + 2 + WHO_SIZE_MAX),
};

/// The rules that were disabled by use.
#[derive(Debug)]
pub struct DisabledRelabelRules {
    /// Locked while rules are applied, disabled or enabled.
    pub(crate) state: Mutex<State>,
}

/// Uses by the fingerprint of the rule's entry.
type ByRule = BTreeMap<u128, DisabledByUse>;

#[derive(Debug)]
pub(crate) struct State {
    disabled: ByRule,
    file: PersistedState,
}

impl Default for DisabledRelabelRules {
    /// Creates a state that is not persisted.
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                disabled: ByRule::default(),
                file: PersistedState::in_memory(FILE),
            }),
        }
    }
}

impl DisabledRelabelRules {
    /// Reads the file `path`, whose directory must exist.
    pub fn open(fs: Arc<dyn Fs>, path: PathBuf) -> (Self, Result<(), StateFileError>) {
        let (disabled, file, found) = PersistedState::open(FILE, fs, path, decode);
        (
            Self {
                state: Mutex::new(State { disabled, file }),
            },
            found,
        )
    }

    /// Returns the number of failed writes of the file.
    #[must_use]
    pub fn n_write_failures(&self) -> u64 {
        self.state.lock().file.n_write_failures()
    }

    /// Repeats a failed write. Waits for the disk.
    ///
    /// # Errors
    /// If the write fails again. The file is unchanged then.
    pub fn save(&self) -> Result<(), Error> {
        let State { disabled, file } = &mut *self.state.lock();
        file.save(|| encode(disabled))
    }
}

impl State {
    /// Disables the rules that the persisted state lists as disabled.
    pub(crate) fn restore(&self, rules: &Relabeling) {
        for rule in rules.rules.iter().filter(|rule| rule.config.disable_on_use) {
            if let Some(by) = self.disabled.get(&fingerprint(&rule.config)) {
                // A rule that was used since the start keeps its record.
                let _is_first = rule.used.set(by.clone());
            }
        }
    }

    /// Persists which of the rules in force are disabled. Waits for the disk if that has changed.
    pub(crate) fn update(&mut self, rules: &Relabeling) {
        let mut disabled = ByRule::default();
        for rule in &rules.rules {
            if let Some(used) = rule.used.get() {
                disabled.insert(fingerprint(&rule.config), used.truncated());
            }
        }
        if disabled != self.disabled {
            self.disabled = disabled;
            self.file.write(&encode(&self.disabled));
        }
    }
}

impl DisabledByUse {
    /// Returns a copy with strings truncated to their persisted length.
    fn truncated(&self) -> Self {
        Self {
            at_ms: self.at_ms,
            selector: truncated(&self.selector, SELECTOR_SIZE_MAX),
            who: truncated(&self.who, WHO_SIZE_MAX),
        }
    }
}

fn truncated(string: &str, size_max: usize) -> String {
    string[..string.floor_char_boundary(size_max)].to_owned()
}

/// Returns the hash of an entry of the configuration as it is written in the file.
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
        disable_on_use,
        disable_on_nameless_use,
    } = config;
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(source_labels.len() as u64).to_le_bytes());
    for label in source_labels {
        put_optional(&mut bytes, Some(label));
    }
    for string in [
        separator,
        regex,
        &Some(target_label.clone()),
        replacement,
        action,
        name,
    ] {
        put_optional(&mut bytes, string.as_deref());
    }
    bytes.extend_from_slice(&modulus.to_le_bytes());
    bytes.extend_from_slice(&[
        u8::from(*state == RelabelRuleState::DryRun),
        u8::from(*disable_on_use),
    ]);
    // Only if set, so that the entries of older files keep their fingerprints.
    bytes.extend_from_slice(if *disable_on_nameless_use { &[1] } else { &[] });
    xxh3_128(&bytes)
}

/// Appends a 1, the string's size and the string, or a 0 and the size 0 if there is none.
fn put_optional(bytes: &mut Vec<u8>, string: Option<&str>) {
    bytes.push(u8::from(string.is_some()));
    let string = string.unwrap_or_default();
    bytes.extend_from_slice(&(string.len() as u64).to_le_bytes());
    bytes.extend_from_slice(string.as_bytes());
}

/// Returns the payload of the file.
fn encode(disabled: &ByRule) -> Vec<u8> {
    let n_rules = u16::try_from(disabled.len()).expect("RELABEL_RULES_MAX is within 16 bits");
    let mut bytes = n_rules.to_le_bytes().to_vec();
    for (
        fingerprint,
        DisabledByUse {
            at_ms,
            selector,
            who,
        },
    ) in disabled
    {
        bytes.extend_from_slice(&fingerprint.to_le_bytes());
        bytes.extend_from_slice(&at_ms.to_le_bytes());
        put_string(&mut bytes, selector);
        put_string(&mut bytes, who);
    }
    bytes
}

/// Decodes a payload. Returns `None` if it is invalid.
fn decode(payload: &[u8]) -> Option<ByRule> {
    let mut cursor = Cursor::new(payload);
    let mut disabled = ByRule::new();
    for _ in 0..cursor.len(RELABEL_RULES_MAX)? {
        let fingerprint = u128::from_le_bytes(cursor.bytes()?);
        let at_ms = i64::from_le_bytes(cursor.bytes()?);
        let selector = cursor.string(SELECTOR_SIZE_MAX)?.to_owned();
        let who = cursor.string(WHO_SIZE_MAX)?.to_owned();
        disabled.insert(
            fingerprint,
            DisabledByUse {
                at_ms,
                selector,
                who,
            },
        );
    }
    cursor.is_at_end().then_some(disabled)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use varve_env::testing::{MemFs, PowerCut, assert_shown};
    use varve_model::{Labels, Matcher};
    use varve_tsdb::ReadContext;

    use super::*;

    const PATH: &str = "/data/disabled-rules";

    fn open(fs: &MemFs) -> (DisabledRelabelRules, Result<(), StateFileError>) {
        DisabledRelabelRules::open(Arc::new(fs.clone()), PATH.into())
    }

    /// A rule that drops the series of a job until they are used.
    fn drop_job(name: &str, job: &str) -> RelabelConfig {
        RelabelConfig {
            source_labels: vec!["job".to_owned()],
            regex: Some(job.to_owned()),
            action: Some("drop".to_owned()),
            name: Some(name.to_owned()),
            disable_on_use: true,
            ..RelabelConfig::default()
        }
    }

    fn rules(configs: &[RelabelConfig]) -> Relabeling {
        Relabeling::new(configs.to_vec()).unwrap()
    }

    /// Disables the rule that drops a job, as a query does.
    fn disable(rules: &Relabeling, job: &str, who: &str) {
        rules
            .relabel(&Labels::from_pairs([("__name__", "up"), ("job", job)]).unwrap())
            .unwrap();
        let by = || DisabledByUse {
            at_ms: 1_763_683_200_000,
            selector: format!("up{{job={job:?}}}"),
            who: who.to_owned(),
        };
        let matchers = [Matcher::equal("__name__", "up"), Matcher::equal("job", job)];
        assert_eq!(
            rules
                .note_use(&ReadContext::unbounded(), &matchers, by)
                .unwrap()
                .len(),
            1
        );
    }

    /// Applies rules and returns the names of the disabled ones.
    fn disabled(state: &DisabledRelabelRules, configs: &[RelabelConfig]) -> Vec<String> {
        let rules = rules(configs);
        let mut state = state.state.lock();
        state.restore(&rules);
        state.update(&rules);
        rules
            .rules
            .iter()
            .filter(|rule| rule.used.is_known())
            .map(|rule| rule.name.clone())
            .collect()
    }

    #[test]
    fn a_disabled_rule_stays_disabled_after_a_restart_until_its_entry_changes() {
        let fs = MemFs::with_dir("/data");
        let (state, found) = open(&fs);
        assert_eq!(found, Ok(()));
        let configs = [drop_job("a", "x"), drop_job("b", "y")];
        let in_force = rules(&configs);
        disable(&in_force, "x", &"é".repeat(WHO_SIZE_MAX));
        state.state.lock().update(&in_force);

        let after = fs.crash(PowerCut::LosesAll);
        let restarted = || open(&after).0;
        assert_eq!(disabled(&restarted(), &configs), ["a"]);
        assert_eq!(
            disabled(&restarted(), &[drop_job("b", "y"), drop_job("a", "x")]),
            ["a"],
            "its index is irrelevant"
        );
        let n_operations = after.n_operations();
        assert_eq!(disabled(&restarted(), &configs), ["a"]);
        assert_eq!(after.n_operations(), n_operations, "nothing has changed");
        let enforced = RelabelConfig {
            disable_on_use: false,
            ..drop_job("a", "x")
        };
        for changed in [drop_job("a2", "x"), drop_job("a", "x|z"), enforced] {
            let fs = fs.crash(PowerCut::LosesAll);
            assert!(
                disabled(&open(&fs).0, std::slice::from_ref(&changed)).is_empty(),
                "{changed:?}"
            );
            // It was not in force for a while, and is a new rule.
            assert!(disabled(&open(&fs).0, &configs).is_empty(), "{changed:?}");
        }
    }

    #[test]
    fn the_format_page_shows_the_written_bytes() {
        let fs = MemFs::with_dir("/data");
        let in_force = rules(&[drop_job("debug", "x")]);
        disable(&in_force, "x", "curl");
        let mut state = State {
            disabled: ByRule::default(),
            file: PersistedState::in_memory(FILE),
        };
        state.update(&in_force);
        let payload = encode(&state.disabled);
        FILE.replace(&fs, Path::new(PATH), &payload).unwrap();
        assert_shown(
            include_str!("../../../docs/format/disabled-rules.md"),
            &fs.read(Path::new(PATH), 1 << 10).unwrap(),
        );
        assert_eq!(decode(&payload), Some(state.disabled));
    }

    #[test]
    fn a_payload_beyond_a_bound_is_rejected() {
        let too_many = (RELABEL_RULES_MAX as u16 + 1).to_le_bytes();
        let of_one = |tail: &[u8]| [&[1, 0][..], &[0; 24], tail].concat();
        assert!(decode(&of_one(&[0, 0, 1, 0, b'w'])).is_some());
        for tail in [
            &[0, 0, 1, 0, 0xff][..],
            &[1, 4],
            &[0, 0, 1, 1],
            &[0, 0, 1, 0, b'w', 0],
        ] {
            assert!(decode(&of_one(tail)).is_none(), "{tail:?}");
        }
        assert!(decode(&too_many).is_none());
    }
}
