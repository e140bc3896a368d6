//! The encoding of header and slots. Format: docs/format/active-requests.md.

use std::ops::Range;

use super::grafana::GrafanaSource;

/// Bytes of the header.
pub const HEADER_SIZE: usize = 64;
/// Bytes of a slot.
pub const SIZE: usize = 1024;

const MAGIC: &[u8; 4] = b"VRNG";
const VERSION: u8 = 2;
/// The version without Grafana's headers.
const VERSION_1: u8 = 1;
const CLEAN_SHUTDOWN: u8 = 1;

// The header.
const VERSION_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 5;
const SLOT_SIZE_OFFSET: usize = 8;
const N_SLOTS_OFFSET: usize = 12;
const PID_OFFSET: usize = 16;
const STARTED_OFFSET: usize = 24;
const HEADER_CHECKSUM_OFFSET: usize = 60;

// A slot.
const STATE_OFFSET: usize = 4;
const NUMBERS_OFFSET: usize = 8;
const LENGTHS_OFFSET: usize = 64;
const STRINGS_OFFSET: usize = 88;
/// In version 1, with six strings.
const STRINGS_OFFSET_1: usize = 80;

/// Maximum size of each string of a record, in order. The last one gets the remaining space.
const STRING_SIZES_MAX: [usize; N_STRINGS] =
    [96, 64, 64, 128, 160, 64, 32, 64, 64, SIZE - STRINGS_OFFSET];
const N_STRINGS: usize = 10;

/// The start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How slots are encoded.
    pub version: Version,
    /// Number of slots.
    pub n_slots: u32,
    /// The process that writes the file.
    pub pid: u32,
    /// Start of this process.
    pub started_ms: i64,
    /// Whether this process has shut down.
    pub is_clean_shutdown: bool,
}

/// A version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// Slots have no headers of Grafana. It is read only.
    V1,
    /// The version that is written.
    #[default]
    V2,
}

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum RequestState {
    /// It waits for a permit.
    #[default]
    Waiting = 1,
    /// It is being processed, or its response is being sent.
    Working = 2,
    /// Its response was sent.
    Completed = 3,
    /// It failed.
    Failed = 4,
}

impl RequestState {
    /// Returns `true` if the request has ended.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Returns the name of the state in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Working => "working",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The state.
    pub state: RequestState,
    /// The id of the request.
    pub id: u64,
    /// Start of the request.
    pub started_ms: i64,
    /// When this was recorded.
    pub recorded_ms: i64,
    /// Memory in use when this was recorded.
    pub held_bytes: u64,
    /// Maximum memory in use.
    pub peak_bytes: u64,
    /// Series that it has read.
    pub n_series: u64,
    /// Samples that it has read.
    pub n_samples: u64,
    /// The route.
    pub route: String,
    /// The client's address.
    pub client: String,
    /// The user; empty without authentication.
    pub user: String,
    /// The user agent, truncated.
    pub user_agent: String,
    /// The reason why it failed.
    pub reason: String,
    /// The dashboard, the panel, the alert rule and the user that Grafana names in its headers.
    pub grafana: GrafanaSource,
    /// The query or selectors, truncated.
    pub text: String,
}

impl Header {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[VERSION_OFFSET] = match self.version {
            Version::V1 => VERSION_1,
            Version::V2 => VERSION,
        };
        bytes[FLAGS_OFFSET] = if self.is_clean_shutdown {
            CLEAN_SHUTDOWN
        } else {
            0
        };
        put(&mut bytes, SLOT_SIZE_OFFSET, &(SIZE as u32).to_le_bytes());
        put(&mut bytes, N_SLOTS_OFFSET, &self.n_slots.to_le_bytes());
        put(&mut bytes, PID_OFFSET, &self.pid.to_le_bytes());
        put(&mut bytes, STARTED_OFFSET, &self.started_ms.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM_OFFSET]);
        put(&mut bytes, HEADER_CHECKSUM_OFFSET, &checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; HEADER_SIZE] = bytes.first_chunk().ok_or("too short for a header")?;
        if !bytes.starts_with(MAGIC) {
            return Err("not an active-request log".to_owned());
        }
        if u32_at(bytes, HEADER_CHECKSUM_OFFSET) != crc32c::crc32c(&bytes[..HEADER_CHECKSUM_OFFSET])
        {
            return Err("header checksum mismatch".to_owned());
        }
        let version = match bytes[VERSION_OFFSET] {
            VERSION_1 => Version::V1,
            VERSION => Version::V2,
            version => {
                return Err(format!(
                    "version {version} is not supported, only versions {VERSION_1} and {VERSION}"
                ));
            }
        };
        let flags = bytes[FLAGS_OFFSET];
        if flags & !CLEAN_SHUTDOWN != 0 {
            return Err(format!("flags {flags:#04x} are not supported"));
        }
        if u32_at(bytes, SLOT_SIZE_OFFSET) as usize != SIZE {
            return Err(format!("slot size is not {SIZE} bytes"));
        }
        Ok(Self {
            version,
            n_slots: u32_at(bytes, N_SLOTS_OFFSET),
            pid: u32_at(bytes, PID_OFFSET),
            started_ms: u64_at(bytes, STARTED_OFFSET) as i64,
            is_clean_shutdown: bytes[FLAGS_OFFSET] & CLEAN_SHUTDOWN != 0,
        })
    }
}

