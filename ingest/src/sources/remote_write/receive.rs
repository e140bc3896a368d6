//! Requests of remote write, and of Thanos' routers.

use super::{snappy, v1, v2};
use crate::admission::Origin;
use crate::batch::Version;
use crate::error::WriteError;
use crate::outcome::{Rejections, Written};
use crate::receiver::Receiver;
use crate::write::{Decoded, Write};

impl Receiver {
    /// Writes a remote-write request: a snappy block with a message of `version`. On success,
    /// everything that is not in [`Written::rejections`] is in the store's log.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(
        &self,
        origin: &Origin<'_>,
        version: Version,
        body: &[u8],
    ) -> Result<Written, WriteError> {
        self.counted(body, |buffers| {
            // IMPORTANT: the sizes are checked before anything is allocated.
            self.limits.check_body(body.len())?;
            let size = snappy::declared_size(body, &self.limits)?;
            let permit = self
                .admission
                .admit(origin, body.len(), body.len() + size)?;

            let batch = &mut buffers.batch;
            let message = permit.decode(|| -> Result<_, WriteError> {
                let message = snappy::decompress(body, size, &mut buffers.message)?;
                match version {
                    Version::V1 => v1::decode(message, &self.hasher, &self.limits, batch)?,
                    Version::V2 => v2::decode(message, &self.hasher, &self.limits, batch)?,
                }
                Ok(message)
            })?;

            let decoded = Decoded {
                message,
                batch,
                rejections: Rejections::default(),
            };
            Write::of_sender(self, permit, decoded, &mut buffers.request)?.store()
        })
    }

    /// Writes a `thanos.WriteRequest`. Its tenant, unless it is empty, is the team of the request,
    /// and the label `tenant_label` of each series, unless the name is empty. `read` returns the
    /// message in `body`, decompressed into a reused buffer if necessary.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_routed(
        &self,
        origin: &Origin<'_>,
        tenant_label: &str,
        body: &[u8],
        read: impl for<'a> FnOnce(&'a [u8], &'a mut Vec<u8>) -> Result<&'a [u8], WriteError>,
    ) -> Result<Written, WriteError> {
        self.counted(body, |buffers| {
            let message = read(body, &mut buffers.message)?;
            let mut origin = *origin;
            let tenant = v1::tenant(message)?;
            if !tenant.is_empty() {
                origin.team = Some(tenant);
                if !tenant_label.is_empty() {
                    origin.added_label = Some((tenant_label, tenant));
                }
            }
            let permit = self
                .admission
                .admit(&origin, message.len(), message.len())?;

            let batch = &mut buffers.batch;
            permit.decode(|| v1::decode_routed(message, &self.hasher, &self.limits, batch))?;

            let decoded = Decoded {
                message,
                batch,
                rejections: Rejections::default(),
            };
            Write::of_sender(self, permit, decoded, &mut buffers.request)?.store()
        })
    }
}
