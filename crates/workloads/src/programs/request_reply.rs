//! A database under load: clients, a server thread for each connection, short transactions that hold row locks.
//!
//! As in MariaDB, each client's connection (a Unix socket) has a thread of its own at the server. A transaction is an
//! item and takes three requests: the first reads; the second locks two rows, in order, and moves an amount from one to
//! the other; the third commits, which unlocks them. The rows stay locked while the client makes up its mind, so a
//! client or server thread without a CPU keeps everybody waiting who wants one of its rows. Each statement is one
//! granularity of computation at the server. The latency is that of a transaction, seen from the client, which sends
//! the next at once.

use crate::job::{Job, Tally};
use crate::latency::Latencies;
use crate::plan::WorkloadError;
use crate::pthread::{Guard, Mutex};
use crate::work::{Checksum, mix};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Few enough that two transactions now and then want the same.
const ROWS: u64 = 64;
const STATEMENTS: u8 = 3;

/// What a client sends: the transaction's number, and which of its statements. What comes back is a number.
const REQUEST_BYTES: usize = 9;

enum Role {
    Client(UnixStream),
    Server(UnixStream),
}

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let rows: Vec<Mutex<u64>> = (0..ROWS).map(|_| Mutex::new(0)).collect();
    let mut roles = Vec::new();
    for _ in 0..job.plan.threads {
        let (client, server) = UnixStream::pair().map_err(WorkloadError::io("make a socket"))?;
        roles.push(std::sync::Mutex::new(Some(Role::Client(client))));
        roles.push(std::sync::Mutex::new(Some(Role::Server(server))));
    }
    let mut tally =
        job.crew(roles.len(), |number| match roles[number].lock().ok().and_then(|mut role| role.take()) {
            Some(Role::Client(socket)) => client(job, socket),
            Some(Role::Server(socket)) => server(job, socket, &rows),
            None => Ok(Tally::default()),
        })?;
    let balances: Vec<u64> = rows.iter().map(|row| *row.lock()).collect();
    tally.checksum.merge(audit(&balances)?);
    Ok(tally)
}

/// What was taken from one row must be in another; a lock that did not lock shows here.
fn audit(balances: &[u64]) -> Result<Checksum, WorkloadError> {
    if balances.iter().fold(0, |sum: u64, balance| sum.wrapping_add(*balance)) != 0 {
        return Err(WorkloadError::Wrong("the rows' balances do not add up to nothing".into()));
    }
    let mut checksum = Checksum::default();
    balances.iter().zip(0..).for_each(|(balance, row)| checksum.add(u64::MAX - row, *balance));
    Ok(checksum)
}

fn client(job: &Job, mut socket: UnixStream) -> Result<Tally, WorkloadError> {
    let (mut checksum, mut latencies) = (Checksum::default(), Latencies::default());
    while let Some(item) = job.claim() {
        let began = Instant::now();
        let mut result = 0;
        for statement in 0..STATEMENTS {
            let mut request = [statement; REQUEST_BYTES];
            request[..8].copy_from_slice(&item.to_le_bytes());
            socket.write_all(&request).map_err(WorkloadError::io("send a request"))?;
            let mut reply = [0; 8];
            socket.read_exact(&mut reply).map_err(WorkloadError::io("read a reply"))?;
            result = mix(result, u64::from_le_bytes(reply));
        }
        latencies.record(began.elapsed());
        checksum.add(item, result);
        job.finish();
    }
    Ok(Tally { checksum, latency: Some(latencies), ..Tally::default() })
}

/// Serves one connection until the client closes it.
fn server(job: &Job, mut socket: UnixStream, rows: &[Mutex<u64>]) -> Result<Tally, WorkloadError> {
    let mut locked: Option<[Guard<'_, u64>; 2]> = None;
    let mut request = [0; REQUEST_BYTES];
    while socket.read_exact(&mut request).is_ok() {
        let item = u64::from_le_bytes(std::array::from_fn(|n| request[n]));
        let statement = request[8];
        if statement == 1 {
            let (low, high) = rows_of(job.number(item, u64::MAX));
            // Always in this order, or two transactions could wait for each other for ever.
            locked = Some([rows[low].lock(), rows[high].lock()]);
        }
        let result = job.compute(item, u64::from(statement));
        if let (1, Some([from, to])) = (statement, &mut locked) {
            **from = from.wrapping_sub(result);
            **to = to.wrapping_add(result);
        }
        if statement + 1 == STATEMENTS {
            locked = None;
        }
        socket.write_all(&result.to_le_bytes()).map_err(WorkloadError::io("send a reply"))?;
    }
    Ok(Tally::default())
}

/// Two different rows, the lower first.
fn rows_of(number: u64) -> (usize, usize) {
    let first = number % ROWS;
    let second = (first + 1 + (number / ROWS) % (ROWS - 1)) % ROWS;
    let index = |row: u64| usize::try_from(row).unwrap_or(0);
    (index(first.min(second)), index(first.max(second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_rows_in_order() {
        for number in 0..10_000 {
            let (low, high) = rows_of(mix(number, 1));
            assert!(low < high && high < usize::try_from(ROWS).unwrap());
        }
    }

    #[test]
    fn an_amount_that_got_lost_is_found() {
        assert!(audit(&[5, 0u64.wrapping_sub(5)]).is_ok());
        assert!(audit(&[5, 0u64.wrapping_sub(4)]).is_err());
        assert_ne!(audit(&[5, 0u64.wrapping_sub(5)]).unwrap(), audit(&[0u64.wrapping_sub(5), 5]).unwrap());
    }
}
