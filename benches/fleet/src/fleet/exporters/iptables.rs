//! The iptables exporter: traffic of each pod, one rule per direction.

use super::super::model::counter;
use super::super::template::{Job, Rows, Subject, Text};

pub(super) fn list(rows: &mut Rows, slot: u16) {
    let mut target = rows.of(Job::Iptables, Subject::Pod { slot });
    for (chain, from) in [("POD-EGRESS", true), ("POD-INGRESS", false)] {
        let own = [
            ("chain", chain.into()),
            ("rule", Text::TrafficRule { from }),
            ("table", "filter".into()),
        ];
        target.series("iptables_rule_bytes_total", &own, counter(14, 29));
        target.series("iptables_rule_packets_total", &own, counter(7, 19));
    }
}
