use super::lock::*;
use super::read::*;
use super::*;
use crate::affinity::ThreadAffinity;
use crate::cgroup::{DisableController, RemoveCgroup};
use crate::process_start_time;
use crate::procs::{own_start_time, thread_start_time};
use crate::retain::FileValue;
use crate::undo::KINDS;
use rustix::fs::{FlockOperation, flock};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;

fn read(path: &Path) -> Result<JournalState, ActError> {
    super::read(path, &KINDS)
}

fn written(entries: &[RemoveCgroup]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), "run-1").unwrap();
    for entry in entries {
        journal.before(entry).unwrap();
    }
    let path = journal.path().to_owned();
    (dir, path)
}

fn entry() -> RemoveCgroup {
    RemoveCgroup { path: "/nowhere".into() }
}

/// As it is read back.
fn line<T: Change>(change: &T) -> Entry {
    serde_json::from_value(serde_json::json!({ (T::NAME): change })).unwrap()
}

#[test]
fn what_was_written_is_read_back() {
    let (_dir, path) = written(&[entry()]);
    let state = read(&path).unwrap();
    assert_eq!((state.run_id.as_str(), state.undos), ("run-1", vec![line(&entry())]));
    assert_eq!(state.alive, i32::try_from(std::process::id()).ok());
}

#[test]
fn a_line_of_which_a_part_was_written_is_taken_back() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (_dir, path) = written(&[]);
    let mut journal = Journal::create(path.parent().unwrap(), "run-2").unwrap();
    journal.before(&entry()).unwrap();
    // SAFETY: ignoring a signal touches no memory. By default it would end the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let had = getrlimit(Resource::Fsize);
    let length = fs::metadata(journal.path()).unwrap().len();
    setrlimit(Resource::Fsize, Rlimit { current: Some(length + 10), ..had }).unwrap();
    let refused = journal.before(&entry());
    setrlimit(Resource::Fsize, had).unwrap();
    refused.unwrap_err();
    journal.before(&entry()).unwrap();
    assert_eq!(read(journal.path()).unwrap().undos, [line(&entry()), line(&entry())]);
}

#[test]
fn what_was_written_between_a_look_and_a_kill_is_read() {
    for written_first in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let mut run = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let (pid, own) = (i32::try_from(run.id()).unwrap(), std::process::id());
        let start_time = process_start_time(pid).unwrap();
        let mut journal = Journal::create(dir.path(), &format!("{pid}-{start_time}")).unwrap();
        journal.before(&entry()).unwrap();
        let (path, text) = (journal.path().to_owned(), fs::read_to_string(journal.path()).unwrap());
        // As if the other process had written it, which is killed once the first lines were read.
        drop(journal);
        let own_start = own_start_time().unwrap();
        let text = text.replace(&format!("\"main_pid\":{own}"), &format!("\"main_pid\":{pid}"));
        let text =
            text.replace(&format!("\"main_start_time\":{own_start}"), &format!("\"main_start_time\":{start_time}"));
        let first: String = text.split_inclusive('\n').take(written_first).collect();
        let mut reads = 0;
        let state = read_from(&path, &KINDS, || {
            reads += 1;
            if reads > 1 {
                return Ok(text.clone());
            }
            run.kill().unwrap();
            run.wait().unwrap();
            Ok(first.clone())
        });
        let state = state.unwrap();
        assert_eq!((state.alive, state.undos, reads), (None, vec![line(&entry())], 2), "{written_first}");
    }
}

#[test]
fn a_line_that_a_kill_cut_off_is_ignored() {
    let (_dir, path) = written(&[entry()]);
    let whole = fs::read_to_string(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(read(&path).unwrap().undos, vec![], "cut at {cut}");
    }
}

#[test]
fn a_journal_just_begun_is_not_taken_for_a_dead_ones() {
    let dir = tempfile::tempdir().unwrap();
    let pid = i32::try_from(std::process::id()).unwrap();
    let start_time = process_start_time(pid).unwrap();
    for (start_time, alive) in [(start_time, Some(pid)), (start_time + 1, None)] {
        let path = Journal::path_in(dir.path(), &format!("{pid}-{start_time}"));
        fs::write(&path, "").unwrap();
        assert_eq!(read(&path).unwrap().alive, alive);
    }
}

fn choice(tid: i32, start_time: u64, own: &str) -> ThreadAffinity {
    ThreadAffinity { tid, start_time, own: own.to_owned() }
}

