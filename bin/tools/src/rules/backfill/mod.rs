//! `varve rules backfill`: evaluates the recording rules of files over history, and imports their
//! samples.
//!
//! Rules are ordered by what they read, in whatever groups and files they are. The rules of a level
//! are evaluated and imported before those of the next one, so each one reads the samples of the
//! same backfill, and of the same time, where a running server may still read those of one interval
//! before. A series that ends gets a staleness marker, as a running server writes it. Samples that
//! the server has already are left out, so a repetition writes nothing. It does not see the markers
//! that the server has: where a rule finds a sample now, the sample counts as new, but the marker
//! remains.
//!
//! Bounds: [`rule::STEPS_MAX`] evaluations per request, and fewer where the server or the client
//! rejects the result as too large; [`blocks::SIZE_MAX`] bytes of samples and labels in memory; the
//! pauses of a request that is repeated, in `request`.
//!
//! Crash: imported levels remain. Blocks of the next one may be in the directory `import` of the
//! server. A repetition imports them, evaluates everything again and writes the rest.

mod blocks;
mod request;
mod rule;
mod server;
#[cfg(test)]
mod testing;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use varve_advise::counted;
use varve_model::TimeRange;
use varve_prometheus::recover::WINDOW_MS;
use varve_promql::Features;
use varve_rules::file::{self, GroupDefinition, GroupState, Options, RuleDefinition, RuleKind};
use varve_rules::schedule::Schedule;
use varve_rules::{Time, levels};

use self::blocks::Blocks;
use self::rule::{Rule, Times};
use self::server::Server;
use super::args::RulesBackfillArgs;
use crate::scratch_dir::ScratchDir;

/// Evaluates the rules of files and imports their samples.
pub(super) fn backfill(args: &RulesBackfillArgs) -> Result<()> {
    let range = args.range.past()?;
    let client = args.rules.client()?;
    let groups = read_groups(args)?;
    let mut server = Server::new(client, &args.path)?;
    let range = server.kept(range)?;
    let mut rules = recording_rules(groups, args, range)?;
    let definitions: Vec<&RuleDefinition> = rules.iter().map(|rule| &rule.definition).collect();
    let ordered = levels(&definitions);
    for &idx in &ordered.cyclic {
        eprintln!(
            "rule {:?} depends on itself: it does not see the samples that this backfill writes for it",
            rules[idx].definition.name
        );
    }

    // Samples of groups with a query offset begin before the range.
    let first_ms = rules.iter().map(Rule::first_ms).min();
    let first_ms = first_ms.unwrap_or(range.start_ms);
    let scratch = ScratchDir::create(None)?;
    for (level_idx, level) in ordered.levels.iter().enumerate() {
        let dir = scratch.path().join(format!("level-{level_idx}"));
        let mut blocks = Blocks::create(dir)?;
        for window in windows(first_ms, range.end_ms) {
            for &idx in level {
                let rule = &mut rules[idx];
                rule.evaluate(&mut server.client, window, &mut blocks)
                    .with_context(|| format!("rule {:?}", rule.definition.name))?;
            }
            blocks.flush()?;
        }
        blocks.import(&mut server)?;
        for &idx in level {
            println!("{}", rules[idx].summary());
        }
    }
    let n_failed = rules.iter().filter(|rule| rule.has_failed()).count();
    if n_failed > 0 {
        bail!(
            "{} failed at some times, which have no samples",
            counted(n_failed, "rule")
        );
    }
    Ok(())
}

/// A group and the path of its file.
struct FileGroup {
    path: String,
    group: GroupDefinition,
}

/// Returns the groups of the files, in file order, but for those in dry run.
fn read_groups(args: &RulesBackfillArgs) -> Result<Vec<FileGroup>> {
    let options = Options {
        features: Features::all(),
        ..Options::default()
    };
    let mut groups = Vec::new();
    for path in args.rules.files()? {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {path:?}"))?;
        let parsed = file::parse(&text, &options).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{path:?}: {}", errors.join("; "))
        })?;
        for group in parsed.files.into_iter().flat_map(|file| file.groups) {
            if group.state == GroupState::DryRun {
                eprintln!(
                    "group {:?} of {path:?} is in dry run and not written",
                    group.name
                );
                continue;
            }
            let path = path.to_string_lossy().into_owned();
            groups.push(FileGroup { path, group });
        }
    }
    Ok(groups)
}

/// Returns the recording rules of groups, in the same order.
fn recording_rules(
    groups: Vec<FileGroup>,
    args: &RulesBackfillArgs,
    range: TimeRange,
) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for FileGroup { path, group } in groups {
        let times = times(args, range, &path, &group)?;
        let records = group
            .rules
            .into_iter()
            .filter(|rule| matches!(rule.kind, RuleKind::Recording));
        rules.extend(records.map(|rule| Rule::new(rule, group.limit, times)));
    }
    Ok(rules)
}

/// Returns the times of the samples of a group.
fn times(
    args: &RulesBackfillArgs,
    range: TimeRange,
    path: &str,
    group: &GroupDefinition,
) -> Result<Times> {
    let interval = group
        .interval_ms
        .and_then(|ms| u64::try_from(ms).ok())
        .map_or(args.evaluation_interval, Duration::from_millis);
    ensure!(
        !interval.is_zero(),
        "--evaluation-interval must be positive"
    );
    let TimeRange { start_ms, end_ms } = range;
    let schedule = Schedule::new(path, &group.name, interval);
    let mut first = schedule.at_or_before(Time::from_ms(start_ms));
    if first.ms() < start_ms {
        first = schedule.after(first);
    }
    let offset_ms = group.query_offset_ms.unwrap_or(0);
    Ok(Times {
        first_ms: first.ms() - offset_ms,
        last_ms: end_ms - offset_ms,
        interval_ms: interval.as_millis() as i64,
    })
}

/// Returns the windows of blocks from one time to another.
fn windows(start_ms: i64, end_ms: i64) -> impl Iterator<Item = TimeRange> {
    let first = start_ms.div_euclid(WINDOW_MS);
    let last = end_ms.div_euclid(WINDOW_MS);
    (first..=last).map(|idx| TimeRange {
        start_ms: idx * WINDOW_MS,
        end_ms: (idx + 1) * WINDOW_MS - 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_range() {
        let found: Vec<TimeRange> = windows(-1, 2 * WINDOW_MS).collect();
        let starts: Vec<i64> = found.iter().map(|window| window.start_ms).collect();
        assert_eq!(starts, [-WINDOW_MS, 0, WINDOW_MS, 2 * WINDOW_MS]);
        assert!(
            found
                .iter()
                .all(|window| window.end_ms == window.start_ms + WINDOW_MS - 1)
        );
    }
}
