//! Text that is built in steps, with a maximum size, charged to a request.

use std::fmt::{self, Write};

use varve_context::{Charge, QueryContext};

use crate::error::Result;

/// Text of limited size. Writing more fails.
pub(crate) struct Text {
    text: String,
    size_max: usize,
    ctx: QueryContext,
    charge: Charge,
    /// The reason of a failure other than the size.
    interrupt: Option<varve_context::Error>,
}

impl Text {
    pub(crate) fn new(size_max: usize, ctx: &QueryContext) -> Self {
        Self {
            text: String::new(),
            size_max,
            charge: ctx.charge(),
            ctx: ctx.clone(),
            interrupt: None,
        }
    }

    /// Calls `write` with an empty text. Returns the text and its charge; `None` if it exceeds the
    /// maximum size.
    ///
    /// # Errors
    /// [`Error::Context`](crate::Error::Context).
    pub(crate) fn build(
        size_max: usize,
        ctx: &QueryContext,
        write: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> Result<Option<(String, Charge)>> {
        let mut out = Self::new(size_max, ctx);
        let outcome = write(&mut out);
        match out.interrupt {
            Some(interrupt) => Err(interrupt.into()),
            None => Ok(outcome.ok().map(|()| (out.text, out.charge))),
        }
    }

    /// Charges the growth of the buffer, which doubles.
    #[cold]
    fn grow(&mut self, size: usize) -> fmt::Result {
        let capacity = size.next_power_of_two().max(64);
        let charged = self
            .ctx
            .check()
            .and_then(|()| self.charge.grow(2 * capacity - self.charge.size()));
        match charged {
            Ok(()) => self.text.reserve_exact(capacity - self.text.len()),
            Err(interrupt) => self.interrupt = Some(interrupt),
        }
        if self.interrupt.is_some() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let size = self.text.len() + text.len();
        if size > self.size_max {
            return Err(fmt::Error);
        }
        if size > self.text.capacity() {
            self.grow(size)?;
        }
        self.text.push_str(text);
        Ok(())
    }
}
