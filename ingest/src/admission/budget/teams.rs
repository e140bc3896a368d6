//! The names and ids of teams.
//!
//! A team gets an id when it is first seen and keeps it. There are at most [`TEAMS_MAX`] ids.
//! Further teams without a configured budget share [`Team::OTHER`] until an id becomes free. An id
//! is free if its team has no series and no configured budget, and no request has named the team
//! for ten minutes.

use std::collections::HashMap;
use std::sync::Arc;

use varve_tsdb::BudgetGroup;

/// Maximum number of teams, [`Team::OTHER`] and [`Team::NONE`] included.
pub const TEAMS_MAX: usize = 1_000;
/// Maximum size of a team's name in bytes. A team with a longer name is [`Team::OTHER`].
pub(super) const NAME_SIZE_MAX: usize = 256;
/// The name of the team that stands for all teams without an id, and for all teams that a sender
/// may not name.
pub const OTHER_TEAMS: &str = "(other)";
/// The name of the team of the samples that rules write. No sender may name it.
pub const RULES_TEAM: &str = "(rules)";

/// The id of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Team(u16);

impl Team {
    /// No team.
    pub(crate) const NONE: Self = Self(0);
    /// All teams without an id, and all teams that a sender may not name.
    pub(crate) const OTHER: Self = Self(1);

    pub(crate) fn idx(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn id(self) -> u16 {
        self.0
    }

    /// Returns the group in which the store counts the team's series.
    pub(crate) fn group(self) -> BudgetGroup {
        BudgetGroup::new(self.0).expect("TEAMS_MAX is at most the number of groups")
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct TeamNames {
    by_name: HashMap<Arc<str>, Team>,
    names: Vec<Arc<str>>,
}

impl Default for TeamNames {
    fn default() -> Self {
        let names: Vec<Arc<str>> = vec![Arc::from(""), Arc::from(OTHER_TEAMS)];
        let by_name = [
            (Arc::clone(&names[0]), Team::NONE),
            (Arc::clone(&names[1]), Team::OTHER),
        ];
        Self {
            by_name: by_name.into(),
            names,
        }
    }
}

impl TeamNames {
    /// Returns the team of a known name, or [`Team::OTHER`] if the name is too long.
    pub(crate) fn find(&self, name: &str) -> Option<Team> {
        if name.len() > NAME_SIZE_MAX {
            Some(Team::OTHER)
        } else {
            self.by_name.get(name).copied()
        }
    }

    /// Returns the team of a name. A new team gets the next id, or an id that `is_free`.
    pub(crate) fn get(&mut self, name: &str, is_free: impl Fn(Team) -> bool) -> Team {
        if let Some(team) = self.find(name) {
            return team;
        }
        let n_names = self.names.len();
        if n_names < TEAMS_MAX {
            self.names.push(Arc::from(""));
            return self.assign(n_names, name);
        }
        match (Team::OTHER.idx() + 1..n_names).find(|&idx| is_free(team(idx))) {
            Some(idx) => self.assign(idx, name),
            None => Team::OTHER,
        }
    }

    fn assign(&mut self, idx: usize, name: &str) -> Team {
        let name: Arc<str> = Arc::from(name);
        let old_name = std::mem::replace(&mut self.names[idx], Arc::clone(&name));
        if !old_name.is_empty() {
            self.by_name.remove(&old_name);
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
        self.names
            .iter()
            .enumerate()
            .map(|(idx, name)| (team(idx), name))
    }
}

fn team(idx: usize) -> Team {
    Team(u16::try_from(idx).expect("TEAMS_MAX is within 16 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_keep_their_ids_and_teams_beyond_the_maximum_share_one() {
        let mut teams = TeamNames::default();
        assert_eq!(
            (teams.get("", |_| false), teams.get("(other)", |_| false)),
            (Team::NONE, Team::OTHER)
        );
        let ids: Vec<_> = (2..TEAMS_MAX)
            .map(|i| teams.get(&i.to_string(), |_| false).idx())
            .collect();
        assert_eq!(ids, (2..TEAMS_MAX).collect::<Vec<_>>());
        assert_eq!(teams.get("newest", |_| false), Team::OTHER);
        assert_eq!(teams.get("7", |_| true).idx(), 7);
        assert_eq!(teams.get(&"x".repeat(257), |_| true), Team::OTHER);
        assert_eq!(teams.get("newest", |team| team.idx() == 7).idx(), 7);
        assert_eq!(
            (teams.find("7"), &**teams.name(team(7)), teams.names.len()),
            (None, "newest", TEAMS_MAX)
        );
    }
}
