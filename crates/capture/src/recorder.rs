//! Records what runtime tells: it encodes, and a thread of its own compresses and writes.
//!
//! Nothing here makes the program that is managed wait, or fails it: where a disk is full, slow or gone, recording
//! stops, and says so once.

use crate::frame::{BLOCK_BYTES_MAX, Compressor};
use crate::record::{Ended, Machine, encode, policy_version};
use crate::ring::{Ring, Stop, Store};
use crate::wire::{Block, CannotEncode, Wire};
use gleaner_decide::guest::{GuestPolicy, GuestSetup};
use gleaner_model::{Burst, Decision, Nanos, Window};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A block is written when it is this long.
const BLOCK_BYTES: usize = 64 << 10;
/// ... or this old: what a kill loses.
const BLOCK_AGE: Nanos = Nanos::from_secs(1);
/// Blocks that may wait for the disk.
const WAITING_MAX: usize = 64;
/// The end of a run waits no longer for a disk.
const LONGEST_END: Duration = Duration::from_secs(5);

/// Where a recording goes.
#[derive(Debug)]
pub enum Target {
    /// One file of at most so many bytes. Recording stops when it is full.
    File(File, u64),
    /// The newest so many bytes, in files in this folder.
    Ring(PathBuf, u64),
}

enum Order {
    Block(Vec<u8>),
    /// A segment begins.
    Segment,
    /// Its beginning is over.
    Begun,
    /// Everything up to here is to be in the files: which are they?
    Flush(SyncSender<Vec<PathBuf>>),
}

/// What the thread tells.
#[derive(Debug, Default)]
struct Shared {
    segment_full: AtomicBool,
    stopped: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Shared {
    fn stop(&self, why: String) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.get_or_insert(why);
        self.stopped.store(true, Ordering::Release);
    }
}

/// Records. Dropped, it ends the recording.
#[derive(Debug)]
pub struct Recorder {
    machine: Machine,
    block: Block,
    /// [`Window::at`] of the first window in the block.
    since: Option<Nanos>,
    /// When the last window ended.
    at: Nanos,
    orders: Option<SyncSender<Order>>,
    over: Receiver<()>,
    shared: Arc<Shared>,
}

impl Recorder {
    /// Begins.
    ///
    /// # Errors
    /// When there can be no thread, or the folder of a ring is not to be had.
    pub fn start(target: Target, machine: Machine) -> io::Result<Self> {
        let store = match target {
            Target::File(file, limit) => Store::File { file, limit, written: 0 },
            Target::Ring(folder, limit) => Store::Ring(Ring::open(&folder, limit)?),
        };
        let (orders, incoming) = sync_channel(WAITING_MAX);
        let (ends, over) = channel();
        let shared = Arc::new(Shared::default());
        let mut writer = Writer { store, compressor: Compressor::new()?, shared: Arc::clone(&shared) };
        std::thread::Builder::new().name("gleaner-capture".to_owned()).spawn(move || {
            writer.write(&incoming);
            drop(ends);
        })?;
        let machine = Machine { policy_version: policy_version(), ..machine };
        let block = Block::default();
        let mut new = Self { machine, block, since: None, at: Nanos::ZERO, orders: Some(orders), over, shared };
        new.begin_segment();
        Ok(new)
    }

