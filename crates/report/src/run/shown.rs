//! What `gleaner.run/1` shows: in words one run, on the page all runs of a command together.

use super::{LengthStats, RunReport, timeline};
use crate::show::{
    Answer, Axis, Bar, Chart, Document, Extent, Mark, Part, Row, Shown, Verdict, bad, fact, facts, line, notes, nth,
    quantile, seconds, table,
};
use crate::status::StatusTrial;
use crate::text::{command_line, count, distinct, mean_time, percent, program, time};
use crate::told::{Told, told};
use gleaner_model::Nanos;

/// Timelines drawn of one command's runs.
const MOST_TIMELINES: usize = 4;
/// Decisions printed in full; the JSON has them all.
const PRINTED: usize = 12;
/// Windows are 100 ms, and end a fraction of a millisecond late; a longer mean than this is worth a word: observing
/// many threads is dear (64 of them through /proc: 9.5 windows a second), or the machine had no time for us.
const LENGTHENED_NS: u64 = 105_000_000;

/// What the page explains.
const TERMS: &[&str] = &[
    "policy",
    "profile",
    "retained",
    "steal",
    "vCPU",
    "idle entry",
    "halt",
    "activate",
    "decision",
    "contention guard",
    "computation length",
    "computation granularity",
    "length of idle periods",
    "time-out",
];

impl Shown for RunReport {
    fn document(&self) -> Document {
        document(&[self], false)
    }
}

/// One document for each command; those in `compared` have a verdict already.
pub(crate) fn documents(runs: &[&RunReport], compared: &[&Vec<String>]) -> Vec<Document> {
    let commands = distinct(runs.iter().map(|run| &run.command));
    let of =
        |command: &Vec<String>| runs.iter().copied().filter(|run| run.command == *command).collect::<Vec<&RunReport>>();
    commands.into_iter().map(|command| document(&of(command), compared.contains(&command))).collect()
}

fn document(runs: &[&RunReport], compared: bool) -> Document {
    let first = runs[0];
    let mut document = Document {
        indent: "  ",
        terms: TERMS,
        answers: if compared { Vec::new() } else { vec![not_compared(runs)] },
        ..Document::new(format!("{} under gleaner run", program(&first.command)))
    };
    let policies = policies(runs);
    if let [run] = runs {
        document.words(run.title());
        document.both(run.facts());
    }
    document.page(summary(runs, &policies));
    if runs.len() > 1 {
        document.page(walls(runs, &policies));
    }
    let stepped: Vec<&&RunReport> = runs.iter().filter(|run| timeline::moved(run)).collect();
    let (undrawn, drawn) = stepped.split_at(stepped.len().saturating_sub(MOST_TIMELINES));
    document.page(drawn.iter().flat_map(|run| timeline::chart(run)));
    let measured = runs.iter().rev().find(|run| run.lengths.l_idle.is_some_and(|length| length.p50_ns.is_some()));
    document.page(measured.map(|run| lengths_chart(run).into()));
    document.page(tables(runs));
    document.page(fact("command", command_line(&first.command, 2_000)));
    if runs.len() > 1 {
        let means = runs.iter().find(|run| run.means.observer.is_some()).map(|run| fact("means", run.means()));
        document.page(means);
        document.page(runs.iter().find_map(|run| run.timeout_from.clone()).map(|from| fact("time-out from", from)));
        document.page(distinct(runs.iter().flat_map(|run| &run.warnings)).into_iter().cloned().map(Part::Note));
    }
    if !undrawn.is_empty() {
        let all = stepped.len();
        document.page(Part::Note(format!("timelines of the last {MOST_TIMELINES} of {all} runs with steps are drawn")));
    }
    document
}

impl RunReport {
    fn title(&self) -> Part {
        let how = if self.attached { "attached".to_owned() } else { format!("exit status {}", self.exit_status) };
        line(format!("gleaner: {} ({how})", self.command.join(" ")))
    }

    fn facts(&self) -> Vec<Part> {
        let mut all = Vec::new();
        if self.means.observer.is_some() {
            all.extend(facts("program", self.program()));
            all.extend(facts("gleaner", self.gleaner()));
            all.extend(facts("cost", self.cost()));
        } else {
            all.push(fact("program", format!("{}, not observed", time(self.wall_ns))));
        }
        all.extend(notes(&self.warnings));
        all.extend((!self.restored).then(|| fact("RESTORE", "not everything could be undone: run `gleaner restore`")));
        all
    }

    fn rate(&self, n: u64) -> String {
        format!("{:.0}", n as f64 / self.wall_ns.max(1) as f64 * 1e9)
    }

    fn means(&self) -> String {
        let means = [&self.means.observer, &self.means.placement, &self.means.yielding];
        means.into_iter().flatten().map(String::as_str).collect::<Vec<&str>>().join(", ")
    }

