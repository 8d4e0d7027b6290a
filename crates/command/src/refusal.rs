//! What is said of a command that cannot be run: what the kernel said, and what to write instead.
//!
//! People hand over what only a shell understands (`'a | b'`, `FOO=1 make`, `cd`): the message says how to do that.

use gleaner_model::printable;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a command did not start.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 127 when there is no such command, 126 when it cannot be executed, 125 otherwise; as env(1) and nohup(1) do.
    pub status: u8,
    /// What to say.
    pub message: String,
}

/// What is said when the kernel refuses to start `command`.
pub fn refusal(command: &[OsString], error: &io::Error) -> Refusal {
    let name = name_of(command);
    let of = |status, why: &str| Refusal { status, message: format!("cannot run '{name}': {why}") };
    // A line for a shell may be too long for a name, or lead through a file.
    if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENAMETOOLONG | libc::ENOTDIR)) {
        return of(127, &not_found(command));
    }
    let path = Path::new(command.first().map_or(OsStr::new(""), OsString::as_os_str));
    match error.kind() {
        io::ErrorKind::PermissionDenied if path.is_dir() => of(126, "permission denied: it is a folder"),
        io::ErrorKind::PermissionDenied => of(126, "permission denied; is it an executable file? (chmod +x)"),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            of(126, &format!("{error}; a script needs a first line such as #!/bin/sh"))
        }
        io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            Refusal { status: 125, message: format!("cannot start '{name}': {error}") }
        }
        _ => of(126, &error.to_string()),
    }
}

/// Whether there is a file that could be this command; `None` where none is found.
pub fn find(command: &[OsString]) -> Option<PathBuf> {
    let name = command.first().filter(|name| !name.is_empty())?;
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

/// Whether somebody may execute it.
pub fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// What is said of a command that is not found.
pub fn not_found(command: &[OsString]) -> String {
    if let Some(file) = find(command) {
        return missing_interpreter(&file);
    }
    if command.first().is_none_or(|name| name.is_empty()) {
        return "command not found; its name is empty".to_owned();
    }
    "command not found; check its spelling, or, if it is for a shell, write: sh -c '...'".to_owned()
}

/// The command's name, fit to be shown.
pub fn name_of(command: &[OsString]) -> String {
    printable(command.first().map_or(&[], |name| name.as_bytes()))
}

/// The file is there; what is not is what its first line names, or what loads it.
fn missing_interpreter(file: &Path) -> String {
    let mut start = Vec::new();
    // What cannot be read is no script that could be told from a program.
    let _ = File::open(file).and_then(|file| file.take(256).read_to_end(&mut start));
    let Some(line) = start.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next()) else {
        return "its loader is not found: it was made for another system (`file` tells which)".to_owned();
    };
    let interpreter = line.trim_ascii_start().split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    let advice =
        if line.ends_with(b"\r") { "its lines end in CR LF, which `dos2unix` changes" } else { "correct that line" };
    format!("the interpreter in its first line, {}, is not found; {advice}", printable(interpreter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_command_that_is_not_found_may_be_misspelt_or_for_a_shell() {
        for error in [libc::ENOENT, libc::ENAMETOOLONG, libc::ENOTDIR] {
            let said = refusal(&command(&["x;", "y"]), &io::Error::from_raw_os_error(error));
            assert!(said.status == 127 && said.message.starts_with("cannot run 'x;': command not found"), "{said:?}");
            assert!(said.message.contains("check its spelling") && said.message.contains("sh -c '...'"), "{said:?}");
        }
        let bytes = refusal(&[OsStr::from_bytes(b"a b\xff").to_owned()], &io::Error::from_raw_os_error(libc::ENOENT));
        assert!(bytes.message.contains(r"'a b\xff'"), "{bytes:?}");
        assert!(not_found(&command(&[""])).contains("empty") && not_found(&[]).contains("empty"));
    }

    #[test]
    fn what_is_there_and_cannot_be_executed_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let spaced = folder.path().join("a file");
        std::fs::write(&spaced, "").unwrap();
        for file in ["/etc/passwd", spaced.to_str().unwrap()] {
            let denied = refusal(&command(&[file]), &io::Error::from_raw_os_error(libc::EACCES));
            assert!(denied.status == 126 && denied.message.contains("chmod"), "{denied:?}");
        }
        let inside = refusal(&command(&["/tmp"]), &io::Error::from_raw_os_error(libc::EACCES));
        assert!(inside.status == 126 && inside.message.ends_with("it is a folder"), "{inside:?}");
        let busy = refusal(&command(&["true"]), &io::Error::from_raw_os_error(libc::EAGAIN));
        assert_eq!(busy.status, 125);
    }

    #[test]
    fn a_script_whose_interpreter_is_missing_is_there() {
        let folder = tempfile::tempdir().unwrap();
        for (text, words) in [
            ("#!/no/such/shell -e\n", &["/no/such/shell", "not found", "correct"][..]),
            ("#! /bin/sh\r\n", &["/bin/sh\\r", "CR LF"]),
            ("\x7fELF", &["loader", "another system"]),
        ] {
            let file = folder.path().join("script");
            std::fs::write(&file, text).unwrap();
            let said = not_found(&[file.into_os_string()]);
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }
}
