//! Writing to a pipe whose reader is late. A program may leave O_NONBLOCK on the stdout or stderr that it shares with
//! Gleaner (Node does so with pipes); a result must not be lost for that.

use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

/// Waits where the inner writer would block, as a descriptor without O_NONBLOCK does.
#[derive(Debug)]
pub struct WaitForReader<W>(pub W);

impl<W: Write + AsFd> WaitForReader<W> {
    fn until_it_can<T>(&mut self, mut write: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match write(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // A failure is an interruption at most, or shows in the next attempt.
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None);
                }
                written => return written,
            }
        }
    }
}

impl<W: Write + AsFd> Write for WaitForReader<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_it_can(|inner| inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_it_can(Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::fs::File;
    use std::io::Read;
    use std::time::Duration;

    #[test]
    fn nothing_is_lost_where_a_pipe_is_full_and_would_not_block() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        rustix::io::ioctl_fionbio(&reader, false).unwrap();
        let mut writer = File::from(writer);
        let text = vec![b'x'; 1 << 20];
        assert_eq!(writer.write_all(&text).unwrap_err().kind(), ErrorKind::WouldBlock, "the pipe is full");
        let all = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut all = Vec::new();
            File::from(reader).read_to_end(&mut all).unwrap();
            all
        });
        let mut patient = WaitForReader(writer);
        patient.write_all(b"result").unwrap();
        patient.flush().unwrap();
        drop(patient);
        assert!(all.join().unwrap().ends_with(b"xresult"));
    }
}
