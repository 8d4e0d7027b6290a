use super::*;
use gleaner_command::everywhere::ColorArg;
use std::time::Duration;

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
        assert_eq!((everywhere.log(), everywhere.quiet, everywhere.color), ("debug", true, ColorArg::Never), "{words}");
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

#[test]
fn earlier_names_of_durations_are_understood_and_not_shown() {
    let durations = |words: &str| {
        let cli = Cli::try_parse_from(words.split(' ')).unwrap();
        match cli.command {
            Command::Run(run) => run.group.timeout().map(Duration::from),
            Command::Ab(ab) => ab.group.timeout().map(Duration::from),
            Command::Probe(probe) => Some(probe.gap()),
            Command::Workload(workload) => Some(workload.length()),
            other => panic!("{other:?}"),
        }
    };
    for (command, rest, earlier, now) in [
        ("run", " ls", "--timeout 2ms", "--retain-for 2ms"),
        ("ab", " ls", "--timeout 2ms", "--retain-for 2ms"),
        ("probe", "", "--gap-us 300", "--gap 300us"),
        ("workload", " relay", "--seconds 2.5", "--for 2500ms"),
    ] {
        let given = durations(&format!("gleaner {command} {now}{rest}"));
        assert_eq!(durations(&format!("gleaner {command} {earlier}{rest}")), given, "{earlier}");
        assert_ne!(durations(&format!("gleaner {command}{rest}")), given, "{now}");
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut(command).unwrap().render_long_help().to_string();
        let name = |option: &'static str| option.split_once(' ').unwrap().0;
        assert!(help.contains(name(now)) && !help.contains(name(earlier)), "{help}");
    }
}

#[test]
fn a_misspelt_command_is_told_the_nearest_that_is_shown() {
    for (word, meant) in [("atach", Some("attach")), ("detach", Some("attach")), ("cach", None), ("guardin", None)] {
        let said = parse(["gleaner", word].map(OsString::from)).unwrap_err().to_string();
        assert!(meant.is_none_or(|meant| said.contains(&format!("'{meant}'"))), "{said}");
        assert!(!["'cache'", "'sim'", "'guardian'"].iter().any(|hidden| said.contains(hidden)), "{said}");
    }
}
