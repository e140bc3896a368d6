//! What Grafana says of a request: `X-Dashboard-Uid`, `X-Panel-Id`, `X-Rule-Uid`,
//! `X-Grafana-User`.

use std::fmt;

/// The dashboard, the panel, the alert rule and the user that Grafana names in the headers of a
/// request. All are empty for other clients. Any client can send the headers: they are for display
/// only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GrafanaSource {
    /// `X-Dashboard-Uid`
    pub dashboard: String,
    /// `X-Panel-Id`
    pub panel: String,
    /// `X-Rule-Uid`
    pub rule: String,
    /// `X-Grafana-User`, which Grafana sends if `send_user_header` is set.
    pub user: String,
}

impl GrafanaSource {
    /// Returns `true` if Grafana names nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for GrafanaSource {
    /// Prints what is known: `dashboard x, panel 2, user ann`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("dashboard", &self.dashboard),
            ("panel", &self.panel),
            ("rule", &self.rule),
            ("user", &self.user),
        ];
        let mut separator = "";
        for (what, id) in parts {
            if !id.is_empty() {
                write!(f, "{separator}{what} {id}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}
