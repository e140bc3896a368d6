//! Resolves an encoded label set to its route: parses it, deduplicates it, relabels it and looks it
//! up in the store.
//!
//! Used by `request` for series that the route cache does not have, and by `append` for series that
//! have moved. Creates no series. Caches a route if it is also valid for later requests.

use std::cell::RefCell;

use varve_model::Labels;
use varve_tsdb::{Db, SeriesHandle};

use crate::admission::{Ledger, Team};
use crate::batch::{DecodedBatch, RouteKey, SeriesEntry, Version};
use crate::error::WriteError;
use crate::forced_labels::ForcedLabels;
use crate::ha::{Deduplication, HaContext};
use crate::label_set;
use crate::limits::Limits;
use crate::outcome::{ExemplarRejection, Reason};
use crate::relabel::{ActiveRelabeling, Attribution};
use crate::route::{Route, RouteCache, Scope};
use crate::sources::remote_write::{label_pairs, v1};

/// A decoded request, and the settings and caches that resolve its series.
pub(crate) struct Resolver<'a> {
    pub(crate) db: &'a Db,
    pub(crate) limits: &'a Limits,
    pub(crate) cache: &'a RouteCache,
    pub(crate) relabeling: &'a ActiveRelabeling,
    pub(crate) ha: &'a HaContext<'a>,
    pub(crate) budgets: &'a Ledger,
    /// The team that the sender names.
    pub(crate) team: Option<Team>,
    /// The scope of the request's cached routes.
    pub(crate) scope: Scope,
    /// The labels that all series of the sender get.
    pub(crate) forced: &'a ForcedLabels<'a>,
    pub(crate) message: &'a [u8],
    pub(crate) batch: &'a DecodedBatch,
    /// Reused memory for the labels of one series.
    pub(crate) strings: RefCell<Vec<(&'a str, &'a str)>>,
    /// Routes that are not yet in `cache`; at most [`NEW_ROUTES_MAX`].
    pub(crate) new_routes: RefCell<Vec<(RouteKey, Route)>>,
}

/// A resolved label set.
pub(crate) enum Resolved {
    Route(Route),
    /// The store does not have the series.
    New(NewSeries),
}

/// A series that the store does not have.
pub(crate) struct NewSeries {
    pub(crate) labels: Labels,
    pub(crate) team: Team,
    /// The rules that matched its labels.
    rules: Vec<u16>,
    /// Whether the route may be cached.
    pub(crate) is_cacheable: bool,
}

impl NewSeries {
    /// Returns the attribution of the series' samples, and counts the series for its rules.
    pub(crate) fn attribution(&self, relabeling: &ActiveRelabeling) -> Attribution {
        relabeling.attributions.of(self.team, &self.rules)
    }
}

impl<'a> Resolver<'a> {
    /// Checks the encoding of all label sets without a cached route. Called before anything is
    /// stored.
    ///
    /// # Errors
    /// [`WriteError::Malformed`].
    pub(crate) fn check_unknown(&self, routes: &[Option<Route>]) -> Result<(), WriteError> {
        // The decoder of version 2.0 has already checked all references.
        let series = if self.is_v2() {
            &[][..]
        } else {
            &self.batch.series
        };
        for (series, _) in series
            .iter()
            .zip(routes)
            .filter(|(_, route)| route.is_none())
        {
            v1::check_labels(self.message, series.labels)?;
        }
        Ok(())
    }

    /// Resolves the labels of a series.
    pub(crate) fn resolve(&self, series: &SeriesEntry) -> Resolved {
        let (route, is_cacheable) = match self
            .labels(series)
            .map(|labels| self.ha.deduplicate(self.forced.apply(labels)))
        {
            Ok(Deduplication::Store {
                labels,
                is_cacheable,
            }) => match self.relabel(labels, is_cacheable) {
                Resolved::Route(route) => (route, is_cacheable),
                new @ Resolved::New(_) => return new,
            },
            Ok(Deduplication::Standby) => (Route::Standby, false),
            Ok(Deduplication::RejectionCount(reason)) => (Route::Rejected(reason), false),
            Err(reason) => (Route::Rejected(reason), self.ha.uses_route_cache()),
        };
        Resolved::Route(self.remember_route(series, route, is_cacheable))
    }

    /// Relabels a label set and looks up the result.
    fn relabel(&self, labels: Labels, is_cacheable: bool) -> Resolved {
        let mut rules = Vec::new();
        Resolved::Route(match self.relabeling.relabeling.apply(labels, &mut rules) {
            Err(invalid) => Route::Rejected(label_set::reason(&invalid)),
            // Rules must not replace a forced label.
            Ok(Some(labels)) if !labels.is_empty() => {
                match label_set::check(self.forced.apply(labels)) {
                    Err(reason) => Route::Rejected(reason),
                    Ok(labels) => {
                        let team = self.team.unwrap_or_else(|| self.budgets.team_of(&labels));
                        let series = NewSeries {
                            labels,
                            team,
                            rules,
                            is_cacheable,
                        };
                        match self.db.find_for(&series.labels, team.group()) {
                            Some(handle) => {
                                Route::Series(handle, series.attribution(self.relabeling))
                            }
                            None => return Resolved::New(series),
                        }
                    }
                }
            }
            // A rule drops the series, or the rules remove all its labels.
            Ok(_) => Route::Dropped(self.relabeling.attributions.of(Team::NONE, &rules)),
        })
    }

