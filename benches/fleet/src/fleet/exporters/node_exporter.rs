//! The node exporter, 1.11.

use super::super::model::{Model, constant, counter, drawn, gauge, level, now, rare, started};
use super::super::template::{Job, Own, Rows, Subject, Text};

const CPUS: &str = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";
const DISKS: &str = "nvme0n1 nvme1n1 md0";
const NETWORKS: &str = "eth0 eth1 ib0 ib1 lo cali0";
const COLLECTORS: &str = "arp cpu diskstats filesystem infiniband loadavg meminfo netdev nvme pressure softnet time";

/// `node_cpu_seconds_total`, in ticks of 10 ms.
const CPU_MODES: [(&str, Model); 8] = [
    ("idle", counter(10, 12).decimals(2)),
    ("iowait", counter(1, 5).decimals(2).idle(40)),
    ("irq", counter(0, 3).decimals(2)),
    ("nice", rare(50).decimals(2)),
    ("softirq", counter(0, 4).decimals(2)),
    ("steal", constant(0)),
    ("system", counter(3, 8).decimals(2)),
    ("user", counter(5, 11).decimals(2)),
];

const SOFTIRQS: [(&str, Model); 5] = [
    ("NET_RX", counter(8, 19)),
    ("NET_TX", counter(4, 10)),
    ("RCU", counter(11, 15)),
    ("SCHED", counter(11, 15)),
    ("TIMER", counter(12, 15)),
];

const PER_CPU: [(&str, Model); 4] = [
    ("node_cpu_frequency_hertz", gauge(31, 32, 8).unit(1000)),
    ("node_softnet_processed_total", counter(8, 16)),
    ("node_softnet_dropped_total", constant(0)),
    ("node_softnet_times_squeezed_total", rare(20)),
];

const PER_DISK: [(&str, Model); 11] = [
    ("node_disk_io_now", level(0, 3, 2).idle(60)),
    ("node_disk_io_time_seconds_total", counter(7, 13).decimals(3).rounded(3).idle(20)),
    ("node_disk_io_time_weighted_seconds_total", counter(7, 14).decimals(3).rounded(3).idle(20)),
    ("node_disk_read_bytes_total", counter(6, 15).unit(4096).idle(30)),
    ("node_disk_read_time_seconds_total", counter(4, 12).decimals(3).rounded(3).idle(30)),
    ("node_disk_reads_completed_total", counter(2, 12).idle(30)),
    ("node_disk_reads_merged_total", counter(1, 8).idle(60)),
    ("node_disk_write_time_seconds_total", counter(6, 13).decimals(3).rounded(3).idle(20)),
    ("node_disk_writes_completed_total", counter(5, 13).idle(20)),
    ("node_disk_writes_merged_total", counter(3, 11).idle(40)),
    ("node_disk_written_bytes_total", counter(9, 17).unit(4096).idle(20)),
];

const PER_NETWORK: [(&str, Model); 14] = [
    ("node_network_carrier", constant(1)),
    ("node_network_mtu_bytes", drawn(1400, 1500)),
    ("node_network_receive_bytes_total", counter(16, 30).idle(20)),
    ("node_network_receive_drop_total", rare(400)),
    ("node_network_receive_errs_total", constant(0)),
    ("node_network_receive_multicast_total", counter(1, 5).idle(60)),
    ("node_network_receive_packets_total", counter(8, 20).idle(20)),
    ("node_network_speed_bytes", constant(12_500_000_000)),
    ("node_network_transmit_bytes_total", counter(16, 30).idle(20)),
    ("node_network_transmit_drop_total", constant(0)),
    ("node_network_transmit_errs_total", constant(0)),
    ("node_network_transmit_packets_total", counter(8, 20).idle(20)),
    ("node_network_transmit_queue_length", constant(1000)),
    ("node_network_up", constant(1)),
];

const PER_FILESYSTEM: [(&str, Model); 6] = [
    ("node_filesystem_avail_bytes", gauge(25, 27, 10).unit(4096).idle(20)),
    ("node_filesystem_files", drawn(20_000_000, 60_000_000)),
    ("node_filesystem_files_free", gauge(24, 25, 6).idle(20)),
    ("node_filesystem_free_bytes", gauge(25, 27, 10).unit(4096).idle(20)),
    ("node_filesystem_readonly", constant(0)),
    ("node_filesystem_size_bytes", drawn(400_000_000, 500_000_000).unit(4096)),
];

/// `node_memory_*`, in pages.
const MEMORY: [(&str, Model); 26] = [
    ("node_memory_Active_anon_bytes", gauge(23, 26, 12).unit(4096)),
    ("node_memory_Active_bytes", gauge(24, 26, 12).unit(4096)),
    ("node_memory_Active_file_bytes", gauge(22, 25, 10).unit(4096)),
    ("node_memory_AnonHugePages_bytes", gauge(8, 10, 2).unit(2_097_152)),
    ("node_memory_AnonPages_bytes", gauge(23, 26, 12).unit(4096)),
    ("node_memory_Buffers_bytes", gauge(16, 19, 5).unit(4096)),
    ("node_memory_Cached_bytes", gauge(23, 26, 11).unit(4096)),
    ("node_memory_CommitLimit_bytes", constant(270_000_000).unit(4096)),
    ("node_memory_Committed_AS_bytes", gauge(24, 26, 12).unit(4096)),
    ("node_memory_DirectMap1G_bytes", constant(1_073_741_824)),
    ("node_memory_Dirty_bytes", gauge(10, 14, 10).unit(4096)),
    ("node_memory_HugePages_Total", constant(0)),
    ("node_memory_Inactive_bytes", gauge(23, 25, 11).unit(4096)),
    ("node_memory_KernelStack_bytes", gauge(11, 13, 4).unit(16_384)),
    ("node_memory_Mapped_bytes", gauge(18, 21, 8).unit(4096)),
    ("node_memory_MemAvailable_bytes", gauge(26, 28, 13).unit(4096)),
    ("node_memory_MemFree_bytes", gauge(25, 27, 14).unit(4096)),
    ("node_memory_MemTotal_bytes", constant(541_065_216).unit(4096)),
    ("node_memory_PageTables_bytes", gauge(15, 17, 6).unit(4096)),
    ("node_memory_SReclaimable_bytes", gauge(19, 21, 8).unit(4096)),
    ("node_memory_SUnreclaim_bytes", gauge(18, 20, 6).unit(4096)),
    ("node_memory_Shmem_bytes", gauge(17, 22, 4).unit(4096)),
    ("node_memory_Slab_bytes", gauge(20, 22, 8).unit(4096)),
    ("node_memory_SwapTotal_bytes", constant(0)),
    ("node_memory_Writeback_bytes", level(0, 64, 2).unit(4096)),
    ("node_memory_Percpu_bytes", constant(9_437_184)),
];

