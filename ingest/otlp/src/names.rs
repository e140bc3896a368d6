//! Names of metrics, labels and units, translated like in Prometheus' `otlptranslator` module.

use varve_model::metadata::MetricType;

/// The translation of names: whether characters other than ASCII letters, digits, `_` and `:` are
/// replaced, and whether suffixes for unit and type are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TranslationStrategy {
    /// Underscores for other characters, with suffixes. The default.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// Underscores for other characters, without suffixes.
    UnderscoreEscapingWithoutSuffixes,
    /// Unchanged names, with suffixes.
    NoUtf8EscapingWithSuffixes,
    /// Unchanged names.
    NoTranslation,
}

impl TranslationStrategy {
    pub(crate) fn escapes(self) -> bool {
        matches!(
            self,
            Self::UnderscoreEscapingWithSuffixes | Self::UnderscoreEscapingWithoutSuffixes
        )
    }

    fn adds_suffixes(self) -> bool {
        matches!(
            self,
            Self::UnderscoreEscapingWithSuffixes | Self::NoUtf8EscapingWithSuffixes
        )
    }
}

/// Returns the name of a metric. Only counters and gauges have a suffix for their type.
///
/// # Errors
/// Why it cannot be translated.
pub(crate) fn metric_name(
    name: &str,
    unit: &str,
    metric_type: MetricType,
    strategy: TranslationStrategy,
) -> Result<String, String> {
    match (strategy.escapes(), strategy.adds_suffixes()) {
        (false, false) => Ok(name.to_owned()),
        (false, true) => Ok(with_suffixes(name, unit, metric_type)),
        (true, suffixes) => {
            let translated = if suffixes {
                normalized(name, unit, metric_type)
            } else {
                escaped(name)
            };
            let translated = if translated.starts_with(|c: char| c.is_ascii_digit()) {
                format!("_{translated}")
            } else {
                translated
            };
            if translated.is_empty() {
                Err(format!(
                    "normalization for metric {name:?} resulted in empty name"
                ))
            } else if translated != name && translated.bytes().all(|b| b == b'_') {
                Err(format!(
                    "normalization for metric {name:?} resulted in invalid name {translated:?}"
                ))
            } else {
                Ok(translated)
            }
        }
    }
}

/// Returns the unit as a word, for metadata.
pub(crate) fn unit_name(unit: &str) -> String {
    let (main, per) = unit_suffixes(unit);
    let main = clean_unit(&main);
    let per = clean_unit(&per);
    let name = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main,
        (true, _) => per,
    };
    let name = name.strip_prefix('_').unwrap_or(&name);
    name.strip_suffix('_').unwrap_or(name).to_owned()
}

/// The translation of label names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabelNamer {
    pub(crate) escapes: bool,
    /// Adds the prefix `key` to a name with one leading underscore.
    pub(crate) sanitizes_underscore: bool,
    /// Preserves consecutive underscores.
    pub(crate) keeps_underscores: bool,
}

impl LabelNamer {
    /// Returns the name of a label.
    ///
    /// # Errors
    /// Why it cannot be translated.
    pub(crate) fn name(self, label: &str) -> Result<String, String> {
        if label.is_empty() {
            return Err("label name is empty".to_owned());
        }
        if !self.escapes {
            if is_only_underscores(label) {
                return Err(format!("label name {label:?} contains only underscores"));
            }
            return Ok(label.to_owned());
        }
        let mut name = self.escape(label);
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert_str(0, "key_");
        } else if self.sanitizes_underscore && name.starts_with('_') && !name.starts_with("__") {
            name.insert_str(0, "key");
        }
        if is_only_underscores(&name) {
            return Err(format!(
                "normalization for label name {label:?} resulted in invalid name {name:?}"
            ));
        }
        Ok(name)
    }

    fn escape(self, label: &str) -> String {
        let valid = |c: char| c.is_ascii_alphanumeric();
        if self.keeps_underscores {
            return label
                .chars()
                .map(|c| if valid(c) { c } else { '_' })
                .collect();
        }
        let reserved = label
            .strip_prefix("__")
            .and_then(|label| label.strip_suffix("__"));
        let mut name = String::from(if reserved.is_some() { "__" } else { "" });
        let mut after_underscore = false;
        for c in reserved.unwrap_or(label).chars() {
            if valid(c) {
                name.push(c);
            } else if !after_underscore {
                name.push('_');
            }
            after_underscore = !valid(c);
        }
        name + if reserved.is_some() { "__" } else { "" }
    }
}

