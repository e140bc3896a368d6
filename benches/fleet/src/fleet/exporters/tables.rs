//! Tables of metrics, or of values of a label, and the models of their values: the file
//! `tables.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::model::{Model, constant, counter, drawn, gauge, level, now, rare, started};

type Table = Vec<(&'static str, Model)>;

static TABLES: LazyLock<HashMap<&str, Table>> = LazyLock::new(|| {
    let mut tables: HashMap<_, Table> = HashMap::new();
    let mut name = "";
    for line in include_str!("tables.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.split_once(' ') {
            _ if line.starts_with('[') => name = line.trim_matches(['[', ']']),
            Some((metric, text)) => tables.entry(name).or_default().push((metric, model(text))),
            None => panic!("{line:?} is not a metric and its model"),
        }
    }
    tables
});

/// Returns a table.
///
/// # Panics
/// If there is no table of this name, or a line of the file is invalid.
pub(super) fn table(name: &str) -> &'static [(&'static str, Model)] {
    TABLES
        .get(name)
        .unwrap_or_else(|| panic!("there is no table {name:?}"))
}

/// Parses a model: `counter(4, 13).decimals(3)`.
fn model(text: &str) -> Model {
    let mut parsed: Option<Model> = None;
    for call in text.split('.') {
        let (function, args) = call
            .strip_suffix(')')
            .and_then(|call| call.split_once('('))
            .unwrap_or((call, ""));
        let args = args.split(", ").filter(|arg| !arg.is_empty());
        let args: Vec<u64> = args
            .map(|arg| {
                arg.replace('_', "")
                    .parse()
                    .expect("an argument is a number")
            })
            .collect();
        parsed = Some(match (function, &args[..], parsed) {
            ("counter", &[low, high], None) => counter(byte(low), byte(high)),
            ("gauge", &[low, high, noise], None) => gauge(byte(low), byte(high), byte(noise)),
            ("level", &[low, high, hold], None) => level(low, high, word(hold)),
            ("rare", &[every], None) => rare(word(every)),
            ("constant", &[value], None) => constant(value),
            ("drawn", &[low, high], None) => drawn(low, high),
            ("now", [], None) => now(),
            ("started", [], None) => started(),
            ("unit", &[unit], Some(model)) => model.unit(word(unit)),
            ("decimals", &[decimals], Some(model)) => model.decimals(byte(decimals)),
            ("idle", &[percent], Some(model)) => model.idle(byte(percent)),
            ("rounded", &[ulps], Some(model)) => model.rounded(byte(ulps)),
            _ => panic!("{text:?} is not a model"),
        });
    }
    parsed.expect("a text has a first part")
}

fn byte(arg: u64) -> u8 {
    u8::try_from(arg).expect("powers of two, decimals and shares are small")
}

fn word(arg: u64) -> u32 {
    u32::try_from(arg).expect("units and rounds are less than 2^32")
}
