//! The automaton of a pattern: a lazy DFA over a reduced alphabet.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use regex_automata::Anchored;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{Compiler, NFA, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::util::start;
use regex_syntax::hir::{Hir, Look};

use super::alphabet::Alphabet;
use super::request::{LimitExceeded, MatchRequest};

/// Decides matches.
#[derive(Debug)]
pub(crate) struct Automaton {
    dfa: Arc<DFA>,
    /// `None` if the automaton works on UTF-8.
    alphabet: Option<Alphabet>,
    /// One per thread that searches at the same time.
    scratch: Pool<Scratch, CreateScratch>,
    /// Bytes to read between two checks of the request.
    check_interval: usize,
    size: usize,
}

/// Memory of a search: the known states of the DFA, and a text in symbols.
#[derive(Debug)]
struct Scratch {
    states: Cache,
    symbols: Vec<u8>,
}

type CreateScratch = Box<dyn Fn() -> Scratch + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// Minimum for the memory of a DFA's states in bytes. A larger automaton may use as much as its own
/// size.
const STATES_SIZE_MIN: usize = 128 << 10;
/// States of the NFA to visit, at worst, between two checks of the request.
const VISITS_PER_CHECK: usize = 1 << 17;
/// The limit for the first attempt to build an NFA, in bytes.
const FIRST_NFA_SIZE: usize = 256 << 10;
/// Maximum size of an NFA in bytes. Patterns within Go's limits need less, unless they distinguish
/// very many characters.
const NFA_SIZE_MAX: usize = 1 << 30;
/// Memory to build an NFA, in units of its size limit.
const BUILD_COST: usize = 3;

impl Automaton {
    /// Builds the automaton of a pattern. Memory is charged to `request` while building.
    pub(crate) fn new<R: MatchRequest>(hir: Hir, request: Option<&R>) -> Result<Self, R::Error> {
        let (hir, alphabet) = in_symbols(anchored(hir), request)?;
        let nfa = within_limit(request, |limit| {
            let config = NFA::config()
                .utf8(false)
                .which_captures(WhichCaptures::None)
                .nfa_size_limit(limit);
            Compiler::new().configure(config).build_from_hir(&hir).ok()
        })?;
        let states_size = nfa.memory_usage().max(STATES_SIZE_MIN);
        let size = nfa.memory_usage() + states_size + alphabet.as_ref().map_or(0, Alphabet::size);
        let check_interval = (VISITS_PER_CHECK / nfa.states().len().max(1)).clamp(1, 4096);
        let config = DFA::config()
            .cache_capacity(states_size)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa);
        let dfa = Arc::new(
            dfa.expect("a DFA without Unicode word boundaries can be built from every NFA"),
        );
        let scratch_dfa = Arc::clone(&dfa);
        let create = move || Scratch {
            states: scratch_dfa.create_cache(),
            symbols: Vec::new(),
        };
        Ok(Self {
            dfa,
            alphabet,
            scratch: Pool::new(Box::new(create)),
            check_interval,
            size,
        })
    }

    /// Returns the size in bytes, with the memory of one search.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns `true` if all of `text` matches. Checks `request` in long searches.
    pub(crate) fn is_match<R: MatchRequest>(
        &self,
        text: &str,
        request: Option<&R>,
    ) -> Result<bool, R::Error> {
        let mut scratch = self.scratch.get();
        let Scratch { states, symbols } = &mut *scratch;
        let text = self
            .alphabet
            .as_ref()
            .map_or(text.as_bytes(), |alphabet| alphabet.encode(text, symbols));
        let never_full =
            "the states are cleared as often as necessary: see Config::minimum_cache_clear_count";
        let mut state = self
            .dfa
            .start_state(states, &start::Config::new().anchored(Anchored::Yes))
            .expect(never_full);
        for (i, piece) in text.chunks(self.check_interval).enumerate() {
            if i > 0 {
                request.map_or(Ok(()), R::check)?;
            }
            for &byte in piece {
                state = self.dfa.next_state(states, state, byte).expect(never_full);
                if state.is_dead() {
                    return Ok(false);
                }
            }
        }
        Ok(self
            .dfa
            .next_eoi_state(states, state)
            .expect(never_full)
            .is_match())
    }
}

/// Anchors a pattern at both ends.
pub(crate) fn anchored(hir: Hir) -> Hir {
    Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)])
}

/// Reduces the alphabet of a pattern if possible.
///
/// # Errors
/// If the request is interrupted.
pub(crate) fn in_symbols<R: MatchRequest>(
    hir: Hir,
    request: Option<&R>,
) -> Result<(Hir, Option<Alphabet>), R::Error> {
    Ok(match Alphabet::of(&hir, request)? {
        Some(alphabet) => (alphabet.translate(&hir), Some(alphabet)),
        None => (hir, None),
    })
}

/// Builds with growing size limits, each charged to `request` before. `build` returns `None` above
/// its limit.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit. Without a request there is no limit.
pub(crate) fn within_limit<T, R: MatchRequest>(
    request: Option<&R>,
    build: impl Fn(Option<usize>) -> Option<T>,
) -> Result<T, R::Error> {
    let Some(request) = request else {
        return Ok(build(None).expect("there is no limit"));
    };
    let mut limit = FIRST_NFA_SIZE;
    let mut charged = 0;
    let mut charge = request.charge();
    loop {
        request.check()?;
        request.grow(&mut charge, BUILD_COST * limit - charged)?;
        charged = BUILD_COST * limit;
        if let Some(built) = build(Some(limit)) {
            return Ok(built);
        }
        LimitExceeded::check(
            "bytes of a regular expression's automaton",
            limit + 1,
            NFA_SIZE_MAX,
        )?;
        limit *= 4;
    }
}
