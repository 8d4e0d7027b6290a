//! parameters.md: every parameter of both policies.

use gleaner_decide::Parameter;
use gleaner_decide::guest::GuestParams;
use gleaner_decide::host::HostParams;
use std::fmt::Write;

/// The whole page.
pub fn page() -> String {
    format!(
        "# Parameters\n\n`make reference` makes this page of the source. `gleaner params` prints the same.\n\
         The [guide](../guide.md#ask-for-less) says how a file gives them.\n\n\
         ## Of a guest\n\nFor `gleaner run` and `ab`.\n{}\n\
         ## Of a host\n\nFor `gleaner host run`.\n{}",
        tables(&GuestParams::parameters()),
        tables(&HostParams::parameters())
    )
}

/// A table for each group.
fn tables(parameters: &[Parameter]) -> String {
    let mut text = String::new();
    for of_group in parameters.chunk_by(|a, b| a.group == b.group) {
        let _ = write!(text, "\n### {}\n\n", of_group.first().map_or("", |parameter| parameter.group));
        text += "| key | default | range | unit | meaning |\n| --- | --- | --- | --- | --- |\n";
        for Parameter { key, default, allowed, unit, meaning, .. } in of_group {
            let meaning = meaning.replace('|', "\\|");
            let _ = writeln!(text, "| `{key}` | {default} | {allowed} | {unit} | {meaning} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_what_the_definition_has() {
        let parameter = Parameter {
            key: "a_us",
            group: "A: b",
            meaning: "One. Two | three.",
            default: "4000".into(),
            allowed: "1 to 2".into(),
            unit: "us",
        };
        let expected = "\n### A: b\n\n| key | default | range | unit | meaning |\n| --- | --- | --- | --- | --- |\n\
                        | `a_us` | 4000 | 1 to 2 | us | One. Two \\| three. |\n";
        assert_eq!(tables(&[parameter]), expected);
    }
}