impl Record {
    /// Encodes the record. Long strings are truncated.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[STATE_OFFSET] = self.state as u8;
        for (i, number) in self.numbers().into_iter().enumerate() {
            put(&mut bytes, NUMBERS_OFFSET + 8 * i, &number.to_le_bytes());
        }
        let mut at = STRINGS_OFFSET;
        for (i, text) in self.strings().into_iter().enumerate() {
            let text = &text[..text.floor_char_boundary(STRING_SIZES_MAX[i].min(SIZE - at))];
            put(
                &mut bytes,
                LENGTHS_OFFSET + 2 * i,
                &(text.len() as u16).to_le_bytes(),
            );
            put(&mut bytes, at, text.as_bytes());
            at += text.len();
        }
        let checksum = crc32c::crc32c(&bytes[STATE_OFFSET..]);
        put(&mut bytes, 0, &checksum.to_le_bytes());
        bytes
    }

    /// Decodes a slot of a file of this version. Returns `None` if it was never used.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn decode(bytes: &[u8; SIZE], version: Version) -> Result<Option<Self>, &'static str> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if u32_at(bytes, 0) != crc32c::crc32c(&bytes[STATE_OFFSET..]) {
            return Err("checksum mismatch");
        }
        let states = [
            RequestState::Waiting,
            RequestState::Working,
            RequestState::Completed,
            RequestState::Failed,
        ];
        let state = states
            .into_iter()
            .find(|&state| state as u8 == bytes[STATE_OFFSET])
            .ok_or("unknown state")?;
        let number = |i: usize| u64_at(bytes, NUMBERS_OFFSET + 8 * i);
        let [
            route,
            client,
            user,
            user_agent,
            reason,
            dashboard,
            panel,
            rule,
            grafana_user,
            text,
        ] = match version {
            Version::V1 => strings_of_version_1(bytes)?,
            Version::V2 => strings(bytes, STRINGS_OFFSET)?,
        };
        Ok(Some(Self {
            state,
            id: number(0),
            started_ms: number(1) as i64,
            recorded_ms: number(2) as i64,
            held_bytes: number(3),
            peak_bytes: number(4),
            n_series: number(5),
            n_samples: number(6),
            route,
            client,
            user,
            user_agent,
            reason,
            grafana: GrafanaSource {
                dashboard,
                panel,
                rule,
                user: grafana_user,
            },
            text,
        }))
    }

    fn numbers(&self) -> [u64; 7] {
        let Self {
            id,
            started_ms,
            recorded_ms,
            held_bytes,
            peak_bytes,
            n_series,
            n_samples,
            ..
        } = *self;
        [
            id,
            started_ms as u64,
            recorded_ms as u64,
            held_bytes,
            peak_bytes,
            n_series,
            n_samples,
        ]
    }

    fn strings(&self) -> [&str; N_STRINGS] {
        [
            &self.route,
            &self.client,
            &self.user,
            &self.user_agent,
            &self.reason,
            &self.grafana.dashboard,
            &self.grafana.panel,
            &self.grafana.rule,
            &self.grafana.user,
            &self.text,
        ]
    }
}

/// Returns the strings of a slot of version 1, with empty ones for Grafana's headers.
fn strings_of_version_1(bytes: &[u8; SIZE]) -> Result<[String; N_STRINGS], &'static str> {
    let [route, client, user, user_agent, reason, text] = strings(bytes, STRINGS_OFFSET_1)?;
    let [dashboard, panel, rule, grafana_user] = [const { String::new() }; 4];
    Ok([
        route,
        client,
        user,
        user_agent,
        reason,
        dashboard,
        panel,
        rule,
        grafana_user,
        text,
    ])
}

