//! What is said of a command that cannot be run: what the kernel said, and what to write instead.
//!
//! People hand over what a shell would understand (`'a | b'`, `FOO=1 make`, `cd`), and it is no program: then the
//! message says what to write.

use gleaner_model::printable;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest command that is written out again.
const LONGEST: usize = 400;
/// Words that only a shell understands; those of the second list only bash and its like.
const OF_SHELLS: [&[u8]; 38] = [
    b".",
    b":",
    b"!",
    b"{",
    b"}",
    b"(",
    b")",
    b"alias",
    b"bg",
    b"break",
    b"case",
    b"cd",
    b"command",
    b"continue",
    b"do",
    b"done",
    b"eval",
    b"exec",
    b"exit",
    b"export",
    b"fc",
    b"fg",
    b"for",
    b"getopts",
    b"hash",
    b"if",
    b"jobs",
    b"local",
    b"read",
    b"readonly",
    b"return",
    b"set",
    b"shift",
    b"trap",
    b"ulimit",
    b"umask",
    b"until",
    b"while",
];
const OF_BASH: [&[u8]; 21] = [
    b"[[",
    b"((",
    b"builtin",
    b"declare",
    b"dirs",
    b"disown",
    b"enable",
    b"function",
    b"let",
    b"mapfile",
    b"popd",
    b"pushd",
    b"readarray",
    b"select",
    b"shopt",
    b"source",
    b"suspend",
    b"time",
    b"typeset",
    b"coproc",
    b"logout",
];
const MORE_OF_SHELLS: [&[u8]; 8] = [b"test", b"[", b"times", b"type", b"unalias", b"unset", b"wait", b"]]"];

fn without_spaces(word: &OsStr) -> Vec<u8> {
    word.as_bytes().iter().copied().filter(|byte| *byte != b' ').collect()
}

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
    let missing = error.kind() == io::ErrorKind::NotFound;
    // A long line is too long a name, and one with a file's name in it may lead through that file.
    let odd = matches!(error.raw_os_error(), Some(libc::ENAMETOOLONG | libc::ENOTDIR | libc::EACCES));
    let path = Path::new(command.first().map_or(OsStr::new(""), OsString::as_os_str));
    let is_file = path.exists() && !path.is_dir();
    if missing || (odd && !is_file && is_for_a_shell(command)) {
        return of(127, &not_found(command));
    }
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
    if is_for_a_shell(command) {
        let line = for_a_shell(command);
        // A file's name may have spaces.
        let spaces = command.len() == 1 && !is_for_a_shell(&[OsString::from_vec(without_spaces(&command[0]))]);
        let why = if spaces {
            "check its spelling, or, if a shell is to take its words apart,"
        } else {
            "only a shell would understand this:"
        };
        return format!("command not found; {why} write: {line}");
    }
    "command not found; check its spelling, or give its path".to_owned()
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

/// Whether only a shell would understand it.
fn is_for_a_shell(command: &[OsString]) -> bool {
    let Some((first, more)) = command.split_first() else { return false };
    let first = first.as_bytes();
    let signs = |word: &[u8]| word.iter().any(|byte| b"|&;<>()$`*?[]{}!~\"'\\ \t\n".contains(byte));
    let operator =
        |word: &OsString| matches!(word.as_bytes(), b"|" | b"||" | b"&&" | b"&" | b";" | b">" | b">>" | b"<" | b"2>&1");
    signs(first) || is_assignment(first) || is_word_of_shells(first) || more.iter().any(operator)
}

fn is_word_of_shells(word: &[u8]) -> bool {
    OF_SHELLS.contains(&word) || MORE_OF_SHELLS.contains(&word) || OF_BASH.contains(&word)
}

/// `NAME=value`.
fn is_assignment(word: &[u8]) -> bool {
    let Some(at) = word.iter().position(|byte| *byte == b'=') else { return false };
    let name = &word[..at];
    let letters = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    letters && name.first().is_some_and(|first| !first.is_ascii_digit())
}

