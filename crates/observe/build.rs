//! Compiles the BPF programs and generates the Rust side of their maps and structs, so that no layout is written twice.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

/// Source, and the name of what is made of it.
const SOURCES: [(&str, &str); 3] = [
    ("src/bpf/gleaner.bpf.c", "gleaner.skel.rs"),
    ("src/run_intervals/run_intervals.bpf.c", "run_intervals.skel.rs"),
    ("src/system_calls/system_calls.bpf.c", "system_calls.skel.rs"),
];

/// What they include of our own.
const HEADERS: [&str; 6] = [
    "src/bpf/common.bpf.h",
    "src/bpf/maps.bpf.h",
    "src/bpf/bursts.bpf.h",
    "src/bpf/runnable.bpf.h",
    "src/bpf/members.bpf.h",
    "src/bpf/processes.bpf.h",
];

fn main() {
    for header in HEADERS {
        println!("cargo:rerun-if-changed={header}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    for (source, skeleton) in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        // <linux/bpf.h> includes <asm/types.h>, which Debian keeps in the multiarch directory.
        // v3: an atomic says what was there before it.
        let args = [format!("-I/usr/include/{arch}-linux-gnu"), "-Wall".into(), "-mcpu=v3".into()];
        let built = SkeletonBuilder::new().source(source).clang_args(args).build_and_generate(out.join(skeleton));
        if let Err(error) = built {
            panic!(
                "{source} does not build (clang, libelf-dev, linux-libc-dev installed? `make setup` does it): {error:#}"
            );
        }
    }
}
