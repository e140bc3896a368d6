//! A list of objects that a server sends page by page.

use anyhow::{Result, ensure};
use varve_system::excerpt::quotable;

use crate::limits::EMPTY_PAGES_MAX;
use crate::object::{Object, check_listed};

/// A page of a list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    /// The token of the next page. `None`: this is the last one.
    pub(crate) next: Option<String>,
}

/// Reads all pages of a list. `read_page` gets the token of a page, empty for the first one.
///
/// # Errors
/// If there are too many objects, or the pages make no progress. Errors of `read_page`.
pub(crate) fn read_pages(
    host: &str,
    mut read_page: impl FnMut(&str) -> Result<Page>,
) -> Result<Vec<Object>> {
    let mut listing = Listing::default();
    loop {
        let page = read_page(&listing.token)?;
        listing.add(page.objects)?;
        match page.next {
            Some(token) => listing.continue_at(host, token)?,
            None => return Ok(listing.objects),
        }
    }
}

/// The objects so far, and where the next page begins.
#[derive(Debug, Default)]
struct Listing {
    objects: Vec<Object>,
    token: String,
    n_empty_pages: usize,
}

impl Listing {
    /// Adds the objects of a page.
    ///
    /// # Errors
    /// If there are too many objects.
    fn add(&mut self, page: Vec<Object>) -> Result<()> {
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
    fn continue_at(&mut self, host: &str, token: String) -> Result<()> {
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
}
