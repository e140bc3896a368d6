//! Alerts: from the result of a rule evaluation to the JSON of Alertmanager's API.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use varve_ingest::relabel::Relabeling;
use varve_model::Labels;
use varve_rules::file::Texts;

/// An alert on its way to Alertmanagers.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingAlert {
    /// The identity of the alert, with `alertname`.
    pub(crate) labels: Labels,
    /// Annotations may be empty texts, which Prometheus sends as well.
    pub(crate) annotations: Arc<Texts>,
    pub(crate) starts_at_ms: i64,
    /// Time at which the alert was resolved, or at which Alertmanager resolves it unless it
    /// receives the alert again.
    pub(crate) ends_at_ms: i64,
    /// Link to the expression of the rule.
    pub(crate) generator_url: String,
}

/// The alert in Alertmanager's API, version 2.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted<'a> {
    labels: BTreeMap<&'a str, &'a str>,
    annotations: &'a Texts,
    starts_at: String,
    ends_at: String,
    #[serde(rename = "generatorURL")]
    generator_url: &'a str,
}

impl OutgoingAlert {
    /// Returns the labels of the alert, and the labels of `external` whose names the alert does not
    /// have.
    pub(super) fn labels_with(&self, external: &BTreeMap<String, String>) -> Labels {
        let missing = external
            .iter()
            .filter(|(name, _)| self.labels.get(name).is_none_or(str::is_empty));
        missing.fold(self.labels.clone(), |labels, (name, value)| {
            labels.with(name, value)
        })
    }

    /// Returns the alert with these labels after relabeling, or `None` if a relabel rule
    /// drops it.
    pub(super) fn relabeled(self, labels: Labels, relabeling: &Relabeling) -> Option<Self> {
        match relabeling.relabel(&labels) {
            Ok(labels) => labels.map(|labels| Self { labels, ..self }),
            Err(error) => {
                tracing::error!(%labels, %error, "Relabeling of an alert failed, dropping it");
                None
            }
        }
    }

    /// Returns the alert in JSON.
    pub(super) fn encode(&self) -> Bytes {
        let posted = Posted {
            labels: self.labels.iter().collect(),
            annotations: &self.annotations,
            starts_at: print_time(self.starts_at_ms),
            ends_at: print_time(self.ends_at_ms),
            generator_url: &self.generator_url,
        };
        serde_json::to_vec(&posted)
            .expect("strings and maps of them are JSON")
            .into()
    }
}

/// Prints a time in RFC 3339 with milliseconds. Times out of range become the nearest one in range.
fn print_time(time_ms: i64) -> String {
    let nearest = if time_ms < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    format!(
        "{:.3}",
        Timestamp::from_millisecond(time_ms).unwrap_or(nearest)
    )
}

#[cfg(test)]
mod tests {
    use varve_config::file::parse_relabeling;

    use super::*;

    #[test]
    fn an_alert_is_encoded_as_prometheus_does() {
        let alert = OutgoingAlert {
            labels: Labels::from_pairs([("alertname", "A"), ("x", "\"é")]).unwrap(),
            annotations: Arc::new(
                [("summary", "s"), ("empty", "")]
                    .map(|(n, t)| (n.to_owned(), t.to_owned()))
                    .into(),
            ),
            starts_at_ms: 1_700_000_000_000,
            ends_at_ms: 1_700_000_240_005,
            generator_url: "http://h/graph?g0.expr=up&g0.tab=1".to_owned(),
        };
        assert_eq!(
            alert.encode(),
            "{\"labels\":{\"alertname\":\"A\",\"x\":\"\\\"é\"},\"annotations\":{\"empty\":\"\",\"summary\":\"s\"},\
             \"startsAt\":\"2023-11-14T22:13:20.000Z\",\"endsAt\":\"2023-11-14T22:17:20.005Z\",\
             \"generatorURL\":\"http://h/graph?g0.expr=up&g0.tab=1\"}"
        );
    }

    #[test]
    fn external_labels_are_added_if_the_alert_has_none() {
        let external: BTreeMap<_, _> = [("cluster", "c"), ("x", "y")]
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .into();
        let alert = |labels: &[(&str, &str)]| OutgoingAlert {
            labels: Labels::from_pairs(labels.iter().copied()).unwrap(),
            annotations: Arc::default(),
            starts_at_ms: i64::MIN,
            ends_at_ms: i64::MAX,
            generator_url: String::new(),
        };
        let labels = alert(&[("alertname", "A"), ("x", "1")]).labels_with(&external);
        assert_eq!(
            labels.to_string(),
            "{alertname=\"A\", cluster=\"c\", x=\"1\"}"
        );
        assert!(alert(&[]).encode().starts_with(b"{\"labels\":{},"));
    }

    /// Such an alert vanished. Prometheus sends it, and Alertmanager rejects it with its reason.
    #[test]
    fn an_alert_that_relabeling_leaves_without_labels_is_sent() {
        let relabeling = parse_relabeling("- {action: labeldrop, regex: '.*'}").unwrap();
        let alert = OutgoingAlert {
            labels: Labels::from_pairs([("alertname", "A")]).unwrap(),
            annotations: Arc::default(),
            starts_at_ms: 0,
            ends_at_ms: 0,
            generator_url: String::new(),
        };
        let labels = alert.labels.clone();
        let relabeled = alert.relabeled(labels, &relabeling).unwrap();
        assert!(relabeled.labels.is_empty());
    }
}
