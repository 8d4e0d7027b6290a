//! Trace sources: what they read, and what they say to bad input.

use gleaner_cachesim::trace::lackey::Lackey;
use gleaner_cachesim::trace::plain::PlainText;
use gleaner_cachesim::trace::recording::{MAGIC, Recorder, Recording, is_recording};
use gleaner_cachesim::trace::synthetic::{Band, Profile, Synthetic};
use gleaner_cachesim::trace::{Format, Kind, Record, Records, Repeat, Trace, TraceError, open};
use proptest::prelude::*;
use std::path::Path;

const FILE: &str = "some/file";

fn all(mut trace: impl Trace) -> Result<Vec<Record>, TraceError> {
    let mut records = Vec::new();
    loop {
        let before = records.len();
        trace.fill(&mut records)?;
        if records.len() == before {
            return Ok(records);
        }
    }
}

fn record(kind: Kind, address: u64, instructions: u32) -> Record {
    Record { address, instructions, kind }
}

fn plain(text: &str) -> Result<Vec<Record>, TraceError> {
    all(PlainText::new(Path::new(FILE), text.as_bytes()))
}

fn lackey(text: &str) -> Result<Vec<Record>, TraceError> {
    all(Lackey::new(Path::new(FILE), text.as_bytes()))
}

fn says(result: Result<Vec<Record>, TraceError>, expected: &[&str]) {
    let said = result.expect_err("bad input is an error").to_string();
    for expected in expected {
        assert!(said.contains(expected), "'{said}' lacks '{expected}'");
    }
}

#[test]
fn plain_text_is_read() {
    let text = "# a comment\nR 7f001040\n\n  w 0X10\r\nW ffffffffffffffff";
    let expected = [(Kind::Read, 0x7f00_1040), (Kind::Write, 0x10), (Kind::Write, u64::MAX)];
    assert_eq!(plain(text).unwrap(), expected.map(|(kind, address)| record(kind, address, 1)));
}

#[test]
fn bad_plain_text_is_named_with_its_line() {
    for (text, expected) in [
        ("R 10\nX 20\n", &["some/file:2: 'X 20' is no access", "write R or W"][..]),
        ("R 10\n\nR\n", &["some/file:3:"]),
        ("R10\n", &["some/file:1:"]),
        ("R 10 20\n", &["some/file:1:"]),
        ("R 1ffffffffffffffff\n", &["some/file:1:"]),
        ("R -1\n", &["some/file:1:"]),
        ("", &["some/file: no access in it"]),
        ("# nothing\n\n", &["no access in it"]),
        (&"R".repeat(100_000), &["some/file:1: longer than 4096 bytes"]),
        ("\u{89}GLTRACE\0\u{1}", &["some/file:1:", "'.GLTRACE"]),
    ] {
        says(plain(text), expected);
    }
    let missing = open(Path::new("/no/such/trace"), Some(Format::Plain)).err().unwrap().to_string();
    assert!(missing.contains("cannot read /no/such/trace"), "{missing}");
}

#[test]
fn lackey_text_is_read_as_the_cache_sees_it() {
    let text = "==12== Lackey, an example Valgrind tool\n\
                I  04001f30,3\n S 1ffefffe58,8\nI  04001f33,5\nI  04001f3e,4\n L 0000003c,8\n M 00000100,4\n\
                --12-- a message\nI  04002000,2\nI  04002002,2\n L 10,1\n";
    let expected = [
        record(Kind::Fetch, 0x0400_1f30, 1),
        record(Kind::Write, 0x1f_feff_fe58, 0),
        // The second is in the first one's line, the third reaches into the next.
        record(Kind::Fetch, 0x0400_1f40, 2),
        // A load that straddles two lines is one of each.
        record(Kind::Read, 0x3c, 0),
        record(Kind::Read, 0x40, 0),
        record(Kind::Read, 0x100, 0),
        record(Kind::Write, 0x100, 0),
        record(Kind::Fetch, 0x0400_2000, 1),
        record(Kind::Read, 0x10, 1),
    ];
    let records = lackey(text).unwrap();
    assert_eq!(records, expected);
    assert_eq!(records.iter().map(|record| record.instructions).sum::<u32>(), 5);
}

