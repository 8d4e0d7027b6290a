//! Traces: what lackey wrote is read whole or refused; made-up ones have their profile.

use gleaner_cachesim::trace::lackey::Lackey;
use gleaner_cachesim::trace::synthetic::{Band, Profile, Synthetic};
use gleaner_cachesim::trace::{Kind, Record, Records, Repeat, Trace, TraceError};
use std::fs;
use std::path::Path;

const FILE: &str = "some/file";

fn all(mut trace: impl Trace) -> Result<Vec<Record>, TraceError> {
    let mut records = Vec::new();
    let mut before = usize::MAX;
    while before != records.len() {
        before = records.len();
        trace.fill(&mut records)?;
    }
    Ok(records)
}

fn record(kind: Kind, address: u64, instructions: u32) -> Record {
    Record { address, instructions, kind }
}

fn sample(records: u64) -> Vec<Record> {
    (0..records).map(|number| record(Kind::Read, number * 64, 1)).collect()
}

fn lackey(text: &str) -> Result<Vec<Record>, TraceError> {
    all(Lackey::new(Path::new(FILE), text.as_bytes()))
}

fn says(result: Result<Vec<Record>, TraceError>, expected: &[&str]) {
    let said = result.expect_err("it should be refused").to_string();
    for words in expected {
        assert!(said.contains(words), "'{said}' lacks '{words}'");
    }
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

#[test]
fn text_whose_last_line_was_cut_is_refused() {
    says(lackey(" L 10,8\n L 2"), &["some/file:2:", "cut short"]);
    says(lackey(" L 10,8\n L 20,8"), &["some/file:2:", "cut short"]);
    // Data without instructions count one each.
    assert_eq!(lackey(" L 10,8\n S 50,8\n").unwrap(), [record(Kind::Read, 0x10, 1), record(Kind::Write, 0x50, 1)]);
}

#[test]
fn a_packed_recording_is_read_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.lackey.zst");
    let lines: Vec<String> = (0..20_000).map(|line| format!(" L {:x},1\n", line * 64)).collect();
    let text = lines.concat();
    let packed = {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::copy(&mut text.as_bytes(), &mut encoder).unwrap();
        encoder.finish().unwrap()
    };
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Lackey::open(&path).and_then(all)
    };
    assert_eq!(read(&packed).unwrap(), sample(20_000));
    for cut in [0, 1, packed.len() / 2, packed.len() - 1] {
        says(read(&packed[..cut]), &["program.lackey.zst"]);
    }
    for byte in [4, packed.len() / 2, packed.len() - 1] {
        let mut damaged = packed.clone();
        damaged[byte] ^= 0x55;
        assert!(read(&damaged).is_err(), "byte {byte}");
    }
    says(read(text.as_bytes()), &["program.lackey.zst"]);
    says(Lackey::open(Path::new("/no/such/trace")).map(|_| Vec::new()), &["cannot read /no/such/trace"]);
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
