//! What each exporter exports: metric names, labels and bucket layouts after those of scrapes of real ones, the parts
//! that kube-prometheus drops left out.

mod apiserver;
mod cadvisor;
mod dcgm;
mod etcd;
mod iptables;
mod kube_state_metrics;
mod kubelet;
mod node_exporter;

use super::template::{Row, Rows};

/// Lists what a machine exports and what is exported about it and its pods: exactly `n_series` rows.
pub(super) fn machine(n_series: usize) -> Vec<Row> {
    let mut rows = Rows::default();
    node_exporter::list(&mut rows);
    kubelet::list(&mut rows);
    kube_state_metrics::list_node(&mut rows);
    for gpu in 0..dcgm::GPUS {
        dcgm::list(&mut rows, gpu);
    }
    let mut slots = 0..u16::MAX;
    while let (true, Some(slot)) = (rows.len() < n_series, slots.next()) {
        cadvisor::list(&mut rows, slot);
        kube_state_metrics::list_pod(&mut rows, slot, cadvisor::n_containers(slot));
        iptables::list(&mut rows, slot);
    }
    rows.finish(n_series)
}

/// Lists what a control plane exports that has `n_resources` kinds of objects to serve.
pub(super) fn control_plane(n_resources: usize) -> Vec<Row> {
    let mut rows = Rows::default();
    apiserver::list(&mut rows, n_resources);
    etcd::list(&mut rows);
    rows.finish(usize::MAX)
}