    fn lengths(&self) -> impl Iterator<Item = (&'static str, &'static str, LengthStats)> {
        let all = [
            ("l_comp", "a vCPU's work between two idle periods", self.lengths.l_comp),
            ("g_comp", "a thread's work between two waits", self.lengths.g_comp),
            ("l_idle", "an idle period", self.lengths.l_idle),
            ("wake", "from wake-up to running", self.lengths.wake_to_run),
        ];
        all.into_iter().filter_map(|(name, meaning, stats)| Some((name, meaning, stats?)))
    }

    fn program(&self) -> Vec<String> {
        let used = self.cpu_time_ns.map(|ns| ns as f64 / self.wall_ns.max(1) as f64);
        let used = used.map(|used| format!(", {used:.2} of {} vCPUs used", self.vcpus)).unwrap_or_default();
        let threads = self.threads_max.map(|n| format!(", up to {}", count(n, "thread"))).unwrap_or_default();
        let mut lines = vec![format!("{}{used}{threads}", time(self.wall_ns))];
        lines.extend(self.lengths().map(|(name, meaning, stats)| {
            let quantiles = stats.p50_ns.zip(stats.p99_ns);
            let quantiles = quantiles.map(|(p50, p99)| format!(", {} median, {} p99", Nanos(p50), Nanos(p99)));
            format!("{name:<7}{:>8} mean{}  ({meaning})", mean_time(stats.mean_ns), quantiles.unwrap_or_default())
        }));
        if let Some(entries) = self.idle_entries {
            let halts = self.halts.map(|halts| format!(", {} halts/s", self.rate(halts))).unwrap_or_default();
            lines.push(format!("{} idle entries/s{halts}", self.rate(entries)));
            lines.extend(self.idle_ended_by.map(|ended| format!("idle periods: {ended}")));
        }
        lines
    }

    fn gleaner(&self) -> Vec<String> {
        let mut lines = vec![format!("policy {}, profile {} ({})", self.policy, self.profile, self.means())];
        let timeout = self.timeout_ns.zip(self.timeout_from.as_ref());
        lines.extend(timeout.map(|(ns, from)| format!("retention time-out {}: {from}", Nanos(ns))));
        let rate = self.trial.as_ref().and_then(StatusTrial::rate);
        let costs = self
            .retention_cost_ratio
            .map(|ratio| format!("with it a synchronization costs {ratio:.2} times what it costs without"));
        lines.extend(rate.or(costs).map(|found| format!("retention tried: {found}")));
        let told = told(&self.decisions);
        lines.extend(told.iter().take(PRINTED).map(|told| format!("{:>7}  {told}", Nanos(told.at_ns()).to_string())));
        let more: usize = told.iter().skip(PRINTED).map(Told::decisions).sum();
        let more = more as u64 + self.decisions_left_out;
        lines.extend((more > 0).then(|| format!("and {more} more (--json has them)")));
        lines.extend(self.no_step_because.as_ref().map(|why| format!("no (further) step, because {why}")));
        lines.push(format!("{:.2} vCPUs active on average", self.active_vcpus_mean));
        lines
    }

    fn cost(&self) -> Vec<String> {
        let used = self.cpu_time_ns.filter(|ns| *ns > 0).map(|ns| percent(self.retained_ns as f64 / ns as f64));
        let share = used.map(|used| format!(" ({used} of what the program used)")).unwrap_or_default();
        let overhead = percent(self.overhead_cpu_ns as f64 / self.wall_ns.max(1) as f64);
        let retained = time(self.retained_ns);
        let mut lines = vec![format!("{retained} of vCPU time retained{share}, observing took {overhead} of one CPU")];
        let window = self.window_ns_mean.filter(|ns| *ns > LENGTHENED_NS).map(Nanos);
        lines.extend(window.map(|ns| format!("windows took {ns} on average: observing was dear, or the machine busy")));
        let steal = self.steal_ns.filter(|ns| *ns > 0).map(Nanos);
        lines.extend(steal.map(|ns| format!("the host took {ns} meanwhile (steal)")));
        if self.guard_trips > 0 {
            lines.push(format!("the contention guard stopped spinning {}", count(self.guard_trips, "time")));
        }
        lines
    }
}

/// The policies in the order of how much they may do.
fn policies<'a>(runs: &[&'a RunReport]) -> Vec<&'a str> {
    let order = ["off", "observe", "retain", "consolidate", "full"];
    let mut policies = distinct(runs.iter().map(|run| run.policy.as_str()));
    policies.sort_by_key(|policy| order.iter().position(|known| known == policy).unwrap_or(order.len()));
    policies
}

/// What `run` can answer.
fn not_compared(runs: &[&RunReport]) -> Answer {
    let why = match runs {
        [_] => "One run compares nothing.",
        _ => "These are single runs without an interval: they show what happens, and prove nothing.",
    };
    Answer {
        of: program(&runs[0].command),
        verdict: Verdict::NotCompared,
        told: format!("{why} `gleaner ab` with the same command tells whether Gleaner helps."),
        bad: None,
        speedup: None,
    }
}

