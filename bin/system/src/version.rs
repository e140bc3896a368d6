//! Version, commit and date of the build.
//!
//! The build reads `VARVE_REVISION` and `SOURCE_DATE_EPOCH` from its environment, which the
//! commands of docs/deploy/README.md set. A build without them (`cargo build`) has neither commit
//! nor date, so that a commit alone does not rebuild the binary.

use std::sync::LazyLock;

use jiff::Timestamp;

/// The version.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The `User-Agent` of the server's own requests.
pub const USER_AGENT: &str = concat!("varve/", env!("CARGO_PKG_VERSION"));

/// The commit, or `unknown`.
pub const REVISION: &str = match option_env!("VARVE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// The Prometheus version whose API this is, by which clients such as Grafana choose requests.
pub const PROMETHEUS: &str = "3.16.0";
/// What the API returns as Prometheus' revision.
pub const PROMETHEUS_REVISION: &str = concat!("varve-", env!("CARGO_PKG_VERSION"));
/// What the API returns as Prometheus' branch.
pub const BRANCH: &str = "varve";

/// The text of `varve --version` after the name, as Prometheus prints it.
pub static TEXT: LazyLock<String> = LazyLock::new(|| {
    let date = build_date().map_or_else(|| "unknown".to_owned(), |date| date.to_string());
    format!("version {NUMBER} (revision: {REVISION})\n  build date:       {date}")
});

/// Returns the date of the build, in reproducible builds the date of the commit.
pub fn build_date() -> Option<Timestamp> {
    Timestamp::from_second(option_env!("SOURCE_DATE_EPOCH")?.parse().ok()?).ok()
}
