//! `gleaner-lab cache record`, `run` and `classify`: what they find, and what they say to bad input.

mod common;

use common::{Said, comes_true, finish, lab};
use gleaner_cachesim::trace::recording::Recorder;
use gleaner_cachesim::trace::{Kind, Record, open};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The `cache` command with these arguments, in a folder of its own.
fn cache(folder: &Path, arguments: &[&str]) -> Said {
    finish(lab(["cache"]).args(arguments).current_dir(folder))
}

/// What is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().expect("a name of ours")).collect();
    names.sort_unstable();
    names
}

fn json(said: &Said) -> Value {
    let report = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error} in {said:#?}"));
    report
}

#[test]
fn a_cache_friendly_context_loses_beside_a_thrashing_one() {
    let folder = tempfile::tempdir().unwrap();
    let cpi = |arguments: &[&str]| {
        let all =
            [&["run", "--synthetic", "cache-friendly", "--warmup", "2", "--quanta", "2", "--json"], arguments].concat();
        let result = json(&cache(folder.path(), &all).with_status(0));
        assert_eq!(result["schema"], "gleaner.cache/1");
        result["contexts"][0]["cpi"].as_f64().unwrap()
    };
    let alone = cpi(&[]);
    let beside = cpi(&["--synthetic", "thrashing"]);
    let preserved = cpi(&["--synthetic", "thrashing", "--insertion", "lip"]);
    assert!(alone * 1.05 < beside, "alone {alone}, beside {beside}");
    assert!(preserved < beside, "insertion at LRU keeps some of it: {preserved}, {beside}");
}

#[test]
fn a_warm_up_is_no_result() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny"), "R 10\nR 2000\nW 10\n").unwrap();
    let run = |arguments: &[&str]| cache(folder.path(), &[&["run", "--slice", "10us"], arguments].concat());
    let once = ["--once", "--warmup", "2", "--quanta", "3", "--json"];
    run(&[&once[..], &["--trace", "tiny"]].concat()).with_status(2).saying("").naming(&[
        "the traces end within",
        "--warmup",
        "--once",
    ]);
    let result = json(&run(&[&once[..], &["--trace", "tiny", "--synthetic", "cpu-bound"]].concat()).with_status(0));
    assert_eq!(result["notes"][0], "tiny: its trace ended within the warm-up, so nothing of it counts");
    assert_eq!(result["notes"].as_array().unwrap().len(), 1, "{result:#}");
    let counted = |context: usize| &result["contexts"][context];
    assert_eq!((&counted(0)["cpi"], &counted(0)["quanta"]), (&Value::Null, &0.into()));
    assert_eq!((&counted(1)["quanta"], &counted(1)["trace_over"]), (&3.into(), &false.into()));
    let short = json(&run(&["--once", "--quanta", "3", "--trace", "tiny", "--json"]).with_status(0));
    assert_eq!(short["notes"][0], "tiny: its trace ended in quantum 1 of the 3 that count");
}

/// What short slices cost a cache-friendly context beside a thrashing one, either remedy takes away.
#[test]
fn prefetching_and_page_colours_save_misses() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let both = ["run", "--synthetic", "cache-friendly", "--synthetic", "thrashing", "--slice", "200us"];
        let length = ["--warmup", "6", "--quanta", "6", "--json"];
        json(&cache(folder.path(), &[&both[..], more, &length].concat()).with_status(0))
    };
    let misses = |result: &Value| result["contexts"][0]["llc_misses_pki"].as_f64().unwrap();
    let (without, recap, colours) = (run(&[]), run(&["--prefetch", "recap"]), run(&["--colours", "3:1"]));
    assert_eq!((&without["machine"]["prefetch"], &without["memory"]["prefetches"]), (&"none".into(), &0.into()));
    assert_eq!(without["machine"]["colour_shares"], Value::Array(Vec::new()));
    assert_eq!(recap["machine"]["prefetch"], "recap");
    let lines = |what: &str| recap["memory"][what].as_u64().unwrap();
    assert!(lines("prefetches") > 0 && lines("metadata") > 0, "{recap:#}");
    assert_eq!(colours["machine"]["colour_shares"], Value::from(vec![3, 1]));
    for (name, with) in [("recap", &recap), ("colours", &colours)] {
        assert!(misses(with) < misses(&without) * 0.9, "{name}: {} of {}", misses(with), misses(&without));
    }
}

