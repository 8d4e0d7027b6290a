//! What Gleaner does beside a program, in a thread of its own: sets up, manages, undoes. The program waits for none of
//! it. What was asked for by name, and is an error where it cannot be had, comes first: see [`Beside::first`].
//!
//! The thread may keep to one vCPU (`gleaner_act::HousekeepingCpu`). The first thread has the program's signals and
//! children, and its mask still tells what the program may use.

use super::options::Options;
use super::signals::Inherited;
use super::unmanaged::limit_in_the_way;
use crate::capture::Recording;
use crate::joined::{self, Membership, Offer};
use crate::session::listener;
use gleaner_command::failure::Failure;
use gleaner_command::output::say;
use gleaner_model::{CpuSet, Nanos};
use gleaner_observe::{ProcRoot, Target};
use gleaner_report::RunReport;
use gleaner_runtime::event_loop::{self, Received, Task};
use gleaner_runtime::{Runtime, SetupError, Snapshot, takes_long};
use gleaner_settings::ObserverChoice;
use gleaner_sys::why_refused;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that ends sooner is left alone where it takes long to begin and to end: it would pay more than it may win.
const GROWN: Duration = Duration::from_millis(500);

/// What the thread is told.
#[derive(Debug)]
pub enum Order {
    /// The program runs, as this process.
    Started(i32),
    /// Another child of this process ended, and was reaped.
    ChildEnded(i32),
    /// Everything was stopped, and goes on.
    WasStopped,
    /// Threads of the program wait for a vCPU.
    Burst,
    /// The program has ended, or never began.
    End,
}

/// How it went.
#[derive(Debug, Default)]
pub struct Told {
    /// How everything stood at the end, and whether it was undone; `None` where this process managed nothing.
    pub own: Option<(Snapshot, bool)>,
    /// What the daemon told that managed the program.
    pub daemons: Option<RunReport>,
    /// Why nobody managed it.
    pub unmanaged: Option<String>,
    pub notes: Vec<String>,
}

/// The thread.
pub struct Beside {
    orders: Sender<Order>,
    /// The program has ended.
    over: Arc<AtomicBool>,
    /// Nothing was changed, and nothing is known yet.
    idle: Arc<AtomicBool>,
    thread: JoinHandle<Told>,
    ready: Receiver<Result<(), Failure>>,
}

impl Beside {
    /// Whether something has to be there before the program is: what must not be done without, and a recording.
    pub fn first(options: &Options) -> bool {
        let config = &options.config;
        config.strict || config.observer == ObserverChoice::Bpf || options.records
    }

    /// Begins the thread.
    pub fn begin(
        options: &Options,
        recording: Option<Recording>,
        inherited: &Inherited,
        vcpus: &CpuSet,
    ) -> io::Result<Self> {
        let (orders, received) = channel();
        let (tell, ready) = channel();
        let (over, idle) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut work = Work {
            options: options.clone(),
            recording,
            inherited: inherited.clone(),
            vcpus: vcpus.clone(),
            bursts: orders.clone(),
            orders: received,
            over: Arc::clone(&over),
            idle: Arc::clone(&idle),
            told: Told::default(),
        };
        let thread = std::thread::Builder::new().name("gleaner-run".into()).spawn(move || {
            work.all(&tell);
            work.told
        })?;
        Ok(Self { orders, over, idle, thread, ready })
    }

    /// Waits until it is ready, where something has to be there first. `None`: the thread has panicked.
    pub fn ready(&self) -> Option<Result<(), Failure>> {
        self.ready.recv().ok()
    }

    pub fn tell(&self, order: Order) {
        // Whoever has panicked does not listen.
        let _ = self.orders.send(order);
    }

    /// Undoes everything; `None`: the thread has panicked, and has undone what it did on its way out.
    pub fn end(self) -> Option<Told> {
        self.over.store(true, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) {
            // It ends with this process, whatever it waits for.
            return Some(Told::default());
        }
        self.tell(Order::End);
        self.thread.join().ok()
    }
}

struct Work {
    options: Options,
    recording: Option<Recording>,
    inherited: Inherited,
    vcpus: CpuSet,
    bursts: Sender<Order>,
    orders: Receiver<Order>,
    over: Arc<AtomicBool>,
    idle: Arc<AtomicBool>,
    told: Told,
}

impl Work {
    fn all(&mut self, ready: &Sender<Result<(), Failure>>) {
        let mut runtime = None;
        if Beside::first(&self.options) {
            let asked = joined::look(&self.options.asking, &self.options.config);
            self.told.notes.extend(asked.err().as_deref().map(beside_the_daemon));
            let before = self.prepare().map(|prepared| runtime = prepared);
            let failed = before.is_err();
            let _ = ready.send(before);
            if failed {
                return;
            }
        }
        let Ok(Order::Started(pid)) = self.orders.recv() else {
            runtime.map(Runtime::end);
            return;
        };
        let grown = Instant::now() + GROWN;
        if !Beside::first(&self.options) {
            match joined::look(&self.options.asking, &self.options.config) {
                Ok(Some(offer)) => return self.stay_with_daemon(offer, pid),
                Ok(None) => {}
                Err(why) => self.told.notes.push(beside_the_daemon(&why)),
            }
            if takes_long(&self.options.config, &self.vcpus) && !self.lasts_until(grown) {
                return;
            }
            // What was asked for by name has been refused before.
            runtime = self.prepare().unwrap_or_else(|failure| {
                self.told.unmanaged = Some(failure.message);
                None
            });
        }
        if let Some(runtime) = runtime {
            self.told.own = Some(self.manage(runtime, pid));
        }
    }

