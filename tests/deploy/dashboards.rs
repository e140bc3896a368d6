//! The dashboards of docs/mixin/training and docs/mixin/cluster: no panel is empty on a simulated
//! cluster, links lead to dashboards that exist, and kustomize and Helm install the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::components::{render_chart, run};
use super::kubernetes::documents;
use super::mixin::{files, list, string, yaml};
use super::repository_path;
use super::simulation::{Simulation, pack_files};
use crate::harness::missing;

const PACKS: [&str; 2] = ["docs/mixin/cluster", "docs/mixin/training"];
/// Dashboard and title of panels that are empty while nothing is wrong. The others have data of any
/// job, team and node at any time.
const WHEN_SOMETHING_IS_WRONG: [[&str; 2]; 19] = [
    ["training-fabric", "Firing alerts of links"],
    ["training-fabric", "Link flaps"],
    ["training-fabric", "Links at a lower rate"],
    ["training-fabric", "Links that went down"],
    ["training-job", "Firing alerts"],
    ["training-jobs", "Slow ranks"],
    ["training-node", "Evidence of 30 days"],
    ["training-node", "Firing alerts"],
    ["training-node", "Nodes that fail again and again"],
    ["training-node", "Parts that failed in 30 days"],
    ["training-scheduler", "Containers that wait for an image"],
    ["training-scheduler", "Firing alerts"],
    ["training-scheduler", "Jobs with pods that wait"],
    ["training-team", "Teams that wait for their own GPUs"],
    ["varve-cluster", "Errors and throttled requests"],
    ["varve-cluster", "GPUs with an Xid error"],
    ["varve-cluster", "GPUs with remapped rows"],
    ["varve-cluster", "InfiniBand errors"],
    [
        "varve-cluster-control-plane",
        "Errors and throttled requests",
    ],
];

/// Grafana's `$__rate_interval` of a data source with a scrape interval of 30 s: four of them.
const RATE_INTERVAL: &str = "2m";

/// A query of a panel.
struct Target {
    dashboard: String,
    panel: String,
    expr: String,
    /// It is sent for the end of the range only.
    is_instant: bool,
}

/// Returns the dashboards of directories of docs/mixin by path.
fn dashboards(dirs: &[&str]) -> BTreeMap<PathBuf, Value> {
    let mut found = BTreeMap::new();
    for dir in dirs {
        for path in files(&repository_path(dir).join("dashboards"), ".json") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.insert(path, serde_json::from_str(&text).unwrap());
        }
    }
    found
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let all = list(&dashboard["panels"]).iter();
    all.filter(|panel| panel["type"] != "row")
}

fn targets(dashboard: &Value) -> Vec<Target> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        for target in list(&panel["targets"]) {
            found.push(Target {
                dashboard: string(&dashboard["uid"]).to_owned(),
                panel: string(&panel["title"]).to_owned(),
                expr: string(&target["expr"]).to_owned(),
                is_instant: target["instant"] == true,
            });
        }
    }
    found
}

/// What Grafana puts in the place of the variables of a dashboard.
struct Filling {
    /// Variables with one replacement.
    fixed: Vec<(String, String)>,
    /// A variable of which one value is chosen: its name, the value of a healthy choice, and all.
    choice: Option<(String, String, Vec<String>)>,
}

impl Filling {
    fn of(dashboard: &Value, simulation: &Simulation) -> Self {
        let range = format!("{}s", simulation.end - simulation.start);
        let mut filling = Self {
            fixed: vec![
                ("$__rate_interval".to_owned(), RATE_INTERVAL.to_owned()),
                ("$__range".to_owned(), range),
            ],
            choice: None,
        };
        for variable in list(&dashboard["templating"]["list"]) {
            let name = string(&variable["name"]);
            match string(&variable["type"]) {
                "datasource" => {}
                "textbox" | "custom" => {
                    let default = string(&variable["current"]["value"]).to_owned();
                    filling.fixed.push((format!("${name}"), default));
                }
                "query" => filling.add_query(dashboard, name, variable, simulation),
                other => panic!("variable {name} has the type {other}"),
            }
        }
        filling
    }

