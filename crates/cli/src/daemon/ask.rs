//! `gleaner status`, `explain`, `verify`, `reload`, `hold`, `release`: what the daemon answers.

use super::args::{AskArgs, ExplainArgs, HoldArgs, StatusArgs, VerifyArgs};
use gleaner_command::failure::Failure;
use gleaner_command::output::Output;
use gleaner_daemon::{Answer, ClientError, Request, ask_at, default_socket, socket_in};
use gleaner_report::{StatusHost, StatusReport, VerifyReport};

pub fn status(args: &StatusArgs) -> Result<u8, Failure> {
    if let Some(file) = &args.textfile {
        let text = gleaner_daemon::textfile(&status_of(&args.ask)?);
        return gleaner_command::results::replace(file, text.as_bytes()).map(|()| 0);
    }
    let mut output = Output::open(args.json.json.as_deref())?;
    let report = status_of(&args.ask)?;
    output.text(&report);
    output.json(&report)?;
    Ok(0)
}

pub fn hold(args: &HoldArgs) -> Result<u8, Failure> {
    order(args, &Request::Hold { group: args.group.clone() }, "left alone until it is released")
}

pub fn release(args: &HoldArgs) -> Result<u8, Failure> {
    order(args, &Request::Release { group: args.group.clone() }, "managed again")
}

fn order(args: &HoldArgs, request: &Request, what: &str) -> Result<u8, Failure> {
    match answer(&args.ask, request)? {
        Answer::Done(groups) => {
            for group in groups {
                Output::Text.text(&format!("{group}: {what}"));
            }
            Ok(0)
        }
        other => Err(unexpected(&other)),
    }
}

pub fn explain(args: &ExplainArgs) -> Result<u8, Failure> {
    let report = status_of(&args.ask)?;
    let text = match args.what.as_deref() {
        None => {
            let host = report.host.as_ref().map(StatusHost::explain).unwrap_or_default();
            report.explain_all() + &host
        }
        Some("host") if report.host.is_some() => report.host.as_ref().map(StatusHost::explain).unwrap_or_default(),
        Some(what) => match (report.groups_named(what), what.parse()) {
            (groups, _) if groups.is_empty() && report.waiting_named(what).is_some() => report.explain_waiting(what),
            (groups, Err(_)) if groups.is_empty() => return Err(unknown(what, &report)),
            (groups, Ok(vcpu)) if groups.is_empty() && report.has_vcpu(vcpu) => report.explain_vcpu(vcpu),
            (groups, Ok(_)) if groups.is_empty() => return Err(unknown_vcpu(what, &report)),
            (groups, _) => report.explain(&groups),
        },
    };
    let nothing = "nothing of what the configuration names runs".to_owned();
    Output::Text.text(if text.is_empty() { &nothing } else { &text });
    Ok(0)
}

fn unknown_vcpu(what: &str, report: &StatusReport) -> Failure {
    let vcpus = report.machine.vcpus;
    Failure::input(format!("there is no vCPU {what}, and no group of that name; this machine has {vcpus} vCPUs"))
}

fn unknown(what: &str, report: &StatusReport) -> Failure {
    let waiting = report.waiting.iter().map(|waiting| waiting.name.as_str());
    let names: Vec<&str> = report.groups.iter().map(|group| group.name.as_str()).chain(waiting).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Failure::input(format!("no group is called {what}; there are {names}; a number is a vCPU"))
}

pub fn verify(args: &VerifyArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let report: VerifyReport = match answer(&args.ask, &Request::Verify)? {
        Answer::Verify(report) => report,
        other => return Err(unexpected(&other)),
    };
    output.text(&report);
    output.json(&report)?;
    Ok(u8::from(!report.as_set))
}

pub fn reload(args: &AskArgs) -> Result<u8, Failure> {
    match answer(args, &Request::Reload)? {
        Answer::Reloaded(groups) => {
            let groups = if groups == 1 { "one group".to_owned() } else { format!("{groups} groups") };
            let waiting = status_of(args).map(|report| report.waiting_in_words()).unwrap_or_default();
            Output::Text.text(&format!("The configuration counts; {groups} managed.\n{waiting}"));
            Ok(0)
        }
        other => Err(unexpected(&other)),
    }
}

fn status_of(args: &AskArgs) -> Result<StatusReport, Failure> {
    match answer(args, &Request::Status)? {
        Answer::Status(report) => Ok(*report),
        other => Err(unexpected(&other)),
    }
}

fn answer(args: &AskArgs, request: &Request) -> Result<Answer, Failure> {
    let socket = args.state_dir.as_deref().map_or_else(default_socket, socket_in);
    ask_at(&socket, request).map_err(|error: ClientError| Failure::work(error))
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::work(format!("the daemon is of another version: it answered {answer:?}"))
}