/// `sh -c '...'` with the same words.
fn for_a_shell(command: &[OsString]) -> String {
    let line = match command {
        // One word is a line for a shell as it is, and so begins a command that is none. What follows stays what a
        // shell made of it.
        [line] => line.as_bytes().to_vec(),
        [first, words @ ..] => {
            let first = if is_assignment(first.as_bytes()) { quoted_word(first) } else { first.as_bytes().to_vec() };
            let words = words.iter().map(|word| quoted_word(word));
            std::iter::once(first).chain(words).collect::<Vec<_>>().join(&b' ')
        }
        [] => Vec::new(),
    };
    let shell = if takes_bash(&line) { "bash" } else { "sh" };
    let shown = String::from_utf8(line).ok().filter(|line| {
        let harmless = printable(line.replace('\n', "").as_bytes()) == line.replace('\n', "");
        harmless && line.len() <= LONGEST
    });
    match shown {
        Some(line) => format!("{shell} -c {}", quoted(&line)),
        None => format!("{shell} -c '...'"),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A word as a shell has to be given it, so that it stays what it is: all but operators and redirections, which only a
/// shell understands.
fn quoted_word(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    let plain = |bytes: &[u8]| bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-./=:,@%+^".contains(byte));
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if is_assignment(bytes) => bytes.split_at(at + 1),
        _ => (&[][..], bytes),
    };
    let ends = value.strip_suffix(b";").or_else(|| value.strip_suffix(b"&")).is_some_and(plain);
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let redirects = value[digits..].starts_with(b"<") || value[digits..].starts_with(b">");
    if (plain(value) && !bytes.is_empty()) || ends || is_operator(value) || (redirects && !value.contains(&b' ')) {
        return bytes.to_vec();
    }
    let inner = value.split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&br"'\''"[..]);
    [name, b"'", &inner, b"'"].concat()
}

fn is_operator(word: &[u8]) -> bool {
    matches!(
        word,
        b"|" | b"||" | b"&&" | b"&" | b";" | b"|&" | b"{" | b"}" | b"(" | b")" | b"!" | b"[" | b"]" | b"[[" | b"]]"
    )
}