fn is_valid(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

fn escaped(name: &str) -> String {
    let parts = name
        .split(|c| !is_valid(c) && c != '_')
        .filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

fn normalized(name: &str, unit: &str, metric_type: MetricType) -> String {
    let mut tokens: Vec<&str> = name
        .split(|c| !is_valid(c))
        .filter(|token| !token.is_empty())
        .collect();
    let (main, per) = unit_suffixes(unit);
    let main = clean_unit(&main);
    let per = clean_unit(&per);
    let mut main = if tokens.contains(&main.as_str()) {
        ""
    } else {
        &main
    };
    let mut per = if per == "per_" {
        ""
    } else {
        per.strip_suffix('_').unwrap_or(&per)
    };
    if tokens.contains(&per) {
        per = "";
    }
    if !per.is_empty() {
        main = main.strip_suffix('_').unwrap_or(main);
    }
    tokens.extend([main, per].into_iter().filter(|suffix| !suffix.is_empty()));
    for (suffix, applies) in [
        ("total", metric_type == MetricType::Counter),
        // Other types misuse this unit for counts.
        ("ratio", unit == "1" && metric_type == MetricType::Gauge),
    ] {
        if applies {
            tokens.retain(|token| *token != suffix);
            tokens.push(suffix);
        }
    }
    tokens.join("_")
}

fn with_suffixes(name: &str, unit: &str, metric_type: MetricType) -> String {
    let (main, per) = unit_suffixes(unit);
    let is_ratio = unit == "1" && metric_type == MetricType::Gauge;
    let is_total = metric_type == MetricType::Counter;
    let mut suffixes: Vec<&str> = Vec::new();
    let mut name = name;
    for (suffix, applies) in [
        ("ratio", is_ratio),
        ("total", is_total),
        (&per, !per.is_empty()),
    ] {
        if applies {
            name = without_suffix(name, suffix);
            suffixes.insert(0, suffix);
        }
    }
    let mut name = name.to_owned();
    if !main.is_empty() && !name.ends_with(&main) {
        name = name + "_" + &main;
    }
    suffixes
        .iter()
        .fold(name, |name, suffix| name + "_" + suffix)
}

/// Removes a suffix and the character before it.
fn without_suffix<'a>(name: &'a str, suffix: &str) -> &'a str {
    match name.strip_suffix(suffix) {
        Some(rest) if rest.len() > 1 => {
            let last = rest.chars().next_back().map_or(0, char::len_utf8);
            &rest[..rest.len() - last]
        }
        _ => name,
    }
}

/// Returns the words of a unit and of its denominator, such as `per_second`.
fn unit_suffixes(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let main = unit_word(main, UNITS);
    let per = unit_word(per, PER_UNITS);
    if per.is_empty() {
        (main, per)
    } else {
        (main, format!("per_{per}"))
    }
}

