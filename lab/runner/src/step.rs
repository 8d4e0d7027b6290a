//! Runs one step of the plan: who does what at the same time, and what came of it.

use crate::agent::Answer;
use crate::error::{Patience, RunnerError};
use crate::guest::{Guest, Sources};
use crate::outcome::{Outcome, frame, last_lines};
use crate::slices::HeldSlices;
use gleaner_lab_report::{BackgroundRate, RunFigures, ScenarioRun, SoloRun};
use gleaner_scenario::{Choice, Combination, Observer, PolicyChoice, Program, Role, Scenario, TimeoutFrom, Workload};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// What every step needs.
pub struct Bench<'a> {
    /// What is asked.
    pub scenario: &'a Scenario,
    /// Files.
    pub sources: &'a Sources,
    /// When to stop.
    pub patience: &'a Patience,
    /// For files.
    pub folder: &'a Path,
    /// The first round's beginning.
    pub zero: Instant,
}

/// Where in the plan.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Counted from 0, warm-up first.
    pub round: u32,
    /// Whether it is one of the warm-up.
    pub warmup: bool,
    /// In the round.
    pub order: u32,
}

/// Something in the background.
pub struct Running {
    vm: usize,
    id: String,
    /// The host's time when its guest's clock was 0; of one that reports.
    booted: Option<Instant>,
}

/// Writes when the program began and ended, on the line that the host listens to. A command may have a result of
/// `gleaner workload`, which then is the run's.
const MARKED: &str = "export GLEANER_WORKLOAD_JSON=/tmp/$0.workload; echo \"began $0\" >/dev/ttyS1; \"$@\"; status=$?; echo \"ended $0\" >/dev/ttyS1; exit $status";