/// Whether `sh` would not do.
fn takes_bash(line: &[u8]) -> bool {
    let holds = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
    let words = || line.split(|byte| b" \t\n;|&".contains(byte));
    let braces = holds(b"{") && holds(b"}") && (holds(b"..") || holds(b",")) && !holds(b"${");
    let parts: [&[u8]; 7] = [b"<(", b">(", b"&>", b"|&", b"<<<", b"$'", b"(("];
    braces || words().any(|word| OF_BASH.contains(&word)) || parts.into_iter().any(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn what_is_for_a_shell_is_written_for_one() {
        for (words, advice) in [
            (&["sleep 0.1 && true"][..], "sh -c 'sleep 0.1 && true'"),
            (&["FOO=1 sleep 0.1"], "sh -c 'FOO=1 sleep 0.1'"),
            (&["FOO=1", "sleep", "0.1"], "sh -c 'FOO=1 sleep 0.1'"),
            (&["FOO=a b", "make", "it's", ""], r"sh -c 'FOO='\''a b'\'' make '\''it'\''\'\'''\''s'\'' '\'''\'''"),
            (&["sleep 0.1 | cat"], "sh -c 'sleep 0.1 | cat'"),
            (&["cat /etc/passwd|wc -l"], "sh -c 'cat /etc/passwd|wc -l'"),
            (&["no-such-thing", "-x", "|", "cat"], "sh -c 'no-such-thing -x | cat'"),
            (&["no-such-thing", "&&", "a b"], r"sh -c 'no-such-thing && '\''a b'\'''"),
            (&["echo 'a b' > /tmp/x"], r"sh -c 'echo '\''a b'\'' > /tmp/x'"),
            (&["ls *.c"], "sh -c 'ls *.c'"),
            (&["$HOME/bin/x"], "sh -c '$HOME/bin/x'"),
            (&["~/bin/x"], "sh -c '~/bin/x'"),
            (&["`which x`"], "sh -c '`which x`'"),
            (&["cd"], "sh -c 'cd'"),
            (&["cd", "/tmp"], "sh -c 'cd /tmp'"),
            (&["ulimit", "-n", "10"], "sh -c 'ulimit -n 10'"),
            (&["exec", "no"], "sh -c 'exec no'"),
            (&[". ./env.sh; make"], "sh -c '. ./env.sh; make'"),
            (&["make &"], "sh -c 'make &'"),
            (&["a\nb"], "sh -c 'a\nb'"),
            (&["source", "env.sh"], "bash -c 'source env.sh'"),
            (&["pushd x && make"], "bash -c 'pushd x && make'"),
            (&["[[ -f x ]] && make"], "bash -c '[[ -f x ]] && make'"),
            (&["diff <(a) <(b)"], "bash -c 'diff <(a) <(b)'"),
            (&["echo {1..3}"], "bash -c 'echo {1..3}'"),
            (&["a b\u{1b}[2J"], "sh -c '...'"),
        ] {
            let said = not_found(&command(words));
            assert!(said.ends_with(&format!("write: {advice}")), "{words:?}: {said}");
        }
        let spaced = not_found(&command(&["/opt/my program/x"]));
        assert!(spaced.contains("check its spelling") && spaced.ends_with("sh -c '/opt/my program/x'"), "{spaced}");
        let long = "x; ".repeat(300);
        let too_long = refusal(&command(&[&long]), &io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        assert!(too_long.status == 127 && too_long.message.ends_with("sh -c '...'"), "{too_long:?}");
        let bytes = refusal(&[OsStr::from_bytes(b"a b\xff").to_owned()], &io::Error::from_raw_os_error(libc::ENOENT));
        assert!(bytes.message.contains(r"'a b\xff'") && bytes.message.ends_with("sh -c '...'"), "{bytes:?}");
    }

    #[test]
    fn what_the_shell_gets_is_what_was_meant() {
        let run = |words: &[&str]| {
            let line = for_a_shell(&command(words));
            std::process::Command::new("sh").arg("-c").arg(line).output().unwrap()
        };
        let words = ["it's", "", "back\\slash", "\"q\"", "two\nlines", "a b", "$HOME", "*", "a&b;c", "~", "#", "x=y z"];
        let meant = format!("[{}]", words.join("]["));
        let mut given = vec!["SEEN=a 'b'", "sh", "-c", "printf '[%s]' \"$@\"; printf \"$SEEN\"", "name"];
        given.extend(words);
        assert_eq!(String::from_utf8_lossy(&run(&given).stdout), format!("{meant}a 'b'"));
        // What only a shell understands is left to it.
        let output = run(&["cd", "/;", "printf", "a b", "|", "cat", ">&2", "&&", "true"]);
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b""[..], &b"a b"[..]));
    }

    #[test]
    fn what_is_only_misspelt_is_not_sent_to_a_shell() {
        for words in [&["no-such-command-anywhere"][..], &["./no/such/path", "--x=1", "*"], &["gcc-99", "a=b"]] {
            assert!(not_found(&command(words)).contains("check its spelling"), "{words:?}");
        }
        assert!(not_found(&command(&[""])).contains("empty") && not_found(&[]).contains("empty"));
        let folder = tempfile::tempdir().unwrap();
        let spaced = folder.path().join("a file");
        std::fs::write(&spaced, "").unwrap();
        for file in ["/etc/passwd", spaced.to_str().unwrap()] {
            let denied = refusal(&command(&[file]), &io::Error::from_raw_os_error(libc::EACCES));
            assert!(denied.status == 126 && denied.message.contains("chmod"), "{denied:?}");
        }
        let line = refusal(&command(&["FOO=1 x"]), &io::Error::from_raw_os_error(libc::EACCES));
        assert!(line.status == 127 && line.message.contains("sh -c 'FOO=1 x'"), "{line:?}");
        // A folder is called so, and it is a shell's command all the same.
        let read = refusal(&command(&[".", "env.sh"]), &io::Error::from_raw_os_error(libc::EACCES));
        assert!(read.status == 127 && read.message.ends_with("sh -c '. env.sh'"), "{read:?}");
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
