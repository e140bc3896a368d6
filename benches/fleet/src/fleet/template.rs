//! The rows of a template: the series that each machine, or each control plane, exports. Values and
//! identities depend on the machine.

use super::model::{Model, Part, histogram};

/// Index of a pod's sandbox among its containers: after the last possible container.
pub(super) const SANDBOX: u8 = 15;

/// The scrape job of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Job {
    NodeExporter,
    Kubelet,
    Cadvisor,
    Dcgm,
    Iptables,
    KubeStateMetrics,
    ApiServer,
    Etcd,
}

/// The subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The machine, or the process of the control plane.
    Machine,
    /// A pod, by its slot on the machine.
    Pod { slot: u16 },
    /// A container of a pod.
    Container { slot: u16, container: u8 },
    /// A GPU and the pod that uses it.
    Gpu { slot: u16, gpu: u8 },
}

impl Subject {
    /// Returns the slot of the pod with which the series of the row end.
    pub(super) fn slot(self) -> Option<u16> {
        match self {
            Self::Machine => None,
            Self::Pod { slot } | Self::Container { slot, .. } | Self::Gpu { slot, .. } => {
                Some(slot)
            }
        }
    }
}

/// The value of one of a row's own labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    Is(&'static str),
    Owned(String),
    NodeName,
    NodeIp,
    PodIp,
    Owner,
    Image,
    ImageId,
    ContainerId,
    /// The rule of a packet filter that counts the traffic from or to a pod.
    TrafficRule {
        from: bool,
    },
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Is(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Owned(text)
    }
}

/// A label and its value.
pub(super) type Own = (&'static str, Text);

/// A series of every machine.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) job: Job,
    pub(super) subject: Subject,
    pub(super) name: Text,
    /// Labels in addition to the labels of target and subject.
    pub(super) own: Vec<Own>,
    pub(super) model: Model,
    /// Mixed into the seed. The rows of a histogram share it.
    pub(super) key: u32,
}

/// A histogram of an exporter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Histogram {
    pub(super) name: &'static str,
    /// Upper bounds as the exporter prints them, without `+Inf`, separated by spaces.
    pub(super) bounds: &'static str,
    /// There are `2^low` to `2^high` observations per 30 seconds.
    pub(super) low: u8,
    pub(super) high: u8,
    /// An observation is about `2^bits * 10^-decimals`.
    pub(super) bits: u8,
    pub(super) decimals: u8,
    pub(super) idle_percent: u8,
}

impl Histogram {
    /// Creates a histogram of seconds, whose sum has nine decimals. No histogram is constant.
    pub(super) const fn new(
        name: &'static str,
        bounds: &'static str,
        low: u8,
        high: u8,
        bits: u8,
    ) -> Self {
        Self {
            name,
            bounds,
            low,
            high,
            bits,
            decimals: 9,
            idle_percent: 0,
        }
    }

    /// Sets the decimals.
    pub(super) const fn decimals(self, decimals: u8) -> Self {
        Self { decimals, ..self }
    }

    /// Makes `percent` of the histograms constant.
    pub(super) const fn idle(self, percent: u8) -> Self {
        Self {
            idle_percent: percent,
            ..self
        }
    }
}

/// The rows of a template under construction.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
}

/// Adds the series of a job about a subject.
pub(super) struct Target<'a> {
    rows: &'a mut Vec<Row>,
    job: Job,
    subject: Subject,
}

impl Rows {
    /// Adds series of a job about a subject.
    pub(super) fn of(&mut self, job: Job, subject: Subject) -> Target<'_> {
        Target {
            rows: &mut self.rows,
            job,
            subject,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns at most `n_max` rows.
    pub(super) fn finish(mut self, n_max: usize) -> Vec<Row> {
        self.rows.truncate(n_max);
        self.rows
    }
}

impl Target<'_> {
    fn push(&mut self, name: Text, own: Vec<Own>, model: Model, key: usize) {
        self.rows.push(Row {
            job: self.job,
            subject: self.subject,
            name,
            own,
            model,
            key: key as u32,
        });
    }

    /// Adds a series.
    pub(super) fn series(&mut self, name: &'static str, own: &[Own], model: Model) {
        self.push(name.into(), own.to_vec(), model, self.rows.len());
    }

    /// Adds a series of each metric.
    pub(super) fn table(&mut self, own: &[Own], table: &[(&'static str, Model)]) {
        for &(name, model) in table {
            self.series(name, own, model);
        }
    }

    /// Adds a series of a metric for each value of a label. The values are separated by spaces.
    pub(super) fn each(
        &mut self,
        name: &'static str,
        label: &'static str,
        values: &'static str,
        model: impl Fn(&str) -> Model,
    ) {
        for value in values.split(' ') {
            self.series(name, &[(label, value.into())], model(value));
        }
    }

    /// Adds the buckets, sum and count of a histogram.
    pub(super) fn histogram(&mut self, histogram: &Histogram, own: &[Own]) {
        let key = self.rows.len();
        let n_buckets = histogram.bounds.split(' ').count() as u8 + 1;
        let bounds = histogram.bounds.split(' ').chain(["+Inf"]);
        for (bound, idx) in bounds.zip(0..n_buckets) {
            let mut own = own.to_vec();
            own.push(("le", Text::Is(bound)));
            let part = Part::Bucket { idx, n: n_buckets };
            let model = histogram.model(part);
            self.push(histogram.series_name("_bucket"), own, model, key);
        }
        let ulps = if histogram.decimals > 0 { 15 } else { 0 };
        let sum = Part::Sum {
            bits: histogram.bits,
        };
        let model = histogram.model(sum);
        let model = model.decimals(histogram.decimals).rounded(ulps);
        self.push(histogram.series_name("_sum"), own.to_vec(), model, key);
        let model = histogram.model(Part::Count);
        self.push(histogram.series_name("_count"), own.to_vec(), model, key);
    }
}

impl Histogram {
    fn series_name(&self, suffix: &str) -> Text {
        Text::Owned(format!("{}{suffix}", self.name))
    }

    fn model(&self, part: Part) -> Model {
        histogram(self.low, self.high, part).idle(self.idle_percent)
    }
}
