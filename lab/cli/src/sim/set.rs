//! `--set KEY=V1,V2`: a key of the scenario and the values that it takes, and where that is in the file.

use toml::{Table, Value};

/// A key with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Where it is in the scenario: `simulator.slice`, `vm.app.vcpus`.
    pub key: String,
    /// What it takes, in this order.
    pub values: Vec<Value>,
}

/// Keys that change nothing in a simulation: setting them would be a mistake.
const WITHOUT_EFFECT: [&str; 15] = [
    "name",
    "description",
    "rounds",
    "warmup_rounds",
    "settle",
    "solo",
    "boot_timeout",
    "total_timeout",
    "machine",
    "machine.kernel",
    "machine.accelerator",
    "vm",
    "simulator",
    "simulator.cost_ns",
    "seed",
];
/// The same of each virtual machine.
const WITHOUT_EFFECT_IN_VM: [&str; 5] = ["name", "role", "memory_mib", "image", "prepare"];

/// `vm.app.workloads.relay.items` has five. Tables are walked, and thrown away, level by level: a thousand of them are
/// too many for a stack.
const LEVELS_MAX: usize = 16;

impl Axis {
    /// From the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((key, values)) = text.split_once('=') else {
            return Err(format!("{text:?} has no '='; write it like simulator.slice=30ms,1ms"));
        };
        let key = key.trim();
        check_key(key)?;
        let words = words(values).ok_or_else(|| format!("{key}: a bracket or a quote in {values:?} is not closed"))?;
        let mut all: Vec<Value> = Vec::new();
        for word in words {
            let value = value(word.trim());
            if word.trim().is_empty() {
                return Err(format!("{key}: an empty value in {values:?}; write it like 30ms,1ms"));
            }
            if all.contains(&value) {
                return Err(format!("{key}: {} is there twice", word.trim()));
            }
            all.push(value);
        }
        Ok(Self { key: key.to_owned(), values: all })
    }

    /// `simulator.slice=1ms`.
    pub fn told(&self, nth: usize) -> String {
        format!("{}={}", self.key, self.values.get(nth).map_or_else(String::new, word_of))
    }
}

/// A value as one writes it on the command line.
pub fn word_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn check_key(key: &str) -> Result<(), String> {
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(format!("{key:?} is no key; write it like simulator.slice, vm.0.vcpus or vm.app.vcpus"));
    }
    let levels = key.split('.').count();
    if levels > LEVELS_MAX {
        return Err(format!(
            "a key of {levels} levels, and no scenario has more than {LEVELS_MAX}; write it like simulator.slice"
        ));
    }
    let in_vm = key.strip_prefix("vm.").and_then(|rest| rest.split_once('.')).map(|(_, key)| key);
    match key {
        "seed" | "rounds" => Err(format!("{key} is not set: --seed and --seeds say which seeds are simulated")),
        _ if WITHOUT_EFFECT.contains(&key) || in_vm.is_some_and(|key| WITHOUT_EFFECT_IN_VM.contains(&key)) => {
            Err(format!("{key} changes nothing in a simulation (or is no single value); set another key"))
        }
        _ => Ok(()),
    }
}

/// What stands between commas that are in no brackets and no quotes; `None` where one of those is not closed.
fn words(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut quote, mut from) = (0_u32, None, 0);
    let mut all = Vec::new();
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => {
                all.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[from..]);
    (depth == 0 && quote.is_none()).then_some(all)
}

/// What TOML takes it for; else a string, so that durations and words need no quotes.
fn value(word: &str) -> Value {
    let parsed: Option<Table> = toml::from_str(&format!("v = {word}")).ok();
    let value = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("v"));
    value.unwrap_or_else(|| Value::String(word.to_owned()))
}

/// Puts a value where the key says. What is not there yet is made; whether it may be there, the scenario's own check
/// says.
pub fn set(scenario: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let (folder, last) = key.rsplit_once('.').map_or((None, key), |(folder, last)| (Some(folder), last));
    let mut path = String::new();
    let mut root = Value::Table(std::mem::take(scenario));
    let mut here = Some(&mut root);
    let mut wrong = None;
    for segment in folder.into_iter().flat_map(|folder| folder.split('.')) {
        let Some(inside) = here.take() else { break };
        match enter(inside, &path, segment) {
            Ok(next) => here = Some(next),
            Err(what) => wrong = Some(what),
        }
        path = if path.is_empty() { segment.to_owned() } else { format!("{path}.{segment}") };
    }
    if let Some(inside) = here {
        wrong = put(inside, &path, last, value).err();
    }
    if let Value::Table(table) = root {
        *scenario = table;
    }
    wrong.map_or(Ok(()), Err)
}

