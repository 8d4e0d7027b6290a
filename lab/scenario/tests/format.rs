//! The format: what is read, what is refused and in which words, and that what is written is read back.

use gleaner_model::{Policy, Profile};
use gleaner_scenario::{Observer, Role, Scenario, TimeoutFrom, Workload};
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const SMALL: &str = r#"name = "small"
description = "Is it read?"
rounds = 3

[[vm]]
name = "app"
role = "measured"
vcpus = 2
policies = ["off", "full"]
workloads = [{ program = "pipeline", threads = 4, items = 20000, granularity = "20us" }]
"#;

const NEIGHBOUR: &str = r#"
[[vm]]
name = "neighbour"
role = "background"
vcpus = 2
workloads = ["nothing", { program = "matmul" }]
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, Path::new("x.toml")).map_err(|error| error.to_string())
}

/// The small scenario with something in place of something else.
fn with(old: &str, new: &str) -> Result<Scenario, String> {
    assert!(SMALL.contains(old), "{old}");
    parse(&SMALL.replacen(old, new, 1))
}

#[test]
fn a_small_scenario_has_defaults() {
    let scenario = parse(SMALL).unwrap();
    assert_eq!((scenario.rounds, scenario.warmup_rounds, scenario.seed, scenario.together), (3, 0, 0, true));
    assert_eq!(scenario.settle, Duration::from_millis(300));
    assert_eq!(scenario.run_timeout, Duration::from_secs(120));
    assert_eq!(scenario.machine.kernel, "6.1");
    let vm = &scenario.vms[0];
    assert_eq!((vm.role, vm.vcpus, vm.memory_mib), (Role::Measured, 2, 512));
    assert_eq!(vm.policies[1].label, "full");
    assert_eq!(vm.policies[1].timeout, TimeoutFrom::Boot);
    let Workload::Program(program) = &vm.workloads[0] else { panic!("{:?}", vm.workloads) };
    assert_eq!((program.label.as_str(), program.items), ("pipeline", Some(20_000)));
    assert_eq!(program.granularity, Some(Duration::from_micros(20)));
}

