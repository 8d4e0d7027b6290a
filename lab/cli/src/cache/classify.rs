//! `gleaner-lab cache classify`: does a program need the last-level cache, and should the cache be divided?
//!
//! ```text
//! trace, or CMD under valgrind ──▶ cachesim::classify (miss-ratio curve) ──▶ decide::host::CacheUse::class ──▶ verdict
//! ```

use super::{record, run};
use crate::count::count;
use crate::sim::limits::{MaxTime, StoppedBy, Watch};
use clap::Args;
use clap::builder::PossibleValuesParser;
use gleaner_cachesim::cache_class::{CacheClass, CacheClassParams, CacheUse};
use gleaner_cachesim::classify::{Profile, curve_sizes, profile};
use gleaner_cachesim::trace::{Format, Trace, TraceError, open};
use gleaner_command::args::{JsonArg, size};
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_report::{CacheClassPoint, CacheClassProgram, CacheClassReport};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner-lab cache classify [OPTIONS] --trace FILE...\n       gleaner-lab cache classify [OPTIONS] -- CMD [ARG]...",
    after_help = "The three types are those of the micro-sliced paper: CPU-bound (the working set fits the level before the last one), \
                  cache-friendly (it fits the last level), thrashing (it fits none). docs/research/cachesim.md has the thresholds.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab cache classify -- bzip2 -kc big.tar > /dev/null\n\
                  \x20 gleaner-lab cache classify --trace web.gltrace --trace batch.gltrace --llc host\n\
                  \x20 gleaner-lab cache classify --trace web.gltrace --json class.json\n\
                  \x20 gleaner report class.json -o page.html"
)]
pub struct ClassifyArgs {
    /// A trace to judge (may be repeated): a recording (`gleaner-lab cache record` makes one), R|W HEXADDR lines,
    /// ChampSim's, or the text of valgrind's lackey or of DynamoRIO's `drrun -t drmemtrace -tool view`; packed or not
    #[arg(long = "trace", value_name = "FILE", conflicts_with = "command")]
    traces: Vec<PathBuf>,
    /// What the traces are, instead of finding out
    #[arg(long, value_parser = PossibleValuesParser::new(Format::NAMES))]
    format: Option<String>,
    /// The last-level cache to judge against, or `host` for this machine's [default: 2M, the paper's Table V]
    #[arg(long, value_name = "SIZE", value_parser = llc)]
    llc: Option<Llc>,
    /// The level before it [default: 256k, Table V's; with --llc host, this machine's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    l2: Option<u64>,
    /// Read at most so many accesses of each (k, M and G are understood)
    #[arg(long, value_name = "N", default_value = "100M", value_parser = count)]
    max_accesses: u64,
    #[command(flatten)]
    max_time: MaxTime,
    #[command(flatten)]
    json: JsonArg,
    /// The program and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// What `--llc` says.
#[derive(Clone, Copy, Debug)]
enum Llc {
    Host,
    Bytes(u64),
}

fn llc(text: &str) -> Result<Llc, String> {
    if text == "host" { Ok(Llc::Host) } else { size(text).map(Llc::Bytes) }
}

/// Sizes to judge against, and where they are from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes {
    l2_bytes: u64,
    llc_bytes: u64,
    from: &'static str,
}

/// Table V.
const L2_BYTES: u64 = 256 << 10;
const LLC_BYTES: u64 = 2 << 20;

