//! Which commit this is built from, for `gleaner --version`: `GLEANER_COMMIT` where somebody says so (a source package
//! has no git), else this repository's HEAD, else `unknown`. Nothing else is rebuilt for a new commit.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=GLEANER_COMMIT");
    let told = env::var("GLEANER_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = told.or_else(of_this_repository).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=GLEANER_BUILT_FROM={}", commit.trim());
}

/// `None` without git, and where the repository is one that these sources merely lie in.
fn of_this_repository() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // Where a new commit, or another branch, is seen; a file that is not there would mean: build anew each time.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
