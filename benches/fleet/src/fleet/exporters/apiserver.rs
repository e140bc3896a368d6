//! The API server of Kubernetes 1.35: mostly histograms per resource and verb.

use super::super::model::{counter, gauge, level, rare};
use super::super::template::{Histogram, Job, Own, Rows, Subject, Target, Text};
use super::tables::table;

const JOB: Job = Job::ApiServer;

/// Group, version, resources.
const RESOURCES: [(&str, &str, &str); 15] = [
    (
        "",
        "v1",
        "pods nodes configmaps endpoints events namespaces secrets services serviceaccounts persistentvolumeclaims \
         persistentvolumes replicationcontrollers limitranges resourcequotas podtemplates",
    ),
    (
        "apps",
        "v1",
        "deployments replicasets daemonsets statefulsets controllerrevisions",
    ),
    ("batch", "v1", "jobs cronjobs"),
    ("autoscaling", "v2", "horizontalpodautoscalers"),
    ("coordination.k8s.io", "v1", "leases"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("networking.k8s.io", "v1", "ingresses networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "roles rolebindings clusterroles clusterrolebindings",
    ),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    (
        "storage.k8s.io",
        "v1",
        "storageclasses csinodes volumeattachments",
    ),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
    ("certificates.k8s.io", "v1", "certificatesigningrequests"),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas"),
];
/// Verbs and their scope.
const VERBS: [(&str, &str); 5] = [
    ("GET", "resource"),
    ("LIST", "cluster"),
    ("PUT", "resource"),
    ("PATCH", "resource"),
    ("WATCH", "cluster"),
];
const OPERATIONS: [&str; 3] = ["get", "list", "update"];
const QUEUES: &str = "APIServiceRegistrationController DiscoveryController autoregister crdEstablishing \
                      crd_openapi_controller priority_and_fairness_config_queue";

const SECONDS: &str = "0.005 0.025 0.05 0.1 0.2 1 2 4 5 10 20 45 60";
const REQUEST: Histogram =
    Histogram::new("apiserver_request_duration_seconds", SECONDS, 0, 12, 23).idle(15);
const REQUEST_SLI: Histogram = Histogram::new(
    "apiserver_request_sli_duration_seconds",
    "0.05 0.1 0.2 1 2 4 5 10 20 45 60",
    0,
    12,
    23,
)
.idle(15);
const RESPONSE_SIZES: Histogram = Histogram::new(
    "apiserver_response_sizes",
    "1000 10000 100000 1e+06 1e+07 1e+08 1e+09",
    0,
    12,
    13,
)
.decimals(0)
.idle(15);
const ETCD_REQUEST: Histogram =
    Histogram::new("etcd_request_duration_seconds", SECONDS, 0, 12, 23).idle(15);
const WATCH_EVENTS: Histogram = Histogram::new(
    "apiserver_watch_events_sizes",
    "1024 2048 4096 8192 16384 32768 65536 131072",
    0,
    12,
    12,
)
.decimals(0)
.idle(15);
const QUEUE: Histogram = Histogram::new(
    "workqueue_queue_duration_seconds",
    "1e-08 1e-07 1e-06 9.999999999999999e-06 9.999999999999999e-05 0.001 0.01 0.1 1 10",
    0,
    6,
    17,
)
.idle(15);

pub(super) fn list(rows: &mut Rows, n_resources: usize) {
    let mut target = rows.of(JOB, Subject::Machine);
    target.table(&[], table("apiserver: other"));
    for queue in QUEUES.split(' ') {
        let own = [("name", queue.into())];
        target.histogram(&QUEUE, &own);
        target.series("workqueue_adds_total", &own, counter(0, 6).idle(40));
        target.series("workqueue_depth", &own, level(0, 2, 10).idle(60));
    }
    let resources = RESOURCES.iter().flat_map(|&(group, version, names)| {
        names.split(' ').map(move |name| {
            [
                ("group", group.into()),
                ("resource", name.into()),
                ("version", version.into()),
            ]
        })
    });
    for resource in resources.take(n_resources) {
        list_resource(&mut target, &resource);
    }
}

fn list_resource(target: &mut Target<'_>, resource: &[Own]) {
    for (verb, scope) in VERBS {
        let own = with(
            resource,
            &[("component", "apiserver"), ("scope", scope), ("verb", verb)],
        );
        target.histogram(&REQUEST, &own);
        target.histogram(&REQUEST_SLI, &own);
        for (code, model) in [("200", counter(0, 12).idle(30)), ("404", rare(300))] {
            let own = with(
                resource,
                &[
                    ("code", code),
                    ("component", "apiserver"),
                    ("scope", scope),
                    ("verb", verb),
                ],
            );
            target.series("apiserver_request_total", &own, model);
        }
    }
    for (verb, scope) in [("GET", "resource"), ("LIST", "cluster")] {
        target.histogram(
            &RESPONSE_SIZES,
            &with(
                resource,
                &[("component", "apiserver"), ("scope", scope), ("verb", verb)],
            ),
        );
    }
    for operation in OPERATIONS {
        target.histogram(&ETCD_REQUEST, &with(resource, &[("operation", operation)]));
    }
    target.histogram(&WATCH_EVENTS, resource);
    target.table(
        resource,
        &[
            ("apiserver_longrunning_requests", level(1, 30, 20)),
            ("apiserver_resource_objects", gauge(3, 12, 1).idle(40)),
            (
                "apiserver_watch_cache_events_received_total",
                counter(0, 10).idle(30),
            ),
            ("apiserver_watch_events_total", counter(0, 12).idle(30)),
        ],
    );
}

/// Returns the labels of a resource and more.
fn with(resource: &[Own], more: &[(&'static str, &'static str)]) -> Vec<Own> {
    let mut labels = resource.to_vec();
    for &(name, value) in more {
        labels.push((name, Text::Is(value)));
    }
    labels
}
