//! Files that are cut, changed or made up: what is readable is read, what is not is told with its place, and nothing
//! takes memory or time without a limit.

mod common;

use common::{read, recorded, records, windows};
use gleaner_capture::{CaptureError, Damage, Reader, Record, Replay, ReplayError};
use proptest::prelude::*;
use std::io::Cursor;

/// Reads and replays whatever is there; nothing may fail.
fn take_all(bytes: &[u8]) -> Vec<Result<Record, Damage>> {
    let Ok(reader) = Reader::new(Cursor::new(bytes)) else { return Vec::new() };
    let mut replay = Replay::new(None);
    let mut all = Vec::new();
    for next in reader {
        if let Ok(record) = &next {
            let _ = replay.feed(record);
        }
        all.push(next);
    }
    all
}

#[test]
fn a_file_cut_anywhere_gives_what_is_before_and_says_where_it_ends() {
    let (told, bytes) = recorded(1, 1, 60);
    let whole = records(&bytes).len();
    let (mut told_cut, step) = (0, bytes.len() / 300);
    let first = zstd::zstd_safe::find_frame_compressed_size(&bytes).unwrap();
    for end in (0..16).chain((16..bytes.len()).step_by(step)) {
        let cut = &bytes[..end];
        if end < first {
            assert!(matches!(Reader::new(Cursor::new(cut)), Err(CaptureError::NotACapture)), "{end}");
            continue;
        }
        let (records, damage) = read(cut);
        assert!(records.len() < whole);
        let found = windows(&records);
        assert_eq!(found, told.windows[..found.len()]);
        if let Some(damage) = damage {
            assert!(damage.offset < end as u64 && damage.what.contains("ends within"), "{damage}");
            assert_eq!(damage.record, records.len() as u64 + 1);
            told_cut += 1;
        }
    }
    assert!(told_cut > 150, "{told_cut}");
}

#[test]
fn a_changed_byte_is_noticed_and_what_is_before_it_is_read() {
    let (told, bytes) = recorded(2, 2, 100);
    let first = zstd::zstd_safe::find_frame_compressed_size(&bytes).unwrap();
    for at in (first..bytes.len()).step_by(bytes.len() / 200) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        take_all(&changed);
        let (records, damage) = read(&changed);
        let damage = damage.unwrap_or_else(|| panic!("byte {at} is another and nobody notices"));
        assert!(damage.offset <= at as u64 && damage.offset + (128 << 10) > at as u64, "{at}: {damage}");
        let found = windows(&records);
        assert_eq!(found, told.windows[..found.len()], "byte {at}");
    }
}

/// A frame as this program would write it, of any bytes.
fn frame(block: &[u8]) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(true).unwrap();
    compressor.compress(block).unwrap()
}

/// The first frame of a segment, with these records.
fn beginning(records: &[u8]) -> Vec<u8> {
    frame(&[&b"GLCAPT\r\n\x01"[..], records].concat())
}

fn file(frames: &[u8]) -> Vec<u8> {
    [&beginning(b"")[..], frames].concat()
}

#[test]
fn lengths_and_bombs_are_refused() {
    let bomb = frame(&vec![0; 512 << 20]);
    assert!(bomb.len() < 1 << 20);
    // One whose length its head does not tell.
    let mut streamed = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut streamed, &vec![0; 8 << 20]).unwrap();
    let before = peak_kib();
    for bytes in [
        file(&bomb),
        file(&streamed.finish().unwrap()),
        // A record that is longer than its frame, and one that is none.
        file(&frame(&u32::MAX.to_le_bytes())),
        file(&frame(&[1, 0, 0, 0, 99])),
        // A text of 2^35 bytes.
        file(&frame(&[7, 0, 0, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, 0x7f])),
        file(&frame(b"GLCAPT\r\n\x05")),
        file(b"no frame"),
        beginning(&[1, 0, 0, 0, 99]),
    ] {
        let all = take_all(&bytes);
        assert!(matches!(all[..], [Err(_)]), "{all:?}");
    }
    assert!(matches!(Reader::new(Cursor::new(&bomb)), Err(CaptureError::NotACapture)));
    let grown = peak_kib() - before;
    assert!(grown < 64 << 10, "{grown} KiB");
}