pub fn main(args: &ClassifyArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    if args.traces.is_empty() && args.command.is_empty() {
        return Err(Failure::input("nothing to judge: give --trace FILE, or a program after --"));
    }
    let sizes = sizes(args, Path::new("/sys"))?;
    let mut notes = Vec::new();
    let mut programs = Vec::new();
    run::refuse_shared_pipes(&args.traces)?;
    let watch = Watch::new("reading", args.max_time)?;
    if args.command.is_empty() {
        for path in &args.traces {
            if watch.look().is_none() {
                programs.extend(of_trace(args, path, sizes, &watch, programs.len())?);
            }
        }
    } else {
        programs.extend(of_command(args, sizes, &watch)?);
    }
    watch.end();
    let stopped = watch.stopped();
    if let (Some(_), Some(last)) = (stopped, programs.last()) {
        notes.push(format!("{}: judged by the {} accesses that were read until then", last.name, last.accesses));
    }
    if programs.is_empty() {
        let message = "ended before enough accesses were read to say anything: there is no result".to_owned();
        return Err(Failure { status: StoppedBy::status(stopped).max(1), message });
    }
    for program in programs.iter().filter(|program| program.accesses >= args.max_accesses) {
        notes.push(format!(
            "{}: judged by its first {} accesses; --max-accesses takes more",
            program.name, program.accesses
        ));
    }
    for program in
        programs.iter().filter(|program| (program.accesses - program.warmup_accesses) * 4 < sizes.llc_bytes / 64)
    {
        notes.push(format!(
            "{}: too short to have filled the last level; a longer trace may say otherwise",
            program.name
        ));
    }
    let classes: Vec<&str> = programs.iter().map(|program| program.class.as_str()).collect();
    let (partition, verdict) = CacheClassReport::partition(&classes);
    let params = CacheClassParams::default();
    let report = CacheClassReport {
        schema: CacheClassReport::SCHEMA.to_owned(),
        llc_bytes: sizes.llc_bytes,
        l2_bytes: sizes.l2_bytes,
        llc_from: sizes.from.to_owned(),
        without_pki_min: params.without_pki_min,
        saved_ratio_min: params.saved_ratio_min,
        partition: partition.to_owned(),
        verdict: verdict.to_owned(),
        stopped_by: stopped.map(|by| by.word("max-accesses")),
        programs,
        notes,
    };
    output.json(&report)?;
    output.text(&report);
    Ok(StoppedBy::status(stopped))
}

fn sizes(args: &ClassifyArgs, sys: &Path) -> Result<Sizes, Failure> {
    let sizes = match args.llc {
        None => Sizes { l2_bytes: L2_BYTES, llc_bytes: LLC_BYTES, from: "table-v" },
        Some(Llc::Bytes(llc_bytes)) => Sizes { l2_bytes: L2_BYTES, llc_bytes, from: "given" },
        Some(Llc::Host) => host_sizes(sys)?,
    };
    let sizes = Sizes { l2_bytes: args.l2.unwrap_or(sizes.l2_bytes), ..sizes };
    if sizes.l2_bytes >= sizes.llc_bytes {
        return Err(Failure::input(format!(
            "a last level of {} bytes behind one of {}: the last level must be the larger; give --llc and --l2 that fit",
            sizes.llc_bytes, sizes.l2_bytes
        )));
    }
    Ok(sizes)
}

/// The largest level that CPU 0 has, and the one before it.
fn host_sizes(sys: &Path) -> Result<Sizes, Failure> {
    let folder = sys.join("devices/system/cpu/cpu0/cache");
    let unknown = |why: String| {
        Failure::work(format!(
            "this machine does not say how large its caches are ({why}); give --llc SIZE and --l2 SIZE"
        ))
    };
    let entries = std::fs::read_dir(&folder).map_err(|error| unknown(format!("{}: {error}", folder.display())))?;
    let read = |path: PathBuf| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let mut levels: Vec<(u32, u64)> = entries
        .flatten()
        .filter(|entry| read(entry.path().join("type")).is_some_and(|kind| kind != "Instruction"))
        .filter_map(|entry| {
            let level = read(entry.path().join("level"))?.parse().ok()?;
            Some((level, size(&read(entry.path().join("size"))?).ok()?))
        })
        .collect();
    levels.sort_unstable();
    match levels[..] {
        [.., (_, l2_bytes), (_, llc_bytes)] => Ok(Sizes { l2_bytes, llc_bytes, from: "host" }),
        _ => Err(unknown(format!("{} levels in {}", levels.len(), folder.display()))),
    }
}

/// `None` when ended before it says anything.
fn of_trace(
    args: &ClassifyArgs,
    path: &Path,
    sizes: Sizes,
    watch: &Watch,
    before: usize,
) -> Result<Option<CacheClassProgram>, Failure> {
    let format = args.format.as_deref().and_then(Format::by_name);
    let mut trace = open(path, format).map_err(|error| run::trace_failure(&error))?;
    judge(args, run::name(path), &mut *trace, sizes, (watch, before))?.map_err(|error| run::trace_failure(&error))
}