#[test]
fn what_cannot_be_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    file("empty", b"");
    file("noise", &[0xaa; 300]);
    file("words", b"hello\n");
    file("champ-cut", &[0; 100]);
    file("champ-big-endian", &[&[0, 0, 0x7f, 0xff, 0, 0, 0x10, 0x40][..], &[0; 56]].concat());
    file("cut", b"\x89GLTRACE\x01\0\0\0\x0d\x0c\x0b\x0a\x10\0");
    file("packed", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1]);
    for command in ["run", "classify"] {
        for (trace, words) in [
            ("missing", &["cannot read missing"][..]),
            (".", &["cannot read ."]),
            ("empty", &["empty: no access in it"]),
            ("noise", &["noise, byte 0", "recording, lackey, plain, champsim, memtrace"]),
            ("words", &["words:1: 'hello' is no access"]),
            ("champ-cut", &["champ-cut, byte 64", "cut short"]),
            ("champ-big-endian", &["big-endian"]),
            ("cut", &["cut, byte 18", "cut short, or its recorder was killed"]),
            ("packed", &["cannot read packed"]),
        ] {
            cache(folder.path(), &[command, "--trace", trace]).with_status(2).saying("").naming(words);
        }
    }
}

#[test]
fn absurd_machines_and_usage_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["run"][..], &["--trace FILE or --synthetic"][..]),
        (&["run", "--synthetic", "lazy"], &["lazy", "cache-friendly"]),
        (&["run", "--synthetic", "thrashing", "--llc-ways", "0"], &["0 ways"]),
        (&["run", "--synthetic", "thrashing", "--prefetch", "much"], &["much", "recap"]),
        (&["run", "--synthetic", "thrashing", "--colours", "2:x"], &["2:x", "like 2:1"]),
        (&["run", "--synthetic", "thrashing", "--colours", "2:0"], &["2:0", "1 or more"]),
        (&["run", "--synthetic", "thrashing", "--colours", "2:1"], &["2 shares for 1 contexts", "one for each"]),
        (
            &["run", "--synthetic", "thrashing", "--synthetic", "thrashing", "--colours", "1:1000"],
            &["--colours", "less than a colour"],
        ),
        (
            &["run", "--synthetic", "thrashing", "--llc-ways", "12"],
            &["--llc-size", "do not divide", "--llc-size 1536k or 3M fits"],
        ),
        (&["run", "--synthetic", "thrashing", "--llc-ways", "7"], &["--llc-ways 7", "--llc-size 1792k or 3584k fits"]),
        (&["run", "--synthetic", "thrashing", "--llc-size", "3M"], &["3072 sets", "no power of two", "2M or 4M"]),
        (&["run", "--synthetic", "thrashing", "--llc-ways", "48", "--llc-size", "4k"], &["--llc-size 6k fits"]),
        (&["run", "--synthetic", "thrashing", "--llc-size", "17G"], &["17G", "1G"]),
        (&["run", "--synthetic", "thrashing", "--llc-size", "much"], &["much", "2M"]),
        (&["run", "--synthetic", "thrashing", "--llc-ways", "4294967295"], &["4294967295 ways"]),
        (&["run", "--synthetic", "thrashing", "--llc-ways", "4294967296"], &["4294967296"]),
        (&["run", "--synthetic", "thrashing", "--llc-size=-1"], &["--llc-size"]),
        (&["run", "--synthetic", "thrashing", "--llc-latency", "18446744073709551615"], &["--llc-latency", "1000000"]),
        (&["run", "--synthetic", "thrashing", "--cores", "0"], &["0", "1..=64"]),
        (&["run", "--synthetic", "thrashing", "--cores", "9999"], &["9999", "1..=64"]),
        (&["run", "--synthetic", "thrashing", "--slice", "1h"], &["1h", "1s"]),
        (&["run", "--synthetic", "thrashing", "--slice", "0s"], &["0s"]),
        (&["run", "--synthetic", "thrashing", "--quanta", "0"], &["0", "at least 1"]),
        (&["run", "--synthetic", "thrashing", "--quanta", "99999999999G"], &["99999999999G", "smaller"]),
        (&["run", "--synthetic", "thrashing", "--insertion", "best"], &["best", "dip-time"]),
        // As it was called first.
        (&["run", "--synthetic", "thrashing", "--policy", "best"], &["best", "dip-time"]),
        (&["run", "--trace", "x", "--format", "pcap"], &["pcap", "champsim"]),
        (&["classify"], &["--trace FILE", "--"]),
        (&["classify", "--llc", "128k", "--trace", "x"], &["must be the larger"]),
        (&["classify", "--llc", "big", "--trace", "x"], &["big", "2M"]),
        (&["record"], &["CMD"]),
        (&["record", "--max-accesses", "many", "--", "true"], &["many", "20M"]),
        (
            &["record", "-o", "/no/such/folder/x", "--", "true"],
            &["/no/such/folder/x", "name a file in a folder you may write to"],
        ),
    ] {
        cache(folder.path(), arguments).with_status(2).saying("").naming(words);
    }
}

