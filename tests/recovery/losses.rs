//! What becomes of the samples of a Prometheus directory that lost a file: every tool counts what it
//! finds, and fails if something is lost.

#![expect(
    clippy::big_endian_bytes,
    reason = "Prometheus' formats are big endian"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use varve_model::Sample;
use varve_prometheus::chunk::{Encoder, StartTimestamps};

use crate::harness::copy_dir;

/// Timestamp of the first sample of each series.
const T: i64 = 1_700_000_000_000;
const INTERVAL_MS: i64 = 15_000;
/// Samples of each series.
const N: i64 = 300;
/// Samples of each series that are also in its head chunks.
const N_IN_HEAD_CHUNKS: i64 = 240;
const N_PER_CHUNK: i64 = 120;

/// A data directory of Prometheus: segment i defines series i, and has its samples.
struct Prometheus(TempDir);

impl Prometheus {
    fn new() -> Self {
        let this = Self(TempDir::new().expect("make a temporary directory"));
        fs::create_dir_all(this.path("wal")).expect("make a directory");
        fs::create_dir_all(this.path("chunks_head")).expect("make a directory");
        let mut head = [&0x0130_bc91_u32.to_be_bytes()[..], &[1, 0, 0, 0]].concat();
        for series in 0..3 {
            fs::write(this.segment(series), segment(series)).expect("write a segment");
            for first in (0..N_IN_HEAD_CHUNKS).step_by(N_PER_CHUNK as usize) {
                head.extend(head_chunk(series, first..first + N_PER_CHUNK));
            }
        }
        fs::write(this.path("chunks_head/000001"), head).expect("write head chunks");
        this
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn segment(&self, number: u64) -> PathBuf {
        self.path(&format!("wal/{number:08}"))
    }

    fn varve(&self, args: &[&str]) -> Output {
        let out = self.0.path().join("out");
        drop(fs::remove_dir_all(&out));
        let dir = self.dir().display().to_string();
        let out = out.display().to_string();
        let args = args.iter().map(|arg| match *arg {
            "DIR" => dir.as_str(),
            "OUT" => out.as_str(),
            other => other,
        });
        Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(args)
            .output()
            .expect("run varve")
    }

    /// Returns what became of the samples according to a tool that prints JSON, and its exit code.
    fn totals(&self, args: &[&str]) -> (Option<i32>, Value) {
        let output = self.varve(&[args, &["--output=json"]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        (output.status.code(), report["totals"].clone())
    }

    /// Asserts what `verify` and `recover` say, and that an import and a dump write as many samples
    /// and exit with the same code.
    fn check(&self, code: i32, kept: u64, losses: &Value) {
        for args in [
            &["wal", "verify", "DIR"][..],
            &["wal", "recover", "DIR", "--to-blocks", "OUT"],
        ] {
            let (found, totals) = self.totals(args);
            assert_eq!(found, Some(code), "{args:?}: {totals}");
            assert_eq!(totals["kept"], kept, "{args:?}: {totals}");
            assert_eq!(totals["unaccounted"], 0, "{args:?}: {totals}");
            assert_eq!(&totals["losses"], losses, "{args:?}");
        }
        let import = self.varve(&["tsdb", "import", "DIR", "OUT"]);
        let said = String::from_utf8_lossy(&import.stdout);
        assert_eq!(import.status.code(), Some(code), "{import:?}");
        assert!(said.contains(&format!(" with {kept} samples\n")), "{said}");
        let dump = self.varve(&["tsdb", "dump", "DIR"]);
        let n_printed = dump.stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(
            (dump.status.code(), n_printed as u64),
            (Some(code), kept),
            "{}",
            String::from_utf8_lossy(&dump.stderr)
        );
    }
}

/// Refs of Prometheus begin at 1.
fn ref_of(series: u64) -> [u8; 8] {
    (series + 1).to_be_bytes()
}

fn labels_of(series: u64) -> String {
    format!("series_{series}")
}

/// Returns a segment with a record of a definition and a record of samples.
fn segment(series: u64) -> Vec<u8> {
    page(&[definition(series), samples(series, 0..N)])
}

/// Returns the record that defines a series.
fn definition(series: u64) -> Vec<u8> {
    let name = labels_of(series);
    let mut definition = [&[1][..], &ref_of(series), &[1]].concat();
    for text in ["__name__", &name] {
        definition.push(text.len() as u8);
        definition.extend_from_slice(text.as_bytes());
    }
    definition
}

/// Returns a record of samples of a series in the order of `indexes`.
fn samples(series: u64, indexes: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let mut samples = [&[2][..], &ref_of(series), &T.to_be_bytes()].concat();
    for idx in indexes {
        samples.push(0);
        put_zigzag(&mut samples, idx * INTERVAL_MS);
        samples.extend_from_slice(&(idx as f64).to_bits().to_be_bytes());
    }
    samples
}

/// Returns a segment with some records.
fn page(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let size = u16::try_from(record.len()).expect("it fits in a page");
        bytes.push(1);
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(record).to_be_bytes());
        bytes.extend_from_slice(record);
    }
    bytes
}

fn put_zigzag(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn head_chunk(series: u64, samples: std::ops::Range<i64>) -> Vec<u8> {
    let mut encoder = Encoder::new(StartTimestamps::Drop);
    for idx in samples {
        let sample = Sample {
            timestamp_ms: T + idx * INTERVAL_MS,
            value: idx as f64,
        };
        encoder.push(sample, 0);
    }
    let chunk = &encoder.finish()[0];
    let mut bytes = ref_of(series).to_vec();
    bytes.extend_from_slice(&chunk.min_ms.to_be_bytes());
    bytes.extend_from_slice(&chunk.max_ms.to_be_bytes());
    bytes.push(1);
    put_varint(&mut bytes, chunk.bytes.len() as u64);
    bytes.extend_from_slice(&chunk.bytes);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

fn unknown_parts() -> Value {
    json!({"cause": "in damaged or missing parts of files", "samples": null})
}

/// `verify` said "840 samples: sound", and an import of 600 samples exited with 0.
#[test]
fn a_log_without_its_first_segment_is_damaged() {
    let prometheus = Prometheus::new();
    prometheus.check(0, 900, &json!([]));
    fs::remove_file(prometheus.segment(0)).expect("remove a segment");
    let of_unknown_series = json!({"cause": "of unknown series", "samples": N_IN_HEAD_CHUNKS});
    for args in [
        &["wal", "verify", "DIR"][..],
        &["wal", "recover", "DIR", "--to-blocks", "OUT"],
    ] {
        let (code, totals) = prometheus.totals(args);
        assert_eq!(code, Some(1), "{totals}");
        assert_eq!(
            (&totals["kept"], &totals["unaccounted"]),
            (&json!(600), &json!(0)),
            "{totals}"
        );
        let losses = totals["losses"].as_array().expect("a list");
        assert_eq!(losses.len(), 2, "{totals}");
        assert!(losses.contains(&of_unknown_series) && losses.contains(&unknown_parts()));
    }
    let verified = prometheus.varve(&["wal", "verify", "DIR"]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(text.contains("segments 0 to 0 are missing"), "{text}");
    assert!(
        text.contains("a recovery would lose an unknown number of samples"),
        "{text}"
    );
    for args in [
        &["tsdb", "import", "DIR", "OUT"][..],
        &["tsdb", "dump", "DIR"],
    ] {
        let output = prometheus.varve(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

/// `verify` estimated that a recovery would lose about 0 samples.
#[test]
fn the_samples_of_a_missing_segment_are_unknown() {
    let prometheus = Prometheus::new();
    drop(fs::remove_dir_all(prometheus.path("chunks_head")));
    fs::remove_file(prometheus.segment(1)).expect("remove a segment");
    prometheus.check(1, 600, &json!([unknown_parts()]));
    let verified = prometheus.varve(&["wal", "verify", "DIR"]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(
        text.contains("a recovery would lose an unknown number of samples"),
        "{text}"
    );
}

/// It was sound, and the segments that it replaces by its name were not read.
#[test]
fn an_empty_checkpoint_does_not_replace_segments() {
    let prometheus = Prometheus::new();
    let checkpoint = prometheus.path("wal/checkpoint.00000001");
    fs::create_dir(&checkpoint).expect("make a directory");
    fs::write(checkpoint.join("00000000"), "").expect("write a file");
    prometheus.check(1, 900, &json!([unknown_parts()]));
    let verified = prometheus.varve(&["wal", "verify", "DIR"]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(text.contains("the checkpoint has no records"), "{text}");
}

/// Samples of a series that come late: the WAL has them after newer ones, and the WBL has them, too.
const LATE: std::ops::Range<i64> = 100..112;

/// Damages a directory.
type Damage = fn(&Prometheus);

/// Returns a directory with three segments of one series. The last one ends with late samples.
fn with_late_samples() -> Prometheus {
    let prometheus = Prometheus(TempDir::new().expect("make a temporary directory"));
    for dir in ["wal", "wbl"] {
        fs::create_dir_all(prometheus.path(dir)).expect("make a directory");
    }
    let in_order = [0..100, 112..200, 200..N];
    for (number, indexes) in (0..).zip(in_order) {
        let mut records = vec![samples(0, indexes)];
        match number {
            0 => records.insert(0, definition(0)),
            2 => records.push(samples(0, LATE)),
            _ => {}
        }
        fs::write(prometheus.segment(number), page(&records)).expect("write a segment");
    }
    let late = page(&[samples(0, LATE)]);
    fs::write(prometheus.path("wbl/00000000"), late).expect("write a segment");
    prometheus
}

/// They were duplicates, although the series did not have them: 88 samples of exchanged segments and
/// the late ones were lost. `verify` counted others than the import.
#[test]
fn samples_that_come_late_are_written_and_count_once() {
    let n_late = LATE.count() as u64;
    let cases: [(&str, Damage, i32, u64); 6] = [
        ("sound", |_| {}, 0, n_late),
        (
            "exchanged segments",
            |prometheus| {
                let moved = prometheus.path("moved");
                fs::rename(prometheus.segment(1), &moved).expect("move a segment");
                fs::rename(prometheus.segment(2), prometheus.segment(1)).expect("move a segment");
                fs::rename(moved, prometheus.segment(2)).expect("move a segment");
            },
            0,
            n_late,
        ),
        (
            "an empty WBL",
            |prometheus| fs::write(prometheus.path("wbl/00000000"), "").expect("empty the WBL"),
            0,
            0,
        ),
        (
            "no WBL",
            |prometheus| fs::remove_dir_all(prometheus.path("wbl")).expect("remove the WBL"),
            0,
            0,
        ),
        (
            "a WBL with a copy",
            |prometheus| {
                let wbl = prometheus.path("wbl");
                let copied = fs::copy(wbl.join("00000000"), wbl.join("00000001"));
                copied.expect("copy a segment");
            },
            0,
            2 * n_late,
        ),
        (
            "a damaged WBL",
            |prometheus| {
                let path = prometheus.path("wbl/00000000");
                let mut bytes = fs::read(&path).expect("read a segment");
                bytes[60] ^= 1;
                fs::write(&path, bytes).expect("write a segment");
            },
            1,
            0,
        ),
    ];
    for (name, damage, code, n_duplicates) in cases {
        println!("{name}");
        let prometheus = with_late_samples();
        damage(&prometheus);
        let losses = if code == 0 {
            json!([])
        } else {
            json!([unknown_parts()])
        };
        prometheus.check(code, N as u64, &losses);
        let (_, totals) = prometheus.totals(&["wal", "verify", "DIR"]);
        assert_eq!(totals["duplicates"], n_duplicates, "{name}: {totals}");
    }
}

/// None of the sound blocks was listed or printed.
#[test]
fn one_bad_block_costs_only_itself() {
    for (file, lost) in [("meta.json", Value::Null), ("index", json!(1))] {
        let prometheus = Prometheus(TempDir::new().expect("make a temporary directory"));
        let text = format!("a 1 {}\na 2 {}\n# EOF\n", T / 1000, T / 1000 + 36_000);
        let blocks = make_blocks(&prometheus, &text);
        assert_eq!(blocks.len(), 2);
        fs::write(blocks[1].join(file), "?").expect("damage a file");

        let sound = name_of(&blocks[0]);
        let bad = name_of(&blocks[1]);
        for (command, printed) in [
            ("list", sound.as_str()),
            ("dump", "{__name__=\"a\"} "),
            ("dump-openmetrics", "a{} "),
        ] {
            let output = prometheus.varve(&["tsdb", command, "DIR"]);
            let printed_text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command}: {errors}");
            assert_eq!(
                printed_text.matches(printed).count(),
                1,
                "{command}: {printed_text}"
            );
            assert!(errors.contains(&bad), "{command}: {errors}");
            assert!(
                errors.contains("lost, in damaged blocks"),
                "{command}: {errors}"
            );
        }
        let (code, totals) = prometheus.totals(&["wal", "verify", "DIR"]);
        assert_eq!((code, &totals["kept"]), (Some(1), &json!(1)), "{totals}");
        let in_block = json!({"cause": "in damaged blocks", "samples": lost});
        assert!(
            totals["losses"]
                .as_array()
                .expect("a list")
                .contains(&in_block),
            "{totals}"
        );
    }
}

/// Writes blocks of two hours with the samples of a text in the OpenMetrics format, and returns them
/// in order of time.
fn make_blocks(prometheus: &Prometheus, text: &str) -> Vec<PathBuf> {
    let input = prometheus.0.path().join("input.om");
    fs::write(&input, text).expect("write a file");
    let input = input.display().to_string();
    let made = prometheus.varve(&["tsdb", "create-blocks-from", "openmetrics", &input, "DIR"]);
    assert!(made.status.success(), "{made:?}");
    let mut blocks = Vec::new();
    for entry in fs::read_dir(prometheus.dir()).expect("list the blocks") {
        let path = entry.expect("list the blocks").path();
        if path.join("meta.json").is_file() {
            blocks.push(path);
        }
    }
    blocks.sort();
    blocks
}

/// An import wrote the samples of a series under other labels, and deleted samples returned.
#[test]
fn a_block_whose_symbols_or_tombstones_fail_their_checksum_is_lost() {
    for (file, offset) in [("index", 16), ("tombstones", 7)] {
        let prometheus = Prometheus(TempDir::new().expect("make a temporary directory"));
        let text = format!("a 1 {}\na 2 {}\n# EOF\n", T / 1000, T / 1000 + 36_000);
        let blocks = make_blocks(&prometheus, &text);
        let path = blocks[1].join(file);
        let mut bytes = fs::read(&path).expect("read a file");
        bytes[offset] ^= 1;
        fs::write(&path, bytes).expect("write a file");
        let losses = json!([{"cause": "in damaged blocks", "samples": 1}]);
        let (code, totals) = prometheus.totals(&["wal", "verify", "DIR"]);
        assert_eq!((code, &totals["kept"]), (Some(1), &json!(1)), "{totals}");
        assert_eq!(
            (&totals["losses"], &totals["unaccounted"]),
            (&losses, &json!(0))
        );
        let bad = name_of(&blocks[1]);
        for args in [
            &["tsdb", "list", "DIR"][..],
            &["tsdb", "dump", "DIR"],
            &["tsdb", "import", "DIR", "OUT"],
        ] {
            let output = prometheus.varve(args);
            let printed = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
            assert!(errors.contains(&bad), "{args:?}: {errors}");
            assert!(errors.contains("checksum mismatch"), "{args:?}: {errors}");
            let lost = printed.into_owned() + &errors;
            assert!(lost.contains("lost, in damaged blocks"), "{args:?}: {lost}");
        }
        assert_eq!(
            prometheus.varve(&["tsdb", "dump", "DIR"]).stdout,
            dumped(&prometheus, "OUT")
        );
    }
}

/// Imports a directory, and returns a dump of the import.
fn dumped(prometheus: &Prometheus, target: &str) -> Vec<u8> {
    drop(prometheus.varve(&["tsdb", "import", "DIR", target]));
    let out = prometheus.0.path().join("out").display().to_string();
    let dump = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["tsdb", "dump", &out])
        .output();
    dump.expect("run varve").stdout
}

/// Samples that come late counted as covered by the blocks, which do not have them, if the WBL was
/// lost.
#[test]
fn late_samples_before_the_end_of_the_blocks_are_written_if_the_wbl_is_lost() {
    let wbl: [(&str, Damage, u64); 3] = [
        ("sound", |_| {}, 0),
        (
            "lost",
            |prometheus| fs::remove_dir_all(prometheus.path("wbl")).expect("remove the WBL"),
            1,
        ),
        (
            "empty",
            |prometheus| fs::write(prometheus.path("wbl/00000000"), "").expect("empty the WBL"),
            0,
        ),
    ];
    for (name, damage, n_written) in wbl {
        let prometheus = with_late_samples();
        // The block ends after the late samples, and before the others.
        let end_s = (T + 112 * INTERVAL_MS) / 1000;
        let blocks = make_blocks(&prometheus, &format!("series_0 1 {end_s}\n# EOF\n"));
        let path = blocks[0].join("meta.json");
        let meta = fs::read(&path).expect("read a file");
        let mut meta: Value = serde_json::from_slice(&meta).expect("JSON");
        meta["maxTime"] = json!(T + 112 * INTERVAL_MS);
        fs::write(&path, meta.to_string()).expect("write a file");
        damage(&prometheus);
        let (code, totals) = prometheus.totals(&["wal", "recover", "DIR", "--to-blocks", "OUT"]);
        let n_late = LATE.count() as u64;
        let n_kept = N as u64 - 112 + n_late * (n_written + u64::from(name == "sound"));
        assert_eq!(
            (code, &totals["kept"]),
            (Some(0), &json!(n_kept)),
            "{name}: {totals}"
        );
        assert_eq!(totals["unaccounted"], 0, "{name}: {totals}");
    }
}

/// The samples counted twice, and nothing said so. Deleted samples counted as readable.
#[test]
fn blocks_that_overlap_are_named_and_deleted_samples_are_not_readable() {
    let prometheus = Prometheus(TempDir::new().expect("make a temporary directory"));
    let blocks = make_blocks(
        &prometheus,
        &format!("a 1 {}\na 2 {}\n# EOF\n", T / 1000, T / 1000 + 1),
    );
    let overlapping = "blocks overlap: a sample that several of them have counts for each\n";
    let said = |args: &[&str]| {
        let output = prometheus.varve(args);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    for args in [
        &["wal", "verify", "DIR"][..],
        &["tsdb", "import", "DIR", "OUT"],
    ] {
        let (code, text) = said(args);
        assert_eq!(code, Some(0), "{text}");
        assert!(!text.contains(overlapping), "{args:?}: {text}");
    }
    let copy = prometheus.path("01M7YQJC6W0PH11YAGQNK9T4Z6");
    copy_dir(&blocks[0], &copy);
    for args in [
        &["wal", "verify", "DIR"][..],
        &["tsdb", "import", "DIR", "OUT"],
    ] {
        let (code, text) = said(args);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(overlapping), "{args:?}: {text}");
    }
    fs::remove_dir_all(&copy).expect("remove a block");

    // The only series of a block with five symbols at most: `a`, `__name__` and the empty string.
    let index = fs::read(blocks[0].join("index")).expect("read the index");
    let symbols_size = u32::from_be_bytes([index[5], index[6], index[7], index[8]]);
    let series_ref = (9 + symbols_size + 4).div_ceil(16);
    let mut tombstone = vec![];
    put_varint(&mut tombstone, u64::from(series_ref));
    put_zigzag(&mut tombstone, T);
    put_zigzag(&mut tombstone, T);
    let mut file = [&0x0130_ba30_u32.to_be_bytes()[..], &[1], &tombstone].concat();
    file.extend_from_slice(&crc32c::crc32c(&tombstone).to_be_bytes());
    fs::write(blocks[0].join("tombstones"), file).expect("write tombstones");
    let (code, totals) = prometheus.totals(&["wal", "verify", "DIR"]);
    assert_eq!(code, Some(0), "{totals}");
    assert_eq!(
        (&totals["kept"], &totals["deleted"], &totals["unaccounted"]),
        (&json!(1), &json!(1), &json!(0)),
        "{totals}"
    );
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .expect("a block has a name")
        .to_string_lossy()
        .into_owned()
}
