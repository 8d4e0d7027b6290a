//! Short blocking input and output: the vCPU idles for as long as a disk or another thread takes to answer.
//!
//! Each worker has a file (unlinked, in the folder for temporary files) and a partner at the other end of two pipes. An
//! item is a computation, a block written and flushed to the disk (fdatasync), a block read, and a line sent to the
//! partner and back. Where the folder is in memory (tmpfs) the flush is free, and what is left is the pipes.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::work::mix;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

const BLOCK_BYTES: usize = 4096;
/// Blocks in a file.
const BLOCKS: u64 = 256;

/// One thread's end of two pipes.
struct End {
    from: PipeReader,
    to: PipeWriter,
}

enum Role {
    Worker(File, End),
    Partner(End),
}

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let mut roles = Vec::new();
    for _ in 0..job.plan.threads {
        let folder = std::env::temp_dir();
        let what = format!("make a file in {} (TMPDIR names another folder)", folder.display());
        let file = tempfile::tempfile_in(&folder).map_err(WorkloadError::io(what))?;
        let pipes =
            (pipe().map_err(WorkloadError::io("make a pipe"))?, pipe().map_err(WorkloadError::io("make a pipe"))?);
        let ((to_worker, from_partner), (to_partner, from_worker)) = pipes;
        roles.push(Mutex::new(Some(Role::Worker(file, End { from: to_worker, to: from_worker }))));
        roles.push(Mutex::new(Some(Role::Partner(End { from: to_partner, to: from_partner }))));
    }
    job.crew(roles.len(), |number| match roles[number].lock().ok().and_then(|mut role| role.take()) {
        Some(Role::Worker(file, end)) => work(job, &file, end),
        Some(Role::Partner(end)) => answer(end).map(|()| Tally::default()),
        None => Ok(Tally::default()),
    })
}

fn work(job: &Job, file: &File, mut end: End) -> Result<Tally, WorkloadError> {
    let failed = |what: &'static str| WorkloadError::io(format!("{what} the temporary file"));
    let mut tally = Tally::default();
    let mut block = [0; BLOCK_BYTES];
    while let Some(item) = job.claim() {
        let number = job.compute(item, 0);
        let at = (item % BLOCKS) * BLOCK_BYTES as u64;
        block.chunks_exact_mut(8).zip(0..).for_each(|(word, n)| word.copy_from_slice(&mix(number, n).to_le_bytes()));
        file.write_all_at(&block, at).map_err(failed("write"))?;
        file.sync_data().map_err(failed("flush"))?;
        block.fill(0);
        file.read_exact_at(&mut block, at).map_err(failed("read"))?;
        let read =
            block.chunks_exact(8).fold(0, |sum, word| mix(sum, u64::from_le_bytes(std::array::from_fn(|n| word[n]))));
        let mut line = read.to_le_bytes();
        end.to.write_all(&line).map_err(WorkloadError::io("write to a pipe"))?;
        end.from.read_exact(&mut line).map_err(WorkloadError::io("read from a pipe"))?;
        tally.checksum.add(item, u64::from_le_bytes(line));
        job.finish();
    }
    Ok(tally)
}

/// Sends back what comes, changed, until the worker closes its end.
fn answer(mut end: End) -> Result<(), WorkloadError> {
    let mut line = [0; 8];
    while end.from.read_exact(&mut line).is_ok() {
        let answer = mix(u64::from_le_bytes(line), 0);
        end.to.write_all(&answer.to_le_bytes()).map_err(WorkloadError::io("write to a pipe"))?;
    }
    Ok(())
}
