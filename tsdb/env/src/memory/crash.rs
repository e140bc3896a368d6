//! Choosing one of the possible outcomes of a power cut.

use std::collections::HashSet;

use super::contents::Contents;
use super::disk::{Disk, Entries, Entry, Node, ROOT, names_in};
use super::power_cut::{PowerCut, Rng};

impl Disk {
    /// See [`MemFs::crash`](super::MemFs::crash).
    pub(super) fn crash(&self, cut: PowerCut) -> Disk {
        let mut rng = Rng::new(cut);
        let entries = self.surviving_entries(cut, &mut rng);
        let mut after = Disk::new();
        after.next_node = self.next_node;
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            for (name, id) in names_in(&entries, dir) {
                after.entries.insert((dir, name.to_owned()), id);
                match &self.nodes[&id] {
                    Node::Dir => {
                        after.nodes.insert(id, Node::Dir);
                        dirs.push(id);
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
        after.count_links_of_new_disk();
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
