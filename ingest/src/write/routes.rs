//! New routes on their way into the route cache.

use super::request::Write;
use crate::batch::SeriesEntry;
use crate::route::Route;

impl Write<'_> {
    /// Remembers a route, which is valid for later requests as well, for
    /// [`Write::cache_new_routes`].
    pub(super) fn remember_route(&mut self, series: &SeriesEntry, route: Route) {
        let Some(key) = series.key else {
            return;
        };
        let key = self
            .request
            .sender_labels
            .cache_key(key, self.settings.scope);
        self.new_routes.push((key, route));
        if self.new_routes.len() == NEW_ROUTES_MAX {
            self.cache_new_routes();
        }
    }

    /// Caches the new routes together, which takes each lock of the cache once.
    pub(super) fn cache_new_routes(&mut self) {
        if !self.new_routes.is_empty() {
            self.receiver.routes.insert(&self.new_routes);
            self.new_routes.clear();
        }
    }
}

/// Maximum number of routes that a request remembers before they are cached: 64 KiB, and 40 KiB
/// while they are cached.
pub(crate) const NEW_ROUTES_MAX: usize = 2048;
