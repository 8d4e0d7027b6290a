//! What keeps a service from starting, or from ending as it should.

use crate::config::ConfigErrors;
use crate::lock::LockError;
use crate::metrics_address::MetricsAddress;
use gleaner_runtime::SetupError;
use std::io;

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// There is one already, or no lock is to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Nothing can be observed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Signals or a thread.
    #[error("cannot begin: {0}")]
    Begin(#[from] io::Error),
    /// The address for metrics is not to be had.
    #[error("cannot serve metrics at {address}: {source}")]
    Metrics {
        address: MetricsAddress,
        /// What the kernel said.
        source: io::Error,
    },
    /// It did not end as it should.
    #[error("the service failed, which is a bug; what it changed is undone")]
    Panicked,
    /// Not everything could be undone.
    #[error("not everything could be undone: run `gleaner restore`")]
    NotUndone,
}