fn median(of: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = of.collect();
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn of_policy<'a>(runs: &'a [&RunReport], policy: &'a str) -> impl Iterator<Item = u64> + Clone + 'a {
    runs.iter().filter(move |run| run.policy == policy).map(|run| run.wall_ns)
}

fn summary(runs: &[&RunReport], policies: &[&str]) -> Vec<Part> {
    let each = policies.iter().map(|policy| {
        let walls = of_policy(runs, policy);
        let times = count(walls.clone().count() as u64, "time");
        format!("{times} under policy {policy} (median {})", time(median(walls)))
    });
    let (command, each) = (command_line(&runs[0].command, 200), each.collect::<Vec<String>>().join(", and "));
    let retained = median(runs.iter().filter(|run| run.policy != "off").map(|run| run.retained_ns));
    let undone = if runs.iter().all(|run| run.restored) {
        line("All changes to the machine were undone.")
    } else {
        bad("Not everything could be undone: run `gleaner restore`.")
    };
    let retained = retained.map(|ns| line(format!("It cost {} of vCPU time retained per run (median).", Nanos(ns))));
    [Some(line(format!("`{command}` ran {each}."))), retained, Some(undone)].into_iter().flatten().collect()
}

fn walls(runs: &[&RunReport], policies: &[&str]) -> Chart {
    let bars = policies.iter().enumerate().map(|(at, policy)| {
        let marks: Vec<Mark> = of_policy(runs, policy).map(|ns| Mark::new(ns as f64, *policy, nth(at))).collect();
        Bar::of(format!("{policy} ({})", count(marks.len() as u64, "run")), marks)
    });
    let medians = policies.iter().map(|policy| format!("{policy}: median {}", time(median(of_policy(runs, policy)))));
    let medians = medians.collect::<Vec<String>>().join(", ");
    Chart::rows(
        format!("{}: run time by policy ({medians})", program(&runs[0].command)),
        "Each mark is one run, from exec to exit; further left is faster. \
         Where the rows overlap, these runs do not tell the policies apart.",
        Axis::new("run time", seconds, Extent::FromZero),
        bars.collect(),
    )
}

fn lengths_chart(run: &RunReport) -> Chart {
    let bars = run.lengths().map(|(name, meaning, stats)| {
        let marks = [stats.p50_ns.map(|ns| quantile("p50", ns)), stats.p99_ns.map(|ns| quantile("p99", ns))];
        Bar::of(format!("{name}: {meaning}"), marks.into_iter().flatten().collect())
    });
    let timeout = run.timeout_ns.filter(|ns| *ns > 0);
    let bridged = match timeout {
        Some(_) => {
            "Idle periods left of the time-out were bridged where a yielding thread ran: the vCPU stayed awake. \
             Those right of it were let go."
        }
        None => "No idle period was bridged in this run: its policy does not, or halting is free on this machine.",
    };
    Chart::rows(
        format!("{}: how long it computed and how long it waited (policy {})", program(&run.command), run.policy),
        format!(
            "{bridged} Where a thread's work between two waits (g_comp) is long, packing threads onto fewer vCPUs \
             would make others wait."
        ),
        Axis::times("length"),
        bars.collect(),
    )
    .at(timeout.map(|ns| (ns as f64, format!("time-out {}", time(ns)))))
}

fn tables(runs: &[&RunReport]) -> impl Iterator<Item = Part> {
    let each = || (1_usize..).zip(runs);
    let row = |number: usize, run: &RunReport| Row::default().number("run", number).text("policy", &run.policy);
    let all = each().map(|(number, run)| {
        row(number, run)
            .text("profile", &run.profile)
            .time("run time", run.wall_ns)
            .number("status", run.exit_status)
            .number("idle entries/s", run.idle_entries.map(|n| run.rate(n)))
            .number("halts/s", run.halts.map(|n| run.rate(n)))
            .time("steal", run.steal_ns)
            .fixed("vCPUs active", run.active_vcpus_mean, 2)
            .number("of", run.vcpus)
            .number("undone", if run.restored { "yes" } else { "NO" })
    });
    let costs = each().map(|(number, run)| {
        row(number, run)
            .time("CPU time", run.cpu_time_ns)
            .time("retained", run.retained_ns)
            .time("observing", run.overhead_cpu_ns)
            .number("voluntary switches", run.voluntary_switches)
            .number("involuntary", run.involuntary_switches)
            .number("cross wake-ups", run.cross_wakeups)
            .number("threads", run.threads_max)
            .number("guard trips", run.guard_trips)
    });
    let lengths = each().flat_map(|(number, run)| {
        run.lengths().map(move |(name, meaning, stats)| {
            row(number, run)
                .text("length", format!("{name}: {meaning}"))
                .number("mean", mean_time(stats.mean_ns))
                .time("p50", stats.p50_ns)
                .time("p99", stats.p99_ns)
                .number("seen", stats.n)
        })
    });
    let tables = [
        table("Every run", all),
        table("Lengths", lengths).map(|part| part.folded(12)),
        table("What each run used, and what Gleaner cost", costs),
    ];
    let decisions = each().map(|(number, run)| timeline::table(run, &format!("run {number} ({})", run.policy)));
    tables.into_iter().chain(decisions).flatten()
}
