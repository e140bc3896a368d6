//! Tenants of routers and tokens.

use super::*;

/// Writes series as a router sends them.
fn write_routed(
    fixture: &Fixture,
    origin: &Origin<'_>,
    tenant: &str,
    timeseries: &[TimeSeries],
) -> Written {
    // The number of the replica has the number of another field in `prometheus.WriteRequest`.
    let tenant_and_replica = [&[0x12, tenant.len() as u8], tenant.as_bytes(), b"\x18\x02"].concat();
    let message = [request(timeseries), tenant_and_replica].concat();
    fixture
        .receiver
        .write_routed(origin, "tenant_id", &message, |body, _| Ok(body))
        .unwrap()
}

#[test]
fn the_tenant_of_a_router_is_a_label_and_replaces_one() {
    let fixture = Fixture::new(Limits::for_tests());
    let own = |t| {
        series(
            &[("__name__", "up"), ("a", "b"), ("tenant_id", "own")],
            &[(t, 1.0)],
        )
    };
    for t in [T, T + 1] {
        for tenant in ["", "t", "other"] {
            let written = write_routed(
                &fixture,
                &Origin::default(),
                tenant,
                &[up("x", &[(t, 1.0)]), own(t)],
            );
            assert_eq!(
                (written.stored.total, written.rejections.to_string()),
                (2, String::new())
            );
        }
    }
    let names: Vec<_> = fixture
        .contents()
        .into_iter()
        .map(|(labels, samples)| (labels, samples.len()))
        .collect();
    let expect = [
        r#"{__name__="up", a="b", tenant_id="other"}"#,
        r#"{__name__="up", a="b", tenant_id="own"}"#,
        r#"{__name__="up", a="b", tenant_id="t"}"#,
        r#"{__name__="up", job="x", tenant_id="other"}"#,
        r#"{__name__="up", job="x", tenant_id="t"}"#,
        r#"{__name__="up", job="x"}"#,
    ];
    assert_eq!(names, expect.map(|labels| (labels.to_owned(), 2)));
    let route = fixture.receiver.stats().route;
    assert_eq!(
        (route.entries, route.hits),
        (6, 6),
        "tenants have routes of their own"
    );
    // Two labels of the name are still two, and so is a rejected one printed.
    let twice = series(
        &[("__name__", "up"), ("tenant_id", "a"), ("tenant_id", "b")],
        &[(T, 1.0)],
    );
    let written = write_routed(&fixture, &Origin::default(), "t", &[twice]);
    let expect = r#"duplicate label name: 1 series with 1 sample, e.g. series {tenant_id="t", __name__="up", tenant_id="b"}"#;
    assert_eq!(written.rejections.to_string(), expect);
}

#[test]
fn tenants_with_equal_messages_have_series_of_their_own() {
    let fixture = Fixture::new(Limits::for_tests());
    let tenants = ["s", "t"].map(|tenant| [("tenant".to_owned(), tenant.to_owned())]);
    let write = |version, message: &[u8]| {
        for labels in &tenants {
            let origin = Origin {
                labels,
                ..Origin::default()
            };
            assert_eq!(
                fixture
                    .receiver
                    .write(&origin, version, &pack(message))
                    .unwrap()
                    .stored
                    .total,
                1
            );
        }
    };
    for t in [T, T + 2] {
        write(Version::V1, &request(&[up("x", &[(t, 1.0)])]));
        let mut v2 = crate::sources::remote_write::message::v2::Request::default();
        v2.add(&[("__name__", "up"), ("job", "x")], &[(t + 1, 1.0, 0)]);
        write(Version::V2, &v2.encode_to_vec());
    }
    let found: Vec<_> = fixture
        .contents()
        .into_iter()
        .map(|(labels, samples)| (labels, samples.len()))
        .collect();
    let expect = [
        r#"{__name__="up", job="x", tenant="s"}"#,
        r#"{__name__="up", job="x", tenant="t"}"#,
    ];
    assert_eq!(found, expect.map(|labels| (labels.to_owned(), 4)));
    assert_eq!(fixture.receiver.stats().route.hits, 4);
}

#[test]
fn rules_may_remove_the_tenant_of_a_router_but_not_that_of_a_token() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture
        .receiver
        .set_relabeling(Relabeling::new(vec![remove("tenant_id")]).unwrap());
    let forced = [("tenant_id".to_owned(), "t".to_owned())];
    let of_token = Origin {
        labels: &forced,
        ..Origin::default()
    };
    for origin in [Origin::default(), of_token] {
        write_routed(&fixture, &origin, "t", &[up("x", &[(T, 1.0)])]);
    }
    let names: Vec<_> = fixture
        .contents()
        .into_iter()
        .map(|(labels, _)| labels)
        .collect();
    assert_eq!(
        names,
        [
            r#"{__name__="up", job="x", tenant_id="t"}"#,
            r#"{__name__="up", job="x"}"#
        ]
    );
}

#[test]
fn malformed_messages_of_a_router_are_rejected() {
    let fixture = Fixture::new(Limits::for_tests());
    for message in [
        &b"\x0a"[..],
        b"\x0a\x05a",
        b"\x0b",
        b"\x12\x01\xff",
        b"\x0a\x02\x0a\x05\x12\x01t",
    ] {
        let refused =
            fixture
                .receiver
                .write_routed(&Origin::default(), "tenant_id", message, |body, _| Ok(body));
        assert!(
            matches!(refused, Err(WriteError::Malformed(_))),
            "{message:?}"
        );
    }
}
