//! The exemplars record: exemplars of one or more appends, each with its id.
//!
//! ```text
//! repeated:
//!   varint   id
//!   varint   ref of the series
//!   then the exemplar:
//!   zigzag   timestamp
//!   8 bytes  value, the bits of a double
//!   varint   number of labels, at most 128; then name and value of each in ascending order of names, at most 128
//!            characters in all
//! ```
//! Checkpoints identify series by labels and use another record ([`crate::wal::checkpoint`]).

use varve_codec::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};
use varve_model::{EXEMPLAR_LABELS_LEN_MAX, Exemplar, Labels};

use super::definitions::{put_labels, take_string};
use crate::batch::SeriesRef;

/// Record number of exemplars.
pub(crate) const EXEMPLARS: u8 = 6;

/// Appends an exemplar of a series.
pub(in crate::wal) fn encode_exemplar(
    dst: &mut Vec<u8>,
    id: u64,
    series: SeriesRef,
    exemplar: &Exemplar,
) {
    put_u64(dst, id);
    put_u64(dst, series.0);
    put_exemplar(dst, exemplar);
}

/// Decodes exemplars one by one. Returns `None` if the record is damaged.
pub(crate) fn decode_exemplars(
    mut src: &[u8],
    mut each: impl FnMut(u64, SeriesRef, Exemplar),
) -> Option<()> {
    while !src.is_empty() {
        let id = take_u64(&mut src)?;
        let series = SeriesRef(take_u64(&mut src)?);
        each(id, series, take_exemplar(&mut src)?);
    }
    Some(())
}

/// Appends an exemplar without id and series.
pub(in crate::wal) fn put_exemplar(dst: &mut Vec<u8>, exemplar: &Exemplar) {
    put_i64(dst, exemplar.timestamp_ms);
    dst.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
    put_labels(dst, &exemplar.labels);
}

/// Decodes an exemplar from the front of `src`.
pub(in crate::wal) fn take_exemplar(src: &mut &[u8]) -> Option<Exemplar> {
    let timestamp_ms = take_i64(src)?;
    let value = f64::from_bits(u64::from_le_bytes(take_bytes(src, 8)?.try_into().ok()?));
    let n_labels = usize::try_from(take_u64(src)?)
        .ok()
        .filter(|&n| n <= EXEMPLAR_LABELS_LEN_MAX)?;
    let mut pairs = Vec::with_capacity(n_labels);
    let mut len = 0;
    for _ in 0..n_labels {
        let name = take_string(src)?;
        let value = take_string(src)?;
        len += name.chars().count() + value.chars().count();
        pairs.push((name, value));
    }
    let labels = Labels::from_unsorted(&mut pairs).ok()?;
    (len <= EXEMPLAR_LABELS_LEN_MAX).then_some(Exemplar {
        labels,
        value,
        timestamp_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(labels: &[(&str, &str)], value: f64, timestamp_ms: i64) -> Exemplar {
        Exemplar {
            labels: Labels::from_pairs(labels.iter().copied()).unwrap(),
            value,
            timestamp_ms,
        }
    }

    #[test]
    fn exemplars_round_trip_and_every_cut_inside_them_is_detected() {
        let all = [
            (0, 7, exemplar(&[], -0.0, i64::MIN)),
            (
                u64::MAX,
                1 << 40,
                exemplar(
                    &[("trace_id", "Ünicode"), ("b", "1")],
                    f64::from_bits(0x7ff0_0000_0000_0002),
                    5,
                ),
            ),
        ];
        let mut bytes = Vec::new();
        let mut seen = Vec::new();
        let mut ends = vec![0];
        for (number, series, exemplar) in &all {
            encode_exemplar(&mut bytes, *number, SeriesRef(*series), exemplar);
            ends.push(bytes.len());
        }
        decode_exemplars(&bytes, |number, series, exemplar| {
            seen.push((number, series.0, exemplar))
        })
        .unwrap();
        let text = |all: &[(u64, u64, Exemplar)]| {
            all.iter()
                .map(|(n, s, e)| {
                    format!(
                        "{n} {s} {} {} {:x}",
                        e.labels,
                        e.timestamp_ms,
                        e.value.to_bits()
                    )
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(text(&seen), text(&all));
        for size in 0..=bytes.len() {
            assert_eq!(
                decode_exemplars(&bytes[..size], |_, _, _| {}).is_some(),
                ends.contains(&size),
                "cut to {size}"
            );
        }
    }

    #[test]
    fn labels_longer_than_the_limit_are_rejected() {
        for (len, is_sound) in [
            (EXEMPLAR_LABELS_LEN_MAX - 1, true),
            (EXEMPLAR_LABELS_LEN_MAX, false),
        ] {
            let mut bytes = Vec::new();
            put_exemplar(&mut bytes, &exemplar(&[("a", &"é".repeat(len))], 1.0, 1));
            assert_eq!(take_exemplar(&mut &bytes[..]).is_some(), is_sound, "{len}");
        }
    }
}
