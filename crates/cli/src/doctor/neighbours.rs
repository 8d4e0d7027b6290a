//! Who else steers these vCPUs, and what Gleaner does about each.

use gleaner_act::{is_abandoned, own_journals};
use gleaner_observe::{Neighbours, ProcRoot, neighbours};
use gleaner_report::Neighbour;
use std::path::Path;

/// All that are found. To be called before a session of our own begins.
pub fn found() -> Vec<Neighbour> {
    let journals = own_journals().unwrap_or_default();
    let lives = |path: &&std::path::PathBuf| !is_abandoned(path);
    let gleaners = journals.iter().filter(lives).filter_map(|path| process_of(path)).collect();
    told(&neighbours(&ProcRoot::default(), Path::new("/")), gleaners)
}

/// A journal is named after its run: the process, and when it began.
fn process_of(journal: &Path) -> Option<i32> {
    journal.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

fn told(found: &Neighbours, gleaners: Vec<i32>) -> Vec<Neighbour> {
    let mut all = Vec::new();
    let mut tell = |name: &str, found: String, respected: &str| {
        all.push(Neighbour { name: name.to_owned(), found, respected: respected.to_owned() });
    };
    for pid in gleaners {
        tell(
            "gleaner",
            format!("process {pid} manages programs here"),
            "each has programs of its own; what it has set for the whole machine is left to it, and the next means \
             is used",
        );
    }
    if let Some(scheduler) = &found.sched_ext {
        tell(
            "sched_ext",
            format!("the scheduler {scheduler} runs"),
            "where threads run is left to it: nothing is packed, no yielding thread is used, idle vCPUs may poll",
        );
    }
    if found.never_halts {
        tell("idle=poll", "idle vCPUs never halt".to_owned(), "none is kept awake");
    }
    if let Some(profile) = &found.tuned {
        let respected = "what Gleaner sets over it comes back at the end; what it sets meanwhile stays";
        tell("tuned", format!("profile {profile} is active"), respected);
    }
    if let Some(pid) = found.irqbalance {
        tell("irqbalance", format!("process {pid} moves interrupts"), "interrupts are left to it");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(found: &Neighbours, gleaners: Vec<i32>) -> Vec<String> {
        let told = told(found, gleaners);
        told.into_iter().map(|one| format!("{}: {}; {}", one.name, one.found, one.respected)).collect()
    }

    #[test]
    fn each_is_named_in_a_line_with_what_is_done_about_it() {
        assert_eq!(of(&Neighbours::default(), Vec::new()), [""; 0]);
        let all = Neighbours {
            sched_ext: Some("lavd".into()),
            tuned: Some("virtual-guest".into()),
            irqbalance: Some(9),
            never_halts: true,
        };
        let lines = of(&all, vec![7]);
        for (line, words) in lines.iter().zip([
            ["gleaner: process 7", "left to it"],
            ["sched_ext: the scheduler lavd runs", "nothing is packed"],
            ["idle=poll: ", "none is kept awake"],
            ["tuned: profile virtual-guest is active", "comes back"],
            ["irqbalance: process 9", "left to it"],
        ]) {
            assert!(words.iter().all(|word| line.contains(word)), "{line}");
        }
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn a_journals_name_tells_whose_it_is() {
        assert_eq!(process_of(Path::new("/run/gleaner/812-99.journal")), Some(812));
        assert_eq!(process_of(Path::new("/run/gleaner/x.journal")), None);
    }
}