/// What `fixtures/version-1.gltrace` holds, which was written by the recorder of 2026-11-22 and is not written anew.
fn version_1() -> Vec<Record> {
    let mut records = Vec::new();
    for at in 0..100_u32 {
        let far = u64::from(at);
        records.push(Record { address: 0x0040_1000 + far * 64, instructions: at % 7 + 1, kind: Kind::Fetch });
        // Up and down, so that differences have both signs.
        records.push(Record { address: 0x7f00_0000_0000 + far * 37 % 100 * 64, instructions: 0, kind: Kind::Read });
        records.push(Record { address: 0x7ffe_ffff_0000 - far * 8, instructions: 0, kind: Kind::Write });
    }
    records.push(Record { address: u64::MAX, instructions: u32::MAX, kind: Kind::Read });
    records.push(Record { address: 0, instructions: 0, kind: Kind::Read });
    records.push(Record { address: 1 << 63, instructions: 1, kind: Kind::Write });
    records
}

/// What `fixtures/version-1-blocks.gltrace` holds, also of 2026-11-22: two full blocks and a few records more.
fn version_1_blocks() -> Vec<Record> {
    let of_kind = |at: u32| {
        let far = u64::from(at);
        // The kinds' period does not divide a block's records: each block begins with another, and knows nothing of the
        // one before.
        match at % 3 {
            0 => Record { address: 0x0040_1000 + far * 4, instructions: at % 5 + 1, kind: Kind::Fetch },
            1 => Record { address: 0x7f00_0000_0000 + far * 64, instructions: 0, kind: Kind::Read },
            _ => Record { address: 0x7ffe_ffff_0000 - far * 8, instructions: 0, kind: Kind::Write },
        }
    };
    (0..2 * 65_536 + 7).map(of_kind).collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Everything in a recording.
fn records_of(path: &Path) -> Vec<Record> {
    let mut trace = open(path, None).unwrap();
    let mut records = Vec::new();
    loop {
        let before = records.len();
        trace.fill(&mut records).unwrap();
        if records.len() == before {
            return records;
        }
    }
}

/// Records in each of a recording's blocks, by the format as it is written down and not by the code that reads it.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let number = |at: usize| usize::try_from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())).unwrap();
    let (mut at, mut blocks) = (16, Vec::new());
    while number(at) > 0 {
        blocks.push(number(at + 4));
        at += 8 + number(at);
    }
    assert_eq!(at + 24, bytes.len(), "nothing follows the end");
    blocks
}

/// Recordings that people keep must stay readable: who changes the format gives it a new version and reads these as
/// well.
#[test]
fn recordings_of_version_1_are_read_as_they_were_written() {
    let path = fixture("version-1.gltrace");
    assert_eq!(records_of(&path), version_1());
    let folder = tempfile::tempdir().unwrap();
    let path = path.to_str().expect("the repository's path is text");
    let run =
        json(&cache(folder.path(), &["run", "--once", "--slice", "1s", "--trace", path, "--json"]).with_status(0));
    let context = &run["contexts"][0];
    assert_eq!((&context["name"], &context["trace_over"]), (&"version-1".into(), &true.into()));
    assert_eq!((&context["l1i"]["accesses"], &context["l1d"]["accesses"]), (&100.into(), &203.into()));
}

#[test]
fn so_are_recordings_of_several_blocks() {
    let path = fixture("version-1-blocks.gltrace");
    let bytes = fs::read(&path).unwrap();
    assert_eq!(blocks(&bytes), [65_536, 65_536, 7]);
    // Not by assert_eq: that would print them all.
    assert!(records_of(&path) == version_1_blocks(), "other records than were written");
    // Whole blocks that are missing are noticed, too: the end counts records.
    let folder = tempfile::tempdir().unwrap();
    let first = 16 + 8 + usize::try_from(u32::from_le_bytes(bytes[16..20].try_into().unwrap())).unwrap();
    let without_second = {
        let second = 8 + usize::try_from(u32::from_le_bytes(bytes[first..first + 4].try_into().unwrap())).unwrap();
        [&bytes[..first], &bytes[first + second..]].concat()
    };
    fs::write(folder.path().join("hole.gltrace"), without_second).unwrap();
    let run = ["run", "--once", "--slice", "1s", "--trace", "hole.gltrace"];
    cache(folder.path(), &run).with_status(2).naming(&["hole.gltrace"]);
}

