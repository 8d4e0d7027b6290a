//! A client that asks a TCP server at a fixed rate, and measures from the moment a request was meant to be sent.
//!
//! A client that waits for a reply before it sends the next request asks less of a slow server, and so hides its
//! slowness ("coordinated omission"). Here request n is due at a moment that was fixed before the start, and is sent
//! then on whichever connection is free, each with a thread of its own; if none is, the wait counts.
//!
//! A request that gets no reply within [`REPLY_MAX`], or an error reply of Redis (`-ERR ...`), counts as an error;
//! after the former the connection is made anew. Errors have no latency.

use crate::job::{Job, Tally};
use crate::latency::Latencies;
use crate::plan::{Requests, WorkloadError};
use crate::work::mix;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::clock_gettime;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a connection may take, and a reply.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const REPLY_MAX: Duration = Duration::from_secs(5);
/// Longer sleeps are cut into pieces, so that the client ends when it is told to.
const SLEEP_MAX_NS: u64 = 100_000_000;
/// A line of a reply may be so long.
const LINE_MAX: u64 = 1 << 20;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let requests = job.plan.requests.as_ref().ok_or(WorkloadError::NoServer)?;
    // Before any thread is there: a server that is not there is bad input, not an error among many.
    drop(connect(requests).map_err(|source| WorkloadError::Connect { server: requests.server, source })?);
    // The first request is due once all threads had time to connect.
    let start = OnceLock::new();
    job.crew(job.plan.threads, |_| {
        let begun = *start.get_or_init(|| now_ns() + 10_000_000);
        // By default the kernel may wake us 50 us late, which would count as the server's.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Ok(ask(job, requests, begun))
    })
}

fn ask(job: &Job, requests: &Requests, begun_ns: u64) -> Tally {
    let mut tally =
        Tally { latency: Some(Latencies::default()), send_delay: Some(Latencies::default()), ..Tally::default() };
    let mut connection = connect(requests).ok();
    while let Some(item) = job.claim() {
        let due_ns = begun_ns + due_after_ns(item, requests.per_second);
        if !sleep_until(due_ns, job) {
            break;
        }
        let sent_ns = now_ns();
        let reply = exchange(&mut connection, requests);
        let answered_ns = now_ns();
        match reply {
            Ok(reply) => {
                record(&mut tally.latency, answered_ns.saturating_sub(due_ns));
                record(&mut tally.send_delay, sent_ns.saturating_sub(due_ns));
                tally.checksum.add(item, reply);
            }
            Err(_) => tally.errors += 1,
        }
        job.finish();
    }
    tally
}

/// When a request is due after the start. By multiplication, so that rounding does not add up.
fn due_after_ns(item: u64, per_second: f64) -> u64 {
    let ns = item as f64 * (1e9 / per_second);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number far below 2^63")]
    let ns = ns as u64;
    ns
}

fn record(into: &mut Option<Latencies>, ns: u64) {
    if let Some(latencies) = into {
        latencies.record(Duration::from_nanos(ns));
    }
}

/// Sleeps until then; `false` if told to end before.
fn sleep_until(due_ns: u64, job: &Job) -> bool {
    loop {
        let now = now_ns();
        if now >= due_ns {
            return true;
        }
        if job.stopped() {
            return false;
        }
        let until = Duration::from_nanos(due_ns.min(now + SLEEP_MAX_NS));
        let until = Timespec { tv_sec: until.as_secs().cast_signed(), tv_nsec: i64::from(until.subsec_nanos()) };
        // Woken early by a signal: the loop looks again.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

type Connection = BufReader<TcpStream>;

fn connect(requests: &Requests) -> io::Result<Connection> {
    let stream = TcpStream::connect_timeout(&requests.server, CONNECT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_MAX))?;
    stream.set_write_timeout(Some(REPLY_MAX))?;
    Ok(BufReader::new(stream))
}

/// Sends one request and reads its reply; a number that depends on the reply's every byte. A connection that failed is
/// given up, and made anew for the next request.
fn exchange(connection: &mut Option<Connection>, requests: &Requests) -> io::Result<u64> {
    let mut reader = match connection.take() {
        Some(reader) => reader,
        None => connect(requests)?,
    };
    reader.get_mut().write_all(&requests.request)?;
    let mut line = Vec::new();
    let mut reply = 0;
    let mut refused = false;
    for number in 0..requests.reply_lines {
        line.clear();
        (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reply = line.iter().fold(reply, |sum, byte| mix(sum, u64::from(*byte)));
        refused = number == 0 && line[0] == b'-' && line[1].is_ascii_uppercase();
        if refused {
            // An error is one line, however many a good reply has.
            break;
        }
    }
    *connection = Some(reader);
    if refused { Err(io::Error::other("an error reply")) } else { Ok(reply) }
}
