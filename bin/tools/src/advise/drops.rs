//! `varve advise drops`: compares the existing series with the needs of rules, dashboards and
//! queries.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::Value;
use varve_advise::inventory::Scrapes;
use varve_advise::keep::Keep;
use varve_advise::needs::{Nameless, Needs};
use varve_advise::{Advice, findings, relabel_rules};
use varve_config::file::GlobalConfig;
use varve_system::metrics::OWN_JOB;
use varve_system::quantity::print_duration;
use varve_wire::api::advice::BYTES_PER_SAMPLE;

use super::args::DropsArgs;
use super::report::Report;
use super::server::Server;
use super::{expressions, files, scrapes, usage_record};

/// The exit code if the unused share exceeds `--fail-above`.
const CODE_UNUSED: u8 = 3;
/// The exit code of `--strict` if some input could not be parsed.
const CODE_PROBLEMS: u8 = 4;
/// A younger usage record may miss rare queries.
const RECORD_AGE_MIN: Duration = Duration::from_secs(7 * 86_400);

/// Runs `varve advise drops` and returns the exit code.
///
/// # Errors
/// If an input cannot be read or the rules cannot be written.
pub(crate) fn drops(args: &DropsArgs) -> Result<ExitCode> {
    ensure!(
        args.server.given().is_none() || args.scrape.is_empty(),
        "two inventories: give either a server or --scrape"
    );
    let mut inputs = Inputs::default();
    inputs.read(args)?;
    if inputs.needs.is_empty() {
        bail!(
            "no rule, dashboard or query was found: give --rules, --dashboards, --grafana or --usage"
        );
    }
    let (advice, bytes_per_sample) = find(args, &inputs.needs)?;
    let retention = print_duration(args.retention);
    inputs.notes.push(format!(
        "disk: {bytes_per_sample}, {retention} (--retention)"
    ));
    inputs
        .notes
        .extend(nameless_notes(&advice.findings, nameless(args)));
    let problems = inputs.needs.problems();
    let report = Report {
        advice: &advice,
        since_ms: inputs.since_ms,
        problems,
        notes: inputs.notes,
    };
    args.output
        .print(|| report.table(args.limit), || report.json());
    if let Some(path) = &args.write {
        std::fs::write(path, &advice.rules.text)
            .with_context(|| format!("write rules to {path:?}"))?;
    }
    let percent = advice.findings.totals.unused_percent();
    Ok(match args.fail_above {
        Some(most) if percent > most => ExitCode::from(CODE_UNUSED),
        _ if args.strict && !problems.is_empty() => ExitCode::from(CODE_PROBLEMS),
        _ => ExitCode::SUCCESS,
    })
}

/// The needs of all inputs.
#[derive(Debug, Default)]
struct Inputs {
    needs: Needs,
    /// When the youngest usage record began.
    since_ms: Option<i64>,
    notes: Vec<String>,
}

impl Inputs {
    fn read(&mut self, args: &DropsArgs) -> Result<()> {
        let notes = expressions::read(&args.expressions, &args.server.access, &mut self.needs)?;
        self.notes.extend(notes);
        self.read_records(args)
    }

