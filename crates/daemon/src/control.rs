//! The control socket: who may ask for what.

use crate::protocol::{Answer, REQUEST_BYTES_MAX, Request};
use crate::server::{Listener, Peer, Serving};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The socket; closed and removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    // Ended in this order.
    _serving: Serving,
    _name: SocketName,
    _folder: Option<OpenedFolder>,
}

/// In a folder that a group may look into: its group and mode from before, for whoever comes after a kill.
const BEFORE: &str = "folder.before";

/// A folder that a group may look into, until this is dropped.
#[derive(Debug)]
struct OpenedFolder {
    path: PathBuf,
    gid: u32,
    mode: u32,
}

impl OpenedFolder {
    fn to(gid: u32, path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        let opened = Self { path: path.to_owned(), gid: found.gid(), mode: found.mode() & 0o7777 };
        fs::write(path.join(BEFORE), format!("{} {:o}\n", opened.gid, opened.mode))?;
        chown(path, None, Some(gid))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o750))?;
        Ok(opened)
    }

    /// As a killed daemon left it.
    fn left_behind(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path.join(BEFORE)).ok()?;
        let (gid, mode) = text.trim().split_once(' ')?;
        let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?;
        Some(Self { path: path.to_owned(), gid: gid.parse().ok()?, mode })
    }
}

/// Gives a folder back what a killed daemon took from it. It is ours and locked.
pub(crate) fn give_back_folder(path: &Path) {
    drop(OpenedFolder::left_behind(path));
    // One that was not written whole tells nothing, and nothing was changed by then.
    let _ = fs::remove_file(path.join(BEFORE));
}

impl Drop for OpenedFolder {
    fn drop(&mut self) {
        let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(self.mode));
        let _ = chown(&self.path, None, Some(self.gid));
        let _ = fs::remove_file(self.path.join(BEFORE));
    }
}

/// A socket's name, which is removed when this is dropped, unless it is another socket's by then.
#[derive(Debug)]
pub(crate) struct SocketName {
    path: PathBuf,
    made: Option<(u64, u64)>,
}

impl SocketName {
    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), made: inode(path) }
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if self.made.is_some() && inode(&self.path) == self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Control {
    /// Listens at `path`, whose folder is ours and locked. `group` may ask, too. `ask` answers.
    ///
    /// # Errors
    /// When the socket cannot be made, or there can be no thread.
    pub(crate) fn start(
        path: &Path,
        group: Option<u32>,
        mut ask: impl FnMut(Request, Peer) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        path.parent().into_iter().for_each(give_back_folder);
        // A killed daemon's: there is one at a time.
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let (listener, name) = bind(path, group)?;
        let folder = group.zip(path.parent()).map(|(gid, folder)| OpenedFolder::to(gid, folder)).transpose()?;
        let answer = move |request: &[u8], peer| {
            let answer = answer_to(request, peer, &mut ask)?;
            let mut line = serde_json::to_vec(&answer).ok()?;
            line.push(b'\n');
            Some(line)
        };
        let serving = Serving::start("gleaner-control", Listener::Unix(listener), answer)?;
        Ok(Self { _serving: serving, _name: name, _folder: folder })
    }
}

/// A socket for root and us, and for `group` where there is one: the kernel refuses everybody else. One at which nobody
/// listens any more is removed first.
pub(crate) fn bind(path: &Path, group: Option<u32>) -> io::Result<(UnixListener, SocketName)> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() && is_deserted(path) => fs::remove_file(path)?,
        Ok(found) if found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody else listens there; name another path"));
        }
        // Whatever it is, it is not ours to remove.
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else, no socket")),
        Err(_) => {}
    }
    // Made with its mode, so that nothing has to be changed by name afterwards.
    let had = rustix::process::umask(if group.is_some() { 0o117 } else { 0o177 }.into());
    let listener = UnixListener::bind(path);
    rustix::process::umask(had);
    let listener = listener?;
    let name = SocketName::of(path);
    if group.is_some() {
        lchown(path, None, group)?;
    }
    Ok((listener, name))
}

