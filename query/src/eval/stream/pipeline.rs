//! A pipeline of stages, and its batches.

use varve_context::{Charge, scheduler};
use varve_model::Labels;
use varve_model::labels::NAME_LABELS;
use varve_tsdb::select::{LabelHint, SelectHints};

use super::share_source::CopyTarget;
use super::stage::Stage;
use crate::annotations::AnnotationList;
use crate::error::Result;
use crate::eval::columns::combine::OperatorAnnotations;
use crate::eval::columns::{Limits, Series, SharedSets, series_size, without_name};
use crate::eval::profile::OutputCount;
use crate::eval::sample_stats::StepSampleStats;
use crate::eval::select::shared_scans::Selected;

/// Maximum number of series in a batch. Waking a thread costs as much as computing a few dozen
/// series.
const BATCH_SERIES_MAX: usize = 256;
/// Maximum number of values in a batch of more than one series.
const BATCH_VALUES_MAX: usize = 1 << 14;
/// Number of series in a batch that reads only the latest sample of each series.
pub(in crate::eval) const LATEST_BATCH_SERIES: usize = 2048;

/// Number of series computed between two pauses for more urgent work.
const SERIES_BETWEEN_PAUSES: usize = 64;

/// A batch charges its series when this many bytes are uncharged.
const CHARGED_AT_ONCE: usize = 16 << 10;

/// Returns the number of series per batch. It affects only the distribution of work to threads.
pub(in crate::eval) fn batch_len(n_steps: usize) -> usize {
    (BATCH_VALUES_MAX / n_steps.max(1)).clamp(1, BATCH_SERIES_MAX)
}

/// Splits a selection into batches of `len` series.
pub(in crate::eval) fn batches(
    mut set: Selected,
    len: usize,
) -> impl FnMut() -> Result<Option<Vec<varve_tsdb::select::Series>>> {
    move || {
        let mut batch = Vec::with_capacity(len.min(set.len_max()));
        for series in set.by_ref().take(len) {
            batch.push(series?);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// Parameters of a stream, the same for all batches.
pub(in crate::eval) struct Pipeline<'p> {
    pub(super) stages: Vec<Stage<'p>>,
    pub(in crate::eval) limits: Limits,
    pub(super) delayed: bool,
    /// Empty statistics for the steps of the stream.
    pub(super) sample_stats: StepSampleStats,
    pub(super) n_steps: usize,
    /// The labels that the series need.
    pub(super) labels: LabelHint,
    /// The source, if its output is copied for other uses.
    pub(super) copy_target: Option<CopyTarget<'p>>,
    /// One pipeline without stages for each other function computed in the same scan.
    pub(super) siblings: Vec<Pipeline<'p>>,
}

impl Pipeline<'_> {
    /// Returns the parts of the data that a selection may omit.
    pub(in crate::eval) fn hints(&self) -> SelectHints {
        SelectHints {
            only_newest: false,
            skip_values: false,
            labels: self.labels.clone(),
            whole_where: &NAME_LABELS,
        }
    }

    /// Returns `true` if each series leaves the pipeline as it comes from the source, and is not
    /// counted or copied.
    pub(in crate::eval) fn passes_series_on(&self) -> bool {
        self.stages.is_empty()
            && self.siblings.is_empty()
            && self.copy_target.is_none()
            && !self.sample_stats.is_on()
    }

    /// Adds a pipeline without stages for each sibling. Their series need all labels.
    pub(in crate::eval) fn add_siblings(&mut self, siblings: impl ExactSizeIterator<Item = Self>) {
        if siblings.len() > 0 {
            self.labels = LabelHint::All;
        }
        self.siblings.extend(siblings);
    }
}

/// The series computed from a batch, with their annotations and statistics.
pub(in crate::eval) struct Batch<'w> {
    pipeline: &'w Pipeline<'w>,
    pub(super) series: Vec<Series>,
    /// Sets without the metric name, by the set with it.
    unnamed: SharedSets<Labels>,
    pub(in crate::eval) annotations: AnnotationList,
    pub(in crate::eval) sample_stats: StepSampleStats,
    /// Annotations of each stage.
    pub(super) stage_annotations: Vec<OperatorAnnotations>,
    /// Output counts of the source and of each stage.
    pub(super) outputs: Vec<OutputCount>,
    n_pushed: usize,
    /// Unchanged series of the source, if they are copied.
    source_series: Vec<Series>,
    /// Bytes of `series` that are not charged yet.
    uncharged: usize,
    /// One batch for each sibling; `None` if the sibling failed.
    pub(in crate::eval) siblings: Vec<Option<Batch<'w>>>,
    charge: Charge,
}

