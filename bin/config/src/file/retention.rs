//! Section `storage.tsdb.retention`: how long samples are retained, and rules for series with a
//! shorter time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use varve_model::Matcher;
use varve_promql::parse_selector;
use varve_tsdb::retention::RetentionRule;

use super::duration::{duration, print};
use varve_system::quantity::{parse_size, print_duration};

/// Maximum number of entries in `storage.tsdb.retention.rules`. Each old block is searched once for
/// each of them.
const RETENTION_RULES_MAX: usize = 100;
/// Minimum time of a rule, apart from 0s: the length of the smallest blocks.
const RETENTION_RULE_TIME_MIN: Duration = Duration::from_secs(2 * 3600);

/// The section as written. A missing `time` or `size` has the value of its flag. As in Prometheus,
/// there is a default time only if there is no other limit.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// How long to retain samples. 0s: forever.
    #[serde(
        deserialize_with = "optional_duration",
        serialize_with = "print_optional"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
    /// Maximum size of blocks and WAL. 0B: no limit.
    #[serde(
        deserialize_with = "optional_size",
        serialize_with = "print_optional_size"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Maximum size of blocks and WAL as a percentage of the volume, from 0 to 100. 0: no limit.
    /// Prevails over `size`.
    #[serde(deserialize_with = "percentage")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<f64>,
    /// Series with a shorter time; the first rule that matches a series applies. Default none; up
    /// to [`RETENTION_RULES_MAX`].
    pub(crate) rules: Vec<RetentionRuleConfig>,
}

/// A rule as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionRuleConfig {
    /// A selector of series. It must not match a series without labels.
    #[serde(rename = "match")]
    selector: String,
    /// How long to retain samples of these series. 0s: as long as `storage.tsdb.retention.time`.
    /// Otherwise from 2h to that time.
    #[serde(deserialize_with = "duration", serialize_with = "print")]
    time: Duration,
}

impl RetentionConfig {
    /// Returns the rules. `time` is how long other series are retained; 0 is forever.
    ///
    /// # Errors
    /// If there are too many rules, a selector is invalid, or a time is out of bounds. The message
    /// names the rule.
    pub fn rules(&self, time: Duration) -> Result<Vec<RetentionRule>> {
        let n_rules = self.rules.len();
        ensure!(
            n_rules <= RETENTION_RULES_MAX,
            "storage.tsdb.retention.rules: {n_rules} rules exceed the limit of {RETENTION_RULES_MAX}"
        );
        let mut rules = Vec::new();
        for (idx, rule) in self.rules.iter().enumerate() {
            let number = idx + 1;
            let rule = rule
                .parse(time)
                .with_context(|| format!("storage.tsdb.retention.rules: rule {number}"))?;
            rules.push(rule);
        }
        Ok(rules)
    }
}

impl RetentionRuleConfig {
    fn parse(&self, retention: Duration) -> Result<RetentionRule> {
        let Self { selector, time } = self;
        let matchers = parse_selector(selector).with_context(|| format!("match: {selector:?}"))?;
        ensure!(
            !matchers.iter().all(Matcher::matches_empty),
            "match: {selector:?} must contain at least one non-empty matcher"
        );
        ensure!(
            time.is_zero() || *time >= RETENTION_RULE_TIME_MIN,
            "time: {} must be 0s or at least {}",
            print_duration(*time),
            print_duration(RETENTION_RULE_TIME_MIN)
        );
        ensure!(
            retention.is_zero() || *time <= retention,
            "time: {} must not exceed the retention of all series, {} (storage.tsdb.retention.time or \
             --storage.tsdb.retention.time)",
            print_duration(*time),
            print_duration(retention)
        );
        let time_ms = i64::try_from(time.as_millis()).context("time")?;
        Ok(RetentionRule {
            matchers,
            time_ms: Some(time_ms).filter(|&time_ms| time_ms > 0),
        })
    }
}

