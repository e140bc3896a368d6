//! `varve advise verify`: verifies that relabel rules change no result of rules and dashboards.
//!
//! ```text
//! series of the server -> relabel rules -> series that are dropped or get other labels
//!   -> which selections change -> evaluate those whose series have other labels -> report
//! ```
//!
//! The relabel rules apply to all series that the server has in a range, metric by metric. A rule
//! or dashboard that selects none of the dropped and changed ones, before or after, has the same
//! result at any time. One that selects other series than before may have another result. One that
//! selects the same series with other labels is evaluated twice, over the server's samples in two
//! temporary stores: this holds for one time. What reads a recorded series whose result may change
//! may change, too.
//!
//! Bounds: the series of one metric, and the samples of one expression, exist at a time; the client
//! bounds the size of a response.

mod reads;
mod report;
mod series;
mod stores;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;
use varve_advise::needs::{Needs, Reader, SelectionChange};
use varve_config::file::parse_relabel_rules;
use varve_context::QueryContext;
use varve_ingest::relabel::{RelabelConfig, RelabelRuleState, Relabeling};
use varve_model::Labels;
use varve_model::labels::METRIC_NAME;
use varve_promql::Features;
use varve_system::machine::files::read_text;
use varve_system::metrics::OWN_JOB;

use super::args::VerifyArgs;
use super::expressions;
use report::{Report, Verdict};
use series::{Sampled, StoredSeries};
use stores::{Evaluator, Stores};

/// The exit code if a result may change.
const CODE_CHANGED: u8 = 3;
/// The exit code of `--strict` if some expression could not be parsed or verified.
const CODE_NOT_VERIFIED: u8 = 4;
/// Maximum size of a file with relabel rules in bytes.
const FILE_SIZE_MAX: u64 = 64 << 20;

/// Runs `varve advise verify` and returns the exit code.
///
/// # Errors
/// If an input cannot be read, the relabel rules are invalid, or the server does not list its
/// metrics.
pub(super) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let mut needs = Needs::default();
    let server = &args.view.server;
    let mut notes = expressions::read(&args.expressions, &server.access, &mut needs)?;
    ensure!(
        !needs.is_empty(),
        "no rule or dashboard was found: give --rules, --dashboards or --grafana"
    );
    let path = &args.relabel_rules;
    let text = read_text(path, FILE_SIZE_MAX).with_context(|| format!("read {path:?}"))?;
    let configs = parse_relabel_rules(&text).with_context(|| format!("{path:?}"))?;
    // `varve advise drops --write` writes such a file if all series are used.
    if configs.is_empty() {
        notes.push(format!("{path:?} has no relabel rules: nothing changes"));
    }
    let time_ms = args
        .time
        .unwrap_or_else(|| Timestamp::now().as_millisecond());
    let mut verifier = Verifier {
        series: StoredSeries {
            client: server.client()?,
            time_ms,
            range_ms: i64::try_from(args.range.as_millis()).unwrap_or(i64::MAX),
        },
        relabeling: enforced(configs).with_context(|| format!("{path:?}"))?,
        recorded: needs
            .readers()
            .filter_map(|(_, reader)| reader.record())
            .map(str::to_owned)
            .collect(),
        evaluator: Evaluator::new(),
        evaluated: HashMap::new(),
    };
    let effects = verifier.effects(&needs)?;
    let mut verdicts = BTreeMap::new();
    for (idx, reader) in needs.readers() {
        verdicts.insert(idx, verifier.verdict(reader, effects.get(&idx)));
    }
    follow_records(&needs, &mut verdicts);
    let mut report = Report::new(time_ms, needs.problems(), notes);
    for ((_, reader), verdict) in needs.readers().zip(verdicts.into_values()) {
        report.add(reader, verdict);
    }
    args.view
        .output
        .print(|| report.table(args.limit), || report.json());
    Ok(match report {
        _ if report.has_changes() => ExitCode::from(CODE_CHANGED),
        _ if args.strict && !report.is_complete() => ExitCode::from(CODE_NOT_VERIFIED),
        _ => ExitCode::SUCCESS,
    })
}

