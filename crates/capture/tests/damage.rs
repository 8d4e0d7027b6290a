//! Files that are cut, changed or made up: what is readable is read, what is not is told with its place, and nothing
//! takes memory or time without a limit.

mod common;

use common::{items, recorded, windows};
use gleaner_capture::{CaptureError, Damage, Item, Reader, Replay, ReplayError};
use proptest::prelude::*;
use std::io::Cursor;

fn damages(items: &[Item]) -> Vec<&Damage> {
    items.iter().filter_map(|item| if let Item::Damage(damage) = item { Some(damage) } else { None }).collect()
}

/// Reads and replays whatever is there; nothing may fail.
fn take_all(bytes: &[u8]) -> Vec<Item> {
    let Ok(reader) = Reader::new(Cursor::new(bytes)) else { return Vec::new() };
    let mut replay = Replay::new(None);
    let mut items = Vec::new();
    for item in reader {
        let _ = replay.feed(&item);
        items.push(item);
    }
    items
}

#[test]
fn a_file_cut_anywhere_gives_what_is_before_and_says_where_it_ends() {
    let (told, bytes) = recorded(1, 1, 60);
    let whole = items(&bytes).len();
    let (mut told_cut, step) = (0, bytes.len() / 300);
    for end in (0..16).chain((16..bytes.len()).step_by(step)) {
        let cut = &bytes[..end];
        match Reader::new(Cursor::new(cut)) {
            Err(error) => assert!(end < 8 && matches!(error, CaptureError::NotACapture), "{end}: {error}"),
            Ok(mut reader) => {
                let items: Vec<Item> = reader.by_ref().collect();
                assert!(!reader.is_finished() && items.len() < whole);
                let found = windows(&items);
                assert_eq!(found, told.windows[..found.len()]);
                let damages = damages(&items);
                assert!(damages.len() <= 1, "{damages:?}");
                if let Some(damage) = damages.first() {
                    assert!(damage.offset < end as u64 && damage.what.contains("ends within"), "{damage}");
                    assert_eq!(damage.record, items.len() as u64);
                    told_cut += 1;
                }
            }
        }
    }
    assert!(told_cut > 150, "{told_cut}");
}

#[test]
fn a_changed_byte_costs_its_frame_and_no_other() {
    let (told, bytes) = recorded(2, 2, 100);
    let whole = items(&bytes);
    for at in (9..bytes.len()).step_by(bytes.len() / 200) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        let items = take_all(&changed);
        let damages = damages(&items);
        assert!(!damages.is_empty(), "byte {at} is another and nobody notices");
        assert!(damages[0].offset <= at as u64 && damages[0].offset + (128 << 10) > at as u64, "{at}: {}", damages[0]);
        // What is left is what was there, in its order.
        let mut expected = told.windows.iter();
        for found in windows(&items) {
            assert!(expected.any(|window| *window == found), "byte {at}");
        }
        assert!(items.len() > whole.len() / 3, "byte {at}: {} of {}", items.len(), whole.len());
    }
}

#[test]
fn after_a_hole_nothing_is_said_of_decisions_until_a_state_is_known() {
    let (_, bytes) = recorded(4, 1, 300);
    let frames: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..at + 4] == *b"\xf1GF\n").collect();
    assert!(frames.len() > 10);
    // One frame is taken out of the middle.
    let hole = [&bytes[..frames[5] + 20], &bytes[frames[6]..]].concat();
    let outcomes = common::replayed(&items(&hole));
    assert!(outcomes.iter().any(|outcome| outcome.skipped > 0 && outcome.windows > 0), "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| outcome.differing == 0), "{outcomes:?}");
}