#[test]
fn a_thread_for_every_request_does_not_fill_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), "run-1").unwrap();
    journal.before(&entry()).unwrap();
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let living = choice(own, thread_start_time(own).unwrap(), "0");
    journal.before(&living).unwrap();
    for start_time in 0..u64::try_from(3 * LONG).unwrap() {
        journal.before(&choice(i32::MAX, start_time, "1")).unwrap();
        journal.compact_if_long(crate::affinity::needed(|tid, start| thread_start_time(tid) == Some(start))).unwrap();
    }
    let undos = read(journal.path()).unwrap().undos;
    assert!(undos.len() < LONG && undos.contains(&line(&entry())) && undos.contains(&line(&living)), "{}", undos.len());
    assert_eq!(read_open(journal.path(), journal.file(), &KINDS).unwrap().undos, undos);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn whoever_waited_for_a_journal_that_was_written_anew_waits_for_the_new_one() {
    let (_dir, path) = written(&[entry()]);
    let old = lock(&path).unwrap().unwrap();
    let (says, heard) = std::sync::mpsc::channel();
    let waiting = {
        let path = path.clone();
        std::thread::spawn(move || {
            let locked = lock(&path).unwrap().unwrap();
            says.send(locked.0.metadata().unwrap().ino()).unwrap();
        })
    };
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::copy(&path, path.with_extension("new")).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    drop(old);
    assert_eq!(heard.recv().unwrap(), fs::metadata(&path).unwrap().ino());
    waiting.join().unwrap();
}

#[test]
fn a_line_that_is_no_entry_is_named() {
    let (_dir, path) = written(&[entry()]);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    writeln!(file, "{{\"Nonsense\":1}}").unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("run-1.journal:3"), "{error}");
}

/// As versions before and after this one write it.
#[test]
fn journals_of_earlier_and_later_versions_are_read() {
    let (_dir, path) = written(&[entry()]);
    let whole = fs::read_to_string(&path).unwrap();
    let (header, entry_line) = whole.split_once('\n').unwrap();
    let header: serde_json::Value = serde_json::from_str(header).unwrap();
    let reads = |header: &serde_json::Value| {
        fs::write(&path, format!("{header}\n{entry_line}")).unwrap();
        read(&path).map(|state| (state.run_id, state.alive, state.undos)).map_err(|error| error.to_string())
    };
    let expected = ("run-1".to_owned(), i32::try_from(std::process::id()).ok(), vec![line(&entry())]);
    let mut earlier = header.clone();
    earlier.as_object_mut().unwrap().remove("namespaces").unwrap();
    assert_eq!(reads(&earlier), Ok(expected.clone()));
    let mut later = header.clone();
    later["of_a_later_version"] = serde_json::json!({ "a": [1] });
    assert_eq!(reads(&later), Ok(expected.clone()));
    // What must be understood raises the version. Nothing of it is undone, and the journal stays.
    later["gleaner_journal"] = 2.into();
    let refused = reads(&later).unwrap_err();
    assert!(refused.contains("version 2, this Gleaner knows 1"), "{refused}");
    // An entry that is not known whole is none that may be passed over.
    for entry in [r#"{"of-a-later-version":{}}"#, r#"{"remove-cgroup":{"path":"/x","more":1}}"#] {
        fs::write(&path, format!("{header}\n{entry}\n")).unwrap();
        assert!(read(&path).is_err() && crate::undo_journal(&path, true).is_err() && path.exists(), "{entry}");
    }
    reads(&header).unwrap();
}

#[test]
fn a_journal_of_an_earlier_boot_has_nothing_to_undo() {
    let (_dir, path) = written(&[entry()]);
    let text = fs::read_to_string(&path).unwrap().replace(&boot_id(), "another-boot");
    fs::write(&path, text).unwrap();
    assert_eq!(read(&path).unwrap().undos, vec![]);
}

#[test]
fn journals_that_could_be_forged_are_not_read() {
    let (dir, _path) = written(&[entry()]);
    assert_eq!(list_journals(dir.path()).unwrap().len(), 1);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    assert!(list_journals(&link).unwrap_err().to_string().contains("no folder"));
    assert!(Journal::create(&link, "run-2").is_err());
    for mode in [0o770, 0o707, 0o722] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        assert!(list_journals(dir.path()).unwrap_err().to_string().contains("others may write"));
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(list_journals(dir.path()).unwrap().len(), 1);
    // Somebody else's, whoever runs this test.
    let others = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(65_534), None).unwrap();
        dir.path()
    } else {
        Path::new("/")
    };
    assert!(list_journals(others).unwrap_err().to_string().contains("belongs to user"));
    assert!(Journal::create(others, "run-3").is_err());
}

#[test]
fn the_last_journal_takes_its_folder_along() {
    let (dir, path) = written(&[]);
    fs::write(path.with_extension("new"), "{").unwrap();
    let folder = dir.path().to_owned();
    remove(&path).unwrap();
    assert!(!folder.exists());
    assert_eq!(list_journals(&folder).unwrap(), Vec::<PathBuf>::new());
}