/// A recording with some of its bytes changed.
fn damaged(folder: &Path, name: &str, damage: impl FnOnce(&mut Vec<u8>)) {
    let path = folder.join(name);
    let mut recorder = Recorder::create(&path).unwrap();
    for line in 0..200_000_u64 {
        recorder.push(Record { address: line % 5000 * 64, instructions: 3, kind: Kind::Read }).unwrap();
    }
    recorder.finish().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    damage(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_recordings_give_no_result_however_far_they_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    damaged(folder.path(), "whole", |_| {});
    damaged(folder.path(), "header-only", |bytes| bytes.truncate(16));
    damaged(folder.path(), "half", |bytes| bytes.truncate(bytes.len() / 2));
    damaged(folder.path(), "without-its-last-byte", |bytes| bytes.truncate(bytes.len() - 1));
    damaged(folder.path(), "big-endian", |bytes| bytes[12..16].reverse());
    damaged(folder.path(), "newer", |bytes| bytes[8] = 9);
    damaged(folder.path(), "enormous-block", |bytes| bytes[16..20].fill(0xff));
    damaged(folder.path(), "enormous-count", |bytes| bytes[20..24].fill(0xff));
    damaged(folder.path(), "flipped", |bytes| {
        let middle = bytes.len() / 2;
        for byte in &mut bytes[middle..middle + 8] {
            *byte = !*byte;
        }
    });
    damaged(folder.path(), "twice", |bytes| bytes.extend(bytes.clone()));
    let all = |command, trace| match command {
        // To its end, which starting over would hide.
        "run" => vec!["run", "--once", "--quanta", "1M", "--trace", trace, "--json", "x.json"],
        _ => vec!["classify", "--trace", trace, "--json", "x.json"],
    };
    // Where the cut is not reached.
    for short in [
        &["run", "--quanta", "1", "--slice", "1us", "--trace", "half"][..],
        &["run", "--quanta", "1", "--slice", "1us", "--once", "--trace", "without-its-last-byte"],
        &["classify", "--max-accesses", "20k", "--trace", "half"],
        &["classify", "--max-accesses", "20k", "--trace", "without-its-last-byte", "--format", "recording"],
    ] {
        cache(folder.path(), short).with_status(2).saying("").naming(&[", byte", "cut short"]);
        let whole: Vec<&str> = short
            .iter()
            .map(|word| if ["half", "without-its-last-byte"].contains(word) { "whole" } else { word })
            .collect();
        cache(folder.path(), &whole).with_status(0);
    }
    let piped = |name: &str| {
        let mut shell = Command::new("sh");
        let command = format!("cat {name} | {} cache classify --max-accesses 20k --trace /dev/stdin", common::LAB);
        finish(shell.args(["-c", &command]).current_dir(folder.path())).with_status(0);
    };
    // A pipe has no end to look at.
    piped("whole");
    piped("half");
    for command in ["run", "classify"] {
        for (trace, words) in [
            ("header-only", &["header-only, byte 16", "cut short"][..]),
            ("half", &["half, byte", "cut short"]),
            ("without-its-last-byte", &["without-its-last-byte, byte", "cut short"]),
            ("big-endian", &["big-endian, byte 12", "big-endian byte order"]),
            ("newer", &["newer, byte 8", "version 9"]),
            ("enormous-block", &["byte 16", "4294967295 bytes"]),
            ("enormous-count", &["byte 16", "4294967295 accesses"]),
            ("flipped", &["flipped, byte"]),
            ("twice", &["something follows the end"]),
        ] {
            cache(folder.path(), &all(command, trace)).with_status(2).saying("").naming(words);
            assert!(!folder.path().join("x.json").exists(), "{command} {trace}");
        }
        cache(folder.path(), &all(command, "whole")).with_status(0);
        fs::remove_file(folder.path().join("x.json")).unwrap();
    }
}

#[test]
fn enormous_files_and_absurd_records_take_no_enormous_time_or_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A tebibyte that takes no room: nothing at all, and nothing after a good line.
    for (name, start) in [("nothing", &b""[..]), ("one-line", b"R 10\n"), ("lackey", b"I  00401000,3\n L 10,8\n")] {
        fs::write(path(name), start).unwrap();
        fs::File::options().write(true).open(path(name)).unwrap().set_len(1 << 40).unwrap();
    }
    fs::write(path("wide"), " L 10,18446744073709551615\n").unwrap();
    fs::write(path("last"), "W ffffffffffffffff\nR ffffffffffffffff\nR 0\n".repeat(2000)).unwrap();
    for command in ["run", "classify"] {
        for (trace, words) in [
            ("nothing", &["nothing"][..]),
            // What is mostly zeros is taken for no text.
            ("one-line", &["one-line, byte", "no trace of"]),
            ("lackey", &["lackey, byte", "no trace that is known"]),
            ("wide", &["wide:1:"]),
        ] {
            // More memory than this is an error, and no answer.
            let mut limited = Command::new("prlimit");
            limited.args(["--as=1000000000", common::LAB, "cache", command, "--trace", trace]);
            finish(limited.current_dir(folder.path())).with_status(2).saying("").naming(words);
        }
    }
    let most = ["run", "--once", "--quanta", "18446744073709551615", "--trace", "last", "--warmup"];
    cache(folder.path(), &[&most[..], &["0"]].concat()).with_status(0);
    cache(folder.path(), &[&most[..], &["1"]].concat()).with_status(2).naming(&["--warmup"]);
    cache(folder.path(), &["classify", "--trace", "last"]).with_status(0);
}

