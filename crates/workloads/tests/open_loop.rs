//! The open-loop client against servers that answer, stall, refuse, and hang up.

use gleaner_workloads::{Outcome, Plan, Program, Progress, Requests, Stop, run};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// A server on a free port; `answer` gets each request's number on its connection and its text, and says what to
/// write, or nothing to hang up. Its threads end with the connections, the listener with the test's process.
fn server(answer: impl Fn(u64, &str) -> Option<String> + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for connection in listener.incoming() {
            let (connection, answer) = (connection.unwrap(), answer.clone());
            spawn(move || serve(&connection, answer));
        }
    });
    address
}

fn serve(connection: &TcpStream, answer: impl Fn(u64, &str) -> Option<String>) {
    let mut lines = BufReader::new(connection);
    for number in 0.. {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let Some(reply) = answer(number, &line) else { return };
        if { connection }.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn plan(server: SocketAddr, items: u64) -> Plan {
    let requests = Requests { server, request: b"PING\r\n".to_vec(), reply_lines: 1, per_second: 2_000.0 };
    Plan { stop: Stop::Items(items), requests: Some(requests), ..Plan::new(Program::OpenLoop) }
}

#[track_caller]
fn outcome(plan: &Plan) -> Outcome {
    let outcome = run(plan, &Progress::default()).unwrap();
    assert_eq!(Stop::Items(outcome.items), plan.stop);
    outcome
}

fn pong() -> SocketAddr {
    server(|_, request| (request == "PING\r\n").then(|| "+PONG\r\n".to_owned()))
}

#[test]
fn requests_go_out_at_the_rate_and_all_are_answered() {
    let address = pong();
    let first = outcome(&plan(address, 200));
    assert_eq!((first.errors, first.latency.unwrap().n), (Some(0), 200));
    // 200 requests at 2000 a second: the last is due after 99.5 ms.
    assert!(first.wall.0 >= 99_000_000, "{:?}", first.wall);
    let with_more = outcome(&Plan { threads: 3, ..plan(address, 200) });
    assert_eq!(with_more.checksum, first.checksum);
    assert_ne!(outcome(&plan(address, 199)).checksum, first.checksum);
}

#[test]
fn a_stall_counts_for_every_request_that_was_due_in_it() {
    let stall = |number: u64, _: &str| {
        if number == 20 {
            sleep(Duration::from_millis(100));
        }
        Some("+PONG\r\n".to_owned())
    };
    let outcome = outcome(&plan(server(stall), 300));
    let (latency, delay) = (outcome.latency.unwrap(), outcome.send_delay.unwrap());
    // 200 of the 300 were due during the stall; a client that waits before it asks would see one slow reply.
    assert!(latency.p50.0 > 10_000_000 && latency.max.0 >= 100_000_000, "{latency:?}");
    assert!(delay.p50.0 > 10_000_000 && delay.p50 <= latency.p50, "{delay:?}");
}

#[test]
fn error_replies_are_errors_and_have_no_latency() {
    let refuse = |number: u64, _: &str| Some(if number % 4 == 3 { "-ERR no\r\n" } else { "-1\r\n" }.to_owned());
    let outcome = outcome(&plan(server(refuse), 100));
    assert_eq!((outcome.errors, outcome.latency.unwrap().n), (Some(25), 75));
}

#[test]
fn a_connection_that_broke_is_made_anew() {
    let hang_up = |number: u64, _: &str| (number < 9).then(|| "+PONG\r\n".to_owned());
    let outcome = outcome(&plan(server(hang_up), 100));
    assert_eq!((outcome.errors, outcome.latency.unwrap().n), (Some(10), 90));
}

#[test]
fn replies_of_more_lines() {
    let bulk = |_: u64, _: &str| Some("$5\r\nhello\r\n".to_owned());
    let address = server(bulk);
    let mut plan = plan(address, 50);
    plan.requests.as_mut().unwrap().reply_lines = 2;
    assert_eq!(outcome(&plan).errors, Some(0));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = run(&plan(address, 1), &Progress::default()).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("refused"), "{error}");
}

#[test]
fn a_rate_that_does_not_work_is_refused() {
    for rate in [0.0, -1.0, 1e7, f64::NAN] {
        let mut plan = plan(([127, 0, 0, 1], 1).into(), 1);
        plan.requests.as_mut().unwrap().per_second = rate;
        let error = run(&plan, &Progress::default()).unwrap_err().to_string();
        assert!(error.contains("rate must be within"), "{error}");
    }
}
