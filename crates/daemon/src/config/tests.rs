use super::*;
use gleaner_settings::{HostSlice, RetainChoice};
use std::time::Duration;

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.to_owned() }
}

fn parsed(text: &str) -> Result<Configuration, ConfigErrors> {
    Configuration::resolve(&[file("x.toml", text)])
}

fn right(text: &str) -> Configuration {
    parsed(text).unwrap_or_else(|error| panic!("{error}"))
}

fn wrong(text: &str) -> String {
    parsed(text).map_or_else(|error| error.to_string(), |found| panic!("{text} is right: {found:?}"))
}

#[test]
fn each_key_is_understood_and_each_that_is_understood_is_described() {
    for key in keys() {
        let table = key.table.replace("NAME", "a");
        let selects = Which::NAMES.contains(&key.key);
        let which = if key.table == "group.NAME" && !selects { "unit = \"x\"\n" } else { "" };
        let text = format!("[{table}]\n{which}{} = {}\n", key.key, key.example);
        right(&text);
    }
    for table in tables::TABLES {
        let said = wrong(&format!("[{table}{}]\nzzzz = 1\n", if table == "group" { ".a" } else { "" }));
        let described: Vec<&str> =
            keys().iter().filter(|key| key.table.starts_with(table)).map(|key| key.key).collect();
        assert!(said.ends_with(&format!("there are {}", described.join(", "))), "{said}\nis not {described:?}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_would_be_right() {
    for (text, told) in [
        ("[group.a]\nunit = \"x\"\nprofil = \"latency\"\n", "x.toml:3: unknown key profil: did you mean profile?"),
        (
            "[group.a]\nunit = \"x\"\nprofile = \"latencie\"\n",
            "x.toml:3: unknown profile latencie: did you mean latency?",
        ),
        ("\n[deamon]\n", "x.toml:2: unknown table deamon: did you mean daemon?"),
        ("[group.a]\nprofile = \"latency\"\n", "x.toml:1: group a: which? write unit, cgroup, program or pid"),
        ("[group.a]\nunit = \"x\"\npid = 3\n", "x.toml:1: one group has one of"),
        ("[group.a]\npid = -3\n", "x.toml:2: pid = -3: write a process id"),
        ("[group.a]\npid = 3\nbudget = \"much\"\n", "x.toml:3: much: write 0% to 100000%"),
        ("[group.a]\npid = 3\nretain_for = \"5s\"\n", "x.toml:3: 5s: write 1us to 1s"),
        ("[group.a]\npid = 3\npolicy = \"full\"\n", "x.toml:3: unknown policy full: there are off, observe, retain"),
        ("[group.a]\ncgroup = \"/a/**b\"\n", "x.toml:2: no such wildcards"),
        ("[group.\"a b\"]\npid = 3\n", "x.toml:1: group a b: a name has"),
        ("[daemon]\ngroups_max = 0\n", "x.toml:2: groups_max = 0: write 1 to 1000"),
        ("[daemon]\noverhead = \"50%\"\n", "x.toml:2: 50%: write 0.1% to 20%"),
        ("[daemon]\nretain = \"halt-poll\"\n", "x.toml:2: unknown means halt-poll: did you mean haltpoll?"),
        (
            "[group.a]\npid = 3\n[group.a.params]\nlod_factor = 1\n",
            "x.toml:4: unknown parameter lod_factor: did you mean load_factor?",
        ),
        ("[group.a]\npid = 3\n[group.a.params]\nload_factor = 7\n", "x.toml:4: load_factor"),
        ("[group.a]\npid = 3\n[group.a.params]\nload_factor = \"x\"\n", "x.toml:4: load_factor: "),
        ("[group.a]\npid = \"x\"\n", "x.toml:2: "),
        ("[control]\ngroup = \"no-such-group\"\n", "x.toml:2: no-such-group: no such group of users"),
        ("[metrics]\nlisten = \"0.0.0.0:80\"\n", "x.toml:2: metrics are served on loopback"),
        ("[host]\nslice = \"1s\"\n", "x.toml:2: 1s: write adaptive, or 100us to 100ms"),
        ("[host]\ninterval = \"1us\"\n", "x.toml:2: 1us: write 100ms to 60s"),
        ("[host]\nvm = [\"\"]\n", "x.toml:2: vm: write each"),
        ("[host]\nvms = [\"a\"]\n", "x.toml:2: unknown key vms: did you mean vm?"),
        ("[capture]\nsize = \"5\"\n", "x.toml:2: 5: write 1M to 16G"),
        ("[capture]\nfolder = \"x\"\n", "x.toml:2: x: write a path from / on"),
        ("[group.a]\npid = 3\nprogress = \"x\"\n", "x.toml:3: x: write a path from / on"),
        ("[group.a]\npid = 3\nprogress = \"/x|(\"\n", "x.toml:3: (: "),
        ("a = [\n", "x.toml:"),
        ("[[group]]\n", "x.toml:1: "),
        ("group = 3\n", "x.toml:1: "),
    ] {
        let said = wrong(text);
        assert!(said.starts_with(told), "{said}\nfor {text}");
    }
}

#[test]
fn all_mistakes_are_told_each_once_in_order_of_files_and_lines() {
    let first = "[group.a]\nunit = \"x\"\nprofil = \"latency\"\nbudget = \"much\"\n[group.b]\nprofile = \"latency\"\n\
                 [group.c]\npid = -3\n[group.c.params]\nload_factor = 7\nlod_factor = 1\n[deamon]\n";
    let second = "[daemon]\ngroups_max = 0\noverhead = \"50%\"\n[group.a]\npolicy = \"full\"\n";
    let wrong = Configuration::resolve(&[file("a.toml", first), file("b.toml", second)]).unwrap_err();
    let places: Vec<String> = wrong.to_string().lines().map(|line| line.split(": ").next().unwrap().into()).collect();
    let expected = ["a.toml:3", "a.toml:4", "a.toml:5", "a.toml:8", "a.toml:10", "a.toml:11", "a.toml:12", "b.toml:2"];
    assert_eq!(places[..8], expected, "{wrong}");
    assert_eq!(places[8..], ["b.toml:3", "b.toml:5"], "{wrong}");
    assert!(wrong.in_a_line().ends_with("did you mean profile? (and 9 more: gleaner config check)"), "{wrong}");
    // Where one is no TOML, that alone is told of it, and nobody guesses what the others lack.
    let wrong = Configuration::resolve(&[file("a.toml", "[group.a]\npid = \n"), file("b.toml", "[group.a]\nx = 1\n")]);
    let places: Vec<(PathBuf, Option<usize>)> = wrong.unwrap_err().0.into_iter().map(|e| (e.file, e.line)).collect();
    assert_eq!(places, [("a.toml".into(), Some(2)), ("b.toml".into(), Some(2))]);
}

#[test]
fn later_files_count_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("usr/share/gleaner/gleaner.toml", "[daemon]\nretain = \"none\"\ngroups_max = 5\n[group.a]\nunit = \"a\"\n");
    write("etc/gleaner/gleaner.toml", "[daemon]\nretain = \"haltpoll\"\n[defaults]\nprofile = \"latency\"\n");
    write(
        "etc/gleaner/gleaner.d/20.toml",
        "[group.a]\nprogram = \"aa\"\n[group.b]\npid = 2\nprofile = \"observe-only\"\n",
    );
    write(
        "etc/gleaner/gleaner.d/10.toml",
        "[group.a]\ncgroup = \"/a\"\nbudget = \"10%\"\nparams = { load_factor = 0.5 }\n",
    );
    write("etc/gleaner/gleaner.d/30.toml~", "garbage");
    write("etc/gleaner/gleaner.d/.30.toml", "garbage");
    let files = machine_files(folder.path());
    assert_eq!(files.len(), 4, "{files:?}");
    let found = Configuration::of_files(files).unwrap();
    assert_eq!((found.machine.retain(), found.machine.groups_max()), (RetainChoice::Haltpoll, 5));
    let [a, b] = &found.groups[..] else { panic!("{found:?}") };
    let of = &a.settings;
    assert_eq!(
        (&a.selector, of.budget_ratio(), of.profile()),
        (&Selector::Program("aa".into()), Some(0.1), Profile::Latency)
    );
    assert!((of.params().load_factor - 0.5).abs() < 1e-9);
    assert_eq!((b.settings.policy(), &b.selector), (Policy::Observe, &Selector::Pid(2)));
    assert!(!found.names_no_group);
    // A broken one is named, not passed over.
    write("etc/gleaner/gleaner.d/40.toml", "[group.b]\nprofile = \"x\"\n");
    let said = Configuration::of_files(machine_files(folder.path())).unwrap_err().to_string();
    assert!(said.contains("gleaner.d/40.toml:2: unknown profile x"), "{said}");
}

#[test]
fn without_a_file_everything_is_watched_and_what_is_shown_can_be_read_again() {
    let none = Configuration::of_files(Vec::new()).unwrap();
    assert!(none.names_no_group);
    let text = "[daemon]\nretain = \"pm-qos\"\n[capture]\nsize = \"3M\"\nfolder = \"/x/y\"\n[group.\"web@1\"]\nunit = \"web@*\"\nbudget = \"20%\"\nretain_for = \"200us\"\n\
                [group.b]\npid = 7\ntrial = false\nprofile = \"balanced\"\n";
    for found in [none, right(text)] {
        let again = right(&found.to_string());
        assert_eq!(
            (again.machine.retain(), &again.capture, &again.groups),
            (found.machine.retain(), &found.capture, &found.groups),
            "{found}"
        );
    }
}

#[test]
fn what_is_no_file_is_said_to_be_none() {
    for (path, told) in [("/no/such/file", "cannot be read"), ("/dev/zero", "longer than"), ("/", "cannot be read")] {
        let said = Configuration::load(Some(Path::new(path))).unwrap_err().to_string();
        assert!(said.contains(told), "{said}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever is written, it is read or refused with a line.
    #[test]
    fn garbage_is_refused_with_its_line(text in "(\\[|\\]|=|\"|group|daemon|\\.|a|\n|[0-9%{}]|unit|params|\\PC){0,60}") {
        if let Err(error) = parsed(&text) {
            proptest::prop_assert!(!error.0.is_empty());
            let is_placed = |error: &ConfigError| error.line.is_some() && !error.what.is_empty();
            proptest::prop_assert!(error.0.iter().all(is_placed), "{error}");
        }
    }
}

#[test]
fn a_host_has_an_agent_and_no_group_of_everything() {
    let found = right("[host]\n");
    assert_eq!((found.groups.len(), found.names_no_group), (0, false));
    let settings = found.host.unwrap();
    assert_eq!((settings.slice(), settings.options().join(" ")), (HostSlice::Adaptive, "--slice adaptive".to_owned()));
    let both = right("[host]\nslice = \"1500us\"\nvm = [\"a b\"]\n[group.a]\npid = 3\n");
    assert_eq!(both.host.as_ref().unwrap().slice(), HostSlice::Fixed(Duration::from_micros(1500)));
    assert_eq!(right(&both.to_string()).host, both.host, "{both}");
    // A drop-in changes one key of it.
    let files = [
        file("a.toml", "[host]\nslice = \"1ms\"\nenforce = false\n"),
        file("b.toml", "[host]\nslice = \"adaptive\"\n"),
    ];
    let host = Configuration::resolve(&files).unwrap().host.unwrap();
    assert_eq!((host.slice(), host.enforce), (HostSlice::Adaptive, Some(false)));
}

#[test]
fn what_is_wrong_with_all_files_together_is_told_where_it_is_written() {
    let files = [
        file("a.toml", "[group.a]\npid = 3\n\n[group.a.params]\nload_factor = 9\n"),
        file("b.toml", "[group.a]\nprofile = \"balanced\"\n"),
        file("c.toml", "[group.b]\nprofile = \"frugal\"\n"),
    ];
    let said = |files: &[File]| Configuration::resolve(files).unwrap_err().to_string();
    assert!(said(&files[..2]).starts_with("a.toml:5: load_factor = 9"), "{}", said(&files[..2]));
    assert!(said(&files[1..]).starts_with("b.toml:1: group a: which?"), "{}", said(&files[1..]));
    let numbers = [file("a.toml", "[group.a]\npid = 3\nparams = { load_factor = 0.5 }\n"), files[1].clone()];
    let found = Configuration::resolve(&numbers).unwrap();
    assert_eq!(right(&found.to_string()).groups, found.groups, "numbers are shown, too: {found}");
}
