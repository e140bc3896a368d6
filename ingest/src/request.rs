//! A decoded request on its way into the store: each series by its route, or resolved, then its samples and exemplars.
//!
//! Used by `pipeline`. Known series do not wait for new ones: the first go stores theirs, and as many new ones as there are
//! turns and budgets for; further goes have the rest (`waiting`). Where the store makes no series, known ones are stored
//! all the same.

use std::sync::Arc;

use varve_tsdb::{Db, Labels, SeriesHandle};

use crate::admission::priority::{First, SERIES_BETWEEN};
use crate::admission::semaphore::Turn;
use crate::admission::{Door, Lasting, Origin, Refusal, Rest, Team};
use crate::append::{Outgoing, Source, append, exemplars, metadata};
use crate::batch::{DecodedBatch, HistogramEntry, SeriesEntry, SeriesSamples, Version};
use crate::error::WriteError;
use crate::ha::{Judged, Standing};
use crate::label_set;
use crate::limits::Limits;
use crate::outcome::{Example, ExemplarRefusal, Reason, Rejects, Written};
use crate::relabel::{Ruled, Ruling, Verdict};
use crate::remote_write::wire::Reader;
use crate::remote_write::{LabelPairs, histogram, label_pairs, v1};
use crate::route::{Route, RouteCache, Scope};

/// What a request works with.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) db: &'a Db,
    pub(crate) limits: &'a Limits,
    pub(crate) routes: &'a RouteCache,
    pub(crate) ruling: &'a Ruling,
    pub(crate) standing: &'a Standing<'a>,
    pub(crate) door: &'a Door,
    pub(crate) origin: &'a Origin<'a>,
    /// The team that the sender names.
    pub(crate) team: Option<Team>,
    /// What its routes depend on.
    pub(crate) scope: Scope,
    /// Bytes that it holds.
    pub(crate) size: usize,
}

