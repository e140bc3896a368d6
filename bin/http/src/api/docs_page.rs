//! The tables of endpoints in docs/http_api.md, generated from the table of endpoints.

use std::fmt::Write as _;
use std::path::Path;

use varve_env::testing::assert_generated;

use super::endpoint::Endpoint;
use super::routes::endpoints;
use crate::openapi::{Kind, Parameter};
use crate::serving::redirect::API;

/// The groups of the OpenAPI document that each table of the page has.
const TABLES: [&[&str]; 4] = [
    &[
        "query",
        "series",
        "labels",
        "metadata",
        "search",
        "export",
        "federation",
    ],
    &["remote", "otlp", "import"],
    &[
        "status",
        "rules",
        "alerts",
        "targets",
        "features",
        "notifications",
        "openapi",
        "server",
    ],
    &["admin"],
];

#[test]
fn the_page_lists_each_endpoint() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http_api.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let anchors = anchors(&page);
    let endpoints = endpoints();

    let mut n_listed = 0;
    for tags in TABLES {
        let mut table = String::from("| path | methods | parameters | what it does |\n");
        table += "| --- | --- | --- | --- |\n";
        for endpoint in &endpoints {
            if tags.contains(&endpoint.tag) {
                table += &row(endpoint, &anchors);
                n_listed += 1;
            }
        }
        assert_generated(&path, &format!("endpoints of {}", tags.join(", ")), &table);
    }
    assert_eq!(n_listed, endpoints.len(), "each group is in one table");
}

/// Returns the row of an endpoint. Its text is a link if the page has a heading or an anchor that
/// is named after the path.
fn row(endpoint: &Endpoint, anchors: &[String]) -> String {
    let mut parameters = String::new();
    for parameter in &endpoint.parameters {
        if !matches!(parameter.kind, Kind::Path) {
            let separator = if parameters.is_empty() { "" } else { " " };
            write!(parameters, "{separator}{}", name(parameter)).unwrap();
        }
    }

    let anchor = anchor(endpoint.path.strip_prefix(API).unwrap_or(endpoint.path));
    let about = if anchors.contains(&anchor) {
        format!("[{}](#{anchor})", endpoint.about)
    } else {
        endpoint.about.to_owned()
    };
    format!(
        "| `{}` | {} | {parameters} | {about} |\n",
        endpoint
            .path
            .replace("{*", "<")
            .replace('{', "<")
            .replace('}', ">"),
        endpoint.methods.join(" "),
    )
}

/// Returns the name of a parameter: in bold type if it is required, with dots if it may be
/// repeated.
fn name(parameter: &Parameter) -> String {
    let name = match parameter.kind {
        Kind::Texts => format!("`{}`...", parameter.name),
        _ => format!("`{}`", parameter.name),
    };
    if parameter.is_required {
        format!("**{name}**")
    } else {
        name
    }
}

/// Returns the anchors of the headings of a page, and of its `<a id>` tags.
fn anchors(page: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    for line in page.lines() {
        if line.starts_with('#') {
            anchors.push(anchor(line.trim_start_matches('#').trim()));
        }
        for tag in line.split("<a id=\"").skip(1) {
            anchors.extend(tag.split('"').next().map(str::to_owned));
        }
    }
    anchors
}

/// Returns the anchor that GitHub derives from a heading.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .replace(' ', "-")
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
        .collect()
}
