//! Ending on a thread of its own what takes long to end.

/// Drops it without waiting for it, where a thread can be had: taking BPF programs off the tracepoints waits until no
/// CPU is in one, and where no vCPU is ever idle a thread of the lowest class takes seconds to hear that it is to end.
pub fn drop_aside<T: Send + 'static>(what: T) {
    // Where spawning fails, the closure is dropped, and `what` with it.
    let _ = std::thread::Builder::new().name("gleaner-retire".to_owned()).spawn(move || drop(what));
}
