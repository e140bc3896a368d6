//! Open files of the disk: reads, appends and locks.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::contents::Contents;
use super::disk::{Disk, Node, NodeId};
use super::faults::{Fault, broken};

impl Disk {
    pub(super) fn open(&mut self, path: &Path) -> io::Result<NodeId> {
        self.faults.check_open(path)?;
        self.open_node(self.find(path)?)
    }

    pub(super) fn open_node(&mut self, id: NodeId) -> io::Result<NodeId> {
        match self.nodes.get_mut(&id) {
            Some(Node::File { n_open, .. }) => {
                *n_open += 1;
                Ok(id)
            }
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn close(&mut self, node: NodeId) {
        if let Some(Node::File { n_open, .. }) = self.nodes.get_mut(&node) {
            *n_open -= 1;
            self.give_room_of(node);
        }
    }

    pub(super) fn append(&mut self, node: NodeId, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let fault = self.faults.count("append", path)?;
        let size = match fault {
            None => bytes.len(),
            Some(Fault::Cut | Fault::Dies) => bytes.len() / 2,
            Some(Fault::Fails(_) | Fault::OutOfFiles) => 0,
        };
        let fits = self.faults.take_room(size);
        self.contents_mut(node)?.append(&bytes[..fits]);
        match fault {
            Some(fault) => Err(fault.error()),
            None if fits < size => Err(ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }

    pub(super) fn truncate(&mut self, node: NodeId, path: &Path, size: u64) -> io::Result<()> {
        self.run("truncate", path, |disk| {
            let contents = disk.contents_mut(node)?;
            let freed = contents.size().saturating_sub(size);
            contents.resize(usize::try_from(size).map_err(io::Error::other)?);
            disk.faults.give_room(freed);
            Ok(())
        })
    }

    pub(super) fn sync(&mut self, node: NodeId, path: &Path) -> io::Result<()> {
        let sync_fails = self.faults.sync_fails;
        let synced = self.run("sync", path, |disk| {
            if sync_fails {
                return Err(broken());
            }
            disk.contents_mut(node)?.sync();
            Ok(())
        });
        if synced.is_err() {
            self.contents_mut(node)?.fail_sync();
        }
        synced
    }

    pub(super) fn size(&self, node: NodeId) -> io::Result<u64> {
        self.faults.check_alive()?;
        self.contents(node).map(Contents::size)
    }

    pub(super) fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        self.faults.check_alive()?;
        let contents = self.contents(self.find(path)?)?;
        if contents.size() > size_max {
            return Err(ErrorKind::FileTooLarge.into());
        }
        contents.check_readable(0..contents.size())?;
        Ok(contents.data().to_vec())
    }

    pub(super) fn read_at(&self, node: NodeId, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.faults.check_alive()?;
        let contents = self.contents(node)?;
        let end = offset.saturating_add(buf.len() as u64);
        if end > contents.size() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        contents.check_readable(offset..end)?;
        // Both lie inside the file, which is in memory.
        buf.copy_from_slice(&contents.data()[offset as usize..end as usize]);
        Ok(())
    }

    pub(super) fn lock(&mut self, path: &Path) -> io::Result<NodeId> {
        let node = match self.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.create(path)?,
            found => found?,
        };
        if !self.locked.insert(node) {
            self.close(node);
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(node)
    }

    pub(super) fn unlock(&mut self, node: NodeId) {
        self.locked.remove(&node);
        self.close(node);
    }

    pub(super) fn contents_mut(&mut self, node: NodeId) -> io::Result<&mut Contents> {
        match self.nodes.get_mut(&node) {
            Some(Node::File { contents, .. }) => Ok(contents),
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn contents(&self, node: NodeId) -> io::Result<&Contents> {
        match self.nodes.get(&node) {
            Some(Node::File { contents, .. }) => Ok(contents),
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// Frees the space of a file without names that is not open.
    pub(super) fn give_room_of(&mut self, node: NodeId) {
        if let Some(Node::File {
            contents,
            n_links: 0,
            n_open: 0,
        }) = self.nodes.get(&node)
        {
            self.faults.give_room(contents.size());
        }
    }
}