    /// Whether the program does. Nobody waits for this thread meanwhile.
    fn lasts_until(&mut self, grown: Instant) -> bool {
        self.idle.store(true, Ordering::SeqCst);
        loop {
            match event_loop::receive_until(&self.orders, grown) {
                None => return true,
                Some(Received::Event(Order::End) | Received::Closed) => return false,
                // Who was forked and who ended is looked for later.
                Some(Received::Event(_)) => {}
            }
        }
    }

    /// Everything that it takes; `None`: the program is left alone, which only `--strict` takes for a failure.
    fn prepare(&mut self) -> Result<Option<Runtime>, Failure> {
        let (acts, first) = (self.options.config.acts(), Beside::first(&self.options));
        let config = &self.options.config;
        let in_the_way = limit_in_the_way(&self.inherited, &self.vcpus);
        self.idle.store(true, Ordering::SeqCst);
        let go_on = || {
            // Whoever ends it sees that something may be changed, or it is seen here that it ended.
            self.idle.store(!acts, Ordering::SeqCst);
            first || !acts || !self.over.load(Ordering::SeqCst)
        };
        let prepared = if let Some(why) = in_the_way {
            Err(why)
        } else {
            match Runtime::prepare_unless(config, self.vcpus.clone(), listener(), go_on) {
                Ok(runtime) => Ok(runtime),
                Err(SetupError::Over) => {
                    self.idle.store(false, Ordering::SeqCst);
                    return Ok(None);
                }
                Err(error @ SetupError::NothingObserved(_)) => Err(error.to_string()),
                Err(error @ (SetupError::NoJournal(_) | SetupError::Weaker(_))) => {
                    return Err(Failure::run(format!("--strict: {error}")));
                }
                Err(error) => return Err(Failure::run(error)),
            }
        };
        self.idle.store(false, Ordering::SeqCst);
        match prepared {
            Ok(mut runtime) => {
                if let Some(recording) = self.recording.take() {
                    recording.begin(&mut runtime);
                }
                Ok(Some(runtime))
            }
            Err(why) if config.strict => Err(Failure::run(format!("--strict: {why}"))),
            Err(why) => {
                self.told.unmanaged = Some(why);
                Ok(None)
            }
        }
    }

    /// Until the program ends.
    fn manage(&mut self, mut runtime: Runtime, pid: i32) -> (Snapshot, bool) {
        if self.over.load(Ordering::SeqCst) {
            return runtime.end();
        }
        let bursts = self.bursts.clone();
        runtime.tell_bursts_by(move || {
            // Whoever receives may have ended.
            let _ = bursts.send(Order::Burst);
        });
        runtime.attach_child(pid);
        let first = runtime.window_length().into();
        let mut managed = Managed { runtime, orders: &self.orders };
        event_loop::run(&mut managed, first);
        managed.runtime.end()
    }

    /// The daemon has it until the program ends. What is in the way does not harm the program, which runs.
    fn stay_with_daemon(&mut self, offer: Offer, pid: i32) {
        let begin = move || {
            offer.accept(Some(pid), None).map_err(|why| {
                let line = format!("the program runs unmanaged, because the daemon did not take it: {why}");
                // One that has ended already misses nothing.
                if Target::process(&ProcRoot::default(), pid).is_ok() {
                    say(&format!("gleaner: {line}"));
                }
                line
            })
        };
        let membership = match Membership::start(begin) {
            Ok(membership) => membership,
            Err(error) => {
                self.told.unmanaged = Some(format!("no thread: {}", why_refused(&error)));
                return;
            }
        };
        while !matches!(self.orders.recv(), Ok(Order::End) | Err(_)) {}
        match membership.end() {
            Ok(report) => self.told.daemons = Some(report),
            Err(why) => self.told.notes.push(why),
        }
    }
}

fn beside_the_daemon(why: &str) -> String {
    format!("managed beside the daemon, not by it: {why}")
}

/// The program, managed.
struct Managed<'a> {
    runtime: Runtime,
    orders: &'a Receiver<Order>,
}

impl Task for Managed<'_> {
    type Event = Received<Order>;
    type Outcome = ();

    fn wait_until(&mut self, due: Instant) -> Option<Self::Event> {
        event_loop::receive_until(self.orders, due)
    }

    fn tick(&mut self, late: Nanos) -> ControlFlow<(), Duration> {
        self.runtime.tick(late);
        ControlFlow::Continue(self.runtime.window_length().into())
    }

    fn event(&mut self, event: Self::Event) -> ControlFlow<(), Option<Duration>> {
        match event {
            Received::Event(Order::Burst) => self.runtime.burst(),
            Received::Event(Order::ChildEnded(pid)) => self.runtime.child_ended(pid),
            Received::Event(Order::WasStopped) => {
                self.runtime.skip();
                return ControlFlow::Continue(Some(self.runtime.window_length().into()));
            }
            Received::Event(Order::Started(_)) => {}
            Received::Event(Order::End) | Received::Closed => {
                self.runtime.tick(Nanos::ZERO);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(None)
    }
}
