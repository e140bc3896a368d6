use super::*;

fn rules(rules: &str) -> String {
    format!("groups:\n- name: g\n  rules:\n{rules}")
}

fn check(text: &str, expect: &[&str]) {
    let errors = parse(text, &Options::default()).err().unwrap_or_default();
    assert_eq!(
        errors.iter().map(FileError::to_string).collect::<Vec<_>>(),
        expect,
        "{text}"
    );
}

fn parsed(text: &str) -> Parsed {
    parse(text, &Options::default()).unwrap()
}

#[test]
fn files_that_prometheus_accepts_are_valid() {
    check("", &[]);
    check("# nothing\n", &[]);
    check("groups: []", &[]);
    check("groups:", &[]);
    check(
        &rules("  - record: a:b\n    expr: sum(up)\n    labels: {x: 1}\n"),
        &[],
    );
    check(
        &rules("  - {record: a, expr: 1, for: 0s, annotations: {}}\n"),
        &[],
    );
    check(
        &rules("  - alert: A\n    expr: 1\n    for: 5m\n    annotations: {x: '{{ $value }}'}\n"),
        &[],
    );
    check(
        "groups:\n- {name: g, limit: -1, interval: 0s, query_offset: 1m, labels: {a: b}, rules: }\n",
        &[],
    );
}

