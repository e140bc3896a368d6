//! `Exemplars/Exemplars`, `Metadata/MetricMetadata` and `Targets/Targets`.

use varve_model::TimeRange;
use varve_model::metadata::Metadata;
use varve_query::usage;
use varve_server::requests::record::Parameters;

use super::call::{Caller, Method};
use super::external::without_external;
use super::frame::Frames;
use super::message_size::{size_of_labels, size_of_texts};
use crate::api::listing::visible_families::VisibleFamilies;
use crate::error::Result;
use crate::serving::run::{RequestClass, Work};
use varve_wire::thanos::LabelSet;
use varve_wire::thanos::query::{
    ExemplarData, ExemplarMessage, ExemplarsRequest, ExemplarsResponse,
};
use varve_wire::thanos::status::{
    FamilyMetadata, MetadataEntry, MetadataRequest, MetadataResponse, MetricMetadata,
    TargetsRequest,
};

impl Method for ExemplarsRequest {
    const PATH: &'static str = "/thanos.Exemplars/Exemplars";
    const SERVES_TENANTS: bool = true;

    fn class(&self) -> RequestClass {
        RequestClass::Query
    }

    fn shown(&self) -> Parameters {
        let start = self.start.to_string();
        let end = self.end.to_string();
        Parameters {
            text: self.query.clone(),
            start,
            end,
            ..Parameters::default()
        }
    }

    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let (expr, _expr_charge) = varve_promql::parse_within(
            &work.ctx,
            &self.query,
            &caller.app.settings.query.features,
        )?;
        let mut selectors = Vec::new();
        for matchers in varve_promql::selectors(&expr) {
            selectors.extend(
                without_external(&work.ctx, matchers, &caller.external)?
                    .filter(|own| !own.is_empty()),
            );
        }
        if selectors.is_empty() {
            return Ok(());
        }
        work.store
            .note_metadata(&work.ctx, &caller.who, &selectors, &usage::LabelSet::all());
        let range = TimeRange {
            start_ms: self.start,
            end_ms: self.end,
        };
        let found = work.store.db.exemplars(&work.ctx, &selectors, range)?;
        work.out.drop_permit();
        for series in &found.series {
            let mut charge = work.ctx.charge();
            let own_size = 2 * series.labels.size() + size_of_labels(&series.labels);
            charge.grow(own_size + 3 * size_of_texts(&caller.external))?;
            let external = caller.external.iter();
            let labels = external.fold(series.labels.clone(), |labels, (name, value)| {
                labels.with(name, value)
            });
            let mut exemplars = Vec::with_capacity(series.exemplars.len());
            for exemplar in &series.exemplars {
                charge.grow(size_of::<ExemplarMessage>() + size_of_labels(&exemplar.labels))?;
                exemplars.push(ExemplarMessage {
                    labels: Some(LabelSet::from(&exemplar.labels)),
                    value: exemplar.value,
                    timestamp: exemplar.timestamp_ms,
                });
            }
            let data = ExemplarData {
                series: Some(LabelSet::from(&labels)),
                exemplars,
            };
            out.send(work, &ExemplarsResponse { data: Some(data) })?;
        }
        Ok(())
    }
}

impl Method for MetadataRequest {
    const PATH: &'static str = "/thanos.Metadata/MetricMetadata";

    fn shown(&self) -> Parameters {
        Parameters {
            text: self.metric.clone(),
            ..Parameters::default()
        }
    }

    /// Sends a message per family, as a client merges them by name.
    fn respond(self, _: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let families = work.store.db.metadata();
        let ctx = work.ctx.clone();
        let mut n_sent = 0;
        VisibleFamilies::new(&families, &ctx).visit(|family, found| {
            if n_sent == limit {
                return Ok(false);
            }
            if !self.metric.is_empty() && family != self.metric {
                return Ok(true);
            }
            n_sent += 1;
            let mut entries = Vec::with_capacity(found.len());
            for Metadata { kind, help, unit } in found {
                entries.push(FamilyMetadata {
                    kind: kind.clone(),
                    help: help.clone(),
                    unit: unit.clone(),
                });
            }
            let families = [(family.to_owned(), MetadataEntry { entries })].into();
            let metadata = Some(MetricMetadata { families });
            out.send(work, &MetadataResponse { metadata })?;
            Ok(true)
        })
    }
}

impl Method for TargetsRequest {
    const PATH: &'static str = "/thanos.Targets/Targets";

    /// Sends nothing: targets are with whoever scrapes them.
    fn respond(self, _: &Caller, _: &mut Work, _: &mut Frames) -> Result<()> {
        Ok(())
    }
}
