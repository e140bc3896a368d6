//! Identities of machines and pods: names, addresses and ids as in Kubernetes, computed from a seed.

use std::fmt::Write as _;

use super::noise::{below, mix, mix2};

/// The letters of Kubernetes' random suffixes: no vowels, so that they form no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const NAMESPACES: [&str; 8] =
    ["research", "inference", "data", "training", "platform", "batch", "monitoring", "ingress"];
const APPS: [&str; 12] = [
    "trainer",
    "llm-gateway",
    "feature-store",
    "tokenizer",
    "evaluator",
    "dataloader",
    "checkpoint-sync",
    "vllm-decode",
    "vllm-prefill",
    "scheduler-shim",
    "artifact-cache",
    "notebook",
];
/// The containers of a pod; the first one runs its application.
const CONTAINERS: [&str; 3] = ["main", "istio-proxy", "log-shipper"];

/// A machine of the fleet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) index: u32,
    pub(super) seed: u64,
}

impl Node {
    pub(super) fn name(self, out: &mut String) {
        push(out, format_args!("gpu-{:05}", self.index));
    }

    pub(super) fn ip(self, out: &mut String) {
        let i = self.index;
        push(out, format_args!("10.{}.{}.{}", 128 + (i >> 14 & 63), i >> 7 & 127, 2 + (i & 127)));
    }
}

/// One pod: the pod of a slot in one generation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod {
    pub(super) seed: u64,
    /// Seed of the workload, which outlives its pods.
    workload: u64,
    slot: u16,
}

impl Pod {
    pub(super) fn new(node: Node, slot: u16, generation: u32) -> Self {
        let workload = mix2(node.seed, u64::from(slot) << 32 | 1);
        Self { seed: mix2(workload, u64::from(generation)), workload, slot }
    }

    pub(super) fn namespace(self, out: &mut String) {
        out.push_str(NAMESPACES[draw(self.workload, NAMESPACES.len())]);
    }

    /// Writes the name of the pod's ReplicaSet: application and template hash.
    pub(super) fn owner(self, out: &mut String) {
        let app = APPS[draw(mix(self.workload), APPS.len())];
        push(out, format_args!("{app}-{:02}-", self.workload >> 32 & 31));
        letters(mix2(self.workload, 2), 10, out);
    }

    pub(super) fn name(self, out: &mut String) {
        self.owner(out);
        out.push('-');
        letters(mix2(self.seed, 3), 5, out);
    }

    /// Writes the id, a UUID of version 4.
    pub(super) fn uid(self, out: &mut String) {
        uuid(mix2(self.seed, 4), out);
    }

    pub(super) fn ip(self, node: Node, out: &mut String) {
        let host = 2 + (mix2(self.seed, 5) & 0x7f) + 128 * (u64::from(self.slot) & 1);
        push(out, format_args!("10.{}.{}.{}", node.index >> 8 & 127, node.index & 255, host.min(254)));
    }

    pub(super) fn is_burstable(self) -> bool {
        self.workload & 3 != 0
    }

    /// Writes the cgroup of the pod or of one of its containers.
    pub(super) fn cgroup(self, container: Option<u8>, out: &mut String) {
        out.push_str(if self.is_burstable() { "/kubepods/burstable/pod" } else { "/kubepods/besteffort/pod" });
        self.uid(out);
        if let Some(container) = container {
            out.push('/');
            self.container_id(container, out);
        }
    }

    /// Writes the id of a container or of the sandbox.
    pub(super) fn container_id(self, container: u8, out: &mut String) {
        let seed = mix2(self.seed, 16 + u64::from(container));
        (0..4).for_each(|part| push(out, format_args!("{:016x}", mix2(seed, part))));
    }

    pub(super) fn container(container: u8) -> &'static str {
        CONTAINERS[usize::from(container) % CONTAINERS.len()]
    }

    pub(super) fn image(self, container: u8, out: &mut String) {
        match container {
            0 => {
                let app = APPS[draw(mix(self.workload), APPS.len())];
                push(out, format_args!("cr.example.com/ml/{app}:v1.{}.{}", self.workload & 31, self.workload & 7));
            }
            1 => out.push_str("docker.io/istio/proxyv2:1.27.3"),
            _ => out.push_str("docker.io/fluent/fluent-bit:4.1.1"),
        }
    }

    pub(super) fn image_id(self, container: u8, out: &mut String) {
        out.push_str("sha256:");
        let seed = if container == 0 { self.workload } else { u64::from(container) };
        (0..4).for_each(|part| push(out, format_args!("{:016x}", mix2(seed, 32 + part))));
    }
}

/// Writes the name of a pod of a DaemonSet.
pub(super) fn daemon(node: Node, name: &str, out: &mut String) {
    push(out, format_args!("{name}-"));
    letters(mix2(node.seed, name.len() as u64), 5, out);
}

/// Writes a UUID of version 4.
pub(super) fn uuid(seed: u64, out: &mut String) {
    let (high, low) = (mix(seed), mix(!seed));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    push(out, format_args!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}"));
}

/// Appends formatted text.
pub(super) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

fn letters(seed: u64, n: u64, out: &mut String) {
    out.extend((0..n).map(|i| char::from(LETTERS[draw(mix2(seed, i), LETTERS.len())])));
}

fn draw(random: u64, n: usize) -> usize {
    usize::try_from(below(random, n as u64)).expect("less than a length")
}