    /// Remembers a route for [`Resolver::cache_new_routes`] if it is valid for later requests, and
    /// returns it.
    pub(crate) fn remember_route(
        &self,
        series: &SeriesEntry,
        route: Route,
        is_cacheable: bool,
    ) -> Route {
        if let Some(key) = series
            .key
            .filter(|_| is_cacheable)
            .map(|key| self.forced.key(key))
        {
            let mut new_routes = self.new_routes.borrow_mut();
            new_routes.push((key.under(self.scope), route));
            if new_routes.len() == NEW_ROUTES_MAX {
                self.cache.insert(&new_routes);
                new_routes.clear();
            }
        }
        route
    }

    /// Caches the new routes together, which takes each lock of the cache once.
    pub(crate) fn cache_new_routes(&self) {
        let mut new_routes = self.new_routes.borrow_mut();
        if !new_routes.is_empty() {
            self.cache.insert(&new_routes);
            new_routes.clear();
        }
    }

    /// Returns the handle for the exemplars of a series. If the request has samples of the series,
    /// they have already created it.
    pub(crate) fn handle(
        &self,
        route: Option<Route>,
        series_idx: u32,
    ) -> Result<SeriesHandle, ExemplarRejection> {
        let unknown = ExemplarRejection::UnknownSeries;
        match route {
            Some(Route::Series(handle, _)) => Ok(handle),
            Some(Route::Dropped(_)) => Err(ExemplarRejection::Dropped),
            Some(Route::Standby) => Err(ExemplarRejection::Standby),
            Some(Route::Rejected(_)) => Err(unknown),
            None => {
                let labels = self
                    .labels(&self.batch.series[series_idx as usize])
                    .map_err(|_| unknown)?;
                let labels = match self.ha.deduplicate(self.forced.apply(labels)) {
                    Deduplication::Store { labels, .. } => labels,
                    Deduplication::Standby => return Err(ExemplarRejection::Standby),
                    Deduplication::RejectionCount(_) => return Err(unknown),
                };
                match self.relabeling.relabeling.apply(labels, &mut Vec::new()) {
                    Ok(Some(labels)) if !labels.is_empty() => {
                        self.db.find(&self.forced.apply(labels)).ok_or(unknown)
                    }
                    Ok(_) => Err(ExemplarRejection::Dropped),
                    Err(_) => Err(unknown),
                }
            }
        }
    }

    /// Parses and checks the labels of a series.
    pub(crate) fn labels(&self, series: &SeriesEntry) -> Result<Labels, Reason> {
        let strings = &mut *self.strings.borrow_mut();
        // Fast path: the labels are encoded as most senders do.
        if !self.is_v2() && v1::plain_strings(self.message, series.labels, strings) {
            self.forced.add_to(strings);
            return label_set::parse_strings(strings, self.limits);
        }
        label_set::parse(self.pairs(series), self.limits, strings)
    }

    pub(crate) fn pairs(
        &self,
        series: &SeriesEntry,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.forced
            .add(label_pairs(self.batch, self.message, series.labels))
    }

    /// Returns the labels of a series as HA deduplication sees them.
    pub(crate) fn pairs_of_ha(
        &self,
        series: &SeriesEntry,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.forced
            .add_all(label_pairs(self.batch, self.message, series.labels))
    }

    pub(crate) fn is_v2(&self) -> bool {
        self.batch.version == Version::V2
    }

    /// Returns the new handle of a series that has moved, or `None` if the store no longer has the
    /// series.
    pub(crate) fn relocate(&self, series_idx: u32) -> Result<Option<SeriesHandle>, WriteError> {
        match self.resolve(&self.batch.series[series_idx as usize]) {
            Resolved::Route(Route::Series(handle, _)) => Ok(Some(handle)),
            Resolved::Route(Route::Dropped(_) | Route::Standby | Route::Rejected(_)) => {
                Err(WriteError::Moved)
            }
            // The series was evicted from the store. The next pass creates it again.
            Resolved::New(_) => Ok(None),
        }
    }

    /// Prints the labels of a series.
    pub(crate) fn print(&self, series_idx: u32) -> String {
        label_set::print(self.pairs(&self.batch.series[series_idx as usize]))
    }
}

/// Maximum number of routes that a request remembers before they are cached: 64 KiB, and 40 KiB
/// while they are cached.
pub(crate) const NEW_ROUTES_MAX: usize = 2048;
