//! The names of teams, and their numbers.
//!
//! A team gets a number when it is first heard of and keeps it. There are at most [`TEAMS_MAX`]: beyond that a team
//! without a budget of its own shares [`Team::OTHER`] with all that come after it, until a number is free. It is when
//! its team has no series any more and no budget.

use std::collections::HashMap;
use std::sync::Arc;

use varve_tsdb::SeriesGroup;

/// The most teams that are told apart, those included that stand for all others and for none.
pub const TEAMS_MAX: usize = 1_000;
/// Bytes of a team's name; what is longer counts for [`Team::OTHER`].
pub(super) const NAME_SIZE_MAX: usize = 256;
/// What [`Team::OTHER`] is called.
const OTHER_NAME: &str = "(other)";

/// The number of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Team(u16);

impl Team {
    /// What belongs to no team.
    pub(crate) const NONE: Self = Self(0);
    /// All teams that there is no number for.
    pub(crate) const OTHER: Self = Self(1);

    pub(crate) fn idx(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }

    /// Returns the group that the team's series are counted in.
    pub(crate) fn group(self) -> SeriesGroup {
        SeriesGroup::new(self.0).expect("there are fewer teams than groups")
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TeamNames {
    by_name: HashMap<Arc<str>, Team>,
    names: Vec<Arc<str>>,
}

impl Default for TeamNames {
    fn default() -> Self {
        let names: Vec<Arc<str>> = vec![Arc::from(""), Arc::from(OTHER_NAME)];
        let by_name = [(Arc::clone(&names[0]), Team::NONE), (Arc::clone(&names[1]), Team::OTHER)];
        Self { by_name: by_name.into(), names }
    }
}

impl TeamNames {
    /// Returns the number of a team that is known, or that cannot be given one for its length.
    pub(crate) fn find(&self, name: &str) -> Option<Team> {
        if name.len() > NAME_SIZE_MAX { Some(Team::OTHER) } else { self.by_name.get(name).copied() }
    }

    /// Returns the number of a team, and gives it one if there is one: the next, or one that `is_free`.
    pub(crate) fn get(&mut self, name: &str, is_free: impl Fn(Team) -> bool) -> Team {
        if let Some(team) = self.find(name) {
            return team;
        }
        let n_names = self.names.len();
        if n_names < TEAMS_MAX {
            self.names.push(Arc::from(""));
            return self.give(n_names, name);
        }
        match (Team::OTHER.idx() + 1..n_names).find(|&idx| is_free(team(idx))) {
            Some(idx) => self.give(idx, name),
            None => Team::OTHER,
        }
    }

    fn give(&mut self, idx: usize, name: &str) -> Team {
        let name: Arc<str> = Arc::from(name);
        let before = std::mem::replace(&mut self.names[idx], Arc::clone(&name));
        if !before.is_empty() {
            self.by_name.remove(&before);
        }
        self.by_name.insert(name, team(idx));
        team(idx)
    }

    /// Returns the name of a team.
    pub(crate) fn name(&self, team: Team) -> &Arc<str> {
        &self.names[team.idx()]
    }

    /// Iterates over all teams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Team, &Arc<str>)> {
        self.names.iter().enumerate().map(|(idx, name)| (team(idx), name))
    }
}

fn team(idx: usize) -> Team {
    Team(u16::try_from(idx).expect("TEAMS_MAX is within 16 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_keep_their_numbers_and_the_last_share_one() {
        let mut teams = TeamNames::default();
        assert_eq!((teams.get("", |_| false), teams.get("(other)", |_| false)), (Team::NONE, Team::OTHER));
        let numbers: Vec<_> = (2..TEAMS_MAX).map(|i| teams.get(&i.to_string(), |_| false).idx()).collect();
        assert_eq!(numbers, (2..TEAMS_MAX).collect::<Vec<_>>());
        assert_eq!(teams.get("late", |_| false), Team::OTHER);
        assert_eq!(teams.get("7", |_| true).idx(), 7);
        assert_eq!(teams.get(&"x".repeat(257), |_| true), Team::OTHER);
        assert_eq!(teams.get("late", |team| team.idx() == 7).idx(), 7);
        assert_eq!((teams.find("7"), &**teams.name(team(7)), teams.names.len()), (None, "late", TEAMS_MAX));
    }
}