fn strings<const N: usize>(bytes: &[u8; SIZE], offset: usize) -> Result<[String; N], &'static str> {
    let mut strings = [const { String::new() }; N];
    let mut at = offset;
    for (i, text) in strings.iter_mut().enumerate() {
        let length = &bytes[LENGTHS_OFFSET + 2 * i..][..2];
        let range: Range<usize> = at..at + usize::from(u16::from_le_bytes([length[0], length[1]]));
        at = range.end;
        *text = String::from_utf8_lossy(bytes.get(range).ok_or("strings exceed the slot")?)
            .into_owned();
    }
    Ok(strings)
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("fields lie inside"))
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("fields lie inside"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_env::testing::assert_shown;

    #[test]
    fn long_strings_are_truncated() {
        let long = "ä".repeat(SIZE);
        let record = Record {
            state: RequestState::Failed,
            id: 1,
            route: long.clone(),
            text: long,
            ..Record::default()
        };
        let read = Record::decode(&record.encode(), Version::V2)
            .unwrap()
            .unwrap();
        assert_eq!(
            (read.route.len(), read.text.len()),
            (96, SIZE - STRINGS_OFFSET - 96)
        );
        assert_eq!((read.state, read.id), (RequestState::Failed, 1));
    }

    #[test]
    fn the_format_page_shows_the_written_bytes() {
        let page = include_str!("../../../../docs/format/active-requests.md");
        let header = Header {
            version: Version::V2,
            n_slots: 2,
            pid: 4321,
            started_ms: 1_763_683_200_000,
            is_clean_shutdown: false,
        };
        assert_shown(page, &header.encode());
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        let record = Record {
            state: RequestState::Working,
            id: 7,
            started_ms: 1_763_683_260_000,
            recorded_ms: 1_763_683_260_100,
            held_bytes: 4096,
            peak_bytes: 8192,
            n_series: 3,
            n_samples: 720,
            route: "/api/v1/query".into(),
            client: "10.0.0.1:4000".into(),
            user_agent: "curl".into(),
            grafana: GrafanaSource {
                dashboard: "d1".into(),
                panel: "7".into(),
                ..GrafanaSource::default()
            },
            text: "sum(up)".into(),
            ..Record::default()
        };
        let slot = record.encode();
        let (used, rest) = slot.split_at(STRINGS_OFFSET + 56);
        assert_shown(page, used);
        assert!(rest.iter().all(|&byte| byte == 0));
        assert_eq!(Record::decode(&slot, Version::V2), Ok(Some(record)));
    }

    /// The example that the format page showed for version 1.
    #[test]
    fn a_slot_of_version_1_is_read() {
        let head = "e6 54 36 60 02 00 00 00 07 00 00 00 00 00 00 00 \
            60 d6 b6 a3 9a 01 00 00 c4 d6 b6 a3 9a 01 00 00 \
            00 10 00 00 00 00 00 00 00 20 00 00 00 00 00 00 \
            03 00 00 00 00 00 00 00 d0 02 00 00 00 00 00 00 \
            0d 00 0d 00 00 00 04 00 00 00 07 00 00 00 00 00";
        let mut slot = [0; SIZE];
        for (byte, hex) in slot.iter_mut().zip(head.split_whitespace()) {
            *byte = u8::from_str_radix(hex, 16).unwrap();
        }
        let strings = b"/api/v1/query10.0.0.1:4000curlsum(up)";
        put(&mut slot, STRINGS_OFFSET_1, strings);
        let read = Record::decode(&slot, Version::V1).unwrap().unwrap();
        assert_eq!(
            (read.id, &*read.client, &*read.user_agent, &*read.text),
            (7, "10.0.0.1:4000", "curl", "sum(up)")
        );
        assert!(read.grafana.is_empty());
    }

    #[test]
    fn invalid_headers_are_rejected() {
        let header = Header {
            version: Version::V2,
            n_slots: 3,
            pid: 7,
            started_ms: -1,
            is_clean_shutdown: true,
        };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        let check = |change: &dyn Fn(&mut [u8; HEADER_SIZE]), expect: &str| {
            let mut bytes = header.encode();
            change(&mut bytes);
            let rejected = Header::decode(&bytes).unwrap_err();
            assert!(rejected.contains(expect), "{rejected}");
        };
        let reseal = |bytes: &mut [u8; HEADER_SIZE]| {
            let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM_OFFSET]);
            put(bytes, HEADER_CHECKSUM_OFFSET, &checksum.to_le_bytes());
        };
        check(&|bytes| bytes[0] = b'x', "not an active-request log");
        check(&|bytes| bytes[PID_OFFSET] += 1, "checksum");
        check(
            &|bytes| {
                bytes[VERSION_OFFSET] = 3;
                reseal(bytes)
            },
            "version 3",
        );
        check(
            &|bytes| {
                bytes[SLOT_SIZE_OFFSET] = 1;
                reseal(bytes)
            },
            "slot size",
        );
        assert!(Header::decode(&[]).unwrap_err().contains("too short"));
    }

    proptest! {
        #[test]
        fn records_round_trip(
            numbers in any::<[u64; 4]>(), times in any::<[i64; 2]>(), text in "\\PC{0,100}", route in "[a-z/]{0,96}",
        ) {
            let [id, held_bytes, n_series, n_samples] = numbers;
            let record = Record {
                state: RequestState::Working, id, started_ms: times[0], recorded_ms: times[1], held_bytes, peak_bytes: held_bytes,
                n_series, n_samples, route, text, client: "127.0.0.1:1".into(), ..Record::default()
            };
            prop_assert_eq!(Record::decode(&record.encode(), Version::V2).unwrap(), Some(record));
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(mut bytes in prop::collection::vec(any::<u8>(), SIZE), sealed: bool) {
            if sealed {
                let checksum = crc32c::crc32c(&bytes[STATE_OFFSET..]);
                put(&mut bytes, 0, &checksum.to_le_bytes());
                bytes[STATE_OFFSET] %= 6;
            }
            let _read = Record::decode(bytes.first_chunk().unwrap(), Version::V1);
            let _read = Record::decode(bytes.first_chunk().unwrap(), Version::V2);
            let _read = Header::decode(&bytes);
        }
    }
}