/// A journal of a process that is gone, or of one elsewhere.
fn written_by(dir: &Path, boot_id: &str, pid: i32, namespaces: Option<&str>) -> PathBuf {
    let path = dir.join("elsewhere.journal");
    let namespaces = namespaces.map_or_else(String::new, |found| format!(r#","namespaces":"{found}""#));
    let start_time = process_start_time(pid).unwrap_or(1);
    let header = format!(
        r#"{{"gleaner_journal":1,"run_id":"r","boot_id":"{boot_id}","main_pid":{pid},"main_start_time":{start_time}{namespaces}}}"#
    );
    let entry = serde_json::to_string(&line(&entry())).unwrap();
    fs::write(&path, format!("{header}\n{entry}\n")).unwrap();
    path
}

#[test]
fn a_journal_that_somebody_else_could_have_written_is_not_obeyed() {
    let (dir, path) = written(&[entry()]);
    let refused = |word: &str| {
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains(word) && said.contains("remove it"), "{word}: {said}");
        assert!(crate::undo_journal(&path, false).is_err() && path.symlink_metadata().is_ok(), "{word}");
    };
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        refused("others may write");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    read(&path).unwrap();
    let other = dir.path().join("other");
    fs::hard_link(&path, &other).unwrap();
    refused("another name");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    refused("it is a link");
    fs::remove_file(&path).unwrap();
    fs::rename(&other, &path).unwrap();
    read(&path).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        refused("belongs to user 65534");
    }
}

#[test]
fn paths_that_are_no_text_are_journalled() {
    use std::os::unix::ffi::OsStrExt;
    let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"/gleaner-\xff\xfe"));
    let cgroup = RemoveCgroup { path: odd.clone() };
    let controller = DisableController { parent: odd.clone(), controller: "cpu".into() };
    let value = FileValue { path: odd, had: "0".into(), set: "1".into() };
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), "run-1").unwrap();
    journal.before(&cgroup).unwrap();
    journal.before(&controller).unwrap();
    journal.before(&value).unwrap();
    journal.before(&entry()).unwrap();
    let undos = read(journal.path()).unwrap().undos;
    assert_eq!(undos, [line(&cgroup), line(&controller), line(&value), line(&entry())]);
    assert_eq!((undos[0].get(), undos[1].get(), undos[2].get()), (Some(cgroup), Some(controller), Some(value)));
    let text = fs::read_to_string(journal.path()).unwrap();
    assert!(text.ends_with("{\"remove-cgroup\":{\"path\":\"/nowhere\"}}\n"), "{text}");
}

#[test]
fn a_folder_that_a_reader_has_locked_is_not_waited_for() {
    let (dir, path) = written(&[entry()]);
    let reader = File::open(dir.path()).unwrap();
    flock(&reader, FlockOperation::LockShared).unwrap();
    assert!(lock_folder_of(&path).is_none());
    drop(reader);
    assert!(lock_folder_of(&path).is_some());
}

#[test]
fn process_ids_of_another_namespace_are_not_taken_for_ours() {
    let dir = tempfile::tempdir().unwrap();
    let (own, boot) = (i32::try_from(std::process::id()).unwrap(), boot_id());
    for (pid, namespaces, alive, foreign) in [
        // Written by a version that did not say where, or here.
        (own, None, Some(own), false),
        (own, Some(own_namespaces()), Some(own), false),
        (i32::MAX, Some(own_namespaces()), None, false),
        // The same number there is another process.
        (own, Some("pid:1 time:2".to_owned()), None, true),
    ] {
        let path = written_by(dir.path(), &boot, pid, namespaces.as_deref());
        let state = read(&path).unwrap();
        assert_eq!((state.alive, state.foreign, state.undos.len()), (alive, foreign, 1), "{pid} {namespaces:?}");
    }
}

#[test]
fn a_journal_that_is_held_is_a_living_ones_wherever_that_is() {
    let dir = tempfile::tempdir().unwrap();
    // As from a container that has its own boot id, too.
    let path = written_by(dir.path(), "other", i32::MAX, Some("pid:1 time:2"));
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    hold(&file);
    let state = read(&path).unwrap();
    assert_eq!((state.alive, state.undos.len()), (Some(i32::MAX), 1));
    assert!(matches!(crate::undo_journal(&path, false), Ok(crate::UndoOutcome::InUse { .. })));
    drop(file);
    // Now it is a dead container's, or one from before a restart: nobody can tell, and nothing is decided.
    let error = crate::undo_journal(&path, false).unwrap_err().to_string();
    assert!(error.contains("another container") && path.exists(), "{error}");
    // From here, another boot id is another boot.
    let path = written_by(dir.path(), "other", i32::MAX, Some(&own_namespaces()));
    assert_eq!(read(&path).unwrap().undos, []);
}

#[test]
fn a_journal_that_cannot_be_begun_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    // Its name is taken, as two namespaces may give one out twice.
    fs::create_dir(&state).unwrap();
    fs::write(Journal::path_in(&state, "run-1"), "").unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Journal::create(&state, "run-1").is_err());
    assert!(Journal::path_in(&state, "run-1").exists(), "it is somebody else's");
}
