//! Whatever is sent to the sockets or written to the configuration, the daemon goes on.

use crate::config::Configuration;
use crate::control::answer_to;
use crate::joins::check;
use crate::metrics::respond;
use crate::protocol::{Answer, Request};
use crate::server::Peer;
use gleaner_observe::ProcRoot;
use gleaner_testing::fuzz::{folder, fuzz};
use std::path::Path;

/// Each kind of key, with values of each kind.
const CONFIGURATION: &[u8] = br#"
# comment
[defaults]
profile = "latency"

[host]
slice = "1ms"
vm = ["web"]
enforce = false

[daemon]
retain = "pm-qos"
overhead = "0.5%"
groups_max = 5

[control]
group = "root"

[metrics]
listen = "127.0.0.1:9469"

[group.redis]
unit = "redis"
profile = "latency"
budget = "20%"
retain_for = "200us"
trial = false
params = { steal_share_stop = 0.2, load_factor = 0.9 }

[group."web@1"]
cgroup = "/kubepods.slice/*/**"
policy = "observe"
progress = "/run/web/done"

[group.job]
program = "java"
[group.one]
pid = 17
"#;

#[test]
fn fuzz_the_configuration() {
    let folder = folder();
    let file = folder.path().join("gleaner.toml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    Configuration::load(Some(&file)).unwrap();
    fuzz("configuration", &[CONFIGURATION, b"", b"[group.a]\npid = 1\n"], |input| {
        std::fs::write(&file, input).unwrap();
        if let Err(error) = Configuration::load(Some(&file)) {
            assert!(error.to_string().contains("gleaner.toml"), "{error}");
        }
    });
}

#[test]
fn fuzz_requests_to_the_control_socket() {
    let seeds: [&[u8]; 6] = [
        b"{\"request\":\"status\"}\n",
        b"{\"request\":\"reload\"}\n",
        b"{\"request\":\"verify\"}\n",
        b"{\"request\":\"hold\",\"group\":\"redis\"}\n",
        b"{\"request\":\"join\",\"name\":\"a\",\"pid\":17,\"policy\":\"full\",\"profile\":\"balanced\",\"params\":{\"x\":1}}\n",
        b"{\"request\":\"leave\",\"group\":3}\n",
    ];
    fuzz("control socket", &seeds, |input| {
        let answer = answer_to(input, Peer::default(), &mut |request, peer| {
            if let Request::Join(join) = request {
                let _ = (join.entry(), join.group_name());
                assert!(check(&ProcRoot::below(Path::new("/no/such/machine")), &join, &peer).is_err());
            }
            Answer::Reloaded(1)
        });
        let is_whole = input.contains(&b'\n') || input.len() > crate::protocol::REQUEST_BYTES_MAX;
        assert_eq!(answer.is_some(), is_whole);
    });
}

#[test]
fn fuzz_requests_for_metrics() {
    let seeds: [&[u8]; 2] =
        [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", b"POST / HTTP/1.0\n\n"];
    fuzz("metrics", &seeds, |input| {
        if let Some(page) = respond(input, &mut |_| Answer::Error("no".to_owned())) {
            assert!(page.starts_with(b"HTTP/1.1 "));
        }
    });
}
