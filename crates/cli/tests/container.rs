//! The daemon in a container: with the mounts and the capabilities of `packaging/kubernetes/daemonset.yaml`, and no
//! others. No container engine is needed: bubblewrap makes the same file system, `setpriv` the same privileges.

mod common;

use common::machine::idle_values;
use common::program::Program;
use common::{GLEANER, comes_true, is_root, send};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Each document of the file.
fn manifest() -> Vec<Value> {
    let text = fs::read_to_string(packaging("kubernetes/daemonset.yaml")).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| serde::Deserialize::deserialize(document).unwrap()).collect()
}

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn pod() -> Value {
    let documents = manifest();
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Namespace", "ConfigMap", "DaemonSet"]);
    documents[2]["spec"]["template"]["spec"].clone()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_daemonset_asks_for_no_more_than_is_tried_here() {
    let pod = pod();
    let (container, restore) = (&pod["containers"][0], &pod["initContainers"][0]);
    assert_eq!(container["securityContext"], restore["securityContext"]);
    assert_eq!(container["volumeMounts"], restore["volumeMounts"]);
    let context = &container["securityContext"];
    assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["privileged"], Value::Null);
    assert_eq!((&pod["hostPID"], &pod["hostNetwork"]), (&Value::Bool(true), &Value::Null));
    // The recipe for an engine says the same.
    let recipe = fs::read_to_string(packaging("container/Containerfile")).unwrap();
    let capabilities = strings(&context["capabilities"]["add"]).join(",");
    assert!(recipe.contains(&format!("--cap-add {capabilities} ")), "{capabilities}");
    for mount in container["volumeMounts"].as_array().unwrap() {
        let path = mount["mountPath"].as_str().unwrap();
        assert!(recipe.contains(&format!("-v {path}:{path}")), "{path}");
    }
}

#[test]
fn its_configuration_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gleaner.toml");
    let text =
        manifest()[1]["data"]["gleaner.toml"].as_str().unwrap().replace("# [", "[").replace("# cgroup", "cgroup");
    assert!(text.contains("[group."), "{text}");
    fs::write(&file, text).unwrap();
    let checked = Command::new(GLEANER).args(["config", "check"]).arg(file).status().unwrap();
    assert!(checked.success());
}

/// What a runtime would make of the manifest, around `words`.
fn contained(state: &Path, configuration: &Path, words: &[&str]) -> Command {
    let container = pod()["containers"][0].clone();
    let mut command = Command::new("bwrap");
    command.args(["--tmpfs", "/", "--ro-bind", GLEANER, "/gleaner", "--proc", "/proc", "--dev", "/dev"]);
    command.args(["--ro-bind", "/sys", "/sys"]);
    for mount in container["volumeMounts"].as_array().unwrap() {
        let path = mount["mountPath"].as_str().unwrap();
        let (how, from) = match path {
            "/etc/gleaner" => ("--ro-bind", configuration),
            "/run/gleaner" => ("--bind", state),
            path => ("--bind", Path::new(path)),
        };
        command.arg(how).arg(from).arg(path);
    }
    command.args([
        "--remount-ro",
        "/",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
    ]);
    for capability in strings(&container["securityContext"]["capabilities"]["add"]) {
        command.arg("--cap-add").arg(format!("CAP_{capability}"));
    }
    command.arg("/gleaner").args(words);
    command
}

struct Contained(Child);

impl Drop for Contained {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon's own process: bubblewrap stays as its parent.
fn daemon_of(state: &Path) -> Option<i32> {
    fs::read_to_string(state.join("daemon.lock")).ok()?.trim().parse().ok()
}

#[test]
fn the_daemon_in_a_container_acts_and_undoes_machine() {
    let bwrap = Command::new("bwrap").args(["--tmpfs", "/", "--ro-bind", GLEANER, "/g", "/g", "-V"]).output();
    if !is_root() || !bwrap.is_ok_and(|output| output.status.success()) {
        gleaner_testing::skip!("needs root and bubblewrap");
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, configuration) = (folder.path().join("state"), folder.path().join("etc"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&configuration).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let (before, program) = (idle_values(), Program::start());
    let text = format!(
        "[group.a]\npid = {}\nprofile = \"latency\"\ntrial = false\nparams = {{ steal_share_stop = 1.0 }}\n",
        program.pid()
    );
    fs::write(configuration.join("gleaner.toml"), text).unwrap();
    let log = folder.path().join("log");
    let mut command = contained(&state, &configuration, &["daemon"]);
    command.stdin(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut daemon = Contained(command.spawn().unwrap());
    let said = || fs::read_to_string(&log).unwrap();
    assert!(comes_true(|| said().contains("managing one group")), "{}", said());
    assert!(said().contains("a: process "), "{}", said());
    let pid = daemon_of(&state).expect("the lock names it");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    if Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists() {
        assert!(comes_true(|| idle_values() != before), "nothing was retained: {}", said());
    } else {
        gleaner_testing::skipped("needs root and a cpuidle driver");
    }
    send(pid, libc::SIGTERM);
    assert!(daemon.0.wait().unwrap().success(), "{}", said());
    assert_eq!(idle_values(), before, "{}", said());
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    program.ends_well();
}