fn unit_word(unit: &str, words: &[(&str, &'static str)]) -> String {
    let unit = unit.trim();
    if unit.contains(['{', '}']) {
        return String::new();
    }
    for (short, word) in words {
        if *short == unit {
            return (*word).to_owned();
        }
    }
    unit.to_owned()
}

fn is_only_underscores(name: &str) -> bool {
    name.bytes().all(|byte| byte == b'_')
}

fn clean_unit(unit: &str) -> String {
    let mut clean = String::new();
    for c in unit.chars().map(|c| if is_valid(c) { c } else { '_' }) {
        if c != '_' || !clean.ends_with('_') {
            clean.push(c);
        }
    }
    clean.strip_prefix('_').map(str::to_owned).unwrap_or(clean)
}

const UNITS: &[(&str, &str)] = &[
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

const PER_UNITS: &[(&str, &str)] = &[
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

#[cfg(test)]
mod tests {
    use varve_model::metadata::MetricType::{Counter, Gauge, Unknown};

    use super::TranslationStrategy as Strategy;
    use super::*;

    #[track_caller]
    fn check(name: &str, unit: &str, metric_type: MetricType, expect: [&str; 4]) {
        let strategies = [
            Strategy::UnderscoreEscapingWithSuffixes,
            Strategy::UnderscoreEscapingWithoutSuffixes,
            Strategy::NoUtf8EscapingWithSuffixes,
            Strategy::NoTranslation,
        ];
        let names = strategies.map(|strategy| {
            metric_name(name, unit, metric_type, strategy).unwrap_or_else(|refused| refused)
        });
        assert_eq!(names.each_ref().map(String::as_str), expect);
    }

    #[test]
    fn metrics_are_named_by_all_strategies() {
        check(
            "a.b",
            "s",
            Gauge,
            ["a_b_seconds", "a_b", "a.b_seconds", "a.b"],
        );
        check("a.b", "1", Gauge, ["a_b_ratio", "a_b", "a.b_ratio", "a.b"]);
        check(
            "a_ratio",
            "1",
            Gauge,
            ["a_ratio", "a_ratio", "a_ratio", "a_ratio"],
        );
        check(
            "a.total",
            "By",
            Counter,
            ["a_bytes_total", "a_total", "a_bytes_total", "a.total"],
        );
        check(
            "http.requests",
            "{request}",
            Counter,
            [
                "http_requests_total",
                "http_requests",
                "http.requests_total",
                "http.requests",
            ],
        );
        check(
            "io",
            "By/s",
            Gauge,
            ["io_bytes_per_second", "io", "io_bytes_per_second", "io"],
        );
        check(
            "a.seconds",
            "s",
            Unknown,
            ["a_seconds", "a_seconds", "a.seconds", "a.seconds"],
        );
        check("1x", "", Gauge, ["_1x", "_1x", "1x", "1x"]);
        check(
            "a..b__c",
            "",
            Gauge,
            ["a_b_c", "a_b__c", "a..b__c", "a..b__c"],
        );
        let empty = "normalization for metric \"..\" resulted in empty name";
        check("..", "", Gauge, [empty, empty, "..", ".."]);
    }

    #[test]
    fn label_names_are_escaped_in_both_ways() {
        let namer = LabelNamer {
            escapes: true,
            sanitizes_underscore: true,
            keeps_underscores: true,
        };
        let spare = LabelNamer {
            keeps_underscores: false,
            sanitizes_underscore: false,
            ..namer
        };
        for (label, keeping, collapsing) in [
            ("a.b", "a_b", "a_b"),
            ("a..b", "a__b", "a_b"),
            ("1a", "key_1a", "key_1a"),
            ("_a", "key_a", "_a"),
            ("__a.b__", "__a_b__", "__a_b__"),
            ("é", "key_", ""),
        ] {
            assert_eq!(namer.name(label).unwrap_or_default(), keeping);
            assert_eq!(spare.name(label).unwrap_or_default(), collapsing);
        }
        assert!(namer.name("").is_err());
        let utf8 = LabelNamer {
            escapes: false,
            ..namer
        };
        assert_eq!(utf8.name("a.b").as_deref(), Ok("a.b"));
        assert!(utf8.name("__").is_err());
    }

    #[test]
    fn units_have_words() {
        for (unit, word) in [
            ("s", "seconds"),
            ("m/s", "meters_per_second"),
            ("1", ""),
            ("{x}", ""),
            ("/y", "per_year"),
            ("a b", "a_b"),
        ] {
            assert_eq!(unit_name(unit), word);
        }
    }
}