/// Whether nobody has this socket any more: the kernel says so, and something else of a socket of another kind.
fn is_deserted(path: &Path) -> bool {
    let connected = SocketAddrUnix::new(path).and_then(|address| {
        // Where many wait already it is not waited for.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    connected == Err(Errno::CONNREFUSED)
}

/// `None` until the line is whole.
pub(crate) fn answer_to(request: &[u8], peer: Peer, ask: &mut impl FnMut(Request, Peer) -> Answer) -> Option<Answer> {
    let Some(end) = request.iter().position(|byte| *byte == b'\n') else {
        let too_long = request.len() > REQUEST_BYTES_MAX;
        return too_long.then(|| Answer::Error("the request is too long".to_owned()));
    };
    Some(match serde_json::from_slice::<Request>(&request[..end]) {
        Err(error) => Answer::Error(format!("no request: {error}")),
        // The socket's group may only look.
        Ok(request) if request.is_for_the_trusted() && !peer.is_trusted => {
            Answer::Error("only root and the daemon's own user may do that".to_owned())
        }
        Ok(request) => ask(request, peer),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn start(folder: &Path) -> Control {
        Control::start(&folder.join("s"), None, |_, _| Answer::Reloaded(7)).unwrap()
    }

    fn asked(path: &Path, text: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // It may have been refused before it was read whole.
        let _ = stream.write_all(text);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn a_request_has_one_answer_and_the_socket_is_gone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let control = start(folder.path());
        let path = folder.path().join("s");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(asked(&path, b"{\"request\":\"status\"}\n{\"request\":\"status\"}\n"), "{\"reloaded\":7}\n");
        drop(control);
        assert!(!path.exists());
    }

    #[test]
    fn a_group_may_look_into_the_folder_until_the_end() {
        if !rustix::process::geteuid().is_root() {
            gleaner_testing::skip!("needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let stands = || fs::metadata(folder.path()).map(|found| (found.mode() & 0o777, found.gid())).unwrap();
        let before = stands();
        let control = Control::start(&folder.path().join("s"), Some(54_321), |_, _| Answer::Reloaded(7)).unwrap();
        assert_eq!(stands(), (0o750, 54_321));
        drop(control);
        assert_eq!(stands(), before);
        // A kill: nobody drops it.
        let start = |group| Control::start(&folder.path().join("s"), group, |_, _| Answer::Reloaded(7)).unwrap();
        std::mem::forget(start(Some(54_321)));
        drop(start(Some(54_322)));
        assert_eq!(stands(), before);
        std::mem::forget(start(Some(54_321)));
        let _control = start(None);
        assert_eq!(stands(), before);
        assert!(!folder.path().join(BEFORE).exists());
    }

    #[test]
    fn a_socket_of_others_is_neither_replaced_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let theirs = UnixListener::bind(&path).unwrap();
        assert_eq!(bind(&path, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(theirs);
        let (ours, name) = bind(&path, None).unwrap();
        // Somebody takes the name, and it is theirs.
        fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        drop((ours, name));
        UnixStream::connect(&path).unwrap();
        drop(theirs);
        fs::remove_file(&path).unwrap();
        let _datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert_eq!(bind(&path, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let _control = start(folder.path());
        let path = folder.path().join("s");
        for text in [&b"\n"[..], b"{\"request\":\"explode\"}\n", b"\xff\xfe\n", b"[[[[\n"] {
            assert!(asked(&path, text).starts_with("{\"error\":\"no request: "), "{text:?}");
        }
        assert!(asked(&path, &vec![b'x'; 2 * REQUEST_BYTES_MAX]).contains("too long"));
    }

    #[test]
    fn only_who_is_trusted_may_change_something() {
        let mut asked = 0;
        let mut ask = |_, _| {
            asked += 1;
            Answer::Reloaded(1)
        };
        let mut answer = |text: &[u8], is_trusted| answer_to(text, Peer { is_trusted, ..Peer::default() }, &mut ask);
        for order in ["{\"request\":\"reload\"}\n", "{\"request\":\"hold\",\"group\":\"a\"}\n"] {
            assert!(matches!(answer(order.as_bytes(), false), Some(Answer::Error(_))), "{order}");
        }
        assert_eq!(answer(b"{\"request\":\"reload\"}\n", true), Some(Answer::Reloaded(1)));
        assert_eq!(answer(b"{\"request\":\"status\"}\n", false), Some(Answer::Reloaded(1)));
        assert_eq!(answer(b"{\"request\":\"status\"}", true), None);
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_thousand_clients_that_neither_write_nor_read_keep_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let _control = start(folder.path());
        let path = folder.path().join("s");
        let mut silent = Vec::new();
        for n in 0..1000 {
            let Ok(mut stream) = UnixStream::connect(&path) else { continue };
            if n % 2 == 0 {
                let _ = stream.write_all(b"{\"request\":\"status\"}\n");
            }
            silent.push(stream);
            // This test may have few descriptors.
            if silent.len() > 200 {
                silent.remove(0);
            }
        }
        assert_eq!(asked(&path, b"{\"request\":\"status\"}\n"), "{\"reloaded\":7}\n");
    }

    fn cases() -> proptest::prelude::ProptestConfig {
        proptest::prelude::ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() }
    }

    proptest::proptest! {
        #![proptest_config(cases())]

        /// Whatever is sent, it is answered or dropped, and the next one is served.
        #[test]
        fn garbage_harms_nobody(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let folder = tempfile::tempdir().unwrap();
            let _control = start(folder.path());
            let path = folder.path().join("s");
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(&bytes);
            drop(stream);
            proptest::prop_assert_eq!(asked(&path, b"{\"request\":\"reload\"}\n"), "{\"reloaded\":7}\n");
        }
    }
}
