//! The series of each exporter: metric names, labels and bucket layouts of real scrapes, without
//! the series that kube-prometheus drops.

mod apiserver;
mod cadvisor;
mod dcgm;
mod etcd;
mod iptables;
mod kube_state_metrics;
mod kubelet;
mod node_exporter;
mod tables;

use super::template::{Row, Rows};

/// Returns exactly `n_series` rows: the series that all exporters have about a machine and its
/// pods.
pub(super) fn machine(n_series: usize) -> Vec<Row> {
    let mut rows = Rows::default();
    node_exporter::list(&mut rows);
    kubelet::list(&mut rows);
    kube_state_metrics::list_node(&mut rows);
    for gpu in 0..dcgm::GPUS {
        dcgm::list(&mut rows, gpu);
    }
    for slot in 0..u16::MAX {
        if rows.len() >= n_series {
            break;
        }
        cadvisor::list(&mut rows, slot);
        kube_state_metrics::list_pod(&mut rows, slot, cadvisor::n_containers(slot));
        iptables::list(&mut rows, slot);
    }
    rows.finish(n_series)
}

/// Returns the series of a control plane that serves `n_resources` resources.
pub(super) fn control_plane(n_resources: usize) -> Vec<Row> {
    let mut rows = Rows::default();
    apiserver::list(&mut rows, n_resources);
    etcd::list(&mut rows);
    rows.finish(usize::MAX)
}