/// The error of a value hid the unknown fields of the whole file; promtool names all of them.
#[test]
fn an_error_of_a_value_does_not_hide_unknown_fields() {
    let text = "groups:\n- name: a\n  rules:\n  - {record: r, expr: up, foo: 1}\n  - alert: b\n    expr: [1]\n    bar: x\n\
                - {nam: c}\ntop: 1\n";
    check(
        text,
        &[
            "6:11: groups[0].rules[1].expr: invalid type: sequence, expected a string",
            "9:1: field top is unknown",
            "4:27: group \"a\", rule 1, \"r\": field foo is unknown",
            "7:5: group \"a\", rule 2, \"b\": field bar is unknown",
            "8:4: group \"\": field nam is unknown",
        ],
    );
    // Without lists of groups and rules there is nothing to look for.
    let text = "groups:\n- name: a\n  rules: 5\n  foo: 1\n";
    let errors = parse(text, &Options::default()).err().unwrap_or_default();
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn every_key_of_groups_and_rules_is_known() {
    let read = |text: &str| document::read(text).map(|files| files.into_iter().next());
    for (keys, before) in [
        (raw::GROUP_KEYS, "groups: [{"),
        (raw::RULE_KEYS, "groups: [{rules: [{"),
    ] {
        let after = if before.ends_with("rules: [{") {
            "}]}]"
        } else {
            "}]"
        };
        for key in keys {
            let file = read(&format!("{before}{key}: {after}")).unwrap().unwrap();
            let group = &file.groups[0];
            assert!(group.unknown.is_empty(), "{key}");
            assert!(
                group.rules.iter().all(|rule| rule.unknown.is_empty()),
                "{key}"
            );
        }
    }
}

#[test]
fn groups_and_rules_have_all_fields() {
    let file = "groups:\n- {name: g, interval: 1m, query_offset: 30s, limit: 7, state: dry_run, labels: {a: g, b: g}, rules: [\n\
                {alert: A, expr: up == 0, for: 2m, keep_firing_for: 3m, labels: {b: 1.10, c: true}, annotations: {s: ~}}]}";
    let mut parsed = parsed(file);
    let mut group = parsed.files[0].groups.remove(0);
    assert_eq!(
        (group.interval_ms, group.query_offset_ms, group.limit),
        (Some(60_000), Some(30_000), 7)
    );
    assert_eq!(group.state, GroupState::DryRun);
    let rule = group.rules.remove(0);
    let labels: Vec<_> = rule
        .labels
        .iter()
        .map(|(name, text)| format!("{name}={text}"))
        .collect();
    assert_eq!(
        (rule.expr.text.as_str(), labels.join(",").as_str()),
        ("up == 0", "a=g,b=1.10,c=true")
    );
    let RuleKind::Alerting(alerting) = rule.kind else {
        panic!("a recording rule")
    };
    assert_eq!(
        (alerting.for_ms, alerting.keep_firing_for_ms),
        (120_000, 180_000)
    );
    assert_eq!(alerting.annotations["s"], "");
}

#[test]
fn errors_have_positions() {
    let cases: &[(&str, &[&str])] = &[
        (
            "  - record: a\n    expr: sum(\n",
            &[
                "5:11: group \"g\", rule 1, \"a\": could not parse expression: 1:5: parse error: unclosed left parenthesis",
            ],
        ),
        (
            "  - record: a\n    alert: b\n    expr: up\n",
            &[
                "4:13: 5:12: group \"g\", rule 1, \"b\": only one of 'record' and 'alert' must be set",
            ],
        ),
        (
            "  - expr: up\n",
            &["4:5: group \"g\", rule 1, \"\": one of 'record' or 'alert' must be set"],
        ),
        (
            "  - record: a\n",
            &["4:5: group \"g\", rule 1, \"a\": field 'expr' must be set in rule"],
        ),
        (
            "  - {expr: up, record: 'a{b}', for: 5m}",
            &[
                "4:24: group \"g\", rule 1, \"a{b}\": invalid field 'for' in recording rule",
                "4:24: group \"g\", rule 1, \"a{b}\": braces present in the recording rule name; should it be in expr?: a{b}",
            ],
        ),
        (
            "  - {expr: up, record: a, labels: {b: c,\n      __name__: d}}",
            &["5:7: group \"g\", rule 1, \"a\": invalid label name: __name__"],
        ),
        (
            "  - expr: up\n    alert: A\n    annotation: {}\n    labels: {a: {b: c}}",
            &[
                "7:17: groups[0].rules[0].labels.a: invalid type: map, expected a string",
                "6:5: group \"g\", rule 1, \"A\": field annotation is unknown",
            ],
        ),
        (
            "  - expr: up\n    alert: A\n    annotation: {}\n",
            &["6:5: group \"g\", rule 1, \"A\": field annotation is unknown"],
        ),
        (
            "  - {expr: up, alert: A, labels: {a: b, a: c}}",
            &["4:41: groups[0].rules[0].labels: key \"a\" is repeated"],
        ),
        (
            "  - {expr: up, alert: A, for: 5 minutes}",
            &[
                "4:31: group \"g\", rule 1, \"A\": for: unknown unit \" minutes\" in duration \"5 minutes\"",
            ],
        ),
        (
            "  - {expr: up, alert: A, labels: {l: '{{ $x }}'}, annotations: {a: '{{ up'}}",
            &[
                "4:38: group \"g\", rule 1, \"A\": label \"l\": template: __alert_A:1: undefined variable \"$x\"",
                "4:68: group \"g\", rule 1, \"A\": annotation \"a\": template: __alert_A:1: function \"up\" not defined",
            ],
        ),
    ];
    for (text, expect) in cases {
        check(&rules(text), expect);
    }
    check(
        "groups:\n- name: g\n- name: g\n",
        &["3:3: groupname: \"g\" is repeated in the same file"],
    );
    check(
        "groups:\n- interval: 1m\n",
        &["2:3: Groupname must not be empty"],
    );
    check(
        "groups:\n- {name: g, limits: 3}\ngroup: 3\n",
        &[
            "3:1: field group is unknown",
            "2:13: group \"g\": field limits is unknown",
        ],
    );
    check(
        "groups:\n- {name: g, state: off}\n",
        &["2:20: group \"g\": state: \"off\" is neither active nor dry_run"],
    );
    check(
        "[]",
        &["1:1: invalid type: sequence, expected rule groups or a manifest"],
    );
    assert!(parse("groups: [", &Options::default()).is_err());
}

#[test]
fn unknown_fields_can_be_ignored() {
    let options = Options {
        ignore_unknown_fields: true,
        ..Options::default()
    };
    assert!(parse("groups:\n- {name: g, limits: 3}\n", &options).is_ok());
}

#[test]
fn merge_keys_add_the_fields_that_are_missing() {
    let text = rules(
        "  - &a {alert: A, expr: up, for: 1m, labels: &l {x: '1', y: '1'}}\n  - <<: *a\n    alert: B\n    labels: {<<: [*l, {z: '3'}], y: '2'}\n",
    );
    let rule = &parsed(&text).files[0].groups[0].rules[1];
    let labels: Vec<_> = rule
        .labels
        .iter()
        .map(|(name, text)| format!("{name}={text}"))
        .collect();
    assert_eq!((rule.name.as_str(), rule.expr.text.as_str()), ("B", "up"));
    assert_eq!(labels.join(","), "x=1,y=2,z=3");
}

#[test]
fn only_the_first_document_without_a_kind_is_read() {
    let parsed = parsed(
        "groups: [{name: a}]\n---\ngroups: [{name: b}]\n---\nkind: Service\nspec: {groups: 3}\n",
    );
    assert_eq!((parsed.files.len(), parsed.n_ignored_documents), (1, 1));
}

#[test]
fn manifests_are_read_from_documents_lists_and_config_maps() {
    let groups =
        "groups: [{name: g, partial_response_strategy: warn, rules: [{record: r, expr: 1}]}]";
    let manifest = format!(
        "{{kind: PrometheusRule, metadata: {{name: n, namespace: s}}, spec: {{{groups}}}}}"
    );
    let config_map =
        format!("{{kind: ConfigMap, metadata: {{name: c}}, data: {{a.yml: '{groups}', b: text}}}}");
    let names = |text: &str| -> Vec<_> {
        let files = parsed(text).files;
        files
            .into_iter()
            .filter(|file| file.groups.len() == 1)
            .map(|file| file.manifest.unwrap())
            .collect()
    };
    assert_eq!(names(&manifest), ["s/n"]);
    let other = manifest.replace("name: g", "name: h");
    assert_eq!(names(&format!("{manifest}\n---\n{other}")), ["s/n", "s/n"]);
    let repeated = ["1:75: 3:75: s/n: groupname: \"g\" is repeated in two manifests"];
    check(&format!("{manifest}\n---\n{manifest}"), &repeated);
    assert_eq!(
        names(&format!(
            "{{kind: List, items: [{{kind: Pod, spec: {{groups: x}}}}, {manifest}]}}"
        )),
        ["s/n"]
    );
    assert_eq!(
        names(&config_map.replace("partial_response_strategy: warn, ", "")),
        ["c: a.yml"]
    );
    let bad = manifest.replace("expr: 1", "expr: (");
    check(
        &format!("kind: PrometheusRuleList\nitems:\n- {bad}"),
        &[
            "3:146: s/n: group \"g\", rule 1, \"r\": could not parse expression: 1:2: parse error: unclosed left parenthesis",
        ],
    );
}