impl<'w> Batch<'w> {
    pub(super) fn new(pipeline: &'w Pipeline<'w>) -> Result<Self> {
        let mut charge = pipeline.limits.ctx.charge();
        if pipeline.sample_stats.is_on() {
            charge.grow(StepSampleStats::size(pipeline.n_steps))?;
        }
        Ok(Self {
            pipeline,
            series: Vec::new(),
            unnamed: SharedSets::default(),
            annotations: AnnotationList::default(),
            sample_stats: pipeline.sample_stats.empty(pipeline.n_steps),
            stage_annotations: pipeline
                .stages
                .iter()
                .map(|_| OperatorAnnotations::default())
                .collect(),
            outputs: vec![OutputCount::default(); pipeline.stages.len() + 1],
            n_pushed: 0,
            source_series: Vec::new(),
            uncharged: 0,
            siblings: pipeline
                .siblings
                .iter()
                .map(|sibling| Self::new(sibling).map(Some))
                .collect::<Result<_>>()?,
            charge,
        })
    }

    /// Makes room for `n` series, unless stages may drop most of them.
    pub(in crate::eval) fn reserve(&mut self, n: usize) -> Result<()> {
        if self.pipeline.stages.is_empty() {
            self.charge.grow(n * size_of::<Series>())?;
            self.series.reserve(n);
        }
        Ok(())
    }

    /// Produces the batch of the `at`-th sibling. A sibling that fails is dropped.
    pub(in crate::eval) fn produce_sibling(
        &mut self,
        at: usize,
        produce: impl FnOnce(&mut Self) -> Result<()>,
    ) {
        if let Some(Some(sibling)) = self.siblings.get_mut(at)
            && produce(sibling).is_err()
        {
            self.siblings[at] = None;
        }
    }

    /// Removes the metric name. Series that shared a label set share one afterwards, so
    /// aggregations find their group without reading labels.
    pub(in crate::eval) fn drop_shared_name(&mut self, series: &mut Series) {
        series.drop_name = true;
        if let Some(unnamed) = self.unnamed.get(&series.labels) {
            series.labels = unnamed;
            return;
        }
        let unnamed = without_name(&series.labels);
        self.unnamed.insert(&series.labels, unnamed.clone());
        series.labels = unnamed;
    }

    /// Takes the unchanged series of the source, with copies of their annotations and statistics.
    pub(super) fn source_output(&mut self) -> (Vec<Series>, AnnotationList, StepSampleStats) {
        (
            std::mem::take(&mut self.source_series),
            self.annotations.clone(),
            self.sample_stats.clone(),
        )
    }

    /// Returns the series, the annotations and the sample statistics.
    pub(in crate::eval) fn into_parts(self) -> (Vec<Series>, AnnotationList, StepSampleStats) {
        (self.series, self.annotations, self.sample_stats)
    }

    /// Passes a series of the source through the stages. Drops the series if it has no values.
    pub(in crate::eval) fn push(&mut self, mut series: Series) -> Result<()> {
        let Pipeline {
            stages,
            limits,
            delayed,
            ..
        } = self.pipeline;
        self.n_pushed += 1;
        if self.n_pushed.is_multiple_of(SERIES_BETWEEN_PAUSES) {
            scheduler::pause();
        }
        if self.pipeline.copy_target.is_some() {
            self.charge.grow(series_size(&series))?;
            self.source_series.push(series.clone());
        }
        for (at, stage) in stages.iter().enumerate() {
            self.count_output(at, &series);
            stage.apply(
                &mut series,
                self.n_pushed,
                &mut self.stage_annotations[at],
                limits,
                *delayed,
            )?;
            if series.column.present.is_empty() {
                return Ok(());
            }
        }
        if !series.column.present.is_empty() {
            self.count_output(stages.len(), &series);
            series.column.histograms.shrink_to_fit();
            self.uncharged += series_size(&series);
            self.series.push(series);
            // Charging each series would take longer than computing it.
            if self.uncharged >= CHARGED_AT_ONCE {
                self.charge.grow(std::mem::take(&mut self.uncharged))?;
            }
        }
        Ok(())
    }

    /// Charges the rest of the batch, after its last series. A sibling that fails is dropped.
    pub(super) fn charge_rest(&mut self) -> Result<()> {
        self.charge.grow(std::mem::take(&mut self.uncharged))?;
        for sibling in &mut self.siblings {
            sibling.take_if(|sibling| sibling.charge_rest().is_err());
        }
        Ok(())
    }

    fn count_output(&mut self, at: usize, series: &Series) {
        if self.pipeline.sample_stats.is_on() {
            self.outputs[at].add(OutputCount {
                n_series: 1,
                n_samples: series.column.n_samples(),
            });
        }
    }
}