fn enter<'a>(inside: &'a mut Value, path: &str, segment: &str) -> Result<&'a mut Value, String> {
    match inside {
        Value::Table(table) => Ok(table.entry(segment).or_insert_with(|| Value::Table(Table::new()))),
        Value::Array(all) => {
            let place = place(all, path, segment)?;
            Ok(&mut all[place])
        }
        other => Err(format!("{path} is {other}, and has no {segment}")),
    }
}

fn put(inside: &mut Value, path: &str, last: &str, value: Value) -> Result<(), String> {
    match inside {
        Value::Table(table) => {
            table.insert(last.to_owned(), value);
        }
        Value::Array(all) => {
            let place = place(all, path, last)?;
            all[place] = value;
        }
        other => return Err(format!("{path} is {other}, and has no {last}")),
    }
    Ok(())
}

/// Which element: by its number from 0, its name, its label or its program.
fn place(all: &[Value], path: &str, segment: &str) -> Result<usize, String> {
    let name = |value: &Value| {
        let keys = ["name", "label", "program", "policy"];
        let named = keys.iter().find_map(|key| value.get(key).and_then(Value::as_str));
        named.or(value.as_str()).map(str::to_owned)
    };
    let by_number = segment.parse().ok().filter(|n| *n < all.len());
    by_number.or_else(|| all.iter().position(|value| name(value).as_deref() == Some(segment))).ok_or_else(|| {
        let there = all.iter().enumerate().map(|(n, value)| {
            let name = name(value).map_or_else(String::new, |name| format!(" ({name})"));
            format!("{path}.{n}{name}")
        });
        format!("there is no {path}.{segment}; there is {}", there.collect::<Vec<_>>().join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_toml_takes_them_for_or_words() {
        let axis = Axis::parse("a.b = 30ms, 4,0.5,true,\"x,y\",[\"0\", \"1\"],{ program = \"relay\" }").unwrap();
        assert_eq!(axis.key, "a.b");
        let shown: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
        let expected =
            ["\"30ms\"", "4", "0.5", "true", "\"x,y\"", "[\"0\", \"1\"]", "{ program = \"relay\" }"].map(str::to_owned);
        assert_eq!(shown, expected);
        assert_eq!((axis.told(0), axis.told(1)), ("a.b=30ms".to_owned(), "a.b=4".to_owned()));
    }

    #[test]
    fn what_is_no_axis_is_named() {
        for (text, said) in [
            ("simulator.slice", "has no '='"),
            ("=1", "is no key"),
            ("a..b=1", "is no key"),
            ("a=1,,2", "an empty value"),
            ("a=", "an empty value"),
            ("a=4,4", "4 is there twice"),
            ("a=[1,2", "not closed"),
            ("a=1],[2", "not closed"),
            ("a=\"1", "not closed"),
            ("seed=1,2", "--seeds"),
            ("vm.app.memory_mib=128,256", "changes nothing"),
            ("machine.kernel=6.1", "changes nothing"),
        ] {
            let error = Axis::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    fn scenario() -> Table {
        toml::from_str(
            "rounds = 1\n[[vm]]\nname = \"app\"\nvcpus = 2\nworkloads = [\"nothing\", { program = \"relay\", items = 5 }]\n[[vm]]\nname = \"b\"\n",
        )
        .unwrap()
    }

    #[test]
    fn keys_lead_into_tables_and_lists() {
        for (key, place) in [
            ("vm.0.vcpus", "vcpus = 8"),
            ("vm.app.vcpus", "vcpus = 8"),
            ("vm.app.workloads.relay.items", "items = 8"),
            ("vm.0.workloads.1.items", "items = 8"),
            ("simulator.cost_ns.ipi_ns", "[simulator.cost_ns]\nipi_ns = 8"),
        ] {
            let mut table = scenario();
            assert!(!toml::to_string(&table).unwrap().contains(place));
            set(&mut table, key, Value::Integer(8)).unwrap();
            assert!(toml::to_string(&table).unwrap().contains(place), "{key}: {table}");
        }
        for (key, said) in [
            ("vm.2.vcpus", "there is no vm.2; there is vm.0 (app), vm.1 (b)"),
            ("vm.web.vcpus", "there is no vm.web"),
            ("rounds.x", "rounds is 1, and has no x"),
            ("vm.0.workloads.0.items", "vm.0.workloads.0 is \"nothing\", and has no items"),
        ] {
            let mut table = scenario();
            let error = set(&mut table, key, Value::Integer(8)).unwrap_err();
            assert!(error.contains(said), "{key}: {error}");
            assert_eq!(table, scenario(), "a refusal changes nothing");
        }
    }
}
