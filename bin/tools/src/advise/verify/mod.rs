//! `varve advise verify`: verifies that relabel rules change no result of rules and dashboards.
//!
//! The server lists the series that each selector selects, and the relabel rules are applied to
//! them here. An expression that reads no series that the rules drop or change has the same result
//! at any time. One that reads dropped series has not. One that reads series with other labels is
//! evaluated twice, over the server's samples in two temporary stores: the proof is for one time.
//!
//! Bounds: the samples of one expression exist at a time; the client bounds the size of a response.

mod reads;
mod report;
mod source;
mod stores;

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;
use varve_advise::needs::Needs;
use varve_config::file::parse_relabel_rules;
use varve_context::QueryContext;
use varve_ingest::relabel::{RelabelRuleState, Relabeling};
use varve_model::Labels;
use varve_promql::Features;
use varve_system::machine::files::read_text;

use super::args::VerifyArgs;
use super::sources;
use report::{Report, Verified};
use source::Source;
use stores::{Evaluator, Stores};

/// The exit code if a result changes.
const CODE_CHANGED: u8 = 3;
/// The exit code of `--strict` if some expression could not be parsed or verified.
const CODE_UNVERIFIED: u8 = 4;
/// Maximum size of a file with relabel rules in bytes.
const FILE_SIZE_MAX: u64 = 64 << 20;

/// Runs `varve advise verify` and returns the exit code.
///
/// # Errors
/// If an input cannot be read, or the relabel rules are invalid.
pub(super) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let mut needs = Needs::default();
    let server = &args.view.server;
    let notes = sources::read(&args.sources, &server.access, &mut needs)?;
    ensure!(
        !needs.is_empty(),
        "no rule or dashboard was found: give --rules, --dashboards or --grafana"
    );
    let path = &args.relabel_rules;
    let text = read_text(path, FILE_SIZE_MAX).with_context(|| format!("read {path:?}"))?;
    let rules = enforced(&text).with_context(|| format!("{path:?}"))?;
    let time_ms = args
        .time
        .unwrap_or_else(|| Timestamp::now().as_millisecond());
    let mut verifier = Verifier {
        source: Source {
            client: server.client()?,
            time_ms,
        },
        rules,
        evaluator: Evaluator::new(),
        effects: HashMap::new(),
    };
    // The server must be there, or else nothing can be verified.
    verifier.source.label_sets("{__name__=\"up\"}", 0)?;

    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for expression in needs.expressions() {
        places
            .entry(expression.text)
            .or_default()
            .push(expression.place());
    }
    let mut report = Report::new(time_ms, needs.problems(), notes);
    for (text, places) in places {
        report.add(text, places, verifier.verify(text));
    }
    args.view
        .output
        .print(|| report.table(args.limit), || &report);
    Ok(match report {
        _ if !report.changed.is_empty() => ExitCode::from(CODE_CHANGED),
        _ if args.strict && !report.is_complete() => ExitCode::from(CODE_UNVERIFIED),
        _ => ExitCode::SUCCESS,
    })
}

/// Compiles relabel rules as if each was enforced.
fn enforced(text: &str) -> Result<Relabeling> {
    let mut configs = parse_relabel_rules(text)?;
    ensure!(!configs.is_empty(), "it has no relabel rules");
    for config in &mut configs {
        config.state = RelabelRuleState::Enforce;
        config.disable_on_use = false;
    }
    Ok(Relabeling::new(configs)?)
}

/// What the relabel rules do to the series of a selector.
#[derive(Debug, Clone)]
enum Effect {
    None,
    Changes,
    /// In words.
    Drops(String),
}

struct Verifier {
    source: Source,
    rules: Relabeling,
    evaluator: Evaluator,
    /// The effects by selector, and by how far it reads.
    effects: HashMap<(String, i64), Effect>,
}

impl Verifier {
    fn verify(&mut self, text: &str) -> Verified {
        self.try_verify(text)
            .unwrap_or_else(|error| Verified::Not(format!("{error:#}")))
    }