fn percentage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let percentage = f64::deserialize(deserializer)?;
    if (0.0..=100.0).contains(&percentage) {
        Ok(Some(percentage))
    } else {
        // The text of Prometheus.
        Err(serde::de::Error::custom(format!(
            "'storage.tsdb.retention.percentage' must be in the range [0, 100], got {percentage}"
        )))
    }
}

fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

fn print_optional<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    print(&duration.unwrap_or_default(), serializer)
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_size(&text)
        .map(Some)
        .map_err(serde::de::Error::custom)
}

fn print_optional_size<S: Serializer>(
    size: &Option<usize>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let size = size.unwrap_or_default();
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (shift, unit) = units
        .into_iter()
        .find(|(shift, _)| size > 0 && size.is_multiple_of(1 << shift))
        .unwrap_or((0, "B"));
    serializer.serialize_str(&format!("{}{unit}", size >> shift))
}

#[cfg(test)]
mod tests {
    use crate::file::Config;

    /// Parses rules, with other keys of the section.
    #[track_caller]
    fn check(keys: &str, expect: Result<(), &str>) {
        let text = format!("storage: {{tsdb: {{retention: {{{keys}}}}}}}");
        match (
            Config::parse(&text).map_err(|error| format!("{error:#}")),
            expect,
        ) {
            (Ok(config), Ok(())) => assert_eq!(Config::parse(&config.to_yaml()).unwrap(), config),
            (Err(error), Err(part)) => assert!(error.contains(part), "{keys}: {error}"),
            (parsed, _) => panic!("{keys}: {parsed:?}"),
        }
    }

    #[test]
    fn rules_are_checked() {
        let rule =
            |selector: &str, time: &str| format!("rules: [{{match: '{selector}', time: {time}}}]");
        for (selector, time) in [
            ("up", "2h"),
            ("{job=\"a\"}", "0s"),
            ("{job=~\".+\",env!=\"x\"}", "15d"),
        ] {
            check(&format!("time: 15d, {}", rule(selector, time)), Ok(()));
        }
        check(&format!("time: 0s, {}", rule("up", "10y")), Ok(()));
        check(&rule("up", "10y"), Ok(()));
        check(
            &format!("time: 15d, {}", rule("up", "16d")),
            Err(
                "storage.tsdb.retention.rules: rule 1: time: 16d must not exceed the retention of all series, 15d",
            ),
        );
        check(
            &rule("up", "119m"),
            Err("rule 1: time: 1h59m must be 0s or at least 2h"),
        );
        check(
            &rule("{job=\"\"}", "1d"),
            Err("must contain at least one non-empty matcher"),
        );
        check(&rule("{}", "1d"), Err("rule 1: match: \"{}\" must contain"));
        check(&rule("", "1d"), Err("rule 1: match: \"\""));
        check(
            &rule("rate(up[5m])", "1d"),
            Err("rule 1: match: \"rate(up[5m])\""),
        );
        check("rules: [{match: up}]", Err("missing field `time`"));
        check(
            "rules: [{match: up, time: 1d, x: 1}]",
            Err("unknown field `x`"),
        );
    }

    #[test]
    fn the_number_of_rules_is_limited() {
        let rules =
            |n: usize| format!("rules: [{}]", ["{match: up, time: 1d}"].repeat(n).join(","));
        check(&rules(100), Ok(()));
        check(
            &rules(101),
            Err("storage.tsdb.retention.rules: 101 rules exceed the limit of 100"),
        );
    }

    #[test]
    fn a_change_of_a_rule_changes_the_key_that_a_reload_applies() {
        let config = |time: &str| {
            let text = format!(
                "storage: {{tsdb: {{retention: {{rules: [{{match: up, time: {time}}}]}}}}}}"
            );
            Config::parse(&text).unwrap()
        };
        assert_eq!(
            config("1d").keys_that_differ(&config("2d")),
            ["storage.tsdb.retention"]
        );
    }
}
