//! Virtual machines with several programs, of which one is counted: what a simulation counts is the machine's.

use super::bed::Bed;
use super::kernel::Kernel;
use super::lock_times::hold_ns;
use super::network;
use super::parsec::{Program, THREADS};
use crate::engine::Time;
use crate::program::{Builder, Workload};

/// A program in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum App {
    /// Of PARSEC, with a thread for each vCPU.
    Parsec(&'static str),
    /// Of PARSEC, with one thread.
    Single(&'static str),
    /// iperf over TCP.
    Tcp,
    /// iperf over UDP.
    Udp,
}

impl App {
    fn name(self) -> &'static str {
        match self {
            Self::Parsec(name) | Self::Single(name) => name,
            Self::Tcp | Self::Udp => "iperf",
        }
    }

    fn write(self, b: &mut Builder, kernel: &Kernel, length: Time) {
        match self {
            Self::Parsec(name) => Program::named(name).write(b, kernel, THREADS),
            Self::Single(name) => Program::named(name).write(b, kernel, 1),
            Self::Tcp => network::tcp(b, kernel),
            Self::Udp => network::udp(b, kernel, length),
        }
    }
}

/// A virtual machine with these programs, `counted` of them counted. Datagrams' threads are the first.
pub(super) fn guest(apps: &[App], counted: App, bed: &Bed) -> (String, Workload) {
    let mut b = Builder::new();
    let first = apps.first().map_or("", |app| app.name());
    let kernel = Kernel::new(&mut b, hold_ns(first));
    for app in apps {
        app.write(&mut b, &kernel.counting(*app == counted), bed.length);
    }
    (apps.iter().map(|app| app.name()).collect::<Vec<_>>().join("+"), b.build())
}
