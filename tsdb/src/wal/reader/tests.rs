//! Frames around damage, and frames larger than the window.

use proptest::prelude::*;
use varve_env::RealFs;

use super::*;
use crate::wal::frame::{FRAME_HEADER_SIZE, begin_frame, file_header, finish_frame};

const SALT: u64 = 42;

fn segment(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = file_header(SegmentKind::Samples, SALT).to_vec();
    for (i, payload) in payloads.iter().enumerate() {
        let at = begin_frame(&mut bytes);
        bytes.extend_from_slice(payload);
        finish_frame(&mut bytes, at, SALT, i as u64, 2);
    }
    bytes
}

/// A part of a file: sequence number and size of a frame, or the range of bytes that are no frame.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Frame(u64, u64),
    Damaged(Range<u64>),
    Torn(Range<u64>),
}

fn pieces(bytes: &[u8]) -> Vec<Piece> {
    pieces_of_extended(bytes, bytes.len() as u64)
}

/// Returns the pieces of a file of `size` bytes. It ends with a hole if there are fewer `bytes`.
fn pieces_of_extended(bytes: &[u8], size: u64) -> Vec<Piece> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file.as_file().set_len(size).unwrap();
    let large = LargeFrameLock::default();
    let Opened::Valid(mut reader) =
        Reader::open(&RealFs, file.path(), SegmentKind::Samples, &large).unwrap()
    else {
        panic!("the header is valid");
    };
    let mut pieces = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        pieces.push(match item {
            Item::Frame(f) => Piece::Frame(f.sequence, f.size),
            Item::Damaged(range) => Piece::Damaged(range),
            Item::Torn(range) => Piece::Torn(range),
        });
    }
    pieces
}

fn sequences(bytes: &[u8]) -> Vec<u64> {
    pieces(bytes)
        .iter()
        .filter_map(|p| {
            if let Piece::Frame(sequence, _) = p {
                Some(*sequence)
            } else {
                None
            }
        })
        .collect()
}

#[test]
fn frames_larger_than_the_window_and_across_its_edge_are_read() {
    let payloads: Vec<Vec<u8>> = [
        10,
        WINDOW_SIZE - 50,
        100,
        3 * WINDOW_SIZE,
        7,
        WINDOW_SIZE,
        500,
    ]
    .iter()
    .map(|&size| {
        (0..size)
            .map(|i| if i % 5 == 0 { 0xf5 } else { i as u8 })
            .collect()
    })
    .collect();
    let bytes = segment(&payloads);
    assert_eq!(sequences(&bytes), [0, 1, 2, 3, 4, 5, 6]);
    let mut damaged = bytes.clone();
    let large = HEADER_SIZE + WINDOW_SIZE + 2 * WINDOW_SIZE;
    damaged[large] ^= 1;
    assert_eq!(sequences(&damaged), [0, 1, 2, 4, 5, 6]);
    assert_eq!(sequences(&bytes[..bytes.len() - 1]), [0, 1, 2, 3, 4, 5]);
}

/// Such a file took hours to read.
#[test]
fn an_extended_file_is_not_read_to_its_end() {
    let bytes = segment(&[vec![1; 30], vec![2; 30]]);
    let (frame, size) = ((FRAME_HEADER_SIZE + 30) as u64, 1 << 40);
    let expected = [
        Piece::Frame(0, frame),
        Piece::Frame(1, frame),
        Piece::Torn(bytes.len() as u64..size),
    ];
    assert_eq!(pieces_of_extended(&bytes, size), expected);
}

#[test]
fn removed_bytes_lose_no_later_frame() {
    let bytes = segment(&vec![vec![1; 30]; 6]);
    let frame = FRAME_HEADER_SIZE + 30;
    for (cut, kept) in [
        (5, vec![0, 2, 3, 4, 5]),
        (frame, vec![0, 2, 3, 4, 5]),
        (frame + 5, vec![0, 3, 4, 5]),
    ] {
        let mut bytes = bytes.clone();
        bytes.drain(HEADER_SIZE + frame..HEADER_SIZE + frame + cut);
        assert_eq!(sequences(&bytes), kept, "{cut} bytes taken out");
    }
    let mut twice = bytes.clone();
    let copied = bytes[HEADER_SIZE..HEADER_SIZE + frame].to_vec();
    twice.splice(HEADER_SIZE + 2 * frame..HEADER_SIZE + 2 * frame, copied);
    let at = (HEADER_SIZE + 2 * frame) as u64;
    assert!(
        pieces(&twice).contains(&Piece::Damaged(at..at + frame as u64)),
        "a frame is valid only where it was written"
    );
}

proptest! {
    /// Damage loses only the frames that it touches, even if payloads contain frames of another
    /// file.
    #[test]
    fn frames_around_damage_are_found(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..8),
        nested: bool, at in any::<prop::sample::Index>(), size in 1..60_usize,
    ) {
        let mut payloads = payloads;
        if nested {
            payloads[0] = segment(&[vec![1, 2, 3]]).split_off(HEADER_SIZE);
            payloads[0][8] ^= 1;
        }
        let mut bytes = segment(&payloads);
        let at = HEADER_SIZE + at.index(bytes.len() - HEADER_SIZE);
        let end = (at + size).min(bytes.len());
        bytes[at..end].iter_mut().for_each(|b| *b ^= 0x55);
        let mut start = HEADER_SIZE;
        let mut untouched = Vec::new();
        for (i, payload) in payloads.iter().enumerate() {
            let next = start + FRAME_HEADER_SIZE + payload.len();
            if next <= at || end <= start { untouched.push(i as u64); }
            start = next;
        }
        prop_assert_eq!(sequences(&bytes), untouched);
    }

    #[test]
    fn all_bytes_are_accounted_for(tail in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..74_usize) {
        let mut bytes = segment(&[vec![7; 20], vec![8; 30]]);
        bytes.truncate(bytes.len() - cut);
        bytes.extend(tail);
        let mut at = HEADER_SIZE as u64;
        for piece in pieces(&bytes) {
            at = match piece {
                Piece::Frame(_, size) => at + size,
                Piece::Damaged(range) | Piece::Torn(range) => { prop_assert_eq!(range.start, at); range.end }
            };
        }
        prop_assert_eq!(at, bytes.len() as u64);
    }
}
