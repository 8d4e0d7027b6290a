//! "Wake me when this vCPU works again", for a yielding thread that let its vCPU halt.
//!
//! Problem: a yielding thread that sleeps has to come back when the vCPU has been busy again, and timed naps are
//! wake-ups of their own. How: the thread arms a flag of its vCPU that the switch program tests when work starts, and
//! sleeps in poll(2) on a ring buffer of that vCPU. The program clears the flag and writes one record. Unarmed it costs
//! one test.
//!
//! No wake-up is lost: the flag is up before the vCPU's present task is looked at, and a record stays until it is
//! drained. A record that arrives just after a time-out ends the next wait at once, which is true enough: the vCPU
//! *was* busy.

use super::skel::types::cpu_state;
use super::skel::{GROUP, kernel_pid};
use gleaner_bpf::{MappedArray, Mapping, ReadOnly, Writable};
use gleaner_model::VcpuId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The memory of one BPF ring buffer: the consumer's page, the producer's page, the data.
#[derive(Debug)]
pub(crate) struct Ring {
    fd: OwnedFd,
    consumer: Mapping<Writable>,
    producer: Mapping<ReadOnly>,
}

impl Ring {
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let consumer = Mapping::new(fd.as_fd(), 0, page)?;
        let producer = Mapping::new(fd.as_fd(), page, page)?;
        Ok(Self { fd, consumer, producer })
    }

    /// Throws away what is in it; says whether there was anything. The records carry nothing but their arrival.
    pub fn drain(&self) -> bool {
        let produced: u64 = self.producer.read(0);
        fence(Ordering::Acquire);
        let consumed: u64 = self.consumer.read(0);
        self.consumer.write(0, produced);
        produced != consumed
    }

    /// For poll(2).
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Waits until one vCPU works again. Belongs to the thread that waits; see the module's text.
#[derive(Debug)]
pub struct BusySignal {
    cpu: usize,
    cpus: Arc<MappedArray<cpu_state>>,
    ring: Ring,
    waker: Arc<OwnedFd>,
}

impl BusySignal {
    pub(super) fn new(vcpu: VcpuId, cpus: Arc<MappedArray<cpu_state>>, ring: OwnedFd) -> io::Result<Self> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { cpu: vcpu.0 as usize, cpus, ring: Ring::new(ring)?, waker: Arc::new(waker) })
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> BusyWaker {
        BusyWaker(Arc::clone(&self.waker))
    }

    /// Sleeps until a task that is neither idle nor the yielding thread runs on the vCPU, until `max` has passed, or
    /// until [`BusyWaker::wake`]; says whether the first was the case. Returns at once when such a task runs now.
    pub fn wait(&mut self, max: Duration) -> bool {
        self.ring.drain();
        self.arm(1);
        // The program must see the flag before the present task is looked at, or a task that starts between is missed.
        fence(Ordering::SeqCst);
        if !self.works_now() {
            self.sleep(max);
        }
        self.arm(0);
        self.ring.drain() || self.works_now()
    }

    fn arm(&self, armed: u32) {
        self.cpus.write_field(self.cpu, offset_of!(cpu_state, armed), armed);
    }

    /// Whether a working task, other than the caller, is on the vCPU.
    fn works_now(&self) -> bool {
        let class: u32 = self.cpus.read_field(self.cpu, offset_of!(cpu_state, class));
        let pid: u32 = self.cpus.read_field(self.cpu, offset_of!(cpu_state, pid));
        class >= GROUP && kernel_pid(rustix::thread::gettid().as_raw_nonzero().get()) != pid
    }

    fn sleep(&self, max: Duration) {
        let mut fds = [PollFd::new(&self.ring.fd, PollFlags::IN), PollFd::new(&*self.waker, PollFlags::IN)];
        let timeout = Timespec::try_from(max).ok();
        // A signal ends the wait early, as a time-out would.
        let ready = poll(&mut fds, timeout.as_ref());
        if ready.is_ok() && fds[1].revents().contains(PollFlags::IN) {
            let mut count = [0; 8];
            // Two that wait on one waker race for it; the loser reads nothing, which is fine.
            let _ = rustix::io::read(&*self.waker, &mut count);
        }
    }
}

/// Ends the waits of one [`BusySignal`]; a wake that comes first ends the next wait at once.
#[derive(Clone, Debug)]
pub struct BusyWaker(Arc<OwnedFd>);

impl BusyWaker {
    /// Ends the wait in progress, or the next one.
    pub fn wake(&self) {
        // It fails only when the counter is full: then the wait ends anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}