/// `R HEXADDR` lines that go through so many lines of 64 bytes again and again.
fn circle(path: &Path, lines: u64, accesses: u64) {
    let lines: Vec<String> = (0..accesses).map(|at| format!("R {:x}", 0x10_0000 + at % lines * 64)).collect();
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn programs_are_told_apart_by_their_curves() {
    let folder = tempfile::tempdir().unwrap();
    // Against a last level of 512 lines behind one of 128.
    for (name, lines) in [("small", 64), ("fits", 400), ("beyond", 2000)] {
        circle(&folder.path().join(name), lines, 20_000);
    }
    let classify = |traces: &[&str]| {
        let mut arguments = vec!["classify", "--llc", "32k", "--l2", "8k", "--json"];
        arguments.extend(traces.iter().flat_map(|trace| ["--trace", *trace]));
        json(&cache(folder.path(), &arguments).with_status(0))
    };
    let result = classify(&["small", "fits", "beyond"]);
    let classes: Vec<_> = (0..3).map(|at| result["programs"][at]["class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["cpu_bound", "cache_friendly", "thrashing"], "{result:#}");
    assert_eq!((&result["schema"], &result["partition"]), (&"gleaner.cache-class/1".into(), &"yes".into()));
    assert_eq!(classify(&["small", "beyond"])["partition"], "no");
    fs::write(folder.path().join("class.json"), classify(&["fits"]).to_string()).unwrap();
    finish(
        Command::new(common::gleaner()).args(["report", "class.json", "-o", "page.html"]).current_dir(folder.path()),
    )
    .with_status(0);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("fits is cache-friendly: the last-level cache serves it") && page.contains("<svg"), "{page}");
}

#[test]
fn a_real_program_is_recorded_run_and_classified() {
    let folder = tempfile::tempdir().unwrap();
    let said =
        cache(folder.path(), &["record", "-o", "echo.gltrace", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    let said = said.with_status(0).saying("out\n").naming(&["err\n", "the program ended with status 3"]);
    assert!(said.stderr.contains("accesses ("), "{said:#?}");
    let run = json(&cache(folder.path(), &["run", "--trace", "echo.gltrace", "--once", "--json"]).with_status(0));
    let context = &run["contexts"][0];
    assert_eq!((&context["name"], &context["trace_over"]), (&"echo".into(), &true.into()));
    assert!(context["instructions"].as_u64().unwrap() > 50_000, "{run:#}");
    cache(folder.path(), &["classify", "--trace", "echo.gltrace"]).with_status(0);
    let live = cache(folder.path(), &["classify", "--json", "live.json", "--", "sh", "-c", "exit 0"]).with_status(0);
    assert!(live.stdout.contains("Do I need cache partitioning?"), "{live:#?}");
    let limited = ["record", "--max-accesses", "1000", "--json", "--", "sleep", "1000"];
    let limited = json(&cache(folder.path(), &limited).with_status(0));
    assert_eq!((&limited["ended_by"], &limited["accesses"]), (&"limit".into(), &1000.into()));
}

#[test]
fn what_cannot_be_recorded_is_named_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    cache(folder.path(), &["record", "--", "no-such-command"]).with_status(2).naming(&["no-such-command", "not found"]);
    cache(folder.path(), &["record", "-o", "x", "--", "/etc/passwd"])
        .with_status(2)
        .naming(&["/etc/passwd", "chmod +x"]);
    cache(folder.path(), &["classify", "--", "no-such-command"]).with_status(2).naming(&["not found"]);
    for way in [&["record", "-o", "x", "--"][..], &["classify", "--"]] {
        let said = cache(folder.path(), &[way, &["sleep 0.1 && true"]].concat()).with_status(2);
        said.naming(&["cannot run", "sh -c '...'"]);
    }
    // Valgrind says why it cannot, and nothing else is said.
    fs::write(folder.path().join("script"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(folder.path().join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let said = cache(folder.path(), &["record", "-o", "x", "--", "./script"]).with_status(2);
    said.naming(&["valgrind: ", "see its message above"]);
    fs::remove_file(folder.path().join("script")).unwrap();
    let mut lost = lab(["cache", "record", "-o", "x", "--", "true"]);
    let said = finish(lost.current_dir(folder.path()).env("PATH", folder.path()));
    said.with_status(1).naming(&["valgrind", "apt-get install valgrind"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn an_earlier_recording_is_replaced_by_a_whole_one_only() {
    let folder = tempfile::tempdir().unwrap();
    let earlier = || fs::read_to_string(folder.path().join("x")).unwrap_or_default();
    fs::write(folder.path().join("x"), "R 10\n").unwrap();
    for (command, status) in [
        (&["no-such-command"][..], 2),
        (&["/etc/passwd"], 2),
        // Nothing of it is left to record.
        (&["sh", "-c", "exit 0"], 1),
    ] {
        cache(folder.path(), &[&["record", "-o", "x", "--skip", "1G", "--"], command].concat()).with_status(status);
        assert_eq!((earlier(), names(folder.path())), ("R 10\n".to_owned(), vec!["x".to_owned()]), "{command:?}");
    }
    let mut lost = lab(["cache", "record", "-o", "x", "--", "true"]);
    finish(lost.current_dir(folder.path()).env("PATH", folder.path())).with_status(1);
    assert_eq!((earlier(), names(folder.path())), ("R 10\n".to_owned(), vec!["x".to_owned()]));
    cache(folder.path(), &["record", "-o", "x", "--max-accesses", "100", "--", "true"]).with_status(0);
    assert_eq!((earlier(), names(folder.path())), (String::new(), vec!["x".to_owned()]), "no text any more");
    cache(folder.path(), &["run", "--trace", "x", "--once"]).with_status(0);
}

#[test]
fn a_killed_recorder_leaves_no_recording_that_passes_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gltrace");
    fs::write(&path, "R 10\n").unwrap();
    let mut recorder = lab(["cache", "record", "-o"]);
    let mut recorder =
        recorder.arg(&path).args(["--max-accesses", "1G", "--", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
    // It has no name yet, except where the file system has no files without one.
    let unfinished = || {
        let files = fs::read_dir(format!("/proc/{}/fd", recorder.id())).unwrap().map(|file| file.unwrap().path());
        let here = |file: &PathBuf| fs::read_link(file).is_ok_and(|to| to.starts_with(folder.path()));
        files.filter(here).find(|file| fs::metadata(file).is_ok_and(|file| file.len() > 1000))
    };
    assert!(comes_true(|| unfinished().is_some()), "something is recorded");
    fs::copy(unfinished().unwrap(), folder.path().join("half")).unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    cache(folder.path(), &["run", "--trace", "half"]).with_status(2).naming(&["recorder was killed"]);
    if let Some(left) = names(folder.path()).iter().find(|name| !["x.gltrace", "half"].contains(&name.as_str())) {
        cache(folder.path(), &["run", "--trace", left]).with_status(2).naming(&["recorder was killed"]);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "R 10\n");
    // Its program lost its reader; nothing of ours stays behind.
    let gone = || {
        let left = Command::new("pgrep").args(["-f", "log-fd=.*while :; do :; done"]).output().unwrap().stdout;
        left.is_empty()
    };
    assert!(comes_true(gone), "valgrind ends with its recorder");
}
