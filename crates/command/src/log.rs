//! What is logged, to standard error.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Logs what `GLEANER_LOG` asks for (`debug`, `gleaner_observe=trace,info`), or `default` where it says nothing that
/// can be understood.
pub fn start(default: &str) {
    let asked = std::env::var("GLEANER_LOG").ok().and_then(|words| words.parse::<Targets>().ok());
    let targets = asked.or_else(|| default.parse().ok()).unwrap_or_default();
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(targets);
    tracing_subscriber::registry().with(layer).init();
}
