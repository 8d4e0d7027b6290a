//! Traces as the tools that make them write them, on whatever machine: all of it is read, or what is wrong is named.

#![allow(clippy::items_after_statements, clippy::too_many_lines, reason = "tables of cases")]

use gleaner_cachesim::core_model::CoreConfig;
use gleaner_cachesim::hierarchy::HierarchyConfig;
use gleaner_cachesim::machine::{ContextConfig, Machine, MachineConfig, SWITCH_CYCLES};
use gleaner_cachesim::paging::PagingConfig;
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::trace::{Kind, Record, Repeat, Shared, Trace, TraceError, open, open_endless};
use proptest::prelude::*;
use std::io::Write;
use std::path::Path;

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

/// A file with these bytes, opened as what it looks like.
fn opened(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, bytes).unwrap();
    open(&path, None).and_then(all)
}

fn read(address: u64, instructions: u32) -> Record {
    Record { address, instructions, kind: Kind::Read }
}

fn fetch(address: u64) -> Record {
    Record { address, instructions: 1, kind: Kind::Fetch }
}

fn says(bytes: &[u8], expected: &str) {
    let said = opened(bytes).expect_err(expected).to_string();
    assert!(said.contains(expected), "'{said}' lacks '{expected}'");
}

const HEADER: &str = "Output format:\n<--record#-> <--instr#->: <---tid---> <record details>\n\
                      ------------------------------------------------------------\n";
const DASHES: &str = "------------------------------------------------------------\n";

fn fetched(record: u64, address: u64) -> String {
    format!(
        "{record:>12} {:>11}: {:>11} ifetch       4 byte(s) @ 0x{address:016x} 48 8b 04 25              mov\n",
        1, 4242
    )
}

fn loaded(record: u64, address: u64) -> String {
    format!("{record:>12} {:>11}: {:>11} read         8 byte(s) @ 0x{address:016x} by PC 0x0000000000401000\n", 1, 4242)
}

fn told(record: u64, what: &str) -> String {
    format!("{record:>12} {:>11}: {:>11} {what}\n", 1, 4242)
}

