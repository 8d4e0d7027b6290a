//! `gleaner params`: every parameter of a policy, as the file that `--config` takes.

use clap::{Args, ValueEnum};
use gleaner_command::output::Output;
use gleaner_decide::Parameter;
use gleaner_decide::guest::GuestParams;
use gleaner_decide::host::HostParams;
use std::fmt::Write;

#[derive(Debug, Args)]
#[command(after_help = "What is printed is a whole parameter file. A file of your own names only what it changes.\n\n\
                        Examples:\n\
                        \x20 gleaner params\n\
                        \x20 gleaner params host | grep -B4 start_slice_us\n\
                        \x20 echo 'min_time_slice_us = 2000' >mine.toml; gleaner run --config mine.toml -- make -j8")]
pub struct ParamsArgs {
    /// Whose parameters
    #[arg(value_enum, value_name = "POLICY", default_value_t = Of::Guest)]
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Of `gleaner run` and `ab`
    Guest,
    /// Of `gleaner host run`
    Host,
}

/// Longest line of a comment, as a terminal has it.
const COLUMNS: usize = 80;

pub fn print(args: &ParamsArgs) {
    Output::Text.text(&match args.of {
        Of::Guest => file("gleaner run --config FILE", &GuestParams::parameters()),
        Of::Host => file("gleaner host run --config FILE", &HostParams::parameters()),
    });
}

/// TOML: each key with its default, below what it is and what it may be.
fn file(command: &str, parameters: &[Parameter]) -> String {
    let mut text = String::new();
    comment(
        &mut text,
        &format!("Parameters of `{command}`, with their defaults. \"Ours\": the papers have no such thing."),
    );
    for of_group in parameters.chunk_by(|a, b| a.group == b.group) {
        text += "\n";
        comment(&mut text, &format!("--- {} ---", of_group.first().map_or("", |parameter| parameter.group)));
        for parameter in of_group {
            text += "\n";
            comment(&mut text, parameter.meaning);
            let unit = if parameter.unit.is_empty() { String::new() } else { format!(" ({})", parameter.unit) };
            comment(&mut text, &format!("Range: {}{unit}", parameter.allowed));
            let _ = writeln!(text, "{} = {}", parameter.key, parameter.default);
        }
    }
    text
}

fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > COLUMNS {
            *text += &line;
            *text += "\n";
            line.truncate(1);
        }
        line.push(' ');
        line += word;
    }
    *text += &line;
    *text += "\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_command::params::read_params;

    #[test]
    fn what_is_printed_is_a_file_of_the_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("printed.toml");
        let read = |text: &str| {
            assert!(text.lines().all(|line| line.len() <= COLUMNS || !line.starts_with('#')), "{text}");
            std::fs::write(&path, text).unwrap();
        };
        read(&file("x", &GuestParams::parameters()));
        assert_eq!(read_params::<GuestParams>(&path).unwrap(), GuestParams::default());
        read(&file("x", &HostParams::parameters()));
        assert_eq!(read_params::<HostParams>(&path).unwrap(), HostParams::default());
    }

    #[test]
    fn each_key_has_its_meaning_range_and_unit_above_it() {
        let text = file("x", &GuestParams::parameters());
        let expected = "\n# min_time_slice: threads that compute longer than this are not consolidated.\n\
                        # The paper says \"a few milliseconds\".\n# Range: 100 to 100000 (us)\nmin_time_slice_us = \
                        4000\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("\n\n# --- Contention guard: ours ---\n\n"), "{text}");
    }
}