    fn add_query(&mut self, dashboard: &Value, name: &str, variable: &Value, on: &Simulation) {
        let selector = string(&variable["definition"])
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|rest| rest.rsplit_once(", "));
        let (selector, label) = selector.expect("the variable has the values of a label");
        let values = on.label_values(selector, label);
        let uid = &dashboard["uid"];
        assert!(!values.is_empty(), "{uid}: {name} has no values");
        if variable["multi"] == true {
            let all = format!("({})", values.join("|"));
            self.fixed.push((format!("${name}"), all));
            return;
        }
        let largest = "topk(1, training:job:nodes)";
        let healthy = match name {
            "job_id" => on.label(largest, "job_id"),
            "node" => on.label(
                &format!("training:gpu:info and on (job_id) {largest}"),
                "node",
            ),
            other => panic!("{uid}: no value of {other} is chosen"),
        };
        assert!(values.contains(&healthy), "{uid}: {name} lacks {healthy}");
        self.choice = Some((format!("${name}"), healthy, values));
    }

    /// Returns the expression for the healthy choice.
    fn healthy(&self, expr: &str) -> String {
        match &self.choice {
            Some((name, healthy, _)) => self.filled(&expr.replace(name, healthy)),
            None => self.filled(expr),
        }
    }

    /// Returns the expression for each choice.
    fn all(&self, expr: &str) -> Vec<String> {
        match &self.choice {
            Some((name, _, values)) => {
                let chosen = values.iter().map(|value| expr.replace(name, value));
                chosen.map(|expr| self.filled(&expr)).collect()
            }
            None => vec![self.filled(expr)],
        }
    }

    fn filled(&self, expr: &str) -> String {
        let fixed = self.fixed.iter();
        let filled = fixed.fold(expr.to_owned(), |expr, (name, value)| {
            expr.replace(name, value)
        });
        let is_letter =
            |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        // "$1" is the group of a regular expression.
        let is_left = filled.split('$').skip(1).any(is_letter);
        assert!(!is_left, "a variable of {filled} has no value");
        filled
    }
}

#[test]
fn no_panel_is_empty_on_the_simulated_cluster() {
    let simulation = Simulation::run();
    let mut empty = Vec::new();
    let mut n_checked = 0;
    let mut conditional = BTreeSet::new();
    for dashboard in dashboards(&PACKS).values() {
        let filling = Filling::of(dashboard, &simulation);
        for target in targets(dashboard) {
            let place = [&*target.dashboard, &*target.panel];
            let has_value = if WHEN_SOMETHING_IS_WRONG.contains(&place) {
                conditional.insert(place.map(str::to_owned));
                let choices = filling.all(&target.expr);
                choices
                    .iter()
                    .any(|expr| simulation.has_value_in_range(expr))
            } else if target.is_instant {
                simulation.has_value(&filling.healthy(&target.expr))
            } else {
                simulation.has_value_in_range(&filling.healthy(&target.expr))
            };
            n_checked += 1;
            if !has_value {
                empty.push(format!("{place:?}: {}", target.expr));
            }
        }
    }
    assert!(empty.is_empty(), "no data:\n{}", empty.join("\n"));
    assert!(n_checked > 180, "{n_checked} queries");
    let listed = WHEN_SOMETHING_IS_WRONG.map(|place| place.map(str::to_owned));
    assert_eq!(conditional, BTreeSet::from(listed), "panels were renamed");
}

/// A record that is evaluated less often than lookback (5 minutes) is absent in between.
#[test]
fn panels_read_slow_records_with_last_over_time() {
    let mut slow = BTreeSet::new();
    for path in pack_files() {
        for group in list(&yaml(&path)["groups"]) {
            if !["10m", "15m", "30m", "1h", "1d"].contains(&string(&group["interval"])) {
                continue;
            }
            let rules = list(&group["rules"]).iter();
            slow.extend(rules.map(|rule| string(&rule["record"]).to_owned()));
        }
    }
    assert!(slow.contains("training:node:lemon_score:30d"), "{slow:?}");
    for dashboard in dashboards(&PACKS).values() {
        for target in targets(dashboard) {
            for record in &slow {
                let mut before = target.expr.split(record.as_str()).collect::<Vec<_>>();
                before.pop();
                let is_kept = before.iter().all(|text| text.ends_with("last_over_time("));
                assert!(is_kept, "{}: {}", target.panel, target.expr);
            }
        }
    }
}