#[test]
fn a_vms_own_settings_are_its_policies_defaults() {
    let policies = r#"profile = "latency"
timeout = "500us"
overhead = 2.5
observer = "procfs"
policies = ["off", { policy = "full", profile = "frugal", timeout = "run", observer = "bpf", label = "mine" }]"#;
    let scenario = with(r#"policies = ["off", "full"]"#, policies).unwrap();
    let [off, mine] = scenario.vms[0].policies.as_slice() else { panic!() };
    assert_eq!((off.policy, off.profile), (Policy::Off, Profile::Latency));
    assert_eq!((off.observer, mine.observer), (Observer::Procfs, Observer::Bpf));
    assert_eq!((off.overhead, mine.overhead), (Some(2.5), Some(2.5)));
    assert_eq!(off.timeout, TimeoutFrom::Fixed(Duration::from_micros(500)));
    assert_eq!((mine.label.as_str(), mine.profile, mine.timeout), ("mine", Profile::Frugal, TimeoutFrom::Run));
}

#[test]
fn pins_are_for_all_vcpus_or_for_each() {
    let pins = |pin: &str| {
        with("vcpus = 2", &format!("vcpus = 2\npin = {pin}"))
            .map(|scenario| scenario.vms[0].pin.iter().map(ToString::to_string).collect::<Vec<String>>())
    };
    assert_eq!(pins(r#""0-1""#).unwrap(), ["0-1", "0-1"]);
    assert_eq!(pins(r#"["0", "1,3"]"#).unwrap(), ["0", "1,3"]);
    assert!(pins(r#"["0"]"#).unwrap_err().contains("1 lists for 2 vCPUs"));
    assert!(pins(r#""zero""#).unwrap_err().contains("zero"));
}

/// Each mistake is named with its line and what would be right.
#[test]
fn mistakes_are_named_with_their_line() {
    for (old, new, line, words) in [
        ("rounds = 3", "rounds = 0", 3, "within 1 and 1000"),
        ("rounds = 3", "", 1, "missing field `rounds`"),
        ("rounds = 3", "rounds = 3\nround = 2", 4, "unknown field `round`"),
        ("rounds = 3", "rounds = 3\nsettle = 1", 4, "invalid type"),
        ("rounds = 3", "rounds = 3\nsettle = \"soon\"", 4, "write it like"),
        ("rounds = 3", "rounds = 3\nsettle = \"1h\"", 4, "within 0s and 1m"),
        ("rounds = 3", "rounds = 3\n[machine]\nkernel = \"5.4\"", 5, "one of \"6.1\""),
        ("rounds = 3", "rounds = 3\n[machine]\naccelerator = \"xen\"", 5, "one of \"auto\""),
        ("rounds = 3", "rounds = 3\n[machine]\nemulator_sched = \"fifo\"", 5, "one of \"other\", \"batch\""),
        ("rounds = 3", "rounds = 3\n[machine]\nslices = [\"1ms\",\n\"1h\"]", 6, "100us to 100ms"),
        ("rounds = 3", "rounds = 3\n[machine]\nslices = [\"1ms\"]\nin_turn = 2", 6, "two slices or more"),
        (
            "rounds = 3",
            "rounds = 3\n[machine]\nslices = [\"1ms\", \"kernel\"]\nin_turn = 2",
            6,
            "none of them \"kernel\"",
        ),
        ("rounds = 3", "rounds = 3\n[machine]\nslices = [\"1ms\", \"5ms\"]\nin_turn = 0", 6, "within 1 and 1000"),
        ("rounds = 3", "rounds = 3\n[machine]\nslices = [\"1ms\", \"5ms\"]\nin_turn = 2", 6, "each with one policy"),
        ("rounds = 3", "rounds = 3\n[machine]\nemulator_cpus = \"1-0\"", 5, "CPU"),
        ("rounds = 3", "rounds = 3\n[machine]\nslices = [\"short\"]", 5, "kernel, adaptive, or"),
        ("rounds = 3", "rounds = 3\n[machine]\nslices = [\"1ms\", \"1000us\"]", 5, "slice 1ms is there twice"),
        ("name = \"small\"", "name = \"Small one\"", 1, "lower-case"),
        ("role = \"measured\"", "role = \"guest\"", 7, "one of \"measured\", \"background\""),
        ("role = \"measured\"", "role = \"background\"", 9, "exactly one"),
        ("vcpus = 2", "vcpus = 65", 8, "within 1 and 64"),
        ("vcpus = 2", "vcpus = 2\ncap = 0.0", 9, "within 0.05"),
        ("vcpus = 2", "vcpus = 2\nmodules = [\"kvm\"]", 9, "one of \"net\""),
        ("vcpus = 2", "vcpus = 2\nimage = \"fedora\"", 9, "one of \"debian\""),
        ("[\"off\", \"full\"]", "[]", 9, "at least one"),
        ("[\"off\", \"full\"]", "[\"off\", \"on\"]", 9, "one of \"off\", \"observe\""),
        ("[\"off\", \"full\"]", "[\"full\", \"full\"]", 9, "two policies are called"),
        ("[\"off\", \"full\"]", "[{ policy = \"full\", timeout = \"2s\" }]", 9, "within 1us and 1s"),
        ("[\"off\", \"full\"]", "[{ policy = \"full\", observer = \"ebpf\" }]", 9, "procfs"),
        ("[\"off\", \"full\"]", "[{ policy = \"full\", overhead = 50.0 }]", 9, "within 0.1 and 20"),
        ("policies = [\"off\", \"full\"]", "", 6, "needs policies"),
        ("{ program = \"pipeline\",", "{ program = \"p\", command = [\"ls\"],", 10, "either a program or a command"),
        ("{ program = \"pipeline\",", "{ command = [\"ls\"],", 10, "go with a program"),
        ("{ program = \"pipeline\",", "\"sleep\", { program = \"pipeline\",", 10, "must be \"nothing\""),
        ("items = 20000", "item = 20000", 10, "unknown field `item`"),
        ("items = 20000", "metric = \"x\"", 10, "goes with a command"),
        ("items = 20000", "better = \"lower\"", 10, "goes with a command"),
        ("[{ program", "[{ command = [\"ls\"], better = \"lower\" }, { program", 10, "give the metric too"),
        (
            "[{ program",
            "[{ command = [\"ls\"], metric = \"x\", better = \"less\" }, { program",
            10,
            "one of \"higher\"",
        ),
        ("[\"off\", \"full\"]", "[{ policy = \"full\", label = \"off\" }]", 9, "give this policy another"),
        (
            "[\"off\", \"full\"]",
            "[{ policy = \"off\", label = \"plain\" },\n\"full\"]",
            9,
            "none of these policies is off",
        ),
        ("[\"off\", \"full\"]", "[\"observe\", \"full\"]", 9, "name another VM"),
        ("vcpus = 2", "vcpus = 2\nbaseline = \"app\"", 9, "the VM itself"),
        ("vcpus = 2", "vcpus = 2\nbaseline = \"plain\"", 9, "must be another measured VM (there is none)"),
        ("granularity = \"20us\"", "granularity = 20", 10, "invalid type"),
        ("[{ program", "[{ command = [\"ls\"], label = \"\" }, { program", 10, "a label cannot be"),
    ] {
        let error = with(old, new).map(|_| ()).expect_err(new);
        assert!(error.starts_with(&format!("x.toml:{line}: ")), "{new}: line {line} is not in: {error}");
        assert!(error.contains(words), "{new}: {words:?} is not in: {error}");
    }
}

#[test]
fn mistakes_between_vms_are_named_too() {
    let two = |second: &str| parse(&format!("{SMALL}{second}")).map(|_| ()).unwrap_err();
    let same = two(&NEIGHBOUR.replace("neighbour", "app"));
    assert!(same.starts_with("x.toml:12: ") && same.contains("two VMs"), "{same}");
    let other = SMALL[SMALL.find("[[vm]]").unwrap()..].replace("\"app\"", "\"two\"").replace("\"off\", ", "");
    let uneven = two(&other);
    assert!(uneven.contains("as many policies and workloads") && uneven.contains("together = false"), "{uneven}");
    let many =
        format!("{SMALL}{}", (0..12).map(|n| NEIGHBOUR.replace("neighbour", &format!("n{n}"))).collect::<String>());
    assert!(parse(&many).unwrap_err().contains("8192 combinations"), "found without making them all");
    let only = parse(&SMALL.replace("measured", "background").replace("[\"off\", \"full\"]", "[\"off\"]")).unwrap_err();
    assert!(only.contains("no VM has role = \"measured\""), "{only}");
}

/// A second VM like the first, compared with its `off`.
#[test]
fn a_baseline_is_a_measured_vm_with_off_and_the_same_workloads() {
    let vm = SMALL[SMALL.find("[[vm]]").unwrap()..].replace("\"app\"", "\"poll\"\nbaseline = \"app\"");
    let vm = vm.replace("[\"off\", \"full\"]", "[\"retain\", \"full\"]");
    let scenario = parse(&format!("{SMALL}{vm}")).unwrap();
    assert_eq!(scenario.vms[1].baseline.as_deref(), Some("app"), "which is why it needs no off of its own");
    assert_eq!(parse(&scenario.to_toml().unwrap()).unwrap(), scenario);
    let refused = |first: &str, second: &str| parse(&format!("{first}{second}")).map(|_| ()).unwrap_err();
    let name = |name: &str| vm.replace("baseline = \"app\"", &format!("baseline = {name:?}"));
    let without_off = SMALL.replace("[\"off\", \"full\"]", "[\"full\"]");
    let chained = SMALL.replace("vcpus", "baseline = \"poll\"\nvcpus");
    for (first, second, words) in [
        (SMALL, name("nobody"), "another measured VM (\"app\")"),
        (SMALL, format!("{}{NEIGHBOUR}", name("neighbour")), "another measured VM (\"app\")"),
        (&*without_off, vm.replace("\"retain\", ", ""), "no policy off"),
        (&*chained, vm.replace("\"retain\"", "\"off\""), "itself compared with"),
        (SMALL, vm.replace("{ program =", "{ label = \"other\", program ="), "no workload called \"other\""),
    ] {
        let error = refused(first, &second);
        assert!(error.contains(words), "{words:?} is not in: {error}");
        let line = error.strip_prefix("x.toml:").and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        let text = format!("{first}{second}");
        let named = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
        assert!(named.contains("baseline"), "{error}: {named}");
    }
    let background = format!("{NEIGHBOUR}baseline = \"app\"\n");
    assert!(refused(SMALL, &background).contains("goes with a measured VM"));
}

#[test]
fn a_missing_file_is_named() {
    let error = Scenario::read(Path::new("/no/such.toml")).unwrap_err().to_string();
    assert!(error.contains("/no/such.toml"), "{error}");
}

#[test]
fn the_scenarios_of_this_project_are_scenarios() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut found = 0;
    for folder in std::fs::read_dir(experiments).unwrap().flatten() {
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let is_toml = file.path().extension().is_some_and(|extension| extension == "toml");
            let text = if is_toml { std::fs::read_to_string(file.path()).unwrap() } else { String::new() };
            // A line of capitals is a place that the experiment's run.sh fills in.
            let template = text.lines().any(|line| !line.is_empty() && line.chars().all(|c| c.is_ascii_uppercase()));
            if text.contains("[[vm]]") && !template {
                Scenario::read(&file.path()).unwrap_or_else(|error| panic!("{error}"));
                found += 1;
            }
        }
    }
    assert!(found > 0);
}

prop_compose! {
    fn workload()(
        kind in 0..3,
        threads in proptest::option::of(1u32..=64),
        items in proptest::option::of(1u64..1_000_000),
        granularity_us in proptest::option::of(0u64..100_000),
        seed in proptest::option::of(0u64..1000),
        args in proptest::collection::vec("[ -~]{0,8}", 0..3),
        command in proptest::collection::vec("\\PC{1,8}", 1..4),
        metric in proptest::option::of("[a-z ()]{1,8}"),
        better in proptest::sample::select(vec!["higher", "lower"]),
    ) -> String {
        let mut table = toml::Table::new();
        let text = |words: &[String]| toml::Value::from(words.to_vec());
        let number = |n: u64| toml::Value::from(i64::try_from(n).unwrap());
        match kind {
            0 => return "\"nothing\"".to_owned(),
            1 => {
                table.insert("program".into(), "pipeline".into());
                threads.map(|n| table.insert("threads".into(), number(n.into())));
                items.map(|n| table.insert("items".into(), number(n)));
                granularity_us.map(|n| table.insert("granularity".into(), format!("{n}us").into()));
                seed.map(|n| table.insert("seed".into(), number(n)));
                table.insert("args".into(), text(&args));
            }
            _ => {
                table.insert("label".into(), "a command".into());
                table.insert("command".into(), text(&command));
                metric.map(|metric| {
                    table.insert("metric".into(), metric.into());
                    table.insert("better".into(), better.into())
                });
            }
        }
        toml::Value::Table(table).to_string()
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        workload in workload(),
        rounds in 1u32..1000,
        seed in 0u64..u64::MAX >> 1,
        settle_ms in 0u64..60_000,
        vcpus in 1u32..64,
        cap in proptest::option::of(0.05f64..64.0),
        pin in proptest::option::of("[0-7](-[0-7])?"),
        append in "[ -~]{0,20}",
        slices in proptest::sample::subsequence(vec!["kernel", "30ms", "100us", "adaptive"], 0..=4),
        in_turn in proptest::option::of(1u32..=1000),
    ) {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let cap = cap.map_or(String::new(), |cap| format!("cap = {cap:?}\n"));
        let pin = pin.filter(|pin| pin.parse::<gleaner_model::CpuSet>().is_ok());
        let pin = pin.map_or(String::new(), |pin| format!("pin = {pin:?}\n"));
        let in_turn = in_turn.filter(|_| slices.len() > 1 && slices[0] != "kernel" && !workload.contains("nothing"));
        let in_turn = in_turn.map_or(String::new(), |turns| format!("in_turn = {turns}\n"));
        let text = format!(
            "name = \"p\"\ndescription = \"\"\nrounds = {rounds}\nseed = {seed}\nsettle = \"{settle_ms}ms\"\n[machine]\nslices = {slices:?}\n{in_turn}[[vm]]\nname = \"a\"\n\
             role = \"measured\"\nvcpus = {vcpus}\n{cap}{pin}append = {}\npolicies = [\"off\"]\nworkloads = [{workload}]\n",
            quoted(&append)
        );
        let scenario = Scenario::parse(&text, Path::new("p.toml")).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let written = scenario.to_toml().unwrap();
        let back = Scenario::parse(&written, Path::new("back.toml"));
        prop_assert_eq!(back.map_err(|e| TestCaseError::fail(format!("{e}\n{written}")))?, scenario);
    }

    /// Whatever a file holds, reading it ends with a scenario or with words.
    #[test]
    fn no_text_makes_it_panic(at in 0usize..400, noise in "\\PC{0,12}") {
        let mut text = SMALL.to_owned();
        let at = at.min(text.len());
        text.insert_str(at, &noise);
        let _ = parse(&text);
    }
}
