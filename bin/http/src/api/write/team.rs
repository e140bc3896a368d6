//! The team that a write names. Whether its sender may name it is decided with its budget
//! (`ingest/src/admission/budget/ledger.rs`).

use axum::http::HeaderMap;

/// The header in which a sender names its team.
const TEAM_HEADER: &str = "x-scope-orgid";

/// Returns the team that a write names.
pub(super) fn named_team(headers: &HeaderMap) -> Option<String> {
    let name = headers.get(TEAM_HEADER)?.as_bytes();
    let name = String::from_utf8_lossy(name).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_text_is_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(named_team(&headers), None);
        for (value, team) in [(" payments ", Some("payments")), (" ", None)] {
            headers.insert(TEAM_HEADER, value.parse().unwrap());
            assert_eq!(named_team(&headers).as_deref(), team);
        }
    }
}