/// What follows the first load of a view; the accesses to 0x8000 and what is between them have to be read.
#[test]
fn views_are_read_whatever_is_in_them() {
    let start = format!("{HEADER}{}{}", told(1, "<marker: version 6>"), loaded(2, 0x7000));
    let end = |record| loaded(record, 0x8000);
    let injected = fetched(3, 0xdead_be00);
    for (what, middle, between) in [
        (
            "a system call's instructions, which were not in the file, have the number before theirs",
            [
                told(3, "<marker: system call 39>"),
                told(3, "<marker: trace start for system call number 39>"),
                injected.clone(),
                told(3, "<marker: trace end for system call number 39>"),
                end(4),
            ],
            vec![fetch(0xdead_be00)],
        ),
        (
            "a context switch's, and one of the kernel's addresses",
            [
                told(3, "<marker: trace start for context switch type 1>"),
                fetched(3, 0xffff_ffff_8000_0000),
                told(3, "<marker: trace end for context switch type 1>"),
                String::new(),
                end(4),
            ],
            vec![fetch(0xffff_ffff_8000_0000)],
        ),
        (
            "a long instruction's further bytes have its number again",
            [
                fetched(3, 0x40_2000),
                "           3           1:        4242                                            00 00 00\n"
                    .to_owned(),
                end(4),
                String::new(),
                String::new(),
            ],
            vec![fetch(0x40_2000)],
        ),
        (
            "where the view skipped something it drew a line",
            [DASHES.to_owned(), told(900, "<marker: timestamp 13>"), end(901), String::new(), String::new()],
            vec![],
        ),
        (
            "markers of any kind, those that nobody knows yet too",
            [
                told(3, "<marker: type 77; value 5>"),
                told(4, "<marker: physical address for following virtual: 0x10>"),
                told(5, "<marker: window 1>"),
                end(6),
                String::new(),
            ],
            vec![],
        ),
        (
            "prefetches, flushes, entries of no known type",
            [
                told(3, "pref-r-L1-NT 1 byte(s) @ 0x0000000000007777 by PC 0x0000000000401000"),
                told(4, "iflush      64 byte(s) @ 0x0000000000007777 by PC 0x1"),
                told(5, "<entry type 46>"),
                told(6, "<thread 4242 exited>"),
                end(7),
            ],
            vec![],
        ),
        (
            "an access without bytes, all elements of which are masked",
            [
                told(3, "read         0 byte(s) @ 0x0000000000007100 by PC 0x0000000000401000"),
                end(4),
                String::new(),
                String::new(),
                String::new(),
            ],
            vec![read(0x7100, 0)],
        ),
        (
            "instructions that cannot be disassembled",
            [
                told(3, "ifetch       2 byte(s) @ 0x0000000000403000 untaken conditional jump"),
                end(4),
                String::new(),
                String::new(),
                String::new(),
            ],
            vec![fetch(0x40_3000)],
        ),
        (
            "a view of another file after this one",
            [HEADER.to_owned(), told(1, "<marker: version 6>"), end(2), String::new(), String::new()],
            vec![],
        ),
        (
            "threads that are numbered each by itself",
            [DASHES.to_owned(), told(1, "x").replace("4242", "4243"), DASHES.to_owned(), end(3), String::new()],
            vec![],
        ),
        (
            "the program's own words, in whatever encoding, and the view's last ones",
            [
                "Gr\u{fc}\u{df}e: ja\n".to_owned(),
                "1: 2\n".to_owned(),
                end(3),
                "View tool results:\n".to_owned(),
                "              1 : total instructions\n".to_owned(),
            ],
            vec![],
        ),
    ] {
        let records =
            opened(format!("{start}{}", middle.concat()).as_bytes()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected = [vec![read(0x7000, 0)], between, vec![read(0x8000, 0)]].concat();
        assert_eq!(records, expected, "{what}");
    }
}

#[test]
fn older_views_and_smaller_programs_are_read() {
    let old = "Output format:\n<record#>: T<tid> <record details>\n------------------------------------------------------------\n\
               \x20     1: T1045293 <marker: version 3>\n      2: T1045293 ifetch       3 byte(s) @ 0x0804a050 89 e0 mov\n\
               \x20     3: T1045293 read         4 byte(s) @ 0xffa01040 by PC 0x0804a050\n";
    assert_eq!(opened(old.as_bytes()).unwrap(), [fetch(0x0804_a050), read(0xffa0_1040, 0)]);
    let workloads =
        loaded(1, 0x10).replace("       4242", "W0.T4242") + &loaded(2, 0x20).replace("       4242", "W1.T4242");
    assert_eq!(opened(workloads.as_bytes()).unwrap(), [read(0x10, 0), read(0x20, 0)]);
}

#[test]
fn views_that_lack_lines_are_refused() {
    let start = format!("{HEADER}{}", loaded(2, 0x7000));
    for (end, said) in [
        (loaded(4, 0x8000), "record 4 follows record 2: lines are missing"),
        (loaded(1, 0x8000), "record 1 follows record 2"),
        (format!("{}{}", told(3, "<marker: window 1>"), loaded(900, 0x8000)), "record 900 follows record 3"),
        (loaded(3, 0x8000).trim_end().to_owned(), "no line feed at its end"),
        (loaded(3, 0x8000)[..50].to_owned(), "no line feed at its end"),
        ("           3".to_owned(), "no line feed at its end"),
    ] {
        says(format!("{start}{end}").as_bytes(), said);
    }
}

#[test]
fn lackeys_text_is_read_from_any_valgrind() {
    let plain = "I  04001000,3\n L 1ffefffe58,8\n";
    let expected = [fetch(0x0400_1000), read(0x1f_feff_fe58, 0)];
    for (what, text) in [
        ("upper case", "I  04001000,3\n L 1FFEFFFE58,8\n".to_owned()),
        ("0x", "I  0x4001000,3\n L 0x1ffefffe58,8\n".to_owned()),
        ("line ends of Windows, and empty lines", format!("\r\n{}\r\n", plain.replace('\n', "\r\n"))),
        ("superblocks", format!("SB 04001000\n{plain}SB 04001003\n")),
        ("times", format!("==00:00:00:00.123 77== Lackey\n{plain}==00:00:00:01.000 77== Exit code: 0\n")),
        ("words in any encoding", format!("==1== Command: ./gr\u{f6}\u{df}e\n{plain}")),
        (
            "instructions that valgrind does not know",
            format!("{plain}vex amd64->IR: unhandled instruction bytes: 0xC5\nvex amd64->IR:   REX=0\n"),
        ),
        ("and on Arm", format!("disInstr(arm): unhandled instruction: 0xF57F\n{plain}")),
        ("the listener's numbers", "(1) I  04001000,3\n(1) ==7== a message\n(1)  L 1ffefffe58,8\n".to_owned()),
        ("valgrind 3.1", "  instr : 0x04001000, 3\n  load  : 0x1FFEFFFE58, 8\n".to_owned()),
        ("a mark before UTF-8", format!("\u{feff}{plain}")),
        ("what the program printed before", format!("starting\n{plain}").replace("starting\n", "==1== starting\n")),
    ] {
        assert_eq!(opened(text.as_bytes()).unwrap_or_else(|error| panic!("{what}: {error}")), expected, "{what}");
    }
    for (text, said) in [("I  04001000,3\n L 1ffe", "no line feed"), ("I  04001000,3\nSBx\n", "is no line of lackey's")]
    {
        says(text.as_bytes(), said);
    }
}

#[test]
fn data_without_instructions_count_one_each() {
    let expected = [read(0x1000, 1), read(0x2000, 1)];
    assert_eq!(opened(b" L 00001000,8\n L 00002000,8\n").unwrap(), expected);
}

#[test]
fn half_an_address_is_no_access() {
    says(b"R 7f001040\nR 7f00", "trace:2: 'R 7f00', the last line, has no line feed");
    assert_eq!(opened(b"R 7f001040\nR 7f001048\n").unwrap().len(), 2);
    // Nothing can follow sixteen digits.
    assert_eq!(opened(b"R 7f001040\nR 00007f0000001048").unwrap().len(), 2);
}

/// ChampSim's record of an instruction that loads, of so many bytes.
fn champsim(bytes: usize, ip: u64, load: u64) -> Vec<u8> {
    let read_at = match bytes {
        64 | 72 => 32,
        96 => 56,
        other => panic!("{other}"),
    };
    let mut record = vec![0; bytes];
    record[..8].copy_from_slice(&ip.to_le_bytes());
    record[read_at..read_at + 8].copy_from_slice(&load.to_le_bytes());
    record
}

#[test]
fn champsims_traces_are_read_from_any_machine() {
    for (what, ip, load) in [
        ("x86-64", 0x40_1000, 0x7fff_0000_0000),
        ("five-level page tables", 0x40_1000, 0x00f0_0000_0000_0000),
        ("AArch64, 48 bits", 0xaaaa_d123_0004, 0xffff_8000_0000),
        ("AArch64, 52 bits", 0x000f_aaaa_d123_0004, 0x000f_ffff_8000_0000),
        ("AArch64, tagged", 0xaaaa_d123_0004, 0xb400_ffff_8000_0000),
        ("the kernel's", 0xffff_ffff_8100_0000, 0xffff_8880_0000_0000),
        ("RISC-V", 0x2a_aaaa_b000, 0x3f_ffff_f000),
    ] {
        for bytes in [64, 72, 96] {
            let trace: Vec<u8> = (0..100).flat_map(|n| champsim(bytes, ip + 4 * n, load + 64 * n)).collect();
            let records = opened(&trace).unwrap_or_else(|error| panic!("{what}, {bytes} bytes: {error}"));
            let loads = records.iter().filter(|record| record.kind == Kind::Read).map(|record| record.address);
            assert_eq!(
                loads.collect::<Vec<_>>(),
                (0..100).map(|n| load + 64 * n).collect::<Vec<_>>(),
                "{what}, {bytes}"
            );
            assert_eq!(records.iter().map(|record| record.instructions).sum::<u32>(), 100, "{what}, {bytes} bytes");
        }
    }
    // A big-endian machine's, whose addresses have zeros at the wrong end.
    let big: Vec<u8> = (0..10_u64).flat_map(|n| champsim(64, (0x40_1000 + 4 * n).swap_bytes(), 0)).collect();
    says(&big, "big-endian");
}

fn packings(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz.write_all(bytes).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(
        lz4_flex::frame::FrameInfo::new().content_checksum(true),
        Vec::new(),
    );
    lz4.write_all(bytes).unwrap();
    let zip = |method| {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file("trace.txt", options).unwrap();
        zip.write_all(bytes).unwrap();
        zip.finish().unwrap().into_inner()
    };
    vec![
        ("gzip", gzip.finish().unwrap()),
        ("zstd", zstd::encode_all(bytes, 1).unwrap()),
        ("bzip2", bz.finish().unwrap()),
        ("lz4", lz4.finish().unwrap()),
        ("zip", zip(zip::CompressionMethod::Deflated)),
        ("stored zip", zip(zip::CompressionMethod::Stored)),
    ]
}

#[test]
fn packed_traces_are_read_and_cut_ones_are_not() {
    let text: String = (0..5_000).fold(String::new(), |text, n| text + &format!("R {:x}\n", n * 64));
    let view: String = (1..2_000).map(|n| loaded(n, n * 64)).collect();
    for trace in [text.as_bytes(), view.as_bytes()] {
        let expected = opened(trace).unwrap();
        for (what, packed) in packings(trace) {
            assert_eq!(opened(&packed).unwrap_or_else(|error| panic!("{what}: {error}")), expected, "{what}");
            for cut in [1, 3, packed.len() / 2] {
                assert!(opened(&packed[..packed.len() - cut]).is_err(), "{what}, cut by {cut}");
            }
            // Where packed files follow one another, their tools unpack them as one.
            if !what.contains("zip") || what == "gzip" {
                assert_eq!(opened(&[&packed[..], &packed].concat()).map(|all| all.len()).ok(), twice(trace), "{what}");
            }
        }
    }
    // What xz makes of two accesses.
    const LZMA: &[u8] = b"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x29\x08\x02\x23\x1f\xe0\xb5\x2e\x9b\x82\x47\xfe\x94\xf6\xff\xff\x88\x44\x00\x00";
    const XZ: &[u8] = b"\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\x01\x00\x09\x52\x20\x31\x30\x0a\x57\x20\x32\x30\x0a\x00\x00\x00\xef\xcc\x6c\x12\x9a\x89\xe5\x6e\x00\x01\x22\x0a\x15\x1a\xe1\x67\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a";
    for packed in [LZMA, XZ] {
        assert_eq!(opened(packed).unwrap().len(), 2);
    }
    assert!(opened(&XZ[..XZ.len() - 4]).is_err());
}

fn twice(trace: &[u8]) -> Option<usize> {
    opened(&[trace, trace].concat()).map(|all| all.len()).ok()
}

#[test]
fn what_is_no_trace_is_called_by_its_name() {
    let zip = |names: &[&str]| {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in names {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(b"R 10\n").unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    let mut tar = vec![b'x'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let drmemtrace: Vec<u8> = [&b"\x19\0\0\0\x06\0\0\0\0\0\0\0"[..], &[0x1c; 60]].concat();
    for (bytes, said) in [
        (zip(&["a", "b"]), "a zip archive of 2 files"),
        (zip(&[]), "a zip archive without a file"),
        (tar, "a tar archive"),
        (b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "a 7z archive"),
        (b"\xff\xfeR\0 \x001\0\n\0".to_vec(), "UTF-16"),
        (drmemtrace, "DynamoRIO's own"),
        (b"PERFILE2\0\0\0\0".to_vec(), "perf's"),
        (b"\x02\x21\x4c\x18\0\0\0\0".to_vec(), "legacy"),
        (b"\x01\x02\x03".to_vec(), "no trace that is known here"),
    ] {
        says(&bytes, said);
    }
    let folder = tempfile::tempdir().unwrap();
    let said = open(folder.path(), None).err().unwrap().to_string();
    assert!(said.contains("it is a folder") && said.contains("-indir"), "{said}");
}

#[test]
fn a_long_pipe_is_read_once_and_says_so_and_a_short_one_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let written = |lines: usize| {
        let pipe = pipe.clone();
        // Whoever reads may leave before the end.
        std::thread::spawn(move || std::fs::write(pipe, "R 10\n".repeat(lines)).is_ok())
    };
    let records_of = |trace: &mut dyn Trace, most: usize| {
        let mut records = Vec::new();
        while records.len() < most {
            trace.fill(&mut records)?;
        }
        Ok::<usize, TraceError>(records.len())
    };
    let writer = written(3);
    let mut short = open_endless(&pipe, None).unwrap();
    assert!(records_of(&mut *short, 100).unwrap() >= 100);
    assert!(writer.join().unwrap());
    let writer = written(300_000);
    let mut long = open_endless(&pipe, None).unwrap();
    let error = records_of(&mut *long, 400_000).unwrap_err();
    assert!(writer.join().unwrap());
    assert!(matches!(error, TraceError::Once { .. }) && error.to_string().contains("--once"), "{error}");
    // A file starts over.
    let file = folder.path().join("file");
    std::fs::write(&file, "R 10\n".repeat(300_000)).unwrap();
    assert!(records_of(&mut *open_endless(&file, None).unwrap(), 700_000).is_ok());
}

fn machine(trace: Box<dyn Trace>, slice_cycles: u64) -> Machine {
    let config = MachineConfig {
        hierarchy: HierarchyConfig::table_v(1, 1, PolicyKind::Lru).unwrap(),
        paging: PagingConfig::default(),
        contexts: vec![ContextConfig { core: 0, core_model: CoreConfig::default() }],
        slice_cycles,
        switch_cycles: SWITCH_CYCLES,
    };
    Machine::new(config, vec![trace]).unwrap()
}

/// Ten loads that miss, over and over, without an instruction among them: time has to pass all the same.
#[test]
fn time_passes_without_instructions_and_beyond_all_bounds() {
    for instructions in [0, u32::MAX] {
        let records: Vec<Record> = (0..10).map(|n| read(0x10_0000 + n * 4096, instructions)).collect();
        let again = records.clone();
        let endless = Repeat::new(move || Ok(Shared::new(again.clone()))).unwrap();
        let mut machine = machine(Box::new(endless), 3_400);
        machine.run_quanta(3).unwrap();
        assert!(machine.outcome().contexts[0].instructions > 0);
        assert!(machine.outcome().contexts[0].quanta >= 3);
    }
    let mut clock = gleaner_cachesim::core_model::CoreClock::new(CoreConfig::default());
    (0..4).for_each(|_| clock.execute(u64::MAX / 2));
    clock.load(u64::MAX, true);
    clock.pass(u64::MAX);
    assert!(clock.has_reached(u64::MAX));
}

#[test]
fn a_machine_can_be_left_within_a_quantum() {
    let records: Vec<Record> = (0..1000).map(|n| read(n * 64, 1)).collect();
    let endless = || {
        let again = records.clone();
        Box::new(Repeat::new(move || Ok(Shared::new(again.clone()))).unwrap())
    };
    let mut left = machine(endless(), u64::MAX);
    let mut looks = 0;
    let whole = left.run_quanta_while(1, |accesses, _| {
        looks += 1;
        accesses < 100_000
    });
    assert!(!whole.unwrap());
    assert!((100_000..200_000).contains(&left.accesses()), "{}", left.accesses());
    assert!(looks >= 2 && left.outcome().contexts[0].instructions >= 100_000);
    // Looking changes nothing.
    let outcome = |looks: bool| {
        let mut machine = machine(endless(), 340_000);
        if looks { machine.run_quanta_while(3, |_, _| true).map(|_| ()) } else { machine.run_quanta(3) }.unwrap();
        machine.outcome()
    };
    assert_eq!(outcome(true), outcome(false));
}

fn samples() -> Vec<Vec<u8>> {
    let view = format!("{HEADER}{}{}{}", told(1, "<marker: version 6>"), fetched(2, 0x40_1000), loaded(3, 0x7000));
    let lackey = "==1== x\nI  04001000,3\n L 1ffefffe58,8\n S 10,4\n M 20,4\n".to_owned();
    let plain = "R 10\nW 7f001040\n".to_owned();
    let champ: Vec<u8> = (0..3).flat_map(|n| champsim(64, 0x40_1000 + n, 0x7000)).collect();
    let mut all: Vec<Vec<u8>> = [view, lackey, plain].map(String::into_bytes).into();
    all.extend([champ.clone(), champsim(96, 1, 2)]);
    all.extend(packings(&champ).into_iter().map(|(_, packed)| packed));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is done to a trace: it is read or refused, and that soon.
    #[test]
    fn no_bytes_break_the_readers(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let samples = samples();
        let mut bytes = samples[which.index(samples.len())].clone();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let records = opened(&bytes);
        if let Err(error) = records {
            prop_assert!(!error.to_string().chars().any(char::is_control), "{error}");
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let said = open(Path::new("/no/such/trace"), None).err().unwrap().to_string();
    assert!(said.contains("cannot read /no/such/trace"), "{said}");
}
