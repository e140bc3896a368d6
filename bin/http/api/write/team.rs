//! The team that a write names.

use axum::http::{Extensions, HeaderMap};

use crate::server::request_context::User;

/// The header in which a sender names its team.
const TEAM_HEADER: &str = "x-scope-orgid";

/// Returns the team that a write names. With authentication, only authenticated senders may name one.
pub(super) fn named_team(headers: &HeaderMap, extensions: &Extensions, is_authenticated: bool) -> Option<String> {
    if is_authenticated && extensions.get::<User>().is_none() {
        return None;
    }
    let name = headers.get(TEAM_HEADER)?.as_bytes();
    let name = String::from_utf8_lossy(name).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn with_authentication_only_known_users_name_a_team() {
        let mut headers = HeaderMap::new();
        let (anonymous, mut ann) = (Extensions::new(), Extensions::new());
        ann.insert(User(Arc::from("ann")));
        assert_eq!(named_team(&headers, &anonymous, false), None);
        headers.insert(TEAM_HEADER, " payments ".parse().unwrap());
        assert_eq!(named_team(&headers, &anonymous, false).as_deref(), Some("payments"));
        assert_eq!(named_team(&headers, &anonymous, true), None);
        assert_eq!(named_team(&headers, &ann, true).as_deref(), Some("payments"));
        headers.insert(TEAM_HEADER, " ".parse().unwrap());
        assert_eq!(named_team(&headers, &ann, true), None);
    }
}
