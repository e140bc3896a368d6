//! The rows of a template: what each machine, or each control plane, exports. All of a kind export the same rows; what
//! differs, they take from who exports them.

use super::model::{Model, Part, constant, histogram};

/// The place of a pod's sandbox among its containers: behind any that it can have.
pub(super) const SANDBOX: u8 = 15;

/// Who scraped target and labels of a row come from.
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

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The machine, or the control plane's process.
    Machine,
    /// A pod by its place on the machine.
    Pod { slot: u16 },
    /// A container of a pod.
    Container { slot: u16, container: u8 },
    /// A GPU and the pod that has it.
    Gpu { slot: u16, gpu: u8 },
}

impl Subject {
    /// Returns the pod with whose end the row's series end.
    pub(super) fn slot(self) -> Option<u16> {
        match self {
            Self::Machine => None,
            Self::Pod { slot } | Self::Container { slot, .. } | Self::Gpu { slot, .. } => Some(slot),
        }
    }
}

/// The value of a label of a row's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    Is(&'static str),
    Made(String),
    NodeName,
    NodeIp,
    PodIp,
    Owner,
    Image,
    ImageId,
    ContainerId,
    /// The rule of a packet filter that counts a pod's traffic; `from` it or to it.
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
        Self::Made(text)
    }
}

/// A series of each machine.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) job: Job,
    pub(super) subject: Subject,
    pub(super) name: Text,
    /// Labels besides those of target and subject.
    pub(super) own: Vec<(&'static str, Text)>,
    pub(super) model: Model,
    /// What is hashed into the seed: rows of one histogram share it.
    pub(super) key: u32,
}

/// A histogram of an exporter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Histogram {
    pub(super) name: &'static str,
    /// Upper bounds as the exporter prints them, without `+Inf`.
    pub(super) bounds: &'static [&'static str],
    /// Observations in 30 seconds are `2^low` to `2^high`.
    pub(super) low: u8,
    pub(super) high: u8,
    /// An observation is about `2^bits` of ten to the power of `-decimals`.
    pub(super) bits: u8,
    pub(super) decimals: u8,
    pub(super) idle_percent: u8,
}

/// The rows of a template, while they are listed.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
}

impl Rows {
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

    /// Lists one series of each metric.
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

    /// Lists a series of a metric for each value of a label.
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

    /// Lists a series for each value, of which one is 1 and the others are 0.
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

    /// Lists the buckets, sum and count of a histogram.
    pub(super) fn histogram(&mut self, job: Job, of: &Histogram, own: &[(&'static str, Text)]) {
        let key = self.rows.len() as u32;
        let n = of.bounds.len() as u8 + 1;
        let bounds = of.bounds.iter().copied().chain(["+Inf"]).zip(0..n);
        let mut row = |suffix: &str, le: Option<&'static str>, part, decimals, ulps| {
            let own = own.iter().cloned().chain(le.map(|le| ("le", Text::Is(le)))).collect();
            let model = histogram(of.low, of.high, part).decimals(decimals).rounded(ulps).idle(of.idle_percent);
            let name = Text::Made(format!("{}{suffix}", of.name));
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

    /// Ends the list, of which at most `n_max` rows remain.
    pub(super) fn finish(mut self, n_max: usize) -> Vec<Row> {
        self.rows.truncate(n_max);
        self.rows
    }
}
