//! The tree of files and directories: its present state, and the unsynced changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use super::contents::Contents;
use super::faults::{Fault, Faults, broken};

/// The id of a file or directory, never reused.
pub(super) type NodeId = u64;

/// The root directory.
pub(super) const ROOT: NodeId = 0;

/// A directory and a name in it.
pub(super) type Entry = (NodeId, String);

/// The entries of all directories.
pub(super) type Entries = BTreeMap<Entry, NodeId>;

/// A disk.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) next_node: NodeId,
    /// The present entries.
    pub(super) entries: Entries,
    /// Entries that survive any power cut.
    pub(super) synced: Entries,
    /// Unsynced changes of entries, in order.
    pub(super) changes: Vec<Change>,
    pub(super) faults: Faults,
    pub(super) locked: BTreeSet<NodeId>,
}

#[derive(Debug)]
pub(super) enum Node {
    File {
        contents: Contents,
        n_links: usize,
        n_open: usize,
    },
    Dir,
}

/// An atomic change: a create or link sets an entry, an unlink clears one, a rename does both.
#[derive(Debug)]
pub(super) struct Change {
    clears: Option<Entry>,
    sets: Option<(Entry, NodeId)>,
}

impl Change {
    /// Iterates over the entries that it changes.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.clears
            .iter()
            .chain(self.sets.iter().map(|(entry, _)| entry))
    }

    pub(super) fn apply(&self, entries: &mut Entries) {
        if let Some(cleared) = &self.clears {
            entries.remove(cleared);
        }
        if let Some((entry, node)) = &self.sets {
            entries.insert(entry.clone(), *node);
        }
    }
}

impl Node {
    pub(super) fn file(contents: Contents) -> Self {
        Self::File {
            contents,
            n_links: 0,
            n_open: 0,
        }
    }
}