#[test]
fn bad_lackey_text_is_named_with_its_line() {
    for (text, expected) in [
        ("I  04001f30,3\nhello\n", &["some/file:2: 'hello' is no line of lackey's", "--trace-mem=yes"][..]),
        (" L 04025cd8\n", &["some/file:1:"]),
        (" L 04025cd8,0\n", &["some/file:1:"]),
        (" L 04025cd8,99999999\n", &["some/file:1:"]),
        (" Q 04025cd8,8\n", &["some/file:1:"]),
        ("==1== only talk\n", &["no access in it"]),
    ] {
        says(lackey(text), expected);
    }
    // The end of the address space is no endless loop.
    assert_eq!(lackey(" L ffffffffffffffff,8\n").unwrap().len(), 1);
}

fn recorded(records: &[Record]) -> Vec<u8> {
    let mut recorder = Recorder::new(Path::new(FILE), Vec::new()).unwrap();
    for record in records {
        recorder.push(*record).unwrap();
    }
    recorder.finish().unwrap()
}

fn played(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    all(Recording::new(Path::new(FILE), bytes)?)
}

fn sample(records: u64) -> Vec<Record> {
    all(Synthetic::new(Profile::cache_friendly(), 0x7f00_0000_0000, 1, records).unwrap()).unwrap()
}

fn any_record() -> impl Strategy<Value = Record> {
    let kind = prop_oneof![Just(Kind::Read), Just(Kind::Write), Just(Kind::Fetch)];
    (any::<u64>(), any::<u32>(), kind).prop_map(|(address, instructions, kind)| record(kind, address, instructions))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_recording_plays_back_what_was_recorded(records in prop::collection::vec(any_record(), 1..500)) {
        prop_assert_eq!(played(&recorded(&records)).unwrap(), records);
    }

    #[test]
    fn no_damage_goes_unnoticed(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let records = sample(3000);
        let mut bytes = recorded(&records);
        // The reserved bytes mean nothing yet.
        let at = at.index(bytes.len());
        prop_assume!(!(10..12).contains(&at));
        bytes[at] ^= 1 << bit;
        // Some bits of a zstd frame only pad its bit streams: without them the very same accesses come out.
        prop_assert!(played(&bytes).map_or(true, |played| played == records), "byte {}", at);
    }

    #[test]
    fn no_recording_that_was_cut_short_is_taken_for_a_whole_one(at in any::<prop::sample::Index>()) {
        let bytes = recorded(&sample(3000));
        let error = played(&bytes[..at.index(bytes.len())]).unwrap_err().to_string();
        prop_assert!(error.contains("cut short") || error.contains("not a recording"), "{}", error);
    }
}

#[test]
fn a_long_recording_is_compact_and_comes_in_blocks() {
    let records = sample(200_000);
    let bytes = recorded(&records);
    assert!(bytes.len() < records.len() * 4, "{} bytes for {} records", bytes.len(), records.len());
    assert_eq!(played(&bytes).unwrap(), records);
}

#[test]
fn bad_recordings_are_named() {
    let good = recorded(&sample(100));
    let patched = |at: usize, bytes: &[u8]| {
        let mut patched = good.clone();
        patched[at..at + bytes.len()].copy_from_slice(bytes);
        patched
    };
    for (bytes, expected) in [
        (Vec::new(), "some/file, byte 0: the file ends within its header"),
        (b"R 7f001040\nW 7f001040\n".to_vec(), "byte 0: not a recording of Gleaner's"),
        (patched(8, &[2, 0]), "byte 8: version 2"),
        (patched(12, &[10, 11, 12, 13]), "big-endian"),
        (patched(12, &[0; 4]), "the header is damaged"),
        (patched(16, &[255; 4]), "byte 16: a block of 4294967295 bytes"),
        (patched(20, &[255; 4]), "4294967295 accesses cannot be"),
        (patched(20, &[99, 0, 0, 0]), "more than its accesses"),
        (patched(20, &[101, 0, 0, 0]), "something that is no access"),
        ([good.clone(), good.clone()].concat(), "something follows the end"),
        (recorded(&[]), "no access in it"),
    ] {
        says(played(&bytes), &[expected]);
    }
    // Two recordings with a block of one left out.
    let long = recorded(&sample(140_000));
    let block_bytes = |at: usize| 8 + u32::from_le_bytes(long[at..at + 4].try_into().unwrap()) as usize;
    let second = 16 + block_bytes(16);
    let lost = [&long[..16], &long[second..]].concat();
    says(played(&lost), &["its end promises 140000 accesses, 74464 were there"]);
}