#[test]
fn panels_say_what_they_answer_and_lie_beside_each_other() {
    let all = dashboards(&PACKS);
    assert_eq!(all.len(), 8);
    for dashboard in all.values() {
        let uid = string(&dashboard["uid"]);
        assert!(!string(&dashboard["description"]).is_empty(), "{uid}");
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in list(&dashboard["panels"]) {
            let title = string(&panel["title"]);
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{uid}: {title}");
            let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            for x in place("x")..place("x") + place("w") {
                assert!(x < 24, "{uid}: {title} is too far to the right");
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert([x, y]), "{uid}: {title} covers another panel");
                }
            }
        }
        for panel in panels(dashboard) {
            let title = string(&panel["title"]);
            let is_old = uid == "varve-cluster";
            assert!(
                is_old || !string(&panel["description"]).is_empty(),
                "{uid}: {title}"
            );
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            assert!(unit.is_string(), "{uid}: {title} has no unit");
        }
    }
}

/// Returns all strings below a value that are links to dashboards: `/d/uid?..`.
fn links(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.starts_with("/d/") => found.push(text.clone()),
        Value::Array(items) => {
            for item in items {
                links(item, found);
            }
        }
        Value::Object(map) => {
            for item in map.values() {
                links(item, found);
            }
        }
        _ => {}
    }
}

#[test]
fn links_set_variables_of_dashboards_that_exist() {
    let all = dashboards(&PACKS);
    let mut variables = BTreeMap::new();
    for dashboard in all.values() {
        let named = list(&dashboard["templating"]["list"]).iter();
        let named: BTreeSet<_> = named.map(|variable| string(&variable["name"])).collect();
        variables.insert(string(&dashboard["uid"]), named);
    }
    let mut n_links = 0;
    for dashboard in all.values() {
        let mut found = Vec::new();
        links(dashboard, &mut found);
        for link in found {
            let (uid, parameters) = link["/d/".len()..].split_once('?').unwrap();
            let named = variables
                .get(uid)
                .unwrap_or_else(|| panic!("{link}: no dashboard"));
            for parameter in parameters.split('&') {
                if let Some(set) = parameter.strip_prefix("var-") {
                    let name = set.split('=').next().unwrap();
                    assert!(named.contains(name), "{link}: no variable {name}");
                }
            }
            n_links += 1;
        }
        // Links below the title lead to all dashboards of both packs.
        let tags = list(&dashboard["links"]).iter();
        let tags: BTreeSet<_> = tags.map(|link| string(&link["tags"][0])).collect();
        assert!(
            tags.is_superset(&["cluster", "training"].into()),
            "{tags:?}"
        );
    }
    assert!(n_links >= 20, "{n_links} links");
}

#[test]
fn kustomize_and_helm_install_the_files_of_the_mixin() {
    if missing(&["kustomize", "helm"]) {
        return;
    }
    let mixin = repository_path("docs/mixin");
    let of_kustomize = run(Command::new("kustomize").arg("build").arg(mixin)).unwrap();
    let of_chart = render_chart("{dashboards: {enabled: true}}").unwrap();
    let of_chart: Vec<_> = documents(&of_chart)
        .into_iter()
        .filter(|object| string(&object["metadata"]["name"]).contains("-dashboards"))
        .collect();
    let mut installed = BTreeMap::new();
    for object in documents(&of_kustomize) {
        let name = &object["metadata"]["name"];
        let same = of_chart
            .iter()
            .find(|other| other["metadata"]["name"] == *name);
        let same = same.unwrap_or_else(|| panic!("{name} is not in the chart"));
        assert!(same["data"] == object["data"], "{name} has other files");
        for label in ["app.kubernetes.io/name", "grafana_dashboard"] {
            let of_object = &object["metadata"]["labels"][label];
            assert!(of_object.is_string() && *of_object == same["metadata"]["labels"][label]);
        }
        assert_eq!(
            same["metadata"]["annotations"],
            object["metadata"]["annotations"]
        );
        for (file, text) in object["data"].as_object().unwrap() {
            // The API server rejects an object of more than 1 MiB.
            assert!(object["data"].to_string().len() < 1_000_000, "{name}");
            installed.insert(file.clone(), string(text).to_owned());
        }
    }
    assert_eq!(of_chart.len(), documents(&of_kustomize).len());
    let mut expect = BTreeMap::new();
    for path in dashboards(&["docs/mixin", PACKS[0], PACKS[1]]).into_keys() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        expect.insert(name, std::fs::read_to_string(path).unwrap());
    }
    assert!(installed.keys().eq(expect.keys()), "{:?}", installed.keys());
    for (name, text) in &expect {
        assert!(installed[name] == *text, "{name} is another file");
    }
}
