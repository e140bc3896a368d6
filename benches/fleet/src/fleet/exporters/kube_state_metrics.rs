//! kube-state-metrics of Kubernetes 1.35: the state of nodes and pods. Nearly all values are constant.

use super::super::model::{constant, drawn, rare, started};
use super::super::template::{Job, Rows, Subject, Text};

const JOB: Job = Job::KubeStateMetrics;
const PHASES: [&str; 5] = ["Pending", "Succeeded", "Failed", "Unknown", "Running"];
const CONDITIONS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
const RESOURCES: [(&str, &str); 4] =
    [("cpu", "core"), ("memory", "byte"), ("pods", "integer"), ("nvidia_com_gpu", "integer")];
const THREE: [&str; 3] = ["true", "false", "unknown"];

/// Adds the series of a node.
pub(super) fn list_node(rows: &mut Rows) {
    let node = || ("node", Text::NodeName);
    let about = |rows: &mut Rows, name, mut own: Vec<(&'static str, Text)>, model| {
        own.push(node());
        rows.series(JOB, Subject::Machine, name, &own, model);
    };
    let version: [(_, Text); 5] = [
        ("container_runtime_version", "containerd://2.2.1".into()),
        ("internal_ip", Text::NodeIp),
        ("kernel_version", "6.8.0-86-generic".into()),
        ("kubelet_version", "v1.35.0".into()),
        ("os_image", "Ubuntu 24.04.3 LTS".into()),
    ];
    about(rows, "kube_node_info", version.to_vec(), constant(1));
    about(rows, "kube_node_created", Vec::new(), started());
    about(rows, "kube_node_spec_unschedulable", Vec::new(), constant(0));
    about(rows, "kube_node_role", vec![("role", "worker".into())], constant(1));
    for (resource, unit) in RESOURCES {
        for name in ["kube_node_status_allocatable", "kube_node_status_capacity"] {
            about(rows, name, vec![("resource", resource.into()), ("unit", unit.into())], drawn(8, 192));
        }
    }
    for condition in CONDITIONS {
        for status in THREE {
            let own = vec![("condition", condition.into()), ("status", status.into())];
            let is = if condition == "Ready" { "true" } else { "false" };
            about(rows, "kube_node_status_condition", own, constant(u64::from(status == is)));
        }
    }
}

/// Adds the series of a pod and its containers.
pub(super) fn list_pod(rows: &mut Rows, slot: u16, n_containers: u8) {
    let pod = Subject::Pod { slot };
    let info: [(_, Text); 6] = [
        ("created_by_kind", "ReplicaSet".into()),
        ("created_by_name", Text::Owner),
        ("host_ip", Text::NodeIp),
        ("host_network", "false".into()),
        ("node", Text::NodeName),
        ("pod_ip", Text::PodIp),
    ];
    rows.series(JOB, pod, "kube_pod_info", &info, constant(1));
    let owner: [(_, Text); 3] =
        [("owner_is_controller", "true".into()), ("owner_kind", "ReplicaSet".into()), ("owner_name", Text::Owner)];
    rows.series(JOB, pod, "kube_pod_owner", &owner, constant(1));
    rows.series(JOB, pod, "kube_pod_created", &[], started());
    rows.one_of(JOB, pod, "kube_pod_status_phase", "phase", &PHASES, "Running");
    rows.one_of(JOB, pod, "kube_pod_status_ready", "condition", &THREE, "true");
    for container in 0..n_containers {
        list_container(rows, Subject::Container { slot, container });
    }
}

fn list_container(rows: &mut Rows, container: Subject) {
    let info: [(_, Text); 3] =
        [("container_id", Text::ContainerId), ("image", Text::Image), ("image_id", Text::ImageId)];
    rows.series(JOB, container, "kube_pod_container_info", &info, constant(1));
    rows.series(JOB, container, "kube_pod_container_status_ready", &[], constant(1));
    rows.series(JOB, container, "kube_pod_container_status_restarts_total", &[], rare(3000));
    rows.series(JOB, container, "kube_pod_container_status_running", &[], constant(1));
    for (resource, unit, model) in
        [("cpu", "core", drawn(1, 640).decimals(1)), ("memory", "byte", drawn(1, 256).unit(268_435_456))]
    {
        let own: [(_, Text); 3] = [("node", Text::NodeName), ("resource", resource.into()), ("unit", unit.into())];
        rows.series(JOB, container, "kube_pod_container_resource_requests", &own, model);
    }
}
