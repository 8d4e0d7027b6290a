//! `gleaner daemon` serves its metrics where the configuration says, from one reload to the next.

mod common;

use common::daemon::Daemon;
use common::program::Program;
use common::{LONGEST_WAIT, comes_true, finish, gleaner};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

fn configuration(program: &Program, socket: Option<&Path>) -> String {
    let listen = socket.map(|path| format!("[metrics]\nlisten = \"unix:{}\"\n", path.display()));
    listen.unwrap_or_default() + &format!("[group.one]\npid = {}\nprofile = \"observe-only\"\n", program.pid())
}

/// What is served there.
fn page(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LONGEST_WAIT)).unwrap();
    stream.set_write_timeout(Some(LONGEST_WAIT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    std::io::read_to_string(stream).unwrap()
}

#[test]
fn metrics_are_served_where_the_configuration_says_and_gone_afterwards() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("metrics.sock");
    let daemon = Daemon::start(&configuration(&program, Some(&socket)));
    let text = page(&socket);
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("\ngleaner_groups 1.0\n"), "{text}");
    assert!(text.contains("\ngleaner_group_decisions_total{group=\"one\"} 0"), "{text}");
    assert_eq!(daemon.ends(), (Some(0), false));
    assert!(!socket.exists());
    program.ends_well();
}

#[test]
fn a_reload_begins_moves_and_ends_them() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "somebody's").unwrap();
    let mut daemon = Daemon::start(&configuration(&program, None));
    let mut reload = |socket: Option<&Path>, told: &[&str]| {
        std::fs::write(daemon.configuration(), configuration(&program, socket)).unwrap();
        daemon.signal(libc::SIGHUP);
        for words in told {
            daemon.says(words);
        }
    };
    reload(Some(&first), &["reloaded"]);
    assert!(page(&first).starts_with("HTTP/1.1 200 OK"));
    reload(Some(&taken), &["metrics stay as they were", "reloaded"]);
    assert!(page(&first).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "somebody's");
    reload(Some(&second), &["reloaded"]);
    assert!(page(&second).starts_with("HTTP/1.1 200 OK"));
    assert!(comes_true(|| !first.exists()));
    reload(None, &["reloaded"]);
    assert!(comes_true(|| !second.exists()));
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}

/// Whoever listens there goes on, whatever the daemon does; what a killed one left is replaced.
#[test]
fn a_socket_of_another_service_is_left_to_it() {
    let (program, folder) = (Program::start(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("theirs");
    let theirs = UnixListener::bind(&socket).unwrap();
    let mut command = gleaner(["daemon", "--state-dir"]);
    let file = folder.path().join("gleaner.toml");
    std::fs::write(&file, configuration(&program, Some(&socket))).unwrap();
    command.arg(folder.path().join("state")).arg("--config").arg(&file);
    finish(&mut command).with_status(1).naming(&["theirs", "somebody else listens there"]);
    UnixStream::connect(&socket).unwrap();
    // A reload, then one of its own sockets.
    let mut daemon = Daemon::start(&configuration(&program, None));
    for path in [socket.clone(), daemon.state().join("gleaner.sock")] {
        std::fs::write(daemon.configuration(), configuration(&program, Some(&path))).unwrap();
        daemon.signal(libc::SIGHUP);
        daemon.says("metrics stay as they were");
        UnixStream::connect(&path).unwrap();
    }
    assert_eq!(daemon.ends(), (Some(0), false));
    drop(theirs);
    let daemon = Daemon::start(&configuration(&program, Some(&socket)));
    assert!(page(&socket).starts_with("HTTP/1.1 200 OK"));
    std::fs::remove_file(&socket).unwrap();
    let _theirs = UnixListener::bind(&socket).unwrap();
    assert_eq!(daemon.ends(), (Some(0), false));
    UnixStream::connect(&socket).unwrap();
    program.ends_well();
}