fn of_command(args: &ClassifyArgs, sizes: Sizes, watch: &Watch) -> Result<Option<CacheClassProgram>, Failure> {
    let mut traced = record::Traced::start(&args.command, watch.interrupted())?;
    let mut trace = traced.trace();
    let name = run::name(Path::new(&args.command[0]));
    let judged = judge(args, name, &mut *trace, sizes, (watch, 0));
    let status = traced.stop()?;
    judged?.map_err(|error| match error {
        TraceError::Empty { .. } => record::not_started(&args.command, status),
        other => Failure::work(other),
    })
}

type Judged = Result<Option<CacheClassProgram>, TraceError>;

/// `before`: traces that were read before this one.
fn judge(
    args: &ClassifyArgs,
    name: String,
    trace: &mut dyn Trace,
    sizes: Sizes,
    (watch, before): (&Watch, usize),
) -> Result<Judged, Failure> {
    watch.doing(name.clone());
    let all = args.traces.len().max(1) as f64;
    let capacities = curve_sizes(sizes.llc_bytes, &[sizes.l2_bytes, sizes.llc_bytes]);
    let found = profile(trace, &capacities, args.max_accesses, |read| {
        // How long a trace is nobody knows: at most as long as is read of it.
        watch.go_on((before as f64 + read as f64 / args.max_accesses.max(1) as f64) / all)
    });
    match found {
        Err(error) => Ok(Err(error)),
        Ok(Some(profile)) => Ok(Ok(Some(program(name, &profile, &capacities, sizes)))),
        Ok(None) if watch.stopped().is_some() => Ok(Ok(None)),
        Ok(None) => Err(Failure::input(format!(
            "{name}: too few accesses to say anything: some thousands are needed, some ten millions are better"
        ))),
    }
}

fn program(name: String, profile: &Profile, capacities: &[u64], sizes: Sizes) -> CacheClassProgram {
    let at =
        |size: u64| capacities.iter().position(|capacity| *capacity == size).map_or(0.0, |at| profile.misses_pki[at]);
    let (reach, miss) = (at(sizes.l2_bytes), at(sizes.llc_bytes));
    let used = CacheUse { accesses_pki: Some(reach), misses_full_pki: Some(miss), misses_minimal_pki: None };
    let class = match used.class(&CacheClassParams::default()) {
        Some(CacheClass::CacheFriendly) => "cache_friendly",
        Some(CacheClass::Thrashing) => "thrashing",
        Some(CacheClass::CpuBound) | None => "cpu_bound",
    };
    let points = capacities.iter().zip(&profile.misses_pki);
    CacheClassProgram {
        name,
        class: class.to_owned(),
        accesses: profile.accesses,
        instructions: profile.instructions,
        warmup_accesses: profile.warmup_accesses,
        footprint_bytes: profile.footprint_bytes,
        accesses_pki: profile.accesses_pki,
        llc_accesses_pki: reach,
        llc_misses_pki: miss,
        saved_ratio: used.saved_ratio(),
        curve: points.map(|(&size_bytes, &misses_pki)| CacheClassPoint { size_bytes, misses_pki }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_caches_are_read_from_sysfs() {
        let sys = tempfile::tempdir().unwrap();
        let folder = sys.path().join("devices/system/cpu/cpu0/cache");
        for (index, level, kind, size) in
            [(0, 1, "Data", "48K"), (1, 1, "Instruction", "32K"), (2, 2, "Unified", "2048K"), (3, 3, "Unified", "105M")]
        {
            let folder = folder.join(format!("index{index}"));
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("level", level.to_string()), ("type", kind.to_owned()), ("size", size.to_owned())] {
                std::fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        }
        let expected = Sizes { l2_bytes: 2 << 20, llc_bytes: 105 << 20, from: "host" };
        assert_eq!(host_sizes(sys.path()).unwrap(), expected);
        let said = host_sizes(Path::new("/no/such/sys")).unwrap_err().message;
        assert!(said.contains("/no/such/sys") && said.contains("give --llc SIZE"), "{said}");
    }
}