const OTHER: [(&str, Model); 40] = [
    ("node_arp_entries", level(30, 45, 8)),
    ("node_boot_time_seconds", started()),
    ("node_context_switches_total", counter(20, 23)),
    ("node_entropy_available_bits", constant(256)),
    ("node_filefd_allocated", gauge(13, 15, 6)),
    ("node_filefd_maximum", constant(9_223_372_036_854)),
    ("node_forks_total", counter(6, 10)),
    ("node_intr_total", counter(19, 23)),
    ("node_load1", gauge(9, 13, 9).decimals(2)),
    ("node_load5", gauge(9, 13, 6).decimals(2)),
    ("node_load15", gauge(9, 13, 4).decimals(2)),
    ("node_netstat_Icmp_InErrors", constant(0)),
    ("node_netstat_IpExt_InOctets", counter(24, 31)),
    ("node_netstat_IpExt_OutOctets", counter(24, 31)),
    ("node_netstat_TcpExt_ListenOverflows", constant(0)),
    ("node_netstat_TcpExt_TCPSynRetrans", counter(0, 4)),
    ("node_netstat_TcpExt_TCPTimeouts", counter(0, 4)),
    ("node_netstat_Tcp_ActiveOpens", counter(7, 11)),
    ("node_netstat_Tcp_CurrEstab", gauge(8, 11, 4)),
    ("node_netstat_Tcp_InSegs", counter(14, 21)),
    ("node_netstat_Tcp_OutSegs", counter(14, 21)),
    ("node_netstat_Tcp_PassiveOpens", counter(6, 10)),
    ("node_netstat_Tcp_RetransSegs", counter(2, 7)),
    ("node_netstat_Udp_InDatagrams", counter(8, 13)),
    ("node_nf_conntrack_entries", gauge(11, 15, 7)),
    ("node_nf_conntrack_entries_limit", constant(1_048_576)),
    ("node_pressure_cpu_waiting_seconds_total", counter(15, 22).decimals(6)),
    ("node_pressure_io_stalled_seconds_total", counter(12, 20).decimals(6)),
    ("node_pressure_io_waiting_seconds_total", counter(12, 20).decimals(6)),
    ("node_pressure_memory_waiting_seconds_total", constant(0)),
    ("node_procs_blocked", level(0, 2, 3)),
    ("node_procs_running", level(1, 12, 1)),
    ("node_sockstat_TCP_alloc", gauge(9, 12, 5)),
    ("node_sockstat_TCP_tw", gauge(6, 9, 6)),
    ("node_sockstat_sockets_used", gauge(10, 12, 5)),
    ("node_time_seconds", now()),
    ("node_timex_offset_seconds", gauge(12, 15, 12).decimals(9)),
    ("node_vmstat_oom_kill", rare(5000)),
    ("node_vmstat_pgfault", counter(17, 22)),
    ("node_vmstat_pgmajfault", counter(1, 6)),
];

pub(super) fn list(rows: &mut Rows) {
    let mut target = rows.of(Job::NodeExporter, Subject::Machine);
    for cpu in CPUS.split(' ') {
        for (mode, model) in CPU_MODES {
            target.series("node_cpu_seconds_total", &[("cpu", cpu.into()), ("mode", mode.into())], model);
        }
        for (kind, model) in SOFTIRQS {
            target.series("node_softirqs_functions_total", &[("cpu", cpu.into()), ("type", kind.into())], model);
        }
        target.table(&[("cpu", cpu.into())], &PER_CPU);
    }
    DISKS.split(' ').for_each(|disk| target.table(&[("device", disk.into())], &PER_DISK));
    NETWORKS.split(' ').for_each(|network| target.table(&[("device", network.into())], &PER_NETWORK));
    for (device, mountpoint) in
        [("/dev/md0", "/"), ("/dev/nvme0n1p2", "/boot"), ("/dev/nvme1n1", "/var/lib/containerd")]
    {
        let own: [Own; 3] = [("device", device.into()), ("fstype", "ext4".into()), ("mountpoint", mountpoint.into())];
        target.table(&own, &PER_FILESYSTEM);
    }
    target.table(&[], &MEMORY);
    target.table(&[], &OTHER);
    let duration = gauge(14, 20, 16).decimals(9);
    target.each("node_scrape_collector_duration_seconds", "collector", COLLECTORS, |_| duration);
    target.each("node_scrape_collector_success", "collector", COLLECTORS, |_| constant(1));
    let release: [Own; 4] = [
        ("machine", "x86_64".into()),
        ("nodename", Text::NodeName),
        ("release", "6.8.0-86-generic".into()),
        ("sysname", "Linux".into()),
    ];
    target.series("node_uname_info", &release, constant(1));
}