impl Bench<'_> {
    /// Measures a combination.
    pub fn run(
        &self,
        guests: &mut [Guest],
        combination: &Combination,
        place: Place,
    ) -> Result<Vec<ScenarioRun>, RunnerError> {
        self.pause_others(guests, Some(&combination.measured))?;
        let mut held = HeldSlices::begin(self, guests, combination.slice)?;
        let busy: Vec<Choice> = combination
            .background
            .iter()
            .copied()
            .filter(|choice| *self.workload(*choice) != Workload::Nothing)
            .collect();
        let running = self.start(guests, &busy, |choice| self.reports(choice))?;
        self.patience.sleep(self.scenario.settle)?;
        let searching = held.as_mut().map(|held| held.search(self, guests, combination)).transpose()?;
        let answers = self.measure(guests, &combination.measured)?;
        let delivered = held.map(HeldSlices::end).transpose()?;
        self.stop(guests, &running)?;
        // As warm-up, and only now: what neighbours got done meanwhile is known once they are stopped.
        let warmup = Place { warmup: true, ..place };
        let searching = searching.into_iter().flatten();
        let searching = searching.flat_map(|answers| self.runs_of(guests, combination, warmup, &answers));
        let counted = self.runs_of(guests, combination, place, &answers);
        let counted = counted.into_iter().map(|run| ScenarioRun { delivered, ..run });
        Ok(searching.chain(counted).collect())
    }

    /// What came of the measured VMs' runs.
    fn runs_of(
        &self,
        guests: &[Guest],
        combination: &Combination,
        place: Place,
        answers: &[(Choice, Answer)],
    ) -> Vec<ScenarioRun> {
        let run = |(choice, answer): &(Choice, Answer)| {
            let background = combination.background.iter().map(|other| self.background_rate(guests, *other, answer));
            let slice = combination.slice.map(|slice| slice.to_string());
            ScenarioRun { slice, ..self.result(*choice, answer, place, background.collect()) }
        };
        answers.iter().map(run).collect()
    }

    /// Measures a background workload alone.
    pub fn solo(&self, guests: &mut [Guest], choice: Choice, place: Place) -> Result<SoloRun, RunnerError> {
        self.pause_others(guests, None)?;
        let running = self.start(guests, &[choice], |choice| self.reports(choice))?;
        self.patience.sleep(self.scenario.settle)?;
        let from = Instant::now();
        self.patience.sleep(self.scenario.solo)?;
        let to = Instant::now();
        self.stop(guests, &running)?;
        let rate = guests[choice.vm].progress().rate(from, to);
        Ok(SoloRun {
            round: place.round,
            warmup: place.warmup,
            vm: self.scenario.vms[choice.vm].name.clone(),
            workload: self.workload(choice).label().to_owned(),
            at_ns: nanos(from.saturating_duration_since(self.zero)),
            items_per_second: rate.filter(|_| self.reports(choice)),
        })
    }

    /// Measured VMs that do not take part stand still: even an idle one may spin (idle=poll).
    fn pause_others(&self, guests: &mut [Guest], taking_part: Option<&[Choice]>) -> Result<(), RunnerError> {
        if self.scenario.together {
            return Ok(());
        }
        for (at, guest) in guests.iter_mut().enumerate().filter(|(_, guest)| guest.vm.role == Role::Measured) {
            guest.set_paused(!taking_part.is_some_and(|choices| choices.iter().any(|choice| choice.vm == at)))?;
        }
        Ok(())
    }

    /// What a VM does.
    pub fn workload(&self, choice: Choice) -> &Workload {
        &self.scenario.vms[choice.vm].workloads[choice.workload]
    }

    fn policy(&self, choice: Choice) -> &PolicyChoice {
        &self.scenario.vms[choice.vm].policies[choice.policy]
    }

    fn reports(&self, choice: Choice) -> bool {
        matches!(self.workload(choice), Workload::Program(_))
    }

    /// Starts workloads that go on until they are stopped, and keeps what those tell that report.
    pub fn start(
        &self,
        guests: &mut [Guest],
        choices: &[Choice],
        reports: impl Fn(Choice) -> bool,
    ) -> Result<Vec<Running>, RunnerError> {
        // Before any of them runs: a busy host's guests tell the time late.
        let mut running = Vec::new();
        for choice in choices {
            let guest = &mut guests[choice.vm];
            let booted = reports(*choice).then(|| guest.booted(self.patience)).transpose()?;
            running.push(Running { vm: choice.vm, id: guest.new_id(), booted });
        }
        for (choice, one) in choices.iter().zip(&running) {
            let words = self.endless(&guests[choice.vm], *choice);
            guests[choice.vm].start(&one.id, &words, one.booted.is_some(), self.patience)?;
        }
        Ok(running)
    }

    fn endless(&self, guest: &Guest, choice: Choice) -> Vec<String> {
        let program = match self.workload(choice) {
            Workload::Nothing => vec!["sleep".to_owned(), "1000000".to_owned()],
            Workload::Program(program) => {
                let endless = ["--for", "0s", "--progress-every", "100ms"].map(str::to_owned);
                [program_words(program, false), endless.to_vec()].concat()
            }
            Workload::Command(command) => guest.in_image(command.command.clone()),
        };
        let policy = self.policy(choice);
        match policy.policy {
            gleaner_model::Policy::Off => program,
            _ => self.under_gleaner(guest, policy, None, program),
        }
    }

    /// Ends them; from then on the guests know what those that report had got done.
    pub fn stop(&self, guests: &mut [Guest], running: &[Running]) -> Result<(), RunnerError> {
        running.iter().try_for_each(|one| guests[one.vm].stop(&one.id, one.booted, self.patience))
    }

    /// Starts all measured runs of a step and waits for all of them.
    pub fn measure(&self, guests: &mut [Guest], choices: &[Choice]) -> Result<Vec<(Choice, Answer)>, RunnerError> {
        let mut open = Vec::new();
        for choice in choices {
            let guest = &mut guests[choice.vm];
            let id = guest.new_id();
            let program = match self.workload(*choice) {
                Workload::Nothing => vec!["sleep".to_owned(), "1".to_owned()],
                Workload::Program(program) => {
                    let json = ["--json".to_owned(), format!("/tmp/{id}.workload")];
                    [program_words(program, true), json.to_vec()].concat()
                }
                Workload::Command(command) => guest.in_image(command.command.clone()),
            };
            let marked = ["sh", "-c", MARKED, &id].map(str::to_owned);
            let json = format!("/tmp/{id}.run");
            let program = [marked.to_vec(), program].concat();
            let words = self.under_gleaner(guest, self.policy(*choice), Some(&json), program);
            open.push((*choice, id, words));
        }
        // Nothing but the sending between the first and the last.
        for (choice, id, words) in &open {
            let files = [format!("run=/tmp/{id}.run"), format!("workload=/tmp/{id}.workload")];
            guests[choice.vm].begin(id, &files, words)?;
        }
        let end = Instant::now() + self.scenario.run_timeout;
        let mut answers: Vec<Option<Answer>> = vec![None; open.len()];
        while answers.iter().any(Option::is_none) {
            for ((choice, ..), answer) in open.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
                *answer = guests[choice.vm].poll(end, self.patience)?;
            }
        }
        Ok(open.into_iter().map(|(choice, ..)| choice).zip(answers.into_iter().flatten()).collect())
    }

    /// `gleaner run` with a policy; `off` too, so that every policy is measured by the same means.
    fn under_gleaner(
        &self,
        guest: &Guest,
        choice: &PolicyChoice,
        json: Option<&str>,
        program: Vec<String>,
    ) -> Vec<String> {
        let policy = choice.policy.name();
        let mut words: Vec<String> = ["gleaner", "run", "--quiet", "--policy", policy].map(str::to_owned).to_vec();
        if choice.policy.retains() {
            let timeout = match choice.timeout {
                TimeoutFrom::Run => None,
                TimeoutFrom::Boot => guest.timeout_ns(choice.profile),
                TimeoutFrom::Fixed(duration) => Some(nanos(duration)),
            };
            words.extend(match timeout {
                Some(ns) => ["--retain-for".to_owned(), format!("{ns}ns")],
                None => ["--profile".to_owned(), choice.profile.name().to_owned()],
            });
        }
        if choice.observer != Observer::default() {
            words.extend(["--observer".to_owned(), choice.observer.word().to_owned()]);
        }
        let retain = choice.retain.filter(|_| choice.policy.retains());
        words.extend(retain.into_iter().flat_map(|means| ["--retain".to_owned(), means.name().to_owned()]));
        words.extend(choice.overhead.into_iter().flat_map(|percent| ["--overhead".to_owned(), percent.to_string()]));
        let config = choice.config.as_ref().and_then(|name| self.sources.config_in_guest(name));
        words.extend(config.into_iter().flat_map(|path| ["--config".to_owned(), path]));
        words.extend(json.into_iter().flat_map(|path| ["--json".to_owned(), path.to_owned()]));
        words.push("--".to_owned());
        words.extend(program);
        words
    }

    fn background_rate(&self, guests: &[Guest], other: Choice, answer: &Answer) -> BackgroundRate {
        let window = answer.began.zip(answer.ended).filter(|_| self.reports(other));
        BackgroundRate {
            vm: self.scenario.vms[other.vm].name.clone(),
            workload: self.workload(other).label().to_owned(),
            items_per_second: window.and_then(|(began, ended)| guests[other.vm].progress().rate(began.at, ended.at)),
        }
    }

    fn result(&self, choice: Choice, answer: &Answer, place: Place, background: Vec<BackgroundRate>) -> ScenarioRun {
        let outcome = Outcome::of(self.workload(choice), answer, self.scenario.run_timeout);
        let (run, own) = (outcome.run, outcome.own);
        let span = answer.began.zip(answer.ended);
        ScenarioRun {
            round: place.round,
            warmup: place.warmup,
            order: place.order,
            vm: self.scenario.vms[choice.vm].name.clone(),
            workload: self.workload(choice).label().to_owned(),
            policy: self.policy(choice).label.clone(),
            slice: None,
            delivered: None,
            background,
            at_ns: answer.began.map_or(0, |stamp| nanos(stamp.at.saturating_duration_since(self.zero))),
            wall_ns: run.as_ref().map(|run| run.wall_ns),
            host_wall_ns: span.map_or(0, |(began, ended)| nanos(ended.at.saturating_duration_since(began.at))),
            items_per_second: outcome.items_per_second,
            metric: outcome.metric,
            latency: serde_json::from_value(own["latency"].clone()).ok(),
            holding: serde_json::from_value(own["holding"].clone()).ok(),
            exit_status: answer.status,
            checksum: match &own["checksum"] {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            },
            host_cpu_ns: span.and_then(|(began, ended)| ended.cpu_ns?.checked_sub(began.cpu_ns?)),
            output: outcome.failure.is_some().then(|| last_lines(frame(answer, "output"))),
            failure: outcome.failure,
            left_behind: frame(answer, "left").lines().map(str::to_owned).collect(),
            run: run.as_ref().map(RunFigures::from),
        }
    }
}

fn program_words(program: &Program, with_items: bool) -> Vec<String> {
    let mut words = vec!["gleaner".to_owned(), "workload".to_owned(), program.program.clone()];
    let mut option =
        |name: &str, value: Option<String>| words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    option("--threads", program.threads.map(|threads| threads.to_string()));
    option("--items", program.items.filter(|_| with_items).map(|items| items.to_string()));
    option("--granularity", program.granularity.map(|duration| format!("{}ns", nanos(duration))));
    option("--seed", program.seed.map(|seed| seed.to_string()));
    words.extend(program.args.iter().cloned());
    words
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_options_are_the_workloads() {
        let program = Program {
            label: "x".into(),
            program: "pipeline".into(),
            threads: Some(4),
            items: Some(100),
            granularity: Some(Duration::from_micros(20)),
            seed: Some(9),
            args: vec!["--rate".into(), "5".into()],
        };
        let words = program_words(&program, true).join(" ");
        assert_eq!(words, "gleaner workload pipeline --threads 4 --items 100 --granularity 20000ns --seed 9 --rate 5");
        assert!(!program_words(&program, false).join(" ").contains("--items"), "a neighbour goes on for ever");
    }
}