/// A decoded request on its way into the store.
pub(crate) struct Request<'a> {
    context: Context<'a>,
    message: &'a [u8],
    batch: &'a DecodedBatch,
    rejects: Rejects,
    /// What is not stored yet.
    rest: Rest,
    /// The turn of the go at hand: `None` if nobody has asked for one yet.
    turn: Option<Option<Turn<'a>>>,
    /// As long as all of its series are known, as far as it has come, and it waits for nothing.
    first: Option<First<'a>>,
    /// Series that it has made in this go, and those that it has looked up and the store does not have.
    n_made: usize,
    n_unknown: usize,
    n_stored: u64,
    /// Histograms that were handed to the store.
    n_histograms: u64,
    /// Samples that rules have dropped, and how many of them are histograms.
    n_dropped: u64,
    n_dropped_histograms: u64,
    /// Likewise of those that another replica of their pair stores.
    n_left_out: u64,
    n_left_out_histograms: u64,
    /// Those of them that are of the request's own pair, whose count is noted once.
    n_left_out_own: u64,
    /// Memory for the labels of one series.
    texts: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    /// Begins with a decoded message; `rejects` has what was refused before.
    pub(crate) fn new(context: Context<'a>, (message, batch): (&'a [u8], &'a DecodedBatch), rejects: Rejects) -> Self {
        Self {
            context,
            message,
            batch,
            rejects,
            rest: Rest::default(),
            turn: None,
            first: Some(context.door.precedence.go_first()),
            n_made: 0,
            n_unknown: 0,
            n_stored: 0,
            n_histograms: 0,
            n_dropped: 0,
            n_dropped_histograms: 0,
            n_left_out: 0,
            n_left_out_histograms: 0,
            n_left_out_own: 0,
            texts: Vec::new(),
        }
    }

    /// Writes it; `routes` has the route of each series that has one.
    pub(crate) fn write(mut self, routes: &mut [Option<Route>], out: &mut Outgoing) -> Result<Written, WriteError> {
        self.check_unknown(routes)?;
        out.clear();
        self.ask_for_samples(routes, None, out);
        let creation = self.push(routes, out);
        self.push_exemplars(routes, None, out);
        self.append(routes, out, creation)?;
        let rest = if self.rest.series.is_empty() { Ok(()) } else { self.write_rest(routes, out) };
        self.count(out);
        rest?;
        let (samples_stored, rejects) = (self.n_stored, std::mem::take(&mut self.rejects));
        let histograms_stored = self.n_histograms - out.histograms_rejected;
        let exemplars = std::mem::take(&mut out.exemplars);
        let mut written = Written {
            samples_stored,
            histograms_stored,
            samples_dropped: self.n_dropped,
            histograms_dropped: self.n_dropped_histograms,
            samples_left_out: self.n_left_out,
            histograms_left_out: self.n_left_out_histograms,
            exemplars,
            rejects,
            ignored: Rejects::default(),
        };
        let refused = if self.is_v2() { &mut written.ignored } else { &mut written.rejects };
        metadata::write(self.context.db, self.message, &self.batch.families, refused)?;
        Ok(written)
    }

    /// Goes on with what was left, until nothing is or time is over.
    fn write_rest(&mut self, routes: &mut [Option<Route>], out: &mut Outgoing) -> Result<(), WriteError> {
        let Context { door, origin, size, .. } = self.context;
        self.first = None;
        let waiting = door.wait(origin, size, &self.rest)?;
        let mut is_stuck = false;
        while !self.rest.series.is_empty() {
            // Without a pause only where all that was missing is a turn.
            if is_stuck || self.rest.is_scarce() {
                waiting.pause(&self.rest)?;
            }
            // What is known already needs no turn: it is left of teams that send too many samples.
            if self.rest.series.iter().any(|&(tag, _)| routes[tag as usize].is_none()) {
                self.turn = Some(Some(waiting.turn(&self.rest)?));
            }
            let left = self.rest.next_go();
            out.batch.clear();
            self.ask_for_samples(routes, Some(&left), out);
            let creation = self.push_left(&left, routes, out);
            self.push_exemplars(routes, Some(&left), out);
            self.append(routes, out, creation)?;
            is_stuck = self.rest.series.len() == left.len();
        }
        Ok(())
    }

    /// Appends what is pushed and ends the go. Known series do not wait for new ones: theirs are stored before an error
    /// tells the sender to repeat the request.
    fn append(
        &mut self,
        routes: &mut [Option<Route>],
        out: &mut Outgoing,
        creation: Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        (self.n_made, self.n_unknown) = (0, 0);
        let mut rejects = std::mem::take(&mut self.rejects);
        let appended = append(self.context.db, self, out, &mut rejects);
        // Only now: the samples of new series take as long as those of many known ones, in the same locks.
        self.turn = None;
        self.rejects = rejects;
        self.n_stored += appended?;
        creation?;
        for &tag in &out.homeless {
            // The route that it had leads nowhere.
            routes[tag as usize] = None;
            let place = self.rest.series.partition_point(|&(other, _)| other < tag);
            self.rest.series.insert(place, (tag, None));
        }
        Ok(())
    }

    /// Asks for the samples of known series if they are bounded, and holds back those of teams that send too many.
    fn ask_for_samples(&mut self, routes: &[Option<Route>], left: Option<&[(u32, Option<Team>)]>, out: &mut Outgoing) {
        let Context { ruling, door, .. } = self.context;
        if !door.ledger.bounds_samples() {
            return;
        }
        let mut add = |tag: usize| {
            if let Some(Route::Series(_, verdict)) = routes[tag] {
                out.asked.add_any(verdict, self.batch.n_samples_of(tag));
            }
        };
        match left {
            None => (0..routes.len()).for_each(add),
            Some(left) => left.iter().for_each(|&(tag, _)| add(tag as usize)),
        }
        let mut asked = Vec::new();
        ruling.verdicts.by_team(&mut out.asked, &mut asked);
        door.ledger.admit_samples(&asked, |team, refusal| self.rest.hold(team, refusal));
    }

    /// Counts the samples that were pushed, for rules and teams, and those that were left out.
    fn count(&self, out: &mut Outgoing) {
        self.context.standing.count_own(self.n_left_out_own);
        let Outgoing { tally, by_team, .. } = out;
        self.context.ruling.verdicts.count(tally, by_team);
        let of_teams: u64 = by_team.iter().map(|(_, n)| n).sum();
        by_team.push((Team::NONE, self.n_stored.saturating_sub(of_teams)));
        self.context.door.ledger.count_samples(by_team);
        by_team.clear();
    }

    fn is_v2(&self) -> bool {
        self.batch.version == Version::V2
    }

    /// Checks the labels that nobody has looked into yet, before anything is stored.
    fn check_unknown(&self, routes: &[Option<Route>]) -> Result<(), WriteError> {
        // References are checked when they are decoded.
        let series = if self.is_v2() { &[][..] } else { &self.batch.series };
        for (series, _) in series.iter().zip(routes).filter(|(_, route)| route.is_none()) {
            v1::check_labels(self.message, series.labels)?;
        }
        Ok(())
    }

    /// Pushes the samples of all series that can be had now. Fails with the first series that the store did not make; no
    /// other is made after that.
    fn push(&mut self, routes: &[Option<Route>], to: &mut Outgoing) -> Result<(), WriteError> {
        let batch = self.batch;
        let mut creation = Ok(());
        for ((tag, (series, samples)), route) in (0u32..).zip(batch.series()).zip(routes) {
            self.place((tag, series, samples), *route, None, to, &mut creation)?;
        }
        creation
    }

    /// Likewise of series that were left.
    fn push_left(
        &mut self,
        left: &[(u32, Option<Team>)],
        routes: &[Option<Route>],
        to: &mut Outgoing,
    ) -> Result<(), WriteError> {
        let batch = self.batch;
        let mut creation = Ok(());
        for &(tag, team) in left {
            let idx = tag as usize;
            let of = (tag, &batch.series[idx], batch.samples_of(idx));
            self.place(of, routes[idx], team, to, &mut creation)?;
        }
        creation
    }

    /// Pushes the samples of one series, or leaves it.
    fn place(
        &mut self,
        (tag, series, samples): (u32, &SeriesEntry, SeriesSamples<'_>),
        route: Option<Route>,
        team: Option<Team>,
        to: &mut Outgoing,
        creation: &mut Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let is_known = route.is_some();
        let is_left_out = !is_known && self.context.standing.leaves_out(self.pairs(series));
        let route = match route {
            Some(route) => route,
            None if is_left_out => Route::Standby,
            None if self.is_empty(tag, samples) => match self.labels(series) {
                Ok(_) => {
                    self.note_empty(series);
                    return Ok(());
                }
                Err(reason) => Route::Refused(reason),
            },
            None if creation.is_err() => return Ok(()),
            None => match self.resolve_new(tag, series, team) {
                Ok(Resolved::To(route)) => route,
                Ok(Resolved::Waits(team)) => {
                    self.rest.leave(tag, team);
                    return Ok(());
                }
                Ok(Resolved::Refused) => return Ok(()),
                Err(error) => {
                    *creation = Err(error);
                    return Ok(());
                }
            },
        };
        let n_histograms = self.batch.histograms_of(tag as usize).len();
        let n_samples = samples.samples.len() + n_histograms;
        match route {
            Route::Series(..) | Route::Dropped(_) if n_samples == 0 => self.note_empty(series),
            Route::Series(_, verdict) if self.rest.holds_any() && self.is_held(verdict) => {
                self.rest.leave(tag, None);
            }
            Route::Series(handle, verdict) => {
                if !is_known {
                    self.charge(verdict, n_samples);
                }
                to.tally.add(verdict, n_samples);
                for (sample, start_ms) in samples.with_starts() {
                    to.batch.push_with_start(handle, sample, start_ms, tag);
                }
                self.push_histograms(handle, tag, to)?;
            }
            Route::Dropped(verdict) => {
                to.tally.add(verdict, n_samples);
                self.n_dropped += n_samples as u64;
                self.n_dropped_histograms += n_histograms as u64;
            }
            Route::Standby => {
                self.n_left_out += n_samples as u64;
                self.n_left_out_histograms += n_histograms as u64;
                if is_left_out {
                    self.n_left_out_own += n_samples as u64;
                } else {
                    self.context.standing.count(self.pairs(series), n_samples as u64);
                }
            }
            Route::Refused(reason) => {
                let labels = || print(self.message, self.batch, series);
                let example = || Example::of_series(labels()).with(samples.samples.first().copied());
                self.rejects.add(reason, 1, n_samples as u64, example);
            }
        }
        Ok(())
    }

    /// Takes samples of a series that had no route from its team's budget: they were not asked for.
    fn charge(&self, verdict: Verdict, n_samples: usize) {
        let Context { ruling, door, .. } = self.context;
        if door.ledger.bounds_samples() {
            door.ledger.charge_samples(ruling.verdicts.team_of(verdict), n_samples as u64);
        }
    }

    fn is_held(&self, verdict: Verdict) -> bool {
        self.rest.holds(self.context.ruling.verdicts.team_of(verdict))
    }

    /// Pushes the histograms of a series but for those that are none.
    fn push_histograms(&mut self, handle: SeriesHandle, tag: u32, to: &mut Outgoing) -> Result<(), WriteError> {
        for entry in self.batch.histograms_of(tag as usize) {
            let (timestamp_ms, start_ms, checked) = match entry {
                HistogramEntry::Sent(span) => {
                    let sent = histogram::decode(Reader::over(self.message, *span), self.batch.version)?;
                    (sent.timestamp_ms, sent.start_ms, sent.check().map(Arc::new))
                }
                HistogramEntry::Made { timestamp_ms, start_ms, histogram } => {
                    (*timestamp_ms, *start_ms, Ok(Arc::clone(histogram)))
                }
            };
            match checked {
                Ok(histogram) => {
                    to.batch.push_histogram_with_start(handle, timestamp_ms, histogram, start_ms, tag);
                    self.n_histograms += 1;
                }
                Err(invalid) => {
                    let labels = self.print(tag);
                    let text = format!("series {labels} at {timestamp_ms}: {invalid}");
                    let example = || Example { text, labels, timestamp_ms: Some(timestamp_ms), value: None };
                    self.rejects.add(Reason::InvalidHistogram, 1, 1, example);
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self, tag: u32, samples: SeriesSamples<'_>) -> bool {
        samples.samples.is_empty() && self.batch.histograms_of(tag as usize).is_empty()
    }

    /// Version 2.0 does not take a series without samples; 1.0 has them for nothing.
    fn note_empty(&mut self, series: &SeriesEntry) {
        if self.is_v2() {
            let example = || Example::of_series(print(self.message, self.batch, series));
            self.rejects.add(Reason::NoSamples, 1, 0, example);
        }
    }

    /// Pushes the exemplars of series that the store has by now: of all, or of those that were left before this go. Those
    /// that wait come later.
    fn push_exemplars(&self, routes: &[Option<Route>], left: Option<&[(u32, Option<Team>)]>, out: &mut Outgoing) {
        let has = |all: &[(u32, Option<Team>)], tag: u32| all.binary_search_by_key(&tag, |&(tag, _)| tag).is_ok();
        for of_series in self.batch.exemplars.chunk_by(|a, b| a.series_idx == b.series_idx) {
            let tag = of_series[0].series_idx;
            if has(&self.rest.series, tag) || left.is_some_and(|left| !has(left, tag)) {
                continue;
            }
            if self.is_v2() && self.batch.has_no_samples(tag as usize) {
                of_series.iter().for_each(|_| out.exemplars.refuse(ExemplarRefusal::NoSamples));
                continue;
            }
            let handle = self.handle_of(routes[tag as usize], tag);
            for entry in of_series {
                match (handle, exemplars::parse(self.message, self.batch, entry)) {
                    (Err(refusal), _) => out.exemplars.refuse(refusal),
                    (_, None) => out.exemplars.refuse(ExemplarRefusal::InvalidLabels),
                    (Ok(handle), Some(exemplar)) => out.batch.push_exemplar(handle, exemplar, tag),
                }
            }
        }
    }

    /// Returns where the exemplars of a series go; its samples have made it, if it had any.
    fn handle_of(&self, route: Option<Route>, tag: u32) -> Result<SeriesHandle, ExemplarRefusal> {
        let unknown = ExemplarRefusal::UnknownSeries;
        match route {
            Some(Route::Series(handle, _)) => Ok(handle),
            Some(Route::Dropped(_)) => Err(ExemplarRefusal::Dropped),
            Some(Route::Standby) => Err(ExemplarRefusal::Standby),
            Some(Route::Refused(_)) => Err(unknown),
            None => {
                let texts = &mut Vec::new();
                let labels = self.labels_in(&self.batch.series[tag as usize], texts).map_err(|_| unknown)?;
                let labels = match self.context.standing.judge(labels) {
                    Judged::Taken { labels, .. } => labels,
                    Judged::Standby => return Err(ExemplarRefusal::Standby),
                    Judged::Refused(_) => return Err(unknown),
                };
                match self.context.ruling.rules.apply(labels, &mut Vec::new()) {
                    Ruled::Kept(labels) => self.context.db.find(&labels).ok_or(unknown),
                    Ruled::Dropped => Err(ExemplarRefusal::Dropped),
                    Ruled::Invalid(_) => Err(unknown),
                }
            }
        }
    }

    /// Resolves a series by its labels, makes it if it may be made now, and notes where it is.
    fn resolve_new(&mut self, tag: u32, series: &SeriesEntry, team: Option<Team>) -> Result<Resolved, WriteError> {
        // It was looked at before, and its team gets nothing in this go.
        if let Some(team) = team.filter(|&team| !self.may_make(team)) {
            return Ok(Resolved::Waits(Some(team)));
        }
        // The look-up would have to be made again.
        if self.n_unknown >= UNKNOWN_MAX && self.turn_is_over() {
            return Ok(Resolved::Waits(None));
        }
        let mut texts = std::mem::take(&mut self.texts);
        let looked_up = self.look_up(series, &mut texts);
        self.texts = texts;
        let found = match looked_up {
            LookedUp::Route(route) => return Ok(Resolved::To(route)),
            LookedUp::Unknown(found) => found,
        };
        let team = found.team;
        self.n_unknown += 1;
        if !self.may_make(team) {
            return Ok(Resolved::Waits(Some(team)));
        }
        let grant = match self.context.door.ledger.admit_series(team) {
            Ok(grant) => grant,
            Err(Refusal::Lasting(lasting)) => {
                self.refuse_series(tag, team, lasting);
                return Ok(Resolved::Refused);
            }
            Err(refusal) => {
                self.rest.stop_series(team, refusal);
                return Ok(Resolved::Waits(Some(team)));
            }
        };
        let handle = self.context.db.series_for(&found.labels, team.group())?;
        drop(grant);
        self.n_made += 1;
        self.make_room()?;
        let route = Route::Series(handle, found.verdict(self.context.ruling));
        Ok(Resolved::To(self.note_route(series, route, found.is_lasting)))
    }

    /// Leaves room for requests of known series, now and then.
    fn make_room(&self) -> Result<(), WriteError> {
        if self.n_made.is_multiple_of(LOGGED_AT_ONCE) {
            self.context.db.write_out()?;
        }
        if self.n_made.is_multiple_of(SERIES_BETWEEN) {
            self.context.door.precedence.give_way();
        }
        Ok(())
    }

    /// Tells whether a team may make a series in this go, as far as is known. Asks for a turn the first time.
    fn may_make(&mut self, team: Team) -> bool {
        let turns = &self.context.door.turns;
        self.first = None;
        self.turn.get_or_insert_with(|| turns.try_turn());
        !self.turn_is_over() && self.rest.may_have_series(team)
    }

    /// Tells whether this go makes no more series: there was no turn, or all that one allows are made.
    fn turn_is_over(&self) -> bool {
        matches!(self.turn, Some(None)) || self.n_made >= MADE_PER_TURN
    }

    /// Looks a series up by its labels. What it is in the store, or what rules and checks make of it, is noted as its
    /// route if it lasts. `texts` is scratch.
    fn look_up(&self, series: &SeriesEntry, texts: &mut Vec<(&'a str, &'a str)>) -> LookedUp {
        let standing = self.context.standing;
        let (route, is_lasting) = match self.labels_in(series, texts).map(|labels| standing.judge(labels)) {
            Ok(Judged::Taken { labels, is_lasting }) => match self.rule(labels, is_lasting) {
                LookedUp::Route(route) => (route, is_lasting),
                unknown @ LookedUp::Unknown(_) => return unknown,
            },
            Ok(Judged::Standby) => (Route::Standby, false),
            Ok(Judged::Refused(reason)) => (Route::Refused(reason), false),
            Err(reason) => (Route::Refused(reason), standing.trusts_routes()),
        };
        LookedUp::Route(self.note_route(series, route, is_lasting))
    }

    /// Puts a label set through the rules and looks for what is left.
    fn rule(&self, labels: Labels, is_lasting: bool) -> LookedUp {
        let Context { db, ruling, door, .. } = self.context;
        let mut acted = Vec::new();
        LookedUp::Route(match ruling.rules.apply(labels, &mut acted) {
            Ruled::Invalid(refused) => Route::Refused(label_set::reason(&refused)),
            Ruled::Dropped => Route::Dropped(ruling.verdicts.of(Team::NONE, &acted)),
            Ruled::Kept(labels) => match label_set::check(labels) {
                Err(reason) => Route::Refused(reason),
                Ok(labels) => {
                    let team = self.context.team.unwrap_or_else(|| door.ledger.team_of(&labels));
                    let found = Found { labels, team, acted, is_lasting };
                    match db.find_for(&found.labels, team.group()) {
                        Some(handle) => Route::Series(handle, found.verdict(ruling)),
                        None => return LookedUp::Unknown(found),
                    }
                }
            },
        })
    }

    fn note_route(&self, series: &SeriesEntry, route: Route, is_lasting: bool) -> Route {
        if let Some(key) = series.key.filter(|_| is_lasting) {
            self.context.routes.insert(key.under(self.context.scope), route);
        }
        route
    }

    /// Notes that a series is not made, and why; its samples are lost.
    fn refuse_series(&mut self, tag: u32, team: Team, lasting: Lasting) {
        let (reason, used, limit) = match lasting {
            Lasting::TeamSeries(used, limit) => (Reason::TeamSeries, used, limit),
            Lasting::TotalSeries(used, limit) => (Reason::TotalSeries, used, limit),
        };
        let n_samples = self.batch.n_samples_of(tag as usize) as u64;
        let mut rejects = std::mem::take(&mut self.rejects);
        let example = || {
            let name = self.context.door.ledger.name(team);
            let of_team = if name.is_empty() { String::new() } else { format!(" of team {name:?}") };
            let labels = self.print(tag);
            let text = format!("series {labels}{of_team}, with {used} of {limit} active");
            Example { text, labels, timestamp_ms: None, value: None }
        };
        rejects.add(reason, 1, n_samples, example);
        self.rejects = rejects;
    }

    fn labels(&mut self, series: &SeriesEntry) -> Result<Labels, Reason> {
        let mut texts = std::mem::take(&mut self.texts);
        let labels = self.labels_in(series, &mut texts);
        self.texts = texts;
        labels
    }

    /// Parses labels; `texts` is scratch.
    fn labels_in(&self, series: &SeriesEntry, texts: &mut Vec<(&'a str, &'a str)>) -> Result<Labels, Reason> {
        // Fast path: labels as most senders write them.
        if !self.is_v2() && v1::plain_texts(self.message, series.labels, texts) {
            return label_set::parse_texts(texts, self.context.limits);
        }
        label_set::parse(self.pairs(series), self.context.limits, texts)
    }

    fn pairs(&self, series: &SeriesEntry) -> LabelPairs<'a> {
        label_pairs(self.batch, self.message, series.labels)
    }
}

impl Source for Request<'_> {
    fn resolve(&self, tag: u32) -> Result<Option<SeriesHandle>, WriteError> {
        match self.look_up(&self.batch.series[tag as usize], &mut Vec::new()) {
            LookedUp::Route(Route::Series(handle, _)) => Ok(Some(handle)),
            LookedUp::Route(Route::Dropped(_) | Route::Standby | Route::Refused(_)) => Err(WriteError::Moved),
            // It has left the store: to make it again is for the next go.
            LookedUp::Unknown(_) => Ok(None),
        }
    }

    fn find(&self, tag: u32) -> Option<SeriesHandle> {
        self.handle_of(None, tag).ok()
    }

    fn print(&self, tag: u32) -> String {
        print(self.message, self.batch, &self.batch.series[tag as usize])
    }

    fn tells_exemplars(&self) -> bool {
        self.is_v2()
    }
}

/// What became of a series without a route.
enum Resolved {
    To(Route),
    /// It is to be looked up or made later, for this team if that is known.
    Waits(Option<Team>),
    /// It is not made, and that is noted.
    Refused,
}

/// What a look-up by labels found.
enum LookedUp {
    Route(Route),
    /// The store does not have it.
    Unknown(Found),
}

/// A series that the store may have, or be given.
struct Found {
    labels: Labels,
    team: Team,
    /// The rules that had a hand in it.
    acted: Vec<u16>,
    /// Its route may be noted.
    is_lasting: bool,
}

impl Found {
    /// Returns what its samples count for; counts it for the rules.
    fn verdict(&self, ruling: &Ruling) -> Verdict {
        ruling.verdicts.of(self.team, &self.acted)
    }
}

/// Series that a request without a turn looks up and does not find. A few new series among many that have lost their
/// routes do not keep these waiting; of a storm nothing more is looked up before there is a turn to make it, as that takes
/// from requests of known series what they need.
const UNKNOWN_MAX: usize = 64;
/// Definitions of series that one request leaves to be compressed and written at once: whoever commits next does it, also for a
/// request of known series.
const LOGGED_AT_ONCE: usize = 256;
/// Series that a request makes in one turn: as many as a Prometheus sends at a time. It takes tens of milliseconds, which
/// is how long the next one waits.
const MADE_PER_TURN: usize = 2_000;

fn print(message: &[u8], batch: &DecodedBatch, series: &SeriesEntry) -> String {
    label_set::print(label_pairs(batch, message, series.labels))
}