    fn read_records(&mut self, args: &DropsArgs) -> Result<()> {
        for path in &args.usage {
            let file = files::read_file(path)?;
            self.read_record(&file.name, &file.text, args.usage_since);
        }
        if !args.scrape.is_empty() {
            return Ok(());
        }
        let url = args.server.url();
        let mut client = args.server.client()?;
        // Only Varve has this endpoint.
        let rules = client
            .get_data("/api/v1/status/relabel")
            .unwrap_or_default();
        self.notes.extend(
            rules["rules"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(would_be_disabled),
        );
        if args.no_usage {
            return Ok(());
        }
        let response = client.get("/api/v1/status/usage")?;
        if response.is_success() {
            let text = String::from_utf8_lossy(&response.body).into_owned();
            self.read_record(
                &format!("{url}/api/v1/status/usage"),
                &text,
                args.usage_since,
            );
        } else {
            self.notes.push(format!(
                "{url} has no usage record: it returned {}",
                response.status
            ));
        }
        Ok(())
    }

    fn read_record(&mut self, name: &str, text: &str, within: Duration) {
        let Ok(record) = usage_record::parse(text) else {
            return self.needs.report_file(name, "not a usage record");
        };
        self.needs
            .add_usage_record(&name.into(), &record, before_now_ms(within));
        self.since_ms = self.since_ms.max(Some(record.since_ms));
        if record.since_ms > before_now_ms(RECORD_AGE_MIN) {
            let age = print_duration(RECORD_AGE_MIN);
            self.notes.push(format!(
                "the usage record {name} covers less than {age}: rare queries may be missing"
            ));
        }
    }
}

/// Returns which selectors without a metric name count as uses.
fn nameless(args: &DropsArgs) -> Nameless {
    if args.ignore_nameless {
        Nameless::None
    } else if args.count_exploration {
        Nameless::All
    } else {
        Nameless::RulesAndDashboards
    }
}

/// Returns notes about the effect of selectors without a metric name.
fn nameless_notes(findings: &findings::Findings, counted: Nameless) -> Vec<String> {
    let mut notes = Vec::new();
    let n = findings.nameless.len();
    if n > 0 {
        let effect = match counted {
            Nameless::None => "are ignored (--ignore-nameless)",
            Nameless::All | Nameless::RulesAndDashboards => {
                "use all series that they may match; if they are only for exploration, add --ignore-nameless"
            }
        };
        notes.push(format!(
            "selectors without a metric name: {n}; they {effect}"
        ));
    }
    let n = findings.exploration.len();
    if n > 0 {
        notes.push(format!(
            "recorded queries without a metric name: {n}; they are exploration and no use; to count \
             them, add --count-exploration"
        ));
    }
    notes
}

/// Returns a note about a rule in a dry run that a query would have disabled.
fn would_be_disabled(rule: &Value) -> Option<String> {
    let query = rule
        .get("wouldBeDisabledBy")
        .filter(|query| query.is_object())?;
    let time = Timestamp::from_millisecond(query["atMs"].as_i64()?).ok()?;
    let name = rule["name"].as_str().unwrap_or_default();
    let selector = query["selector"].as_str().unwrap_or_default();
    let who = query["who"].as_str().unwrap_or_default();
    Some(format!(
        "the rule {name:?} in dry run would have been disabled by {selector} of {who} at {time:.0}"
    ))
}

fn before_now_ms(duration: Duration) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.saturating_sub(duration).as_millis()).unwrap_or(i64::MAX)
}

/// Returns the advice, and which bytes per sample it assumes.
fn find(args: &DropsArgs, needs: &Needs) -> Result<(Advice, String)> {
    // The last interval of all jobs, and of each job, counts.
    let mut interval_of_all = GlobalConfig::default().scrape_interval;
    let mut intervals = BTreeMap::new();
    for (job, interval) in &args.scrape_interval {
        match job {
            Some(job) => drop(intervals.insert(job.clone(), *interval)),
            None => interval_of_all = *interval,
        }
    }
    let rules = relabel_rules::Options {
        dialect: args.write_for.into(),
        enforce: args.enforce,
        labels: args.write_labels,
    };
    let keep = keep(args)?;
    if args.scrape.is_empty() {
        let mut server = Server::new(args.server.client()?, interval_of_all, intervals);
        let (bytes_per_sample, assumed) = assume_bytes_per_sample(args, server.bytes_per_sample());
        Ok((
            Advice::find(
                needs,
                &mut server,
                options(args, keep, bytes_per_sample),
                rules,
            )?,
            assumed,
        ))
    } else {
        let mut scrapes = read_scrapes(args, interval_of_all, intervals)?;
        let (bytes_per_sample, assumed) = assume_bytes_per_sample(args, None);
        let Ok(advice) = Advice::find(
            needs,
            &mut scrapes,
            options(args, keep, bytes_per_sample),
            rules,
        );
        Ok((advice, assumed))
    }
}

/// Returns the bytes per sample on disk, also in words.
fn assume_bytes_per_sample(args: &DropsArgs, measured: Option<f64>) -> (f64, String) {
    let (bytes, source) = match (args.bytes_per_sample, measured) {
        (Some(given), _) => (given, "--bytes-per-sample"),
        (None, Some(measured)) => (measured, "measured by the server"),
        (None, None) => (BYTES_PER_SAMPLE, "the default of --bytes-per-sample"),
    };
    (bytes, format!("{bytes:.2} bytes per sample ({source})"))
}

/// Returns the keep list.
fn keep(args: &DropsArgs) -> Result<Keep> {
    let mut keep = if args.no_keep {
        Keep::default()
    } else {
        Keep::presets()
    };
    for pattern in &args.keep {
        keep.add(pattern)
            .with_context(|| format!("parse --keep {pattern:?}"))?;
    }
    Ok(keep)
}

fn options(args: &DropsArgs, keep: Keep, bytes_per_sample: f64) -> findings::Options {
    findings::Options {
        keep,
        own_job: OWN_JOB,
        by_job: args.by_job,
        nameless: nameless(args),
        labels: true,
        bytes_per_sample,
        retention: args.retention,
    }
}

fn read_scrapes(
    args: &DropsArgs,
    interval: Duration,
    intervals: BTreeMap<String, Duration>,
) -> Result<Scrapes> {
    let mut inventory = Scrapes::new(interval, intervals, args.targets.iter().cloned().collect());
    for (job, path) in &args.scrape {
        scrapes::add(&mut inventory, job, path)?;
    }
    Ok(inventory)
}
