//! Snapshots: a data directory with hard links to all blocks of the store.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::store::store::Store;
use crate::wal::write_snapshot_log;

impl Store {
    /// Creates a data directory with hard links to all blocks, and a WAL with metadata and
    /// exemplars. See [`Db::snapshot`](crate::Db::snapshot).
    ///
    /// # Errors
    /// The errors of [`Db::snapshot`](crate::Db::snapshot). A partially created directory stays.
    pub(crate) fn snapshot(&self, dir: &Path, skip_head: bool) -> Result<()> {
        let fs = &self.options.fs;
        if fs.list(dir).is_ok() {
            let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(Error::io("create", dir)(exists));
        }
        if !skip_head {
            self.flush()?;
        }
        let blocks_dir = dir.join("blocks");
        fs.create_dir(&blocks_dir)
            .map_err(Error::io("create", &blocks_dir))?;
        self.blocks.link_into(dir, &blocks_dir)?;
        let metadata = self.metadata.lock().by_age();
        let exemplars = self.exemplars.by_log(1);
        let families = metadata
            .iter()
            .map(|(family, metadata)| (&**family, &**metadata));
        let next_ref = self.next_ref.load(Ordering::SeqCst);
        write_snapshot_log(
            &**fs,
            &dir.join("wal"),
            next_ref,
            families,
            &exemplars.concat(),
        )?;
        // The directory of snapshots, and the data directory.
        let parents = dir.ancestors().skip(1).take(2);
        for dir in [&blocks_dir, dir]
            .into_iter()
            .map(|dir| dir as &Path)
            .chain(parents)
        {
            fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        }
        Ok(())
    }
}
