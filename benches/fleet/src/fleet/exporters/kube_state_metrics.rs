//! kube-state-metrics of Kubernetes 1.35: the state of nodes and pods. Nearly all values are
//! constant.

use super::super::model::{constant, drawn, rare, started};
use super::super::template::{Job, Own, Rows, Subject, Target, Text};

const JOB: Job = Job::KubeStateMetrics;
const PHASES: &str = "Pending Succeeded Failed Unknown Running";
const CONDITIONS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
const RESOURCES: [(&str, &str); 4] = [
    ("cpu", "core"),
    ("memory", "byte"),
    ("pods", "integer"),
    ("nvidia_com_gpu", "integer"),
];
const THREE: &str = "true false unknown";

/// Adds the series of a node.
pub(super) fn list_node(rows: &mut Rows) {
    let mut target = rows.of(JOB, Subject::Machine);
    let mut add = |name, mut own: Vec<Own>, model| {
        own.push(("node", Text::NodeName));
        target.series(name, &own, model);
    };
    let version: [Own; 5] = [
        ("container_runtime_version", "containerd://2.2.1".into()),
        ("internal_ip", Text::NodeIp),
        ("kernel_version", "6.8.0-86-generic".into()),
        ("kubelet_version", "v1.35.0".into()),
        ("os_image", "Ubuntu 24.04.3 LTS".into()),
    ];
    add("kube_node_info", version.to_vec(), constant(1));
    add("kube_node_created", Vec::new(), started());
    add("kube_node_spec_unschedulable", Vec::new(), constant(0));
    add(
        "kube_node_role",
        vec![("role", "worker".into())],
        constant(1),
    );
    for (resource, unit) in RESOURCES {
        for name in ["kube_node_status_allocatable", "kube_node_status_capacity"] {
            add(
                name,
                vec![("resource", resource.into()), ("unit", unit.into())],
                drawn(8, 192),
            );
        }
    }
    for condition in CONDITIONS {
        for status in THREE.split(' ') {
            let own = vec![("condition", condition.into()), ("status", status.into())];
            let is = if condition == "Ready" {
                "true"
            } else {
                "false"
            };
            add(
                "kube_node_status_condition",
                own,
                constant(u64::from(status == is)),
            );
        }
    }
}

/// Adds the series of a pod and its containers.
pub(super) fn list_pod(rows: &mut Rows, slot: u16, n_containers: u8) {
    let mut target = rows.of(JOB, Subject::Pod { slot });
    let info: [Own; 6] = [
        ("created_by_kind", "ReplicaSet".into()),
        ("created_by_name", Text::Owner),
        ("host_ip", Text::NodeIp),
        ("host_network", "false".into()),
        ("node", Text::NodeName),
        ("pod_ip", Text::PodIp),
    ];
    target.series("kube_pod_info", &info, constant(1));
    let owner: [Own; 3] = [
        ("owner_is_controller", "true".into()),
        ("owner_kind", "ReplicaSet".into()),
        ("owner_name", Text::Owner),
    ];
    target.series("kube_pod_owner", &owner, constant(1));
    target.series("kube_pod_created", &[], started());
    target.each("kube_pod_status_phase", "phase", PHASES, |phase| {
        constant(u64::from(phase == "Running"))
    });
    target.each("kube_pod_status_ready", "condition", THREE, |is| {
        constant(u64::from(is == "true"))
    });
    for container in 0..n_containers {
        list_container(rows.of(JOB, Subject::Container { slot, container }));
    }
}

fn list_container(mut target: Target<'_>) {
    let info: [Own; 3] = [
        ("container_id", Text::ContainerId),
        ("image", Text::Image),
        ("image_id", Text::ImageId),
    ];
    target.series("kube_pod_container_info", &info, constant(1));
    target.series("kube_pod_container_status_ready", &[], constant(1));
    target.series("kube_pod_container_status_restarts_total", &[], rare(3000));
    target.series("kube_pod_container_status_running", &[], constant(1));
    for (resource, unit, model) in [
        ("cpu", "core", drawn(1, 640).decimals(1)),
        ("memory", "byte", drawn(1, 256).unit(268_435_456)),
    ] {
        let own: [Own; 3] = [
            ("node", Text::NodeName),
            ("resource", resource.into()),
            ("unit", unit.into()),
        ];
        target.series("kube_pod_container_resource_requests", &own, model);
    }
}
