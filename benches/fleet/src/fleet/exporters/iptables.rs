//! The iptables exporter: traffic of each pod, one rule per direction.

use super::super::model::counter;
use super::super::template::{Job, Rows, Subject, Text};

pub(super) fn list(rows: &mut Rows, slot: u16) {
    let pod = Subject::Pod { slot };
    for (chain, from) in [("POD-EGRESS", true), ("POD-INGRESS", false)] {
        let own = [("chain", chain.into()), ("rule", Text::TrafficRule { from }), ("table", "filter".into())];
        rows.series(Job::Iptables, pod, "iptables_rule_bytes_total", &own, counter(14, 29));
        rows.series(Job::Iptables, pod, "iptables_rule_packets_total", &own, counter(7, 19));
    }
}