/// Directories and names.
impl Disk {
    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Dir)]),
            next_node: ROOT + 1,
            entries: Entries::new(),
            synced: Entries::new(),
            changes: Vec::new(),
            faults: Faults::new(),
            locked: BTreeSet::new(),
        }
    }

    /// Returns the bytes of all files.
    pub(super) fn used(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| match node {
                Node::File { contents, .. } => contents.size(),
                Node::Dir => 0,
            })
            .sum()
    }

    /// Returns the node at a path.
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        names(path)?
            .into_iter()
            .try_fold(ROOT, |dir, name| self.lookup(dir, name))
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.faults.check_alive()?;
        let mut dir = ROOT;
        for name in names(path)? {
            dir = match self.lookup(dir, name) {
                Ok(node) => node,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.run("create directory", path, |disk| {
                        let made = disk.add(Node::Dir);
                        disk.change(None, Some(((dir, name.to_owned()), made)));
                        Ok(made)
                    })?
                }
                Err(error) => return Err(error),
            };
        }
        if self.is_dir(dir) {
            Ok(())
        } else {
            Err(ErrorKind::AlreadyExists.into())
        }
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.faults.check_alive()?;
        let dir = self.find(dir)?;
        self.check_dir(dir)?;
        Ok(names_in(&self.entries, dir)
            .map(|(name, _)| name.to_owned())
            .collect())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let node = self.run("create", path, |disk| {
            let entry = disk.free_entry(path)?;
            let node = disk.add(Node::file(Contents::default()));
            disk.change(None, Some((entry, node)));
            Ok(node)
        })?;
        self.open_node(node)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.run("rename", from, |disk| {
            let from_entry = disk.entry(from)?;
            let to_entry = disk.entry(to)?;
            let node = disk.lookup(from_entry.0, &from_entry.1)?;
            if from != to && to.starts_with(from) {
                return Err(ErrorKind::InvalidInput.into());
            }
            if from != to && from.starts_with(to) {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            match disk.lookup(to_entry.0, &to_entry.1) {
                // Two names of one file: a no-op, as in POSIX.
                Ok(replaced) if replaced == node => return Ok(()),
                Ok(replaced) => disk.check_replaceable(node, replaced)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            disk.change(Some(from_entry), Some((to_entry, node)));
            Ok(())
        })
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.run("link", from, |disk| {
            let node = disk.find(from)?;
            let entry = disk.free_entry(to)?;
            if disk.is_dir(node) {
                return Err(ErrorKind::PermissionDenied.into());
            }
            disk.change(None, Some((entry, node)));
            Ok(())
        })
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.run("remove", path, |disk| {
            let entry = disk.entry(path)?;
            if disk.is_dir(disk.lookup(entry.0, &entry.1)?) {
                return Err(ErrorKind::IsADirectory.into());
            }
            disk.change(Some(entry), None);
            Ok(())
        })
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.run("remove directory", path, |disk| {
            let entry = disk.entry(path)?;
            let node = disk.lookup(entry.0, &entry.1)?;
            disk.check_empty(node)?;
            disk.change(Some(entry), None);
            Ok(())
        })
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.run("sync directory", path, |disk| {
            let dir = disk.find(path)?;
            disk.check_dir(dir)?;
            if disk.faults.sync_fails {
                return Err(broken());
            }
            disk.make_durable(dir);
            disk.sweep();
            Ok(())
        })
    }

    /// Makes the changes in a directory durable, and those they depend on: earlier ones of the same
    /// names.
    fn make_durable(&mut self, dir: NodeId) {
        let mut needed: HashSet<Entry> = HashSet::new();
        let mut lasting = Vec::new();
        let mut waiting = Vec::new();
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            if change
                .entries()
                .any(|entry| entry.0 == dir || needed.contains(entry))
            {
                needed.extend(change.entries().cloned());
                lasting.push(change);
            } else {
                waiting.push(change);
            }
        }
        for change in lasting.iter().rev() {
            change.apply(&mut self.synced);
        }
        waiting.reverse();
        self.changes = waiting;
    }

    /// Removes unreachable files and directories.
    fn sweep(&mut self) {
        let waiting = self
            .changes
            .iter()
            .filter_map(|change| change.sets.as_ref())
            .map(|(_, node)| node);
        let mut used: BTreeSet<_> = waiting
            .chain(self.entries.values())
            .chain(self.synced.values())
            .copied()
            .collect();
        used.insert(ROOT);
        let is_open = |node: &Node| matches!(node, Node::File { n_open: 1.., .. });
        self.nodes
            .retain(|id, node| used.contains(id) || is_open(node));
    }

    /// Makes a change, which is not durable yet.
    fn change(&mut self, clears: Option<Entry>, sets: Option<(Entry, NodeId)>) {
        let change = Change { clears, sets };
        let gone: Vec<_> = change
            .entries()
            .filter_map(|entry| self.entries.get(entry).copied())
            .collect();
        change.apply(&mut self.entries);
        if let Some((_, node)) = &change.sets {
            self.add_links(*node, 1);
        }
        for node in gone {
            self.add_links(node, -1);
        }
        self.changes.push(change);
    }

    fn add_links(&mut self, node: NodeId, n: isize) {
        if let Some(Node::File { n_links, .. }) = self.nodes.get_mut(&node) {
            *n_links = n_links
                .checked_add_signed(n)
                .expect("each link is counted once");
            if n < 0 {
                self.give_room_of(node);
            }
        }
    }

    /// Counts the names of all files of a disk whose links are not counted yet.
    pub(super) fn count_links_of_new_disk(&mut self) {
        for node in self.entries.values().copied().collect::<Vec<_>>() {
            self.add_links(node, 1);
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    fn lookup(&self, dir: NodeId, name: &str) -> io::Result<NodeId> {
        self.check_dir(dir)?;
        self.entries
            .get(&(dir, name.to_owned()))
            .copied()
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn is_dir(&self, node: NodeId) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Dir))
    }

    fn check_dir(&self, node: NodeId) -> io::Result<()> {
        if self.is_dir(node) {
            Ok(())
        } else {
            Err(ErrorKind::NotADirectory.into())
        }
    }

    fn check_empty(&self, node: NodeId) -> io::Result<()> {
        self.check_dir(node)?;
        match names_in(&self.entries, node).next() {
            None => Ok(()),
            Some(_) => Err(ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    fn check_replaceable(&self, node: NodeId, replaced: NodeId) -> io::Result<()> {
        match (self.is_dir(node), self.is_dir(replaced)) {
            (false, false) => Ok(()),
            (false, true) => Err(ErrorKind::IsADirectory.into()),
            (true, _) => self.check_empty(replaced),
        }
    }

    /// Returns the directory and the name of a path.
    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let names = names(path)?;
        let (name, above) = names.split_last().ok_or(ErrorKind::InvalidInput)?;
        let dir = above
            .iter()
            .try_fold(ROOT, |dir, name| self.lookup(dir, name))?;
        self.check_dir(dir)?;
        Ok((dir, (*name).to_owned()))
    }

    fn free_entry(&self, path: &Path) -> io::Result<Entry> {
        let entry = self.entry(path)?;
        match self.lookup(entry.0, &entry.1) {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(entry),
        }
    }

    /// Runs an operation, and fails if a fault is due: a cut after the operation, others instead of
    /// it.
    pub(super) fn run<T>(
        &mut self,
        operation: &'static str,
        path: &Path,
        act: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.faults.count(operation, path)? {
            None => act(self),
            Some(Fault::Cut) => act(self).and(Err(Fault::Cut.error())),
            Some(fault) => Err(fault.error()),
        }
    }
}

/// Iterates over the names in a directory, sorted, with their nodes.
pub(super) fn names_in(entries: &Entries, dir: NodeId) -> impl Iterator<Item = (&str, NodeId)> {
    let from_first = entries.range((dir, String::new())..);
    from_first
        .take_while(move |((parent, _), _)| *parent == dir)
        .map(|((_, name), node)| (name.as_str(), *node))
}

/// Returns the components of a path.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(ErrorKind::InvalidInput)?),
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}
