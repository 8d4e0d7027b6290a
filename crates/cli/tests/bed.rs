//! The test bed's scripts without a guest: their syntax, what they pack, and what they say to bad input.
//! Nothing here needs the network, root or the Debian image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed").canonicalize().unwrap()
}

/// Exit status, stdout and stderr of a script of `testbed/`, with a target folder of its own.
fn script(name: &str, target: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(testbed().join(name)).args(arguments).env("CARGO_TARGET_DIR", target).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn scripts_parse() {
    let mut checked = 0;
    for entry in fs::read_dir(testbed()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "sh") {
            continue;
        }
        // Guests run theirs with busybox's shell; the others say bash in their first line.
        let first = fs::read_to_string(&path).unwrap().lines().next().unwrap_or_default().to_owned();
        let mut shell = if first.ends_with("bash") { Command::new("bash") } else { Command::new("busybox") };
        if !first.ends_with("bash") {
            shell.arg("sh");
        }
        let Output { status, stderr, .. } = shell.arg("-n").arg(&path).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} scripts found");
}

#[test]
fn initramfs_holds_what_it_was_given_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        fs::write(&path, name).unwrap();
        path.display().to_string()
    };
    let (program, data, first, second) = (file("program.sh"), file("data"), file("z-first.ko"), file("a_second.ko"));
    let out = folder.path().join("initramfs");
    let shown = out.display().to_string();
    let pair = format!("{data}:/some/where/data");
    let arguments =
        ["--script", &program, "--binary", &data, "--file", &pair, "--module", &first, "--module", &second, &shown];
    let (status, stdout, stderr) = script("initramfs.sh", folder.path(), &arguments);
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));

    let Output { status, stdout, .. } =
        Command::new("cpio").args(["--quiet", "-t"]).stdin(fs::File::open(&out).unwrap()).output().unwrap();
    assert!(status.success());
    let listed = String::from_utf8(stdout).unwrap();
    for name in ["init", "image-up.sh", "checks.sh", "script", "bin/busybox", "bin/gleaner", "some/where/data"] {
        assert!(listed.lines().any(|line| line == name), "no {name} in:\n{listed}");
    }
    let mut modules: Vec<_> = listed.lines().filter(|line| line.starts_with("modules/")).collect();
    modules.sort_unstable();
    assert_eq!(modules, ["modules/100-z-first.ko", "modules/101-a_second.ko"]);
}

#[test]
fn init_parses() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, out) = (testbed().join("checks.sh"), folder.path().join("initramfs"));
    let arguments = ["--script", plain.to_str().unwrap(), out.to_str().unwrap()];
    assert_eq!(script("initramfs.sh", folder.path(), &arguments).0, Some(0));
    for name in ["init", "image-up.sh"] {
        let Output { stdout: text, .. } = Command::new("cpio")
            .args(["--quiet", "-i", "--to-stdout", name])
            .stdin(fs::File::open(&out).unwrap())
            .output()
            .unwrap();
        assert!(text.starts_with(b"#!"), "{name} is no script");
        let unpacked = folder.path().join(name);
        fs::write(&unpacked, text).unwrap();
        let Output { status, stderr, .. } = Command::new("busybox").args(["sh", "-n"]).arg(unpacked).output().unwrap();
        assert!(status.success(), "{name}: {}", String::from_utf8_lossy(&stderr));
    }
}

#[test]
fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path();
    let plain = testbed().join("checks.sh").display().to_string();
    let out = target.join("out").display().to_string();
    for (name, arguments, status, words) in [
        ("initramfs.sh", &[out.as_str()][..], 2, "--script"),
        ("initramfs.sh", &["--script", "/no/such/script", &out], 2, "/no/such/script"),
        ("initramfs.sh", &["--script", &plain, "--module", &plain, &out], 2, "no .ko file"),
        ("initramfs.sh", &["--script", &plain, "--file", "here", &out], 2, "HOST:GUEST"),
        ("initramfs.sh", &["--script", &plain, "--module"], 2, "--module needs a value"),
        ("guest.sh", &["--image", "/no/such/image", &plain, &plain], 125, "/no/such/image"),
        ("guest.sh", &["--image", &plain, &plain, &plain], 125, "fetch-kernel.sh --modules"),
        ("guest.sh", &[&plain], 125, "KERNEL and SCRIPT"),
        ("fetch-kernel.sh", &["--modules", "6.1"], 2, "disk, net, haltpoll"),
        ("fetch-kernel.sh", &["--modules", "5.10", "disk"], 2, "6.1, 6.12"),
        ("fetch-kernel.sh", &["5.10"], 2, "5.10"),
        ("image.sh", &["--again"], 2, "--again"),
    ] {
        let (got, stdout, stderr) = script(name, target, arguments);
        assert_eq!(got, Some(status), "{name} {arguments:?}: {stderr}");
        assert!(stdout.is_empty(), "{name} {arguments:?}: {stdout}");
        assert!(stderr.contains(words), "{name} {arguments:?}: no '{words}' in: {stderr}");
    }
    assert!(!target.join("out").exists());
}