#[test]
fn a_recorder_that_was_killed_leaves_an_error_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.glt");
    let mut recorder = Recorder::create(&path).unwrap();
    for record in sample(70_000) {
        recorder.push(record).unwrap();
    }
    drop(recorder);
    assert!(is_recording(&path).unwrap());
    says(Recording::open(&path).and_then(all), &["trace.glt", "its recorder was killed"]);
    let mut recorder = Recorder::create(&path).unwrap();
    recorder.push(record(Kind::Read, 1, 1)).unwrap();
    recorder.finish().unwrap();
    assert_eq!(all(Recording::open(&path).unwrap()).unwrap().len(), 1);
    std::fs::write(&path, &MAGIC[..5]).unwrap();
    assert!(!is_recording(&path).unwrap());
}

#[test]
fn a_trace_can_be_repeated_and_an_empty_one_stays_over() {
    let open = |records: u64| move || Ok(Records(sample(records).into_iter()));
    let mut repeated = Repeat::new(open(5000)).unwrap();
    let mut records = Vec::new();
    while records.len() < 12_000 {
        repeated.fill(&mut records).unwrap();
    }
    assert_eq!(records[5000..10_000], records[..5000]);
    assert_eq!(all(Repeat::new(open(0)).unwrap()).unwrap(), []);
}

#[test]
fn a_synthetic_trace_has_the_profile_it_was_given() {
    let profile = Profile {
        bands: vec![
            Band { weight: 2.0, from_lines: 0, to_lines: 9 },
            Band { weight: 1.0, from_lines: 100, to_lines: 299 },
            Band { weight: 1.0, from_lines: 1_999, to_lines: 1_999 },
        ],
        footprint_lines: 2_000,
        accesses_per_instruction: 0.4,
        store_ratio: 0.3,
    };
    let records = all(Synthetic::new(profile.clone(), 0x1000, 11, 40_000).unwrap()).unwrap();
    assert_eq!(records, all(Synthetic::new(profile, 0x1000, 11, 40_000).unwrap()).unwrap(), "the same seed");
    let mut stack: Vec<u64> = Vec::new();
    let mut shares = [0_u32; 4];
    for record in &records {
        let line = record.address / 64;
        let distance = stack.iter().position(|other| *other == line);
        distance.map(|distance| stack.remove(distance));
        stack.insert(0, line);
        let band = match distance {
            Some(0..10) => 0,
            Some(100..300) => 1,
            Some(1_999) => 2,
            Some(other) => panic!("distance {other} is in no band"),
            None => 3,
        };
        shares[band] += 1;
    }
    assert_eq!(shares[3], 2_000, "every line is used for the first time once");
    for (share, expected) in shares.into_iter().zip([20_000, 10_000, 8_000]) {
        assert!(share.abs_diff(expected) < 700, "{shares:?}");
    }
    let instructions: u64 = records.iter().map(|record| u64::from(record.instructions)).sum();
    assert_eq!(instructions, 100_000);
    let stores = records.iter().filter(|record| record.kind == Kind::Write).count();
    assert!(stores.abs_diff(12_000) < 600, "{stores}");
}

