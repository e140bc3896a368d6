//! Copies a block into a store: the pages stay as they are, the footer gets another origin.
//!
//! Used by imports. A copy reads the file once, page by page, and verifies every checksum; the
//! contents are verified before it.

use std::path::Path;
use std::sync::Arc;

use varve_context::QueryContext;
use varve_env::Fs;

use super::footer::{HEADER_SIZE, trailer};
use super::meta::BlockOrigin;
use super::reader::Block;
use super::writer::create_file;
use crate::error::Result;

impl Block {
    /// Verifies the block, and writes it with another origin to the directory `dir`. Calls
    /// `written` with the number of bytes written so far.
    ///
    /// # Errors
    /// The errors of [`Block::verify`], and [`Error::Io`](crate::Error::Io) of the new file. No file exists then.
    pub(crate) fn copy_verified(
        &self,
        fs: &Arc<dyn Fs>,
        dir: &Path,
        origin: BlockOrigin,
        mut written: impl FnMut(u64),
    ) -> Result<()> {
        self.verify_contents(&QueryContext::unbounded())?;
        let name = origin.id.file_name();
        let (file, mut pages) = create_file(fs, &dir.join(&name))?;
        let mut offset = HEADER_SIZE as u64;
        while offset < self.footer.offset {
            offset += u64::from(
                self.pages
                    .copy_page(offset, self.footer.offset, &mut pages)?,
            );
            written(pages.size());
        }
        let mut footer = self.read_footer()?;
        footer.meta.origin = origin;
        let page = pages.write(&footer.encode())?;
        pages.write_raw(&trailer(page));
        pages.sync()?;
        file.publish(dir, &name)
    }
}