/// A frame as this program would write it, of any bytes, with lengths of one's choice.
fn frame(block: &[u8], payload: Option<u32>, length: Option<u32>) -> Vec<u8> {
    let compressed = zstd::bulk::compress(block, 1).unwrap();
    let lengths = [
        payload.unwrap_or(u32::try_from(compressed.len()).unwrap()),
        length.unwrap_or(u32::try_from(block.len()).unwrap()),
    ];
    let lengths: Vec<u8> = lengths.into_iter().flat_map(u32::to_le_bytes).collect();
    let checksum = crc32fast::hash(&[&lengths[..], &compressed].concat());
    [&b"\xf1GF\n"[..], &lengths, &checksum.to_le_bytes(), &compressed].concat()
}

fn file(frames: &[u8]) -> Vec<u8> {
    [&b"GLCAPT\r\n\x04"[..], frames].concat()
}

#[test]
fn lengths_and_bombs_are_refused() {
    let bomb = vec![0; 512 << 20];
    let bomb = zstd::bulk::compress(&bomb, 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    let with = |length: u32| {
        let lengths: Vec<u8> =
            [u32::try_from(bomb.len()).unwrap(), length].into_iter().flat_map(u32::to_le_bytes).collect();
        let checksum = crc32fast::hash(&[&lengths[..], &bomb].concat());
        file(&[&b"\xf1GF\n"[..], &lengths, &checksum.to_le_bytes(), &bomb].concat())
    };
    let before = peak_kib();
    for bytes in [
        with(1000),
        with(4 << 20),
        with(u32::MAX),
        file(&frame(b"x", Some(u32::MAX), None)),
        file(&frame(b"x", Some(0), None)),
        file(&frame(b"x", None, Some(0))),
        file(&frame(b"x", None, Some(4 << 20))),
        // A record that is longer than its frame, and one that is none.
        file(&frame(&u32::MAX.to_le_bytes(), None, None)),
        file(&frame(&[1, 0, 0, 0, 99], None, None)),
        // A text of 2^35 bytes.
        file(&frame(&[7, 0, 0, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, 0x7f], None, None)),
        file(b"GLCAPT\r\n\x05"),
        file(b"\xf1GF\n"),
    ] {
        let items = take_all(&bytes);
        assert!(matches!(items[..], [Item::Damage(_)]), "{items:?}");
    }
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
            block.extend(record(&[&[4][..], &number].concat()));
        }
    }
    frame(&block, None, None)
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
        let error = reader.by_ref().find_map(|item| match item {
            Item::Record(_) => replay.feed(&item).err(),
            Item::Damage(damage) => panic!("{damage}"),
        });
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
fn a_file_of_beginnings_ends_soon() {
    // Each promises four MiB, so each has to be looked at.
    let one = [&b"\xf1GF\n"[..], &(4_u32 << 20).to_le_bytes(), &(4_u32 << 20).to_le_bytes(), &[0; 4]].concat();
    let items = take_all(&file(&one.repeat(1 << 20)));
    assert!(!items.is_empty() && items.len() <= 100, "{}", items.len());
}

#[test]
fn other_files_are_no_captures() {
    for bytes in [&b""[..], b"GLCAPT\r", b"GLTHRD\r\n\x01xxxxxxxxxxx", &[0; 100]] {
        assert!(matches!(Reader::new(Cursor::new(bytes)), Err(CaptureError::NotACapture)));
    }
    let other = Reader::new(Cursor::new(b"GLCAPT\r\n\x07")).unwrap_err().to_string();
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
            bytes.extend(frame(&bytes_framed, None, None));
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
        let mut at = 9;
        while at < bytes.len() {
            let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let (payload, length) = (number(at + 4), number(at + 8));
            let mut block = zstd::bulk::decompress(&bytes[at + 16..at + 16 + payload], length).unwrap();
            for (place, value) in &changes {
                let place = place.index(block.len());
                block[place] = *value;
            }
            frames.extend(frame(&block, None, None));
            at += 16 + payload;
        }
        take_all(&file(&frames));
    }

    /// Bytes that are nothing at all.
    #[test]
    fn noise_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        take_all(&bytes);
        take_all(&file(&bytes));
    }
}