#[test]
fn impossible_profiles_are_named() {
    let good = Profile::cpu_bound();
    let band = good.bands[0];
    let with = |bands| Profile { bands, ..good.clone() };
    for (profile, expected) in [
        (with(vec![]), "no band"),
        (with(vec![Band { weight: f64::NAN, ..band }]), "weight is NaN"),
        (with(vec![Band { from_lines: 9, to_lines: 3, ..band }]), "from 9 to 3 lines"),
        (Profile { footprint_lines: 0, ..good.clone() }, "a footprint of 0 lines"),
        (Profile { footprint_lines: u64::MAX, ..good.clone() }, "a footprint of 18446744073709551615"),
        (Profile { accesses_per_instruction: 0.0, ..good.clone() }, "0 accesses per instruction"),
        (Profile { store_ratio: 1.5, ..good.clone() }, "a share of stores of 1.5"),
    ] {
        let said = Synthetic::new(profile, 0, 1, 1).err().unwrap().to_string();
        assert!(said.contains(expected), "'{said}' lacks '{expected}'");
    }
}

/// ChampSim's record of one instruction.
fn champsim(ip: u64, written: u64, read: u64) -> Vec<u8> {
    [&ip.to_le_bytes()[..], &[0; 8], &written.to_le_bytes(), &[0; 8], &read.to_le_bytes(), &[0; 24]].concat()
}

#[test]
fn files_are_told_apart_by_their_content_packed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |bytes: &[u8]| {
        let path = folder.path().join("trace");
        std::fs::write(&path, bytes).unwrap();
        open(&path, None).and_then(all)
    };
    let (fetch, read, write) =
        (record(Kind::Fetch, 0x40_1000, 1), record(Kind::Read, 0x7fff_0000, 0), record(Kind::Write, 0x7fff_1000, 0));
    let champ = champsim(0x40_1000, 0x7fff_1000, 0x7fff_0000);
    let view = "Output format:\n<--record#-> <--instr#->: <---tid---> <record details>\n-----\n\
                1 0: 27 <marker: version 5>\n2 1: 27 ifetch 5 byte(s) @ 0x0000000000401000 48 8b\n        5c 24 mov\n\
                3 1: 27 read 8 byte(s) @ 0x000000007fff0000 by PC 0x401000\n4 1: 27 write 8 byte(s) @ 0x7fff1000 by PC 0x1\n";
    let lackey = "==1== Lackey\nI  00401000,3\n L 7fff0000,8\n S 7fff1000,8\n";
    for bytes in [&champ[..], view.as_bytes(), lackey.as_bytes(), &recorded(&[fetch, read, write])] {
        assert_eq!(opened(bytes).unwrap(), [fetch, read, write]);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, bytes).unwrap();
        let packed = gzip.finish().unwrap();
        assert_eq!(opened(&packed).unwrap(), [fetch, read, write]);
        assert!(opened(&packed[..packed.len() - 9]).is_err(), "a cut one is no shorter trace");
        assert_eq!(opened(&zstd::encode_all(bytes, 1).unwrap()).unwrap(), [fetch, read, write]);
    }
    assert_eq!(opened(b"# words\nR 10\n").unwrap(), [record(Kind::Read, 0x10, 1)]);
    // The program goes on within the line that was fetched.
    let two = [champ.clone(), champsim(0x40_1004, 0, 0x10)].concat();
    assert_eq!(opened(&two).unwrap()[3..], [record(Kind::Read, 0x10, 1)]);
}

#[test]
fn bad_files_of_other_programs_are_named() {
    let view = |second: &str| format!("1 0: 27 <marker: version 5>\n{second}\n");
    for (bytes, expected) in [
        (champsim(0x4010_0000_0000_0000, 0, 0), "big-endian"),
        (champsim(0x4010_0000_0000_0001, 0, 0), "damaged, or no trace of ChampSim's"),
        (champsim(0x40_1000, 0, 0x10)[..60].to_vec(), "no trace that is known here"),
        ([champsim(0x40_1000, 0, 0x10), vec![0; 7]].concat(), "byte 64: the file ends 7 bytes into an instruction"),
        (view("3 1: 27 read 8 byte(s) @ 0x10 by PC 0x1").into_bytes(), "record 3 follows record 1: lines are missing"),
        (view("2 1: 27 read x byte(s) @ 0x10").into_bytes(), "is no line of the view's"),
        (view("2 1: 27 <marker: tid 27 on core 3>").into_bytes(), "no access in it"),
        (Vec::new(), "no access in it; it is empty"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, bytes).unwrap();
        says(open(&path, None).and_then(all), &[expected]);
    }
}
