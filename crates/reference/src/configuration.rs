//! configuration.md: every key of the daemon's configuration.

use gleaner_daemon::keys;
use gleaner_settings::Key;
use std::fmt::Write;

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(
        "# Configuration\n\n`make reference` makes this page of the source. `gleaner config check` says whether a \
         file is right, `gleaner config show` what counts.\n\nFor `gleaner daemon`. Later files count, key by key: \
         /usr/share/gleaner/gleaner.toml, /etc/gleaner/gleaner.toml, /etc/gleaner/gleaner.d/*.toml.\n",
    );
    for of_table in keys().chunk_by(|a, b| a.table == b.table) {
        let _ = write!(text, "\n## [{}]\n\n", of_table.first().map_or("", |key| key.table));
        text += "| key | example | allowed | default | meaning |\n| --- | --- | --- | --- | --- |\n";
        for Key { key, example, allowed, default, meaning, .. } in of_table {
            let default = if default.is_empty() { "none" } else { default };
            let [allowed, meaning] = [allowed, meaning].map(|text| text.replace('|', "\\|"));
            let _ = writeln!(text, "| `{key}` | `{example}` | {allowed} | {default} | {meaning} |");
        }
    }
    text
}
