//! The series of a response, as a client of Thanos' protocols reads them.

use varve_model::SampleColumns;
use varve_prometheus::chunk::{Encoding, decode};

use crate::harness::Call;
use crate::harness::messages::thanos::{SeriesMessage, SeriesResponse};

/// Returns the series of a call, in order, whether in batches or not.
pub(super) fn series_of(call: &Call) -> Vec<SeriesMessage> {
    let mut all = Vec::new();
    for (_, message) in &call.messages {
        let response: SeriesResponse =
            prost::Message::decode(&**message).expect("a SeriesResponse");
        assert_eq!(response.warning, None);
        all.extend(response.series);
        all.extend(response.batch.into_iter().flat_map(|batch| batch.series));
    }
    all
}

impl SeriesMessage {
    pub(super) fn labels(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        self.labels
            .iter()
            .map(|label| (text(&label.name), text(&label.value)))
            .collect()
    }

    /// Returns all samples, and checks the bounds of the chunks.
    pub(super) fn samples(&self) -> SampleColumns {
        let mut columns = SampleColumns::default();
        for chunk in &self.chunks {
            let (raw, before) = (chunk.raw.as_ref().expect("a raw chunk"), columns.len());
            let encoding = Encoding::from_code(u8::try_from(raw.kind).expect("a kind") + 1)
                .expect("an encoding");
            decode(encoding, &raw.data, &mut columns).expect("a valid chunk");
            let times = &columns.timestamps_ms[before..];
            assert_eq!(
                times.first().zip(times.last()),
                Some((&chunk.min_time, &chunk.max_time))
            );
            assert!(times.len() <= 120, "{} samples", times.len());
        }
        columns
    }
}
