use super::*;
use clap::ColorChoice;

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
}

/// Every command, whatever it is below.
fn all(command: &clap::Command) -> Vec<clap::Command> {
    let own = command.get_subcommands().flat_map(all);
    own.chain([command.clone()]).collect()
}

#[test]
fn the_first_help_has_every_command_once() {
    let command = command();
    let help = command.clone().render_help().to_string();
    let shown: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let mut names: Vec<&str> = shown.iter().map(|command| command.get_name()).collect();
    grouped.sort_unstable();
    names.sort_unstable();
    assert_eq!(grouped, names, "a command belongs to one of GROUPS");
    for line in shown.into_iter().flat_map(|command| with_its_own("", command)).map(|(name, _)| format!("\n  {name} "))
    {
        assert_eq!(help.matches(&line).count(), 1, "{line:?} in {help}");
    }
    assert!(help.contains("\nOn a host:\n  host list "), "{help}");
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
}

/// An installed binary is alone: help and messages name commands, not files of the source.
#[test]
fn no_help_points_to_a_file_of_the_source() {
    let mut whole = command();
    whole.build();
    let commands = all(&whole);
    assert!(commands.len() > 15, "{}", commands.len());
    for mut command in commands {
        let help = command.render_long_help().to_string();
        for file in ["docs/", "experiments/", ".md"] {
            assert!(!help.contains(file), "`{} --help` points to {file}: {help}", command.get_name());
        }
    }
}

#[test]
fn every_command_takes_the_options_of_all() {
    for words in ["doctor", "host list", "workload list", "params host", "ab ls", "restore"] {
        let words = format!("gleaner {words} -vv --quiet --color never");
        // Behind a program they would be the program's.
        let words = words.replace("ab ls -vv --quiet --color never", "ab -vv --quiet --color never ls");
        let cli = parse(words.split(' ').map(OsString::from)).unwrap();
        let everywhere = &cli.everywhere;
        assert_eq!(
            (everywhere.log(), everywhere.quiet, everywhere.color),
            ("debug", true, ColorChoice::Never),
            "{words}"
        );
    }
}

#[test]
fn what_follows_the_program_is_the_programs() {
    let cli = Cli::try_parse_from(["gleaner", "run", "--json", "f", "--", "ls", "--json", "-q"]).unwrap();
    let quiet = cli.everywhere.quiet;
    let Command::Run(run) = cli.command else { panic!("not run") };
    assert_eq!(run.command, ["ls", "--json", "-q"]);
    assert_eq!((run.json.json, quiet), (Some("f".into()), false));
    for words in [["ls", "--json", "-q"], ["ls", "--", "-x"], ["ls", "-", "--no-such-option"]] {
        let cli = Cli::try_parse_from(["gleaner", "run", "--quiet"].iter().chain(&words)).unwrap();
        let quiet = cli.everywhere.quiet;
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.command, words);
        assert_eq!((run.json.json, quiet), (None, true));
    }
}

#[test]
fn a_misspelt_option_is_no_program() {
    assert!(Cli::try_parse_from(["gleaner", "run", "--polcy", "full", "--", "ls"]).is_err());
    let cli = Cli::try_parse_from(["gleaner", "run", "--", "--polcy"]).unwrap();
    let Command::Run(run) = cli.command else { panic!("not run") };
    assert_eq!(run.command, ["--polcy"]);
}
