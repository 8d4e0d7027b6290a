//! Memory does not grow with a trace's length: the most that is allocated at a time, for N accesses and for 10 N of the
//! same kind.
//!
//! One test only: what other threads allocate would be counted, too.

use gleaner_cachesim::classify::profile;
use gleaner_cachesim::core_model::CoreConfig;
use gleaner_cachesim::hierarchy::HierarchyConfig;
use gleaner_cachesim::machine::{ContextConfig, Machine, MachineConfig, SWITCH_CYCLES};
use gleaner_cachesim::paging::PagingConfig;
use gleaner_cachesim::policy::PolicyKind;
use gleaner_cachesim::trace::recording::Recorder;
use gleaner_cachesim::trace::{BATCH, Kind, Record, Trace, open};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work; counting needs no memory. A reallocation is an allocation, a copy and a
// release.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that was allocated at a time, beyond what was before.
fn peak_bytes(work: impl FnOnce()) -> usize {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    work();
    PEAK.load(Relaxed) - before
}

const ACCESSES: u64 = 400_000;
/// Used by chance: the memory of a program does not grow by running longer.
const LINES: u64 = 50_000;

fn accesses(count: u64) -> impl Iterator<Item = Record> {
    let mut chance = fastrand::Rng::with_seed(4);
    (0..count).map(move |_| Record { address: chance.u64(..LINES) * 64, instructions: 1, kind: Kind::Read })
}

/// The same accesses in three formats.
fn files(folder: &Path, count: u64) -> [PathBuf; 3] {
    let paths = ["gltrace", "plain", "lackey"].map(|name| folder.join(format!("{name}-{count}")));
    let [recording, plain, lackey] = &paths;
    let mut recorder = Recorder::create(recording).unwrap();
    let mut texts = [plain, lackey].map(|path| BufWriter::new(File::create(path).unwrap()));
    for record in accesses(count) {
        recorder.push(record).unwrap();
        writeln!(texts[0], "R {:x}", record.address).unwrap();
        writeln!(texts[1], "I  00401000,3\n L {:x},8", record.address).unwrap();
    }
    recorder.finish().unwrap();
    for text in &mut texts {
        text.flush().unwrap();
    }
    paths
}

fn simulate(path: &Path) {
    let config = MachineConfig {
        hierarchy: HierarchyConfig::table_v(1, 1, PolicyKind::Lru).unwrap(),
        paging: PagingConfig::default(),
        contexts: vec![ContextConfig { core: 0, core_model: CoreConfig::default() }],
        slice_cycles: 3_400_000,
        switch_cycles: SWITCH_CYCLES,
    };
    let mut machine = Machine::new(config, vec![open(path, None).unwrap()]).unwrap();
    machine.run_quanta(u64::MAX).unwrap();
    let outcome = machine.outcome().contexts[0];
    assert!(outcome.over && outcome.instructions >= ACCESSES, "{outcome:?}");
}

fn classify(path: &Path) {
    let found = profile(&mut *open(path, None).unwrap(), &[256 << 10, 2 << 20], u64::MAX, |_| true).unwrap();
    assert!(found.unwrap().accesses >= ACCESSES);
}

/// What would grow, to see that growth is seen.
fn keep_all(path: &Path) {
    let mut trace = open(path, None).unwrap();
    let mut all = Vec::with_capacity(BATCH);
    let mut before = usize::MAX;
    while before != all.len() {
        before = all.len();
        trace.fill(&mut all).unwrap();
    }
}

#[test]
fn ten_times_the_accesses_take_no_more_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (short, long) = (files(folder.path(), ACCESSES), files(folder.path(), 10 * ACCESSES));
    for (short, long) in short.iter().zip(&long) {
        for work in [simulate, classify] {
            let peaks = [short, long].map(|path| peak_bytes(|| work(path)));
            // Buffers grow to their bound: 6 % was seen, where growth with the trace would be tenfold.
            assert!(peaks[1] * 4 < peaks[0] * 5, "{}: {peaks:?} bytes", short.display());
        }
    }
    let peaks = [&short[0], &long[0]].map(|path| peak_bytes(|| keep_all(path)));
    assert!(peaks[1] > 5 * peaks[0], "{peaks:?}");
}
