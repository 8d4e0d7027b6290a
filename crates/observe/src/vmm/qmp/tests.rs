use super::*;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

fn ask(socket: &Path, timeout: Duration) -> Result<Vec<QmpCpu>, QmpError> {
    query_cpus(&MonitorAddress::Path(socket.to_owned()), timeout).map(|answer| answer.cpus)
}

/// A monitor that says `greeting`, and then `answers` to one line each; keeps the connection until it is dropped.
fn monitor(greeting: &'static str, answers: &'static [&'static str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.write_all(greeting.as_bytes());
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for answer in answers {
            let _ = lines.next();
            let _ = stream.write_all(answer.as_bytes());
        }
        let _ = lines.next();
    });
    (folder, socket)
}

const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n";

#[test]
fn threads_by_index_with_events_between() {
    let answers = &[
        "{\"return\": {}}\n",
        "{\"event\": \"RESUME\"}\n{\"return\": [{\"cpu-index\": 0, \"thread-id\": 71, \"target\": \"x86_64\"},\
         {\"cpu-index\": 1, \"thread-id\": 72}]}\n",
    ];
    let (_folder, socket) = monitor(GREETING, answers);
    let cpus = ask(&socket, Duration::from_secs(5)).unwrap();
    assert_eq!(cpus, [QmpCpu { index: 0, thread_id: 71 }, QmpCpu { index: 1, thread_id: 72 }]);
}

#[test]
fn answers_on_many_lines_and_of_old_qemus() {
    let pretty = &[
        "{\n    \"return\": {\n    }\n}\r\n",
        "{\n    \"event\": \"}]\\\"{\"\n}\n{\n    \"return\": [\n        {\n            \"cpu-index\": 0,\n            \"thread-id\": 71\n        }\n    ]\n}\n",
    ];
    let (_a, socket) = monitor("{\n    \"QMP\": {\n    }\n}\n", pretty);
    assert_eq!(ask(&socket, Duration::from_secs(5)).unwrap(), [QmpCpu { index: 0, thread_id: 71 }]);
    let old = &[
        "{\"return\": {}}\n",
        "{\"error\": {\"class\": \"CommandNotFound\"}}\n",
        "{\"return\": [{\"CPU\": 3, \"current\": true, \"halted\": false, \"thread_id\": 72}]}\n",
    ];
    let (_b, socket) = monitor(GREETING, old);
    assert_eq!(ask(&socket, Duration::from_secs(5)).unwrap(), [QmpCpu { index: 3, thread_id: 72 }]);
}

#[test]
fn a_monitor_may_be_far_down_abstract_or_a_port() {
    let answers = ["{\"return\": {}}\n", "{\"return\": []}\n"];
    let serve = move |mut stream: Box<dyn Talk>| {
        stream.write_all(GREETING.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        for answer in answers {
            lines.read_line(&mut String::new()).unwrap();
            lines.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    // The listener binds by way of its folder, too.
    let short = PathBuf::from(format!("/proc/self/fd/{}/q", {
        let folder = File::open(&deep).unwrap();
        let number = folder.as_raw_fd();
        std::mem::forget(folder);
        number
    }));
    let far = UnixListener::bind(short).unwrap();
    let name = folder.path().as_os_str().as_bytes().to_vec();
    let nameless = {
        use std::os::linux::net::SocketAddrExt;
        UnixListener::bind_addr(&std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap()).unwrap()
    };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = i32::try_from(std::process::id()).ok();
    let addresses = [
        (MonitorAddress::Path(deep.join("q")), own),
        (MonitorAddress::Abstract(name), own),
        (MonitorAddress::Port(port.local_addr().unwrap()), None),
    ];
    thread::spawn(move || serve(Box::new(far.accept().unwrap().0)));
    thread::spawn(move || serve(Box::new(nameless.accept().unwrap().0)));
    thread::spawn(move || serve(Box::new(port.accept().unwrap().0)));
    for (address, peer) in addresses {
        let answer = query_cpus(&address, Duration::from_secs(5)).unwrap();
        assert_eq!(answer, MonitorAnswer { cpus: vec![], peer }, "{address}");
    }
}

trait Talk: Read + Write + Send {}
impl<T: Read + Write + Send> Talk for T {}

#[test]
fn what_a_stranger_says_does_not_reach_the_terminal() {
    let (_folder, socket) = monitor("\u{1b}[2J\u{202e}hello\n", &[]);
    let said = ask(&socket, Duration::from_secs(5)).unwrap_err().to_string();
    assert!(said.contains("\\u{1b}[2J\\u{202e}hello") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_monitor_that_accepts_nobody_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    // SAFETY: no memory is passed; the descriptor is the listener's.
    unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
    // A queue for none holds one.
    let _queued = UnixStream::connect(&socket).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(ask(&socket, Duration::from_millis(50))));
    let said = told.recv_timeout(Duration::from_secs(20)).expect("it hangs");
    assert!(matches!(said, Err(QmpError::Silent { .. })), "{said:?}");
}

/// What a stranger drips must not hold us for longer than the time-out, however it is cut.
#[test]
fn a_monitor_that_never_ends_a_line_an_object_or_its_events_is_silent() {
    for drop in ["x", "{\n", "\n", "{\"event\": \"RESUME\"}\n"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            if drop.len() > 2 {
                stream.write_all(GREETING.as_bytes()).unwrap();
            }
            while stream.write_all(drop.as_bytes()).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || tell.send(ask(&socket, Duration::from_millis(200))));
        let said = told.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{drop:?}: it hangs"));
        assert!(matches!(said, Err(QmpError::Silent { .. })), "{drop:?}: {said:?}");
    }
}

#[test]
fn what_is_wrong_is_told_apart() {
    let short = Duration::from_millis(50);
    let (_a, silent) = monitor("", &[]);
    assert!(matches!(ask(&silent, short), Err(QmpError::Silent { .. })));
    let (_b, half) = monitor("{\"QMP\": ", &[]);
    assert!(matches!(ask(&half, short), Err(QmpError::Silent { .. })));
    let (_c, other) = monitor("220 mail ready\n", &[]);
    let said = ask(&other, Duration::from_secs(5)).unwrap_err();
    assert!(said.to_string().contains("220 mail ready"), "{said}");
    let (_d, old) = monitor(GREETING, &["{\"return\": {}}\n", "{\"error\": {\"class\": \"CommandNotFound\"}}\n"]);
    let said = ask(&old, Duration::from_secs(5)).unwrap_err();
    assert!(said.to_string().contains("CommandNotFound"), "{said}");
    let missing = ask(Path::new("/no/such/socket"), short);
    assert!(matches!(missing, Err(QmpError::Connect { .. })));
}