/// Compiles relabel rules as if each was enforced.
fn enforced(mut configs: Vec<RelabelConfig>) -> Result<Relabeling> {
    for config in &mut configs {
        config.state = RelabelRuleState::Enforce;
        config.disable_on_use = false;
    }
    Ok(Relabeling::new(configs)?)
}

/// Gives a rule or panel that reads a record the verdict of the rule that writes it, if that is worse.
/// Repeats until nothing changes, because records may read records.
fn follow_records(needs: &Needs, verdicts: &mut BTreeMap<usize, Verdict>) {
    loop {
        let mut records: BTreeMap<&str, bool> = BTreeMap::new();
        for (idx, reader) in needs.readers() {
            let may_change = match verdicts[&idx] {
                Verdict::Changed(_) => true,
                Verdict::Unknown(_) => false,
                Verdict::Unaffected | Verdict::Same => continue,
            };
            if let Some(record) = reader.record() {
                *records.entry(record).or_default() |= may_change;
            }
        }
        let mut is_done = true;
        for (idx, reader) in needs.readers() {
            let is_same = matches!(verdicts[&idx], Verdict::Unaffected | Verdict::Same);
            if is_same
                && let Some((record, may_change)) =
                    records.iter().find(|(record, _)| reader.reads(record))
            {
                let verdict = if *may_change {
                    Verdict::Changed(format!("it reads {record}, whose result may change"))
                } else {
                    Verdict::Unknown(format!("it reads {record}, which is not verified"))
                };
                verdicts.insert(idx, verdict);
                is_done = false;
            }
        }
        if is_done {
            return;
        }
    }
}

/// What the relabel rules do to the series that a rule or dashboard selects.
#[derive(Debug)]
enum Effect {
    /// The worst change, the number of series with it, and the first one in words.
    Changes(SelectionChange, u64, String),
    /// The series of a metric could not be listed.
    Unknown(String),
}

impl Effect {
    /// Returns `true` if the selection loses or gains series: nothing else can be worse.
    fn loses_or_gains(&self) -> bool {
        matches!(self, Self::Changes(change, ..) if *change >= SelectionChange::Enters)
    }
}

struct Verifier {
    series: StoredSeries,
    relabeling: Relabeling,
    /// The metrics that the given rules record.
    recorded: BTreeSet<String>,
    evaluator: Evaluator,
    /// The verdicts on expressions that were evaluated.
    evaluated: HashMap<String, Verdict>,
}

impl Verifier {
    /// Returns the effect of the relabel rules on each rule and dashboard that they affect.
    fn effects(&mut self, needs: &Needs) -> Result<BTreeMap<usize, Effect>> {
        let mut effects = BTreeMap::new();
        for metric in self.series.metrics()? {
            let listed = self.series.label_sets(&metric);
            let applied = listed.and_then(|all| self.apply(needs, &all, &mut effects));
            if let Err(error) = applied {
                for (idx, reader) in needs.readers() {
                    let is_changed = effects.get(&idx).is_some_and(Effect::loses_or_gains);
                    if reader.reads(&metric) && !is_changed {
                        effects.insert(idx, Effect::Unknown(format!("{metric}: {error:#}")));
                    }
                }
            }
        }
        Ok(effects)
    }

