//! The rendered manifests against the schemas of Kubernetes and of the Prometheus operator.

use std::process::Command;

use serde_json::Value;
use varve_oracle::find_all;

use super::components::{CASES, patched, render_overlay, run};
use crate::harness::missing;

/// Validates objects with the schemas of Kubernetes, and those that are beside the validator.
fn validate(rendered: &str) -> Result<String, String> {
    let program = find_all("kubectl-validate").next().unwrap();
    let crds = program.with_file_name("crds");
    assert!(crds.is_dir(), "{} is missing", crds.display());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rendered.yaml");
    std::fs::write(&file, rendered).unwrap();
    run(Command::new(program)
        .arg("--local-crds")
        .args([&crds, &file]))
}

#[test]
fn manifests_are_valid_for_kubernetes_and_the_operator() {
    if missing(&["kustomize", "kubectl-validate"]) {
        return;
    }
    let without_operator: &[&str] = &["without-operator"];
    let cases = CASES.iter().map(|case| case.components);
    for components in cases.chain([without_operator]) {
        let rendered = render_overlay(components);
        validate(&rendered).unwrap_or_else(|e| panic!("{components:?}: {e}"));
    }
    let all = [
        "remote-write.json",
        "authorization.json",
        "tls.json",
        "recorded-by-varve.json",
    ];
    let prometheus = patched(&Value::Null, &all).unwrap().to_string();
    validate(&prometheus).unwrap();
    // The schemas are there: a misspelled field of either group is found.
    let typo = prometheus.replace("sendNativeHistograms", "sendNativeHistogram");
    validate(&typo).unwrap_err();
    let typo = render_overlay(&[]).replace("enableServiceLinks", "enableServiceLink");
    validate(&typo).unwrap_err();
}