    /// Why recording has stopped, once it has.
    pub fn trouble(&self) -> Option<String> {
        if !self.shared.stopped.load(Ordering::Acquire) {
            return None;
        }
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether [`Self::begin_segment`] is due.
    pub fn is_segment_full(&self) -> bool {
        self.shared.segment_full.load(Ordering::Acquire)
    }

    /// Begins a segment. Each group has to be told with [`Self::group_as_it_is`], then [`Self::segment_begun`].
    pub fn begin_segment(&mut self) {
        self.send_block();
        self.shared.segment_full.store(false, Ordering::Release);
        self.send(Order::Segment);
        let machine = self.machine.clone();
        self.add(|block| {
            block.begin_segment();
            block.add(&Wire::Begins(Cow::Owned(machine)))
        });
        // From now on the file says what it is.
        self.send_block();
    }

    /// What follows are windows.
    pub fn segment_begun(&mut self) {
        self.send_block();
        self.send(Order::Begun);
    }

    /// A group begins, with what was decided then.
    pub fn group(&mut self, group: u64, at: Nanos, name: &str, setup: &GuestSetup, decisions: &[Decision]) {
        self.add_group(group, at, name, setup, None, decisions);
    }

    /// A group that began before this segment.
    pub fn group_as_it_is(&mut self, group: u64, name: &str, setup: &GuestSetup, policy: &GuestPolicy) {
        self.add_group(group, self.at, name, setup, Some(encode(policy)), &[]);
    }

    fn add_group(
        &mut self,
        group: u64,
        at: Nanos,
        name: &str,
        setup: &GuestSetup,
        state: Option<Vec<u8>>,
        decisions: &[Decision],
    ) {
        let record = Wire::Group {
            group,
            at,
            name: Cow::Borrowed(name),
            policy: setup.policy,
            profile: setup.profile,
            setup: encode(setup),
            state,
            decisions: Cow::Borrowed(decisions),
        };
        self.add(|block| block.add(&record));
    }

    /// A window, and what was decided by it. `decided`: whether decide was told of it at all.
    pub fn window(&mut self, group: u64, decided: bool, window: &Window, decisions: &[Decision]) {
        self.at = window.at;
        self.add(|block| block.window(group, decided, window, decisions));
        if self.since.is_some_and(|since| window.at - since >= BLOCK_AGE) {
            self.send_block();
        }
    }

    /// Threads of a group waited for a vCPU, and what was decided at once.
    pub fn burst(&mut self, group: u64, burst: &Burst, decisions: &[Decision]) {
        self.at = burst.at;
        self.add(|block| block.add(&Wire::Burst { group, burst: *burst, decisions: Cow::Borrowed(decisions) }));
    }

    /// A group is managed no more.
    pub fn gone(&mut self, group: u64) {
        self.add(|block| block.add(&Wire::Gone { group }));
    }

    /// What else was told.
    pub fn event(&mut self, text: &str) {
        let at = self.at;
        self.add(|block| block.add(&Wire::Event { at, text: Cow::Borrowed(text) }));
    }

    /// Everything so far is written, and the files of the ring, oldest first; `None` where the disk takes too long, or
    /// recording has stopped.
    pub fn flush(&mut self, longest: Duration) -> Option<Vec<PathBuf>> {
        self.send_block();
        let (answer, answered) = sync_channel(1);
        self.send(Order::Flush(answer));
        answered.recv_timeout(longest).ok()
    }

    /// Ends the recording; why it had stopped before, if it had.
    pub fn finish(mut self) -> Option<String> {
        self.end();
        self.trouble()
    }

    fn end(&mut self) {
        if self.orders.is_none() {
            return;
        }
        self.add(|block| block.add(&Wire::Ends(Ended::Stopped)));
        self.send_block();
        self.orders = None;
        let _ = self.over.recv_timeout(LONGEST_END);
    }

    fn add(&mut self, add: impl FnOnce(&mut Block) -> Result<(), CannotEncode>) {
        if self.shared.stopped.load(Ordering::Acquire) {
            return;
        }
        if add(&mut self.block).is_err() {
            self.shared.stop("a record cannot be encoded, which is a bug".to_owned());
        }
        self.since.get_or_insert(self.at);
        if self.block.len() >= BLOCK_BYTES {
            self.send_block();
        }
    }

    fn send_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let block = self.block.take();
        self.since = None;
        if block.len() > BLOCK_BYTES_MAX {
            self.shared.stop(format!("a record is longer than {} MiB", BLOCK_BYTES_MAX >> 20));
            return;
        }
        self.send(Order::Block(block));
    }

    fn send(&mut self, order: Order) {
        let Some(orders) = &self.orders else { return };
        match orders.try_send(order) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.shared.stop("the disk is too slow".to_owned()),
            Err(TrySendError::Disconnected(_)) => self.shared.stop("its thread has ended".to_owned()),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread's part.
struct Writer {
    store: Store,
    compressor: Compressor,
    shared: Arc<Shared>,
}

impl Writer {
    /// Until nobody orders any more.
    fn write(&mut self, orders: &Receiver<Order>) {
        for order in orders {
            if self.shared.stopped.load(Ordering::Acquire) {
                // Whoever waits for an answer hears that there is none.
                continue;
            }
            match self.obey(order) {
                Ok(()) => {}
                Err(Stop::Full) => {
                    self.end_full();
                    self.shared.stop("it is as long as it may be".to_owned());
                }
                Err(Stop::Io(error)) => self.shared.stop(error.to_string()),
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<(), Stop> {
        match order {
            Order::Block(block) => {
                let frame = self.compressor.frame(&block)?;
                self.store.write(&frame)?;
                if self.store.is_segment_full() {
                    self.shared.segment_full.store(true, Ordering::Release);
                }
            }
            Order::Segment => self.store.begin_segment()?,
            Order::Begun => {
                self.store.begun();
                self.shared.segment_full.store(false, Ordering::Release);
            }
            Order::Flush(answer) => drop(answer.try_send(self.store.segments())),
        }
        Ok(())
    }

    /// Says in the file why it ends.
    fn end_full(&mut self) {
        let mut block = Block::default();
        if block.add(&Wire::Ends(Ended::Full)).is_ok()
            && let Ok(frame) = self.compressor.frame(&block.take())
        {
            let _ = self.store.write_last(&frame);
        }
    }
}
