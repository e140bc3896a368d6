//! Choosing one of the possible outcomes of a power cut.

use std::collections::HashSet;

use super::contents::Contents;
use super::disk::{Disk, Entries, Entry, Node, ROOT, names_in};

/// What survives of unsynced data in a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// Nothing: the worst case.
    LosesAll,
    /// Everything, as if only the process had died: the best case.
    KeepsAll,
    /// A random part, determined by the seed.
    Seeded(u64),
}

impl Disk {
    /// See [`MemFs::crash`](super::MemFs::crash).
    pub(super) fn crash(&self, cut: PowerCut) -> Disk {
        let mut rng = Rng::new(cut);
        let entries = self.surviving_entries(cut, &mut rng);
        let mut after = Disk::new();
        after.next_node = self.next_node;
        let mut folders = vec![ROOT];
        while let Some(folder) = folders.pop() {
            for (name, id) in names_in(&entries, folder) {
                after.entries.insert((folder, name.to_owned()), id);
                match &self.nodes[&id] {
                    Node::Folder => {
                        after.nodes.insert(id, Node::Folder);
                        folders.push(id);
                    }
                    // A file with two names is visited twice.
                    Node::File { contents, .. } => {
                        after.nodes.entry(id).or_insert_with(|| {
                            let survivor = contents.survivor(cut, &mut rng);
                            Node::file(Contents::lasting(survivor, contents.bad().to_vec()))
                        });
                    }
                }
            }
        }
        after.synced = after.entries.clone();
        after.count_links();
        after
    }

    /// Returns the entries of all directories after some of the unsynced changes.
    fn surviving_entries(&self, cut: PowerCut, rng: &mut Rng) -> Entries {
        let mut entries = self.synced.clone();
        let mut lost: HashSet<&Entry> = HashSet::new();
        for change in &self.changes {
            let kept = match cut {
                PowerCut::LosesAll => false,
                PowerCut::KeepsAll => true,
                PowerCut::Seeded(_) => rng.keeps(),
            };
            // Changes of a name after a lost one are lost as well.
            if kept && !change.entries().any(|entry| lost.contains(entry)) {
                change.apply(&mut entries);
            } else {
                lost.extend(change.entries());
            }
        }
        entries
    }
}

/// A seeded random number generator (splitmix64).
#[derive(Debug)]
pub(super) struct Rng {
    state: u64,
    /// Entries kept out of four: extreme outcomes are as frequent as mixed ones.
    kept_of_4: u64,
}

impl Rng {
    fn new(cut: PowerCut) -> Self {
        let PowerCut::Seeded(seed) = cut else { return Self { state: 0, kept_of_4: 0 } };
        let mut rng = Self { state: seed, kept_of_4: 0 };
        rng.kept_of_4 = rng.below(5) as u64;
        rng
    }

    /// Returns a number below `n`, which must not be 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from 0 to `n`; the two ends are as likely as all others together.
    pub(super) fn share_of(&mut self, n: usize) -> usize {
        match self.below(4) {
            0 => 0,
            1 => n,
            _ => self.below(n + 1),
        }
    }

    fn keeps(&mut self) -> bool {
        (self.below(4) as u64) < self.kept_of_4
    }
}
