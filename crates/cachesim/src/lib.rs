//! A cache simulator under time-shared contexts.