    /// Applies the relabel rules to the series of a metric.
    fn apply(
        &self,
        needs: &Needs,
        label_sets: &[Labels],
        effects: &mut BTreeMap<usize, Effect>,
    ) -> Result<()> {
        for before in label_sets {
            let after = self.relabeled(before)?;
            if after.as_ref() == Some(before) {
                continue;
            }
            for (idx, change) in needs.selection_changes(before, after.as_ref()) {
                match effects.get_mut(&idx) {
                    Some(Effect::Unknown(_)) if change < SelectionChange::Enters => {}
                    Some(Effect::Changes(worst, n_series, _)) if *worst == change => *n_series += 1,
                    Some(Effect::Changes(worst, ..)) if *worst > change => {}
                    _ => {
                        let what = self.describe(before, after.as_ref())?;
                        effects.insert(idx, Effect::Changes(change, 1, what));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the labels of a series behind the relabel rules, or `None` if they drop it. They do
    /// not apply to what rules record, and to Varve's own metrics: neither is received.
    fn relabeled(&self, labels: &Labels) -> Result<Option<Labels>> {
        let is_recorded = labels
            .get(METRIC_NAME)
            .is_some_and(|name| self.recorded.contains(name));
        if is_recorded || labels.get("job") == Some(OWN_JOB) {
            return Ok(Some(labels.clone()));
        }
        self.relabeling
            .relabel(labels)
            .map_err(|error| anyhow!("the relabel rules make {labels} invalid: {error}"))
    }

    /// Returns what happens to a series, and by which relabel rule.
    fn describe(&self, before: &Labels, after: Option<&Labels>) -> Result<String> {
        let ctx = QueryContext::unbounded();
        let preview = self.relabeling.preview(&ctx, before, &mut ctx.charge())?;
        let mut steps = preview.steps.into_iter();
        let step = steps.find(|step| after.is_some() || step.drops);
        let rule = step.map(|step| step.name).unwrap_or_default();
        Ok(match after {
            Some(after) => format!("the relabel rule {rule:?} makes {before} {after}"),
            None => format!("the relabel rule {rule:?} drops {before}"),
        })
    }

    /// Returns the verdict on a rule or dashboard.
    fn verdict(&mut self, reader: Reader<'_>, effect: Option<&Effect>) -> Verdict {
        let (change, first) = match effect {
            None => return Verdict::Unaffected,
            Some(Effect::Unknown(reason)) => return Verdict::Unknown(reason.clone()),
            Some(Effect::Changes(change, n_series, first))
                if *change >= SelectionChange::Enters =>
            {
                return Verdict::Changed(format!(
                    "its selection loses or gains {n_series} series, the first: {first}"
                ));
            }
            Some(Effect::Changes(change, _, first)) => (*change, first),
        };
        if reader.exprs().is_empty() {
            return Verdict::Unknown(format!("its expression is not known: {first}"));
        }
        if change == SelectionChange::ReadLabels && reader.has_variables() {
            return Verdict::Unknown(format!("its variables may read a changed label: {first}"));
        }
        let verdicts = reader.exprs().iter().map(|text| self.evaluate(text));
        verdicts.max().unwrap_or(Verdict::Unaffected)
    }

    /// Evaluates an expression without and with the relabel rules.
    fn evaluate(&mut self, text: &str) -> Verdict {
        if let Some(verdict) = self.evaluated.get(text) {
            return verdict.clone();
        }
        let verdict = match self.difference(text) {
            Ok(None) => Verdict::Same,
            Ok(Some(difference)) => Verdict::Changed(difference),
            Err(error) => Verdict::Unknown(format!("{error:#}")),
        };
        self.evaluated.insert(text.to_owned(), verdict.clone());
        verdict
    }

    /// Returns the first difference between the results without and with the relabel rules, in
    /// words.
    fn difference(&mut self, text: &str) -> Result<Option<String>> {
        let expr = varve_promql::parse(text, &Features::all())?;
        // Two selectors may select the same series. The longer range has all samples.
        let mut all: BTreeMap<Labels, Sampled> = BTreeMap::new();
        for (selector, reach_ms) in reads::selectors(&expr).map_err(anyhow::Error::msg)? {
            for series in self.series.samples(&selector, reach_ms)? {
                let n_known = all
                    .get(&series.labels)
                    .map_or(0, |known| known.samples.len());
                if n_known < series.samples.len() {
                    all.insert(series.labels.clone(), series);
                }
            }
        }
        let stores = Stores::create()?;
        let mut owners: HashMap<Labels, &Labels> = HashMap::new();
        for (labels, series) in &all {
            let relabeled = self.relabeled(labels)?;
            let relabeled = relabeled.with_context(|| format!("{labels} is new, and dropped"))?;
            if let Some(other) = owners.insert(relabeled.clone(), labels) {
                return Ok(Some(format!(
                    "the relabel rules make {other} and {labels} equal"
                )));
            }
            stores.add(series, &relabeled)?;
        }
        self.evaluator
            .difference(&stores, text, self.series.time_ms)
    }
}
