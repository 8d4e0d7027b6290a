//! Reads a guest's answer: its figures, and whether the run counts.

use crate::agent::Answer;
use gleaner_lab_report::MetricFound;
use gleaner_report::RunReport;
use gleaner_scenario::{Better, Workload};
use regex::Regex;
use serde_json::Value;
use std::time::Duration;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What Gleaner said of it.
    pub run: Option<RunReport>,
    /// What `gleaner workload` said of itself, or null.
    pub own: Value,
    /// Throughput.
    pub items_per_second: Option<f64>,
    /// Found in a command's output.
    pub metric: Option<MetricFound>,
    /// Why it does not count.
    pub failure: Option<String>,
}

impl Outcome {
    /// Of a workload's answer.
    pub fn of(workload: &Workload, answer: &Answer, run_timeout: Duration) -> Self {
        let run = serde_json::from_str::<RunReport>(frame(answer, "run")).ok();
        let own = serde_json::from_str::<Value>(frame(answer, "workload")).unwrap_or_default();
        let metric = match workload {
            Workload::Command(command) => command
                .metric
                .as_ref()
                .map(|pattern| metric_in(pattern, command.better == Better::Higher, frame(answer, "output"))),
            _ => None,
        };
        let failure = if answer.overdue {
            Some(format!("it had not ended after run_timeout ({})", humantime::format_duration(run_timeout)))
        } else if answer.status != 0 {
            Some(format!("it ended with status {}", answer.status))
        } else if run.is_none() {
            Some("gleaner run gave no result".to_owned())
        } else if matches!(workload, Workload::Program(_)) && own.is_null() {
            Some("gleaner workload gave no result".to_owned())
        } else {
            metric.clone().and_then(Result::err)
        };
        let metric = metric.and_then(Result::ok);
        let rate = metric.filter(|metric| metric.higher_is_better).map(|metric| metric.value);
        Self { run, items_per_second: rate.or_else(|| own["items_per_second"].as_f64()), own, metric, failure }
    }
}

/// What a guest sent under a name; empty where it sent nothing.
pub fn frame<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.frames.get(name).map_or("", String::as_str)
}

/// The first group's figure, or the whole match's; else what is wrong.
fn metric_in(pattern: &str, higher_is_better: bool, output: &str) -> Result<MetricFound, String> {
    let found = Regex::new(pattern).ok().and_then(|regex| regex.captures(output));
    let found = found.as_ref().and_then(|found| found.get(1).or_else(|| found.get(0))).map(|found| found.as_str());
    let Some(text) = found else { return Err(format!("its output has no match for the metric {pattern}")) };
    match text.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(MetricFound { value, higher_is_better }),
        _ => Err(format!("the metric {pattern} matched {text:?}, which is no figure above 0")),
    }
}

/// Enough to see what went wrong.
pub fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_scenario::{CommandLine, Program};

    #[test]
    fn a_metric_is_its_first_group() {
        let output = "    transactions:        24026  (2402.13 per sec.)\n    other: 1\n    none: 0\n";
        let value = |pattern| metric_in(pattern, true, output).map(|metric| metric.value);
        assert_eq!(value(r"transactions:\s+\d+\s+\(([\d.]+) per sec"), Ok(2402.13));
        assert_eq!(value(r"\d+"), Ok(24026.0));
        for (pattern, words) in [(r"latency: (\d+)", "no match"), ("(other)", "\"other\""), (r"none: (\d)", "\"0\"")] {
            let wrong = value(pattern).unwrap_err();
            assert!(wrong.contains(words) && wrong.contains(pattern), "{wrong}");
        }
    }

    /// A run under Gleaner that ended with 0 and wrote this.
    fn answer(output: &str, workload: &str) -> Answer {
        let run = RunReport { schema: RunReport::SCHEMA.to_owned(), wall_ns: 5, ..RunReport::default() };
        let run = serde_json::to_value(run).unwrap();
        let frames = [("run", run.to_string()), ("output", output.to_owned()), ("workload", workload.to_owned())];
        let frames = frames.map(|(name, text)| (name.to_owned(), text));
        Answer { frames: frames.into(), ..Answer::default() }
    }

    fn command(metric: Option<&str>, better: Better) -> Workload {
        let metric = metric.map(str::to_owned);
        Workload::Command(CommandLine { label: "c".into(), command: vec!["c".into()], metric, better })
    }

    fn of(workload: &Workload, answer: &Answer) -> Outcome {
        Outcome::of(workload, answer, Duration::from_secs(3))
    }

    #[test]
    fn a_run_without_its_metric_has_failed() {
        let workload = command(Some(r"tps: ([\d.]+)"), Better::Higher);
        let found = of(&workload, &answer("tps: 12.5", ""));
        assert_eq!((found.failure, found.items_per_second), (None, Some(12.5)));
        let lost = of(&workload, &answer("cannot connect", ""));
        assert!(lost.failure.is_some_and(|why| why.contains("no match")) && lost.items_per_second.is_none());
        assert_eq!(
            of(&command(None, Better::Higher), &answer("cannot connect", "")).failure,
            None,
            "nothing was asked"
        );
    }

    #[test]
    fn a_metric_of_which_less_is_better_is_no_throughput() {
        let found = of(&command(Some(r"p99: (\d+)"), Better::Lower), &answer("p99: 1500", ""));
        assert_eq!(found.metric, Some(MetricFound { value: 1500.0, higher_is_better: false }));
        assert_eq!((found.items_per_second, found.failure), (None, None));
    }

    #[test]
    fn a_command_may_hand_back_a_workloads_result() {
        let json = r#"{"items_per_second": 50.0, "latency": {"p50_ns": 7}}"#;
        let found = of(&command(None, Better::Higher), &answer("", json));
        assert_eq!((found.items_per_second, &found.own["latency"]["p50_ns"]), (Some(50.0), &Value::from(7)));
    }

    #[test]
    fn whatever_is_missing_is_a_failure_with_a_reason() {
        let program = Workload::Program(Program::default());
        let good = answer("", r#"{"items_per_second": 5.0}"#);
        assert_eq!(of(&program, &good).failure, None);
        let without = |name: &str| {
            let mut answer = good.clone();
            answer.frames.remove(name);
            answer
        };
        for (answer, words) in [
            (without("run"), "gleaner run gave no result"),
            (without("workload"), "gleaner workload gave no result"),
            (Answer { status: 3, ..good.clone() }, "status 3"),
            (Answer { status: 124, overdue: true, ..good.clone() }, "run_timeout (3s)"),
        ] {
            let failure = of(&program, &answer).failure.unwrap_or_default();
            assert!(failure.contains(words), "{failure:?}");
        }
    }
}
