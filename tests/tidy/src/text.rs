//! Text that sources must and must not hold.

use crate::tree;

#[test]
fn sources_hold_nothing_unfinished_and_no_path_of_a_machine() {
    // Written in two parts, so that this file does not hold them.
    let forbidden = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("d", "bg!("),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/t", "mp/"),
    ];
    for path in tree::sources() {
        let source = tree::text(&path);
        for forbidden in forbidden {
            let holds = source.contains(forbidden);
            assert!(!holds, "{} holds {forbidden}", tree::name(&path));
        }
    }
}

#[test]
fn every_source_says_at_its_head_what_it_is() {
    // Unit tests are beside a module that has documentation.
    let is_unit_tests = |path: &std::path::Path| {
        path.ends_with("tests.rs") || path.parent().is_some_and(|dir| dir.ends_with("tests"))
    };
    for path in tree::sources() {
        if is_unit_tests(&path) && !path.starts_with(tree::root().join("tests")) {
            continue;
        }
        let is_documented = tree::text(&path).starts_with("//! ");
        assert!(
            is_documented,
            "{} has no module documentation",
            tree::name(&path)
        );
    }
}
