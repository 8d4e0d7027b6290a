//! A deterministic discrete-event simulator of a host scheduler under guest schedulers.
