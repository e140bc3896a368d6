//! A list of objects that a server sends page by page.

use anyhow::{Result, ensure};
use varve_system::excerpt::quotable;

use crate::limits::EMPTY_PAGES_MAX;
use crate::object::{Object, check_listed};

/// The objects so far, and where the next page begins.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    objects: Vec<Object>,
    token: String,
    n_empty_pages: usize,
}

impl Listing {
    /// Returns the token of the next page, empty for the first one.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Adds the objects of a page.
    ///
    /// # Errors
    /// If there are too many objects.
    pub(crate) fn add(&mut self, page: Vec<Object>) -> Result<()> {
        self.n_empty_pages = if page.is_empty() {
            self.n_empty_pages + 1
        } else {
            0
        };
        self.objects.extend(page);
        check_listed(&self.objects)
    }

    /// Sets the token of the next page. A page may be empty, but a list without progress would never
    /// end.
    ///
    /// # Errors
    /// If there are too many empty pages in a row, or the token is that of the page before.
    pub(crate) fn continue_at(&mut self, host: &str, token: String) -> Result<()> {
        ensure!(
            self.n_empty_pages < EMPTY_PAGES_MAX,
            "{host} returned {EMPTY_PAGES_MAX} empty pages of a list in a row"
        );
        ensure!(
            token != self.token,
            "{host} returned the continuation token {:?} of a list twice",
            quotable(&token)
        );
        self.token = token;
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<Object> {
        self.objects
    }
}
