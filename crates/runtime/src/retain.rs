//! Which means keeps idle vCPUs awake: the user's, or the first that this machine has.

use crate::yielding::{busy_waits, prepare_yielding, spends_no_quota};
use gleaner_act::{Haltpoll, IdleGroup, IdlePoll, IdlePollParams, Journal, PmQos, Retainer, YieldingThreads};
use gleaner_decide::guest::{ContentionGuard, GuestParams};
use gleaner_model::{CpuSet, RetainMeans};
use gleaner_observe::{Observer, ProcRoot, online_cpus};
use gleaner_settings::RetainChoice;
use std::path::Path;

/// What a means is opened with.
pub struct Opening<'a> {
    /// The vCPUs that groups may use.
    pub vcpus: &'a CpuSet,
    /// The policy's numbers, its guard's among them.
    pub params: &'a GuestParams,
    /// Who can tell a yielding thread that its vCPU is busy again.
    pub observer: Option<&'a Observer>,
}

/// An open means, and the cgroup of its threads where it has some.
pub struct Opened {
    /// The means; nothing is retained yet.
    pub retainer: Box<dyn Retainer>,
    /// The cgroup.
    pub group: IdleGroup,
}

/// Looks for a means: the one that is asked for, or else the first that can be had, in the order of
/// [`RetainMeans::ALL`].
#[derive(Debug)]
pub(crate) struct Search {
    asked: Option<RetainMeans>,
    left: Vec<RetainMeans>,
    known: Vec<(RetainMeans, String)>,
    refused: Vec<String>,
}

impl Search {
    /// `known`: what this machine refuses.
    pub(crate) fn new(choice: RetainChoice, known: &[(RetainMeans, String)]) -> Self {
        let asked = choice.means();
        let others = RetainMeans::ALL.into_iter().filter(|means| asked != Some(*means));
        let known = if asked.is_none() { known.to_vec() } else { Vec::new() };
        Self { asked, left: asked.into_iter().chain(others).collect(), known, refused: Vec::new() }
    }

    /// Whether the next one to be tried needs no observer.
    pub(crate) fn polls_next(&self) -> bool {
        self.left.first().is_some_and(|means| means.polls_in_idle_task())
    }

    /// Tries the next one. What `auto` passes over is logged.
    pub(crate) fn next(&mut self, opening: &Opening<'_>, journal: &mut Journal) -> Option<Opened> {
        let means = self.left.remove(0);
        let known = self.known.iter().find(|(refused, _)| *refused == means);
        let opened = known.map_or_else(|| open_one(means, opening, journal), |(_, why)| Err(why.clone()));
        match opened {
            Ok(opened) => Some(opened),
            Err(why) => {
                tracing::info!("{means}: {why}");
                self.refused.push(format!("{means}: {why}"));
                None
            }
        }
    }

    /// Whether there is none left to try.
    pub(crate) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// What to warn of: that `found` is another than was asked for, or that there is none.
    pub(crate) fn warning(&self, found: Option<RetainMeans>) -> Option<String> {
        match (found, self.asked.and(self.refused.first())) {
            (Some(means), Some(why)) => Some(format!("{means} keeps vCPUs awake instead of {why}")),
            (Some(_), None) => None,
            (None, _) => Some(format!("nothing is retained: {}", self.refused.join("; "))),
        }
    }
}

/// One means.
///
/// # Errors
/// Why this machine does not have it, in words.
pub fn open_one(means: RetainMeans, opening: &Opening<'_>, journal: &mut Journal) -> Result<Opened, String> {
    let sys = ProcRoot::default().sys;
    let boxed = |retainer: Box<dyn Retainer>| Opened { retainer, group: IdleGroup::none() };
    match means {
        RetainMeans::IdlePoll => {
            let params = idle_poll_params(opening.params);
            let opened = IdlePoll::open(&sys, opening.vcpus, &params).map_err(|error| error.to_string())?;
            Ok(boxed(Box::new(opened)))
        }
        RetainMeans::Haltpoll => haltpoll(&sys, opening.vcpus, journal).map(|retainer| boxed(Box::new(retainer))),
        RetainMeans::PmQos => {
            let opened = PmQos::open(&sys, opening.vcpus, journal).map_err(|error| error.to_string())?;
            Ok(boxed(Box::new(opened)))
        }
        RetainMeans::Yielding => {
            let group = IdleGroup::create(journal);
            spends_no_quota(group.means())?;
            let yields = yielding(opening, &group).map_err(|error| error.to_string())?;
            // Some may not have got into their cgroup.
            spends_no_quota(yields.idle_means())?;
            Ok(Opened { retainer: Box::new(yields), group })
        }
    }
}

/// The guard that the policy has, in the program itself.
fn idle_poll_params(params: &GuestParams) -> IdlePollParams {
    IdlePollParams {
        stolen_gap: ContentionGuard::STOLEN_GAP,
        steal_span: ContentionGuard::STEAL_SPAN,
        steal_share_stop: params.steal_share_stop,
        hold_off_min: ContentionGuard::HOLD_OFF_MIN,
        hold_off_max: ContentionGuard::HOLD_OFF_MAX,
    }
}

/// Its parameters are the whole machine's, so the program has to be allowed the whole machine.
fn haltpoll(sys: &Path, vcpus: &CpuSet, journal: &Journal) -> Result<Haltpoll, String> {
    let online = online_cpus(&ProcRoot::default()).map_err(|error| error.to_string())?;
    if online != *vcpus {
        return Err(format!("it is for all vCPUs ({online}), and the program may use {vcpus}"));
    }
    Haltpoll::open(sys, journal).map_err(|error| error.to_string())
}

fn yielding(opening: &Opening<'_>, group: &IdleGroup) -> Result<YieldingThreads, gleaner_act::ActError> {
    let mut waits = opening.observer.map(|found| busy_waits(found, opening.vcpus)).unwrap_or_default();
    prepare_yielding(opening.vcpus, group, opening.params, |vcpu| waits.remove(&vcpu))
}
