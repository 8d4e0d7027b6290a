//! A resctrl of our own, mounted with FUSE: the machines that tests run on have no cache allocation.
//!
//! It answers as Linux's does (Documentation/filesystems/resctrl.rst): folders are groups, made and removed with mkdir
//! and rmdir; files are what the kernel says at that moment; a write is taken or refused with the kernel's error
//! number. A plain folder of files could do none of that. It needs /dev/fuse and root.

#[path = "resctrl_kernel.rs"]
mod resctrl_kernel;
#[path = "resctrl_load.rs"]
mod resctrl_load;

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
pub use resctrl_kernel::Machine;
use resctrl_kernel::{Node, State};
#[allow(unused_imports, reason = "only tests that count use it")]
pub use resctrl_load::Nature;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

struct Resctrl(Arc<Mutex<State>>);

const NEVER: Duration = Duration::ZERO;

impl Resctrl {
    fn below(state: &State, parent: INodeNo, name: &OsStr) -> String {
        format!("{}/{}", state.path(parent), name.to_string_lossy())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Filesystem for Resctrl {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.state();
        let path = Self::below(&state, parent, name);
        match attr(&mut state, &path) {
            Some(attr) => reply.entry(&NEVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let mut state = self.state();
        let path = state.path(ino);
        match attr(&mut state, &path) {
            Some(attr) => reply.attr(&NEVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(req, ino, fh, reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        let path = state.path(ino);
        state.opened(&path);
        drop(state);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        match state.node(&state.path(ino)) {
            Some(Node::File(text)) => {
                let from = usize::try_from(offset).unwrap_or(0).min(text.len());
                let to = from.saturating_add(size as usize).min(text.len());
                reply.data(&text.as_bytes()[from..to]);
            }
            Some(Node::Folder(_)) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::ENODEV),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let path = state.path(ino);
        match state.write(&path, &String::from_utf8_lossy(data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut state = self.state();
        let path = state.path(ino);
        let Some(Node::Folder(names)) = state.node(&path) else { return reply.error(Errno::ENOTDIR) };
        for (at, name) in names.iter().enumerate().skip(usize::try_from(offset).unwrap_or(0)) {
            let Some(attr) = attr(&mut state, &format!("{path}/{name}")) else { continue };
            if reply.add(attr.ino, at as u64 + 1, attr.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn mkdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        let mut state = self.state();
        let path = Self::below(&state, parent, name);
        match state.make(&path).map(|()| attr(&mut state, &path)) {
            Ok(Some(attr)) => reply.entry(&NEVER, &attr, Generation(0)),
            Ok(None) => reply.error(Errno::EIO),
            Err(errno) => reply.error(errno),
        }
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let path = Self::below(&state, parent, name);
        match state.remove(&path) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}

fn attr(state: &mut State, path: &str) -> Option<FileAttr> {
    let (kind, perm) = match state.node(path)? {
        Node::Folder(_) => (FileType::Directory, 0o755),
        Node::File(_) => (FileType::RegularFile, 0o644),
    };
    let ino = INodeNo(state.inode(path));
    let time = UNIX_EPOCH;
    let (size, blocks, nlink, uid, gid, rdev, blksize, flags) = (0, 0, 1, 0, 0, 0, 512, 0);
    Some(FileAttr {
        ino,
        size,
        blocks,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink,
        uid,
        gid,
        rdev,
        blksize,
        flags,
    })
}

/// A mounted one; unmounted when dropped.
pub struct FakeResctrl {
    state: Arc<Mutex<State>>,
    session: Option<BackgroundSession>,
    folder: tempfile::TempDir,
}

impl FakeResctrl {
    /// Mounts one; `None`, said aloud, where that cannot be done.
    pub fn mount(machine: Machine) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            gleaner_testing::skipped("needs root and /dev/fuse");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let state = Arc::new(Mutex::new(State::new(machine)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("resctrl-test".into())];
        let session = fuser::spawn_mount(Resctrl(Arc::clone(&state)), folder.path(), &config)
            .expect("FUSE cannot be mounted: the test needs root and /dev/fuse");
        Some(Self { state, session: Some(session), folder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What the kernel knows.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Every change there was, and forgets them.
    #[allow(dead_code, reason = "not every test reads it")]
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }

    /// Names of the groups there are, and of the monitoring groups.
    pub fn groups(&self) -> Vec<String> {
        self.state().names()
    }

    /// The folder of counters, for `--counters`.
    #[allow(dead_code, reason = "only tests that count use it")]
    pub fn counters(&self) -> std::path::PathBuf {
        self.path().join("counters")
    }

    /// From its next interval on a thread is of this nature; only threads that have one can be counted.
    #[allow(dead_code, reason = "only tests that count use it")]
    pub fn play(&self, tid: i32, nature: Nature) {
        self.state().load.natures.insert(tid, nature);
    }

    /// Whether a thread is in a group.
    pub fn holds(&self, group: &str, tid: i32) -> bool {
        self.state().tasks(group).contains(&tid)
    }
}

impl Drop for FakeResctrl {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // A test may have unmounted it.
            let _ = session.umount_and_join();
        }
    }
}
