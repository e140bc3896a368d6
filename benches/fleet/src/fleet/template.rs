//! The rows of a template: the series that each machine, or each control plane, exports. Values and identities depend on
//! the machine.

use super::model::{Model, Part, constant, histogram};

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

/// What a row describes.
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
    /// Returns the slot of the pod whose end ends the series of the row.
    pub(super) fn slot(self) -> Option<u16> {
        match self {
            Self::Machine => None,
            Self::Pod { slot } | Self::Container { slot, .. } | Self::Gpu { slot, .. } => Some(slot),
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

/// A series of every machine.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) job: Job,
    pub(super) subject: Subject,
    pub(super) name: Text,
    /// Labels in addition to those of target and subject.
    pub(super) own: Vec<(&'static str, Text)>,
    pub(super) model: Model,
    /// Mixed into the seed; the rows of a histogram share it.
    pub(super) key: u32,
}

/// A histogram of an exporter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Histogram {
    pub(super) name: &'static str,
    /// Upper bounds as the exporter prints them, without `+Inf`.
    pub(super) bounds: &'static [&'static str],
    /// There are `2^low` to `2^high` observations per 30 seconds.
    pub(super) low: u8,
    pub(super) high: u8,
    /// An observation is about `2^bits * 10^-decimals`.
    pub(super) bits: u8,
    pub(super) decimals: u8,
    pub(super) idle_percent: u8,
}

/// The rows of a template under construction.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
}

impl Rows {
    /// Adds a series.
    pub(super) fn series(
        &mut self,
        job: Job,
        subject: Subject,
        name: &'static str,
        own: &[(&'static str, Text)],
        model: Model,
    ) {
        let key = self.rows.len() as u32;
        self.rows.push(Row { job, subject, name: name.into(), own: own.to_vec(), model, key });
    }

    /// Adds a series of each metric.
    pub(super) fn table(
        &mut self,
        job: Job,
        subject: Subject,
        own: &[(&'static str, Text)],
        table: &[(&'static str, Model)],
    ) {
        for &(name, model) in table {
            self.series(job, subject, name, own, model);
        }
    }

    /// Adds a series of a metric for each value of a label.
    pub(super) fn each(
        &mut self,
        job: Job,
        subject: Subject,
        name: &'static str,
        label: &'static str,
        of: &[&'static str],
        model: Model,
    ) {
        for &value in of {
            self.series(job, subject, name, &[(label, value.into())], model);
        }
    }

    /// Adds a series for each value of a label: 1 for the value `is`, 0 for the others.
    pub(super) fn one_of(
        &mut self,
        job: Job,
        subject: Subject,
        name: &'static str,
        label: &'static str,
        of: &[&'static str],
        is: &str,
    ) {
        for &value in of {
            self.series(job, subject, name, &[(label, value.into())], constant(u64::from(value == is)));
        }
    }

    /// Adds the buckets, sum and count of a histogram.
    pub(super) fn histogram(&mut self, job: Job, of: &Histogram, own: &[(&'static str, Text)]) {
        let key = self.rows.len() as u32;
        let n = of.bounds.len() as u8 + 1;
        let bounds = of.bounds.iter().copied().chain(["+Inf"]).zip(0..n);
        let mut row = |suffix: &str, le: Option<&'static str>, part, decimals, ulps| {
            let own = own.iter().cloned().chain(le.map(|le| ("le", Text::Is(le)))).collect();
            let model = histogram(of.low, of.high, part).decimals(decimals).rounded(ulps).idle(of.idle_percent);
            let name = Text::Owned(format!("{}{suffix}", of.name));
            self.rows.push(Row { job, subject: Subject::Machine, name, own, model, key });
        };
        for (le, at) in bounds {
            row("_bucket", Some(le), Part::Bucket { at, of: n }, 0, 0);
        }
        row("_sum", None, Part::Sum { bits: of.bits }, of.decimals, if of.decimals > 0 { 15 } else { 0 });
        row("_count", None, Part::Count, 0, 0);
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
