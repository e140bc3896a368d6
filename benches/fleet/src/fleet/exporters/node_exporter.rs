//! The node exporter, 1.11.

use super::super::model::{constant, gauge};
use super::super::template::{Job, Own, Rows, Subject, Text};
use super::tables::table;

const CPUS: &str = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";
const DISKS: &str = "nvme0n1 nvme1n1 md0";
const NETWORKS: &str = "eth0 eth1 ib0 ib1 lo cali0";
const COLLECTORS: &str =
    "arp cpu diskstats filesystem infiniband loadavg meminfo netdev nvme pressure softnet time";

pub(super) fn list(rows: &mut Rows) {
    let mut target = rows.of(Job::NodeExporter, Subject::Machine);
    for cpu in CPUS.split(' ') {
        for &(mode, model) in table("node_exporter: cpu modes") {
            target.series(
                "node_cpu_seconds_total",
                &[("cpu", cpu.into()), ("mode", mode.into())],
                model,
            );
        }
        for &(kind, model) in table("node_exporter: softirqs") {
            target.series(
                "node_softirqs_functions_total",
                &[("cpu", cpu.into()), ("type", kind.into())],
                model,
            );
        }
        target.table(&[("cpu", cpu.into())], table("node_exporter: per cpu"));
    }
    for disk in DISKS.split(' ') {
        target.table(&[("device", disk.into())], table("node_exporter: per disk"))
    }
    for network in NETWORKS.split(' ') {
        target.table(
            &[("device", network.into())],
            table("node_exporter: per network"),
        )
    }
    for (device, mountpoint) in [
        ("/dev/md0", "/"),
        ("/dev/nvme0n1p2", "/boot"),
        ("/dev/nvme1n1", "/var/lib/containerd"),
    ] {
        let own: [Own; 3] = [
            ("device", device.into()),
            ("fstype", "ext4".into()),
            ("mountpoint", mountpoint.into()),
        ];
        target.table(&own, table("node_exporter: per filesystem"));
    }
    target.table(&[], table("node_exporter: memory"));
    target.table(&[], table("node_exporter: other"));
    let duration = gauge(14, 20, 16).decimals(9);
    target.each(
        "node_scrape_collector_duration_seconds",
        "collector",
        COLLECTORS,
        |_| duration,
    );
    target.each(
        "node_scrape_collector_success",
        "collector",
        COLLECTORS,
        |_| constant(1),
    );
    let release: [Own; 4] = [
        ("machine", "x86_64".into()),
        ("nodename", Text::NodeName),
        ("release", "6.8.0-86-generic".into()),
        ("sysname", "Linux".into()),
    ];
    target.series("node_uname_info", &release, constant(1));
}