    fn try_verify(&mut self, text: &str) -> Result<Verified> {
        let expr = varve_promql::parse(text, &Features::all())?;
        let selectors = reads::selectors(&expr).map_err(anyhow::Error::msg)?;
        let mut has_changes = false;
        for (selector, &reach_ms) in &selectors {
            match self.effect(selector, reach_ms)? {
                Effect::None => {}
                Effect::Changes => has_changes = true,
                Effect::Drops(what) => return Ok(Verified::Changed(what)),
            }
        }
        if !has_changes {
            return Ok(Verified::Unaffected);
        }
        Ok(match self.difference(text, &selectors)? {
            Some(difference) => Verified::Changed(difference),
            None => Verified::Same,
        })
    }

    /// Returns the effect of the rules on the series of a selector.
    fn effect(&mut self, selector: &str, reach_ms: i64) -> Result<Effect> {
        let key = (selector.to_owned(), reach_ms);
        if let Some(effect) = self.effects.get(&key) {
            return Ok(effect.clone());
        }
        let label_sets = self.source.label_sets(selector, reach_ms)?;
        let effect = self.effect_on(selector, &label_sets)?;
        self.effects.insert(key, effect.clone());
        Ok(effect)
    }

    fn effect_on(&self, selector: &str, label_sets: &[Labels]) -> Result<Effect> {
        let mut dropped = Vec::new();
        let mut has_changes = false;
        for labels in label_sets {
            match self.relabeled(labels)? {
                Some(relabeled) => has_changes |= relabeled != *labels,
                None => dropped.push(labels),
            }
        }
        Ok(match dropped.first() {
            Some(first) => {
                let n = dropped.len();
                let rule = self.dropping(first)?;
                let series = if n == 1 {
                    "series"
                } else {
                    "series, the first"
                };
                Effect::Drops(format!(
                    "the rule {rule:?} drops {n} of the {} {series} {first} that it reads with {selector}",
                    label_sets.len()
                ))
            }
            None if has_changes => Effect::Changes,
            None => Effect::None,
        })
    }

    fn relabeled(&self, labels: &Labels) -> Result<Option<Labels>> {
        self.rules
            .relabel(labels)
            .map_err(|error| anyhow!("the rules make {labels} invalid: {error}"))
    }

    /// Returns the name of the rule that drops a series.
    fn dropping(&self, labels: &Labels) -> Result<String> {
        let ctx = QueryContext::unbounded();
        let preview = self.rules.preview(&ctx, labels, &mut ctx.charge())?;
        let step = preview.steps.into_iter().find(|step| step.drops);
        Ok(step.map(|step| step.name).unwrap_or_default())
    }

    /// Evaluates an expression without and with the rules. Returns the first difference, in words.
    fn difference(
        &mut self,
        text: &str,
        selectors: &BTreeMap<String, i64>,
    ) -> Result<Option<String>> {
        // Two selectors may select the same series. The longer range has all samples.
        let mut all = BTreeMap::new();
        for (selector, &reach_ms) in selectors {
            for (labels, samples) in self.source.samples(selector, reach_ms)? {
                let longest: &mut Vec<_> = all.entry(labels).or_default();
                if longest.len() < samples.len() {
                    *longest = samples;
                }
            }
        }
        let stores = Stores::create()?;
        let mut owners: HashMap<Labels, &Labels> = HashMap::new();
        for (labels, samples) in &all {
            let relabeled = self.relabeled(labels)?;
            let other = relabeled
                .as_ref()
                .and_then(|relabeled| owners.insert(relabeled.clone(), labels));
            if let Some(other) = other {
                return Ok(Some(format!("the rules make {other} and {labels} equal")));
            }
            stores.add(labels, relabeled.as_ref(), samples)?;
        }
        self.evaluator
            .difference(&stores, text, self.source.time_ms)
    }
}
