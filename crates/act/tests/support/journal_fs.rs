//! A folder for journals, mounted with FUSE, that refuses a line or kills its writer right after one: at a moment that
//! is chosen.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What happens to a line of a journal; its header is none, the first is line 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// There is no space for it.
    Refuse(usize),
    /// It is written, and its writer is killed before it hears of that.
    Kill(usize),
}

#[derive(Default)]
struct Files {
    by_inode: BTreeMap<u64, (String, Vec<u8>)>,
    fault: Option<Fault>,
    lines: usize,
}

impl Files {
    fn find(&self, name: &OsStr) -> Option<u64> {
        self.by_inode.iter().find(|(_, (known, _))| OsStr::new(known) == name).map(|(inode, _)| *inode)
    }

    fn attr(&self, inode: u64) -> Option<FileAttr> {
        let size = if inode == INodeNo::ROOT.0 { Some(0) } else { self.by_inode.get(&inode).map(|it| it.1.len()) }?;
        let (kind, perm) =
            if inode == INodeNo::ROOT.0 { (FileType::Directory, 0o700) } else { (FileType::RegularFile, 0o600) };
        let uid = rustix::process::geteuid().as_raw();
        let (ino, size, blocks, nlink, gid, rdev, blksize, flags) = (INodeNo(inode), size as u64, 0, 1, 0, 0, 512, 0);
        Some(FileAttr {
            ino,
            size,
            blocks,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
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

    /// Takes a write of a journal's: each is a line.
    fn append(&mut self, inode: u64, data: &[u8], writer: u32) -> Result<(), Errno> {
        let Some((_, file)) = self.by_inode.get_mut(&inode) else { return Err(Errno::ENOENT) };
        if !file.is_empty() {
            let line = self.lines;
            self.lines += 1;
            match self.fault {
                Some(Fault::Refuse(at)) if at == line => return Err(Errno::ENOSPC),
                // SAFETY: no memory is passed. It dies when it comes back from the kernel.
                Some(Fault::Kill(at)) if at == line => unsafe {
                    libc::kill(writer.cast_signed(), libc::SIGKILL);
                },
                _ => {}
            }
        }
        file.extend_from_slice(data);
        Ok(())
    }
}

struct Server(Arc<Mutex<Files>>);

const NEVER: Duration = Duration::ZERO;

impl Server {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = self.files();
        match files.find(name).and_then(|inode| files.attr(inode)) {
            Some(attr) => reply.entry(&NEVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.files().attr(ino.0) {
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

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut files = self.files();
        let inode = files.by_inode.keys().next_back().map_or(2, |last| last + 1);
        files.by_inode.insert(inode, (name.to_string_lossy().into_owned(), Vec::new()));
        match files.attr(inode) {
            Some(attr) => {
                reply.created(&NEVER, &attr, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
            }
            None => reply.error(Errno::EIO),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
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
        let files = self.files();
        let Some((_, text)) = files.by_inode.get(&ino.0) else { return reply.error(Errno::ENOENT) };
        let from = usize::try_from(offset).unwrap_or(0).min(text.len());
        reply.data(&text[from..from.saturating_add(size as usize).min(text.len())]);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.files().append(ino.0, data, req.pid()) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let files = self.files();
        let from = usize::try_from(offset).unwrap_or(0);
        for (at, (inode, (name, _))) in files.by_inode.iter().enumerate().skip(from) {
            if reply.add(INodeNo(*inode), at as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut files = self.files();
        let found = files.find(name).and_then(|inode| files.by_inode.remove(&inode));
        if found.is_some() { reply.ok() } else { reply.error(Errno::ENOENT) }
    }
}

/// A mounted one; unmounted when dropped.
pub struct JournalFs {
    files: Arc<Mutex<Files>>,
    session: Option<BackgroundSession>,
    folder: tempfile::TempDir,
}

impl JournalFs {
    /// Mounts one in which that happens. It takes root and /dev/fuse.
    pub fn mount(fault: Fault) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(Mutex::new(Files { fault: Some(fault), ..Files::default() }));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("journal-test".into())];
        let session = fuser::spawn_mount(Server(Arc::clone(&files)), folder.path(), &config).unwrap();
        Self { files, session: Some(session), folder }
    }

    /// Where it is: a state folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Lines that were written or refused so far, headers not counted.
    pub fn lines(&self) -> usize {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).lines
    }
}

impl Drop for JournalFs {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}
