use std::collections::{BTreeMap, BTreeSet};

use clap::{Args as _, Command, FromArgMatches as _};
use serde_json::Value;
use varve_system::machine::Memory;

use super::{KEYS_OF_FLAGS, ServerSettings, resolve};
use crate::file::Config;
use crate::flags::ServeArgs;

const PAGE: &str = include_str!("../../../../docs/config.md");

/// Flags and keys whose last words are the same, although they set different things.
const DIFFERENT: [(&str, &str); 3] = [
    ("query.timeout", "alerting.alertmanagers.timeout"),
    ("query.timeout", "tracing.timeout"),
    (
        "storage.tsdb.retention.time",
        "storage.tsdb.retention.rules.time",
    ),
];

/// Returns the settings of flags and a configuration.
fn settings(flags: &[&str]) -> ServerSettings {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let matches = command.get_matches_from(["serve"].iter().chain(flags));
    let args = ServeArgs::from_arg_matches(&matches).unwrap();
    let memory = Memory::given(1 << 30);
    let config = Config::default();
    resolve(&args, &config, &memory, None, BTreeMap::new(), false)
        .unwrap()
        .settings
}

/// Returns the keys of the example in docs/config.md, which has all of them. Elements of lists have
/// the key of their list.
fn keys() -> BTreeSet<String> {
    fn add(value: &Value, prefix: &str, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    add(value, &format!("{prefix}.{key}"), keys);
                }
            }
            Value::Array(values) if values.iter().any(Value::is_object) => {
                for value in values {
                    add(value, prefix, keys);
                }
            }
            _ => drop(keys.insert(prefix.trim_start_matches('.').to_owned())),
        }
    }
    let (_, example) = PAGE.split_once("```yaml\nglobal:").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let config = Config::parse(&format!("global:{example}")).unwrap();
    let mut keys = BTreeSet::new();
    add(&serde_json::to_value(config).unwrap(), "", &mut keys);
    keys
}

/// `status/flags` showed 15d while the file set 30d. A setting that is added as a flag and as a key
/// must be in the table, from which the black-box test takes what it changes.
#[test]
fn keys_that_set_the_same_as_a_flag_are_listed() {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let last = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        last.replace('-', "_")
    };
    let mut same = BTreeSet::new();
    for key in keys() {
        for argument in command.get_arguments() {
            let flag = argument.get_long().unwrap();
            let is_same = last(flag) == last(&key)
                || key
                    .replace('.', "_")
                    .ends_with(&flag.replace(['.', '-'], "_"));
            if is_same && !DIFFERENT.contains(&(flag, key.as_str())) {
                same.insert((flag.to_owned(), key.clone()));
            }
        }
    }
    let listed = KEYS_OF_FLAGS.map(|(flag, key)| (flag.to_owned(), key.to_owned()));
    assert_eq!(same, BTreeSet::from(listed));
}

#[test]
fn the_page_lists_keys_that_set_the_same_as_a_flag() {
    let (_, table) = PAGE.split_once("| key | flag |\n| --- | --- |\n").unwrap();
    let rows: BTreeSet<_> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(str::to_owned)
        .collect();
    let expect = KEYS_OF_FLAGS.map(|(flag, key)| format!("| `{key}` | `--{flag}` |"));
    assert_eq!(rows, BTreeSet::from(expect));
}

#[test]
fn retention_in_force_is_shown_in_flags_and_configuration() {
    let check = |flags: &[&str], text: &str, time: &str, size: &str, yaml: &str| {
        let settings = settings(flags);
        let config = Config::parse(text).unwrap();
        let shown = settings.flags_in_force(&config);
        assert_eq!(
            shown["storage.tsdb.retention.time"], time,
            "{flags:?} {text}"
        );
        assert_eq!(
            shown["storage.tsdb.retention.size"], size,
            "{flags:?} {text}"
        );
        let printed = settings.config_in_force(&config).to_yaml();
        let expect = format!("    retention:\n{yaml}      rules: []\n");
        assert!(printed.contains(&expect), "{flags:?} {text}: {printed}");
    };
    let retention = |keys: &str| format!("storage: {{tsdb: {{retention: {{{keys}}}}}}}");
    let time_flag = "--storage.tsdb.retention.time=100d";
    check(&[], "", "15d", "0B", "      time: 15d\n");
    check(&[time_flag], "", "100d", "0B", "      time: 100d\n");
    check(
        &[time_flag],
        &retention("time: 30d"),
        "30d",
        "0B",
        "      time: 30d\n",
    );
    check(
        &[time_flag],
        &retention("time: 0s"),
        "0s",
        "0B",
        "      time: 0s\n",
    );
    let both = "      time: 0s\n      size: 5GiB\n";
    check(&[], &retention("size: 5GB"), "0s", "5GiB", both);
    let part = "      time: 0s\n      percentage: 50.0\n";
    check(&[], &retention("percentage: 50"), "0s", "0B", part);
}
