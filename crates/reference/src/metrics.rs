//! metrics.md: every figure that the daemon serves.

use gleaner_daemon::{METRICS, MetricKind};
use std::fmt::Write;

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\n`make reference` makes this page of the source.\n\n`gleaner daemon` serves them as OpenMetrics where \
         `metrics.listen` says. See [configuration](configuration.md).\n\n\
         | sample | type | label | meaning |\n| --- | --- | --- | --- |\n",
    );
    for metric in METRICS {
        let kind = if metric.kind == MetricKind::Counter { "counter" } else { "gauge" };
        let label = metric.label().map(|label| format!("`{label}`")).unwrap_or_default();
        let _ = writeln!(text, "| `{}` | {kind} | {label} | {} |", metric.sample_name(), metric.meaning);
    }
    text
}
