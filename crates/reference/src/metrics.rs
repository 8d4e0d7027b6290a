//! metrics.md: every figure that the daemon serves.

use gleaner_daemon::{METRICS, MetricKind, OF_VCPUS};
use std::fmt::Write;

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\n`make reference` makes this page of the source.\n\n`gleaner daemon` serves them as OpenMetrics where \
         `metrics.listen` says. See [configuration](configuration.md).\n\n\
         | sample | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for metric in METRICS.iter().chain([&OF_VCPUS]) {
        let kind = if metric.kind == MetricKind::Counter { "counter" } else { "gauge" };
        let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let label = labels.join(", ");
        let _ = writeln!(text, "| `{}` | {kind} | {label} | {} |", metric.sample_name(), metric.meaning);
    }
    text
}
