//! Others that steer this machine's vCPUs: sched_ext schedulers, tuned, irqbalance.
//!
//! They are only read about here. What is done about each is for `decide` and `runtime`.

use gleaner_sys::{ProcRoot, numbered, read_optional};
use std::path::Path;

/// What else steers this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The sched_ext scheduler that runs, by its name.
    pub sched_ext: Option<String>,
    /// The active profile of tuned.
    pub tuned: Option<String>,
    /// irqbalance's process.
    pub irqbalance: Option<i32>,
    /// Booted with `idle=poll`: no CPU ever halts.
    pub never_halts: bool,
}

/// Looks. `host`: the folder that has `etc`.
pub fn neighbours(root: &ProcRoot, host: &Path) -> Neighbours {
    Neighbours {
        sched_ext: sched_ext(root),
        tuned: text(&host.join("etc/tuned/active_profile")).filter(|name| !name.is_empty()),
        irqbalance: irqbalance(root),
        never_halts: never_halts(root),
    }
}

fn text(path: &Path) -> Option<String> {
    read_optional(path).ok().flatten().map(|text| text.trim().to_owned())
}

/// The sched_ext scheduler that runs, by its name; `?` where it has none to tell.
pub fn sched_ext(root: &ProcRoot) -> Option<String> {
    let folder = root.sys.join("kernel/sched_ext");
    // While it comes or goes threads are under it already, or still.
    text(&folder.join("state")).filter(|state| state != "disabled")?;
    Some(text(&folder.join("root/ops")).unwrap_or_else(|| "?".to_owned()))
}

/// The process of irqbalance, which moves interrupts by itself.
pub fn irqbalance(root: &ProcRoot) -> Option<i32> {
    let is_it = |pid: &i32| text(&root.proc.join(format!("{pid}/comm"))).is_some_and(|comm| comm == "irqbalance");
    numbered(&root.proc).find(is_it)
}

/// Whether the kernel was told never to halt: `idle=poll`.
pub fn never_halts(root: &ProcRoot) -> bool {
    text(&root.proc.join("cmdline")).is_some_and(|line| line.split_whitespace().any(|word| word == "idle=poll"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn found(files: &[(&str, &str)]) -> Neighbours {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        neighbours(&ProcRoot::below(dir.path()), dir.path())
    }

    #[test]
    fn nobody_is_found_where_nobody_is() {
        assert_eq!(found(&[]), Neighbours::default());
        let nobodys = [
            ("sys/kernel/sched_ext/state", "disabled\n"),
            ("etc/tuned/active_profile", "\n"),
            ("proc/7/comm", "irqbalance-ui\n"),
            ("proc/cmdline", "root=/dev/vda idle=polls xidle=poll\n"),
        ];
        assert_eq!(found(&nobodys), Neighbours::default());
    }

    #[test]
    fn each_is_found_by_what_it_leaves() {
        let all = [
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "lavd_1.0.8\n"),
            ("etc/tuned/active_profile", "virtual-guest\n"),
            ("proc/7/comm", "irqbalance\n"),
            ("proc/cmdline", "root=/dev/vda idle=poll quiet\n"),
        ];
        let expected = Neighbours {
            sched_ext: Some("lavd_1.0.8".into()),
            tuned: Some("virtual-guest".into()),
            irqbalance: Some(7),
            never_halts: true,
        };
        assert_eq!(found(&all), expected);
    }

    #[test]
    fn a_scheduler_on_its_way_counts_and_may_have_no_name() {
        assert_eq!(found(&[("sys/kernel/sched_ext/state", "enabling\n")]).sched_ext.as_deref(), Some("?"));
    }
}
