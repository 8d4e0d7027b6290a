//! Compiles the BPF program and generates the Rust side of its maps and structs, so that no layout is written twice.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const SOURCE: &str = "src/retain/idle_poll.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    // <linux/bpf.h> includes <asm/types.h>, which Debian keeps in the multiarch directory.
    let args = [format!("-I/usr/include/{arch}-linux-gnu"), "-Wall".into()];
    if let Err(error) =
        SkeletonBuilder::new().source(SOURCE).clang_args(args).build_and_generate(out.join("idle_poll.skel.rs"))
    {
        panic!(
            "{SOURCE} does not build (clang, libelf-dev, linux-libc-dev installed? `make setup` does it): {error:#}"
        );
    }
}