/// Records of one group after the other, compressed to nearly nothing; each is gone at once where `gone`.
fn groups(name: &[u8], gone: bool, count: u32) -> Vec<u8> {
    let varint = |mut number: usize| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).unwrap());
        bytes
    };
    let record = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat();
    let mut block = Vec::new();
    for number in 0..count {
        let number = varint(usize::try_from(number).unwrap());
        // At 0, with this name, policy and profile; no set-up, no state, no decision.
        block.extend(record(&[&[1][..], &number, &[0], &varint(name.len()), name, &[0, 0, 0, 0, 0]].concat()));
        if gone {
            block.extend(record(&[&[3][..], &number].concat()));
        }
    }
    frame(&block)
}

#[test]
fn groups_without_end_are_read_and_not_replayed() {
    let before = peak_kib();
    let name = vec![b'x'; 3 << 20];
    for (frames, repeated) in [
        (groups(&name[..1000], true, 4_000), 20),
        // Names of 3 MiB, in frames of a few hundred bytes.
        (groups(&name, true, 1), 30),
        // Groups that never end.
        (groups(b"", false, 12_000), 1),
    ] {
        assert!(frames.len() < 400 << 10, "{}", frames.len());
        let bytes = file(&frames.repeat(repeated));
        let mut replay = Replay::new(None);
        let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
        let error =
            reader.by_ref().find_map(|next| replay.feed(&next.unwrap_or_else(|damage| panic!("{damage}"))).err());
        assert!(matches!(error, Some(ReplayError::TooMuch)), "{error:?} after {} records", reader.records_read());
    }
    let grown = peak_kib() - before;
    assert!(grown < 256 << 10, "{grown} KiB");
}

/// The most memory that this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn other_files_are_no_captures() {
    for bytes in [&b""[..], b"GLCAPT\r\n\x01", b"GLTHRD\r\n\x01xxxxxxxxxxx", &[0; 100], &frame(b"something else")] {
        assert!(matches!(Reader::new(Cursor::new(bytes)), Err(CaptureError::NotACapture)));
    }
    let other = Reader::new(Cursor::new(frame(b"GLCAPT\r\n\x07"))).unwrap_err().to_string();
    assert!(other.contains("version 7"), "{other}");
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(cases(256))]

    /// Frames of any content: what no program has written, with every checksum right.
    #[test]
    fn frames_of_any_content_are_read_or_refused(
        blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 1..4),
        whole: bool,
    ) {
        let mut bytes = Vec::new();
        for block in blocks {
            // Half of them as records of the right length.
            let length = u32::try_from(block.len()).unwrap().to_le_bytes();
            let bytes_framed = if whole { [&length[..], &block].concat() } else { block.clone() };
            bytes.extend(frame(&bytes_framed));
        }
        take_all(&file(&bytes));
    }

    /// A true recording, changed in several places behind the checksums' back.
    #[test]
    fn records_that_were_changed_are_read_or_refused(
        seed in 0u64..8,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (_, bytes) = recorded(seed, 2, 40);
        let mut frames = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = zstd::zstd_safe::find_frame_compressed_size(rest).unwrap();
            let mut block = zstd::bulk::decompress(&rest[..length], 4 << 20).unwrap();
            // What a capture begins with stays.
            let kept = if frames.is_empty() { 9 } else { 0 };
            for (place, value) in &changes {
                let place = kept + place.index(block.len() - kept);
                block[place] = *value;
            }
            frames.extend(frame(&block));
            rest = &rest[length..];
        }
        take_all(&frames);
    }

    /// Bytes that are nothing at all.
    #[test]
    fn noise_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        take_all(&bytes);
        take_all(&file(&bytes));
    }
}
