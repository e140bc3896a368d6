//! Compressed responses: complete, streamed and truncated ones.

use std::io::Read;

use super::super::T0;
use crate::harness::{Server, WriteRequest, series, wait_until};

/// Enough series for a response of a few hundred KiB.
const N_SERIES: usize = 3000;

fn many_series() -> WriteRequest {
    let one = |i: usize| {
        series(
            &[("__name__", "m"), ("i", &format!("{i:050}"))],
            &[(T0, i as f64)],
        )
    };
    WriteRequest::new((0..N_SERIES).map(one))
}

fn decode(coding: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut plain)?,
        "deflate" => flate2::read::ZlibDecoder::new(body).read_to_end(&mut plain)?,
        _ => zstd::stream::read::Decoder::new(body)?.read_to_end(&mut plain)?,
    };
    Ok(plain)
}

#[test]
fn responses_are_compressed_by_content_negotiation() {
    // The second response is larger than the buffer.
    for flags in [&[][..], &["--web.response-buffer=16KiB"]] {
        let server = Server::start(flags);
        server.http().write(&many_series()).expect_status(204);
        let path = "/api/v1/series?match[]=m";
        let plain = server
            .http()
            .call("GET", path, &[("Accept-Encoding", "identity")], b"");
        assert!(
            plain.body.len() > 200_000 && plain.header("vary").contains("Accept-Encoding"),
            "{plain:?}"
        );
        for coding in ["gzip", "deflate", "zstd"] {
            let accept = format!("br, {coding};q=0.8");
            let answer = server
                .http()
                .call("GET", path, &[("Accept-Encoding", &accept)], b"");
            assert_eq!(
                (answer.status, answer.header("content-encoding")),
                (200, coding)
            );
            assert!(
                answer.body.len() < plain.body.len() / 5,
                "{coding}: {} bytes",
                answer.body.len()
            );
            assert!(
                decode(coding, &answer.body).expect(coding) == plain.body,
                "{coding}"
            );
        }
        let small =
            server
                .http()
                .call("GET", "/api/v1/labels", &[("Accept-Encoding", "gzip")], b"");
        assert_eq!((small.status, small.header("content-encoding")), (200, ""));
        wait_until("all memory to be given back", || {
            server.metric("varve_query_memory_bytes") == 0.0
        });
    }
}

#[test]
fn a_truncated_compressed_response_does_not_parse_as_complete() {
    let server = Server::start(&["--web.response-buffer=16KiB", "--query.timeout=2s"]);
    server.http().write(&many_series()).expect_status(204);
    // Every selector matches the series of the first one, for longer than the timeout.
    let selectors = "match[]=m&match[]=%7Bi%21%3D%22%22%7D&".repeat(4000);
    for coding in ["gzip", "zstd"] {
        let headers = [("Accept-Encoding", coding), super::FORM];
        let answer = server
            .http()
            .call("POST", "/api/v1/series", &headers, selectors.as_bytes());
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (200, coding)
        );
        assert!(
            answer.cut.is_some(),
            "{coding}: {} bytes came",
            answer.body.len()
        );
        assert!(decode(coding, &answer.body).is_err(), "{coding}");
    }
    assert_eq!(server.metric("varve_http_responses_truncated_total"), 2.0);
}

fn encode(coding: &str, plain: &[u8]) -> Vec<u8> {
    use flate2::Compression;
    use flate2::read::{GzEncoder, ZlibEncoder};
    let mut coded = Vec::new();
    match coding {
        "gzip" => drop(
            GzEncoder::new(plain, Compression::fast())
                .read_to_end(&mut coded)
                .expect("encode"),
        ),
        "deflate" => drop(
            ZlibEncoder::new(plain, Compression::fast())
                .read_to_end(&mut coded)
                .expect("encode"),
        ),
        _ => coded = zstd::encode_all(plain, 1).expect("encode"),
    }
    coded
}

#[test]
fn compressed_forms_are_accepted() {
    let server = Server::start(&[]);
    let plain = b"query=vector(1)&time=1700000000";
    let send = |coding: &str, body: &[u8]| {
        server.http().call(
            "POST",
            "/api/v1/query",
            &[super::FORM, ("Content-Encoding", coding)],
            body,
        )
    };
    let expect = send("identity", plain).expect_status(200).text();
    for coding in ["gzip", "deflate", "zstd"] {
        assert_eq!(
            send(coding, &encode(coding, plain))
                .expect_status(200)
                .text(),
            expect,
            "{coding}"
        );
        let (kind, error) = send(coding, plain).expect_status(400).error();
        assert!(
            kind == "bad_data" && error.starts_with(&format!("decode {coding} form: ")),
            "{error}"
        );
        // Small when compressed, but larger than the limit.
        let large = encode(coding, &vec![b'x'; (10 << 20) + 1]);
        assert_eq!(
            send(coding, &large).expect_status(413).error().0,
            "bad_data"
        );
    }
    let (_, error) = send("br", plain).expect_status(400).error();
    assert_eq!(
        error,
        "br encoding of a form is not accepted; gzip, deflate and zstd are"
    );
    wait_until("all memory to be given back", || {
        server.metric("varve_query_memory_bytes") == 0.0
    });
}
