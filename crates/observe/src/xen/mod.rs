//! A Xen host, read from what its tool `xl` prints: cpupools with their schedulers, domains with their vCPUs.
//!
//! vCPUs are no threads of dom0 there, so nothing of `/proc` tells of them. Running `xl` is the caller's: reading takes
//! a function from arguments to output, which a test answers from captured files (`fixtures/`, from Xen 4.17).

mod domain;
mod parse;

pub use domain::{XenDomain, XenVcpu, XenVcpuState};
pub use parse::XenReadError;

use gleaner_model::{XenPool, XenScheduler, XenSetting};
use gleaner_sys::ProcRoot;
use parse::{Line, SchedTables, cpupool_list, domain_list, sched_tables, vcpu_list};
use std::fs;

/// A Xen host.
#[derive(Clone, Debug, PartialEq)]
pub struct XenHost {
    /// `4.17.7`; `None` where xl does not say.
    pub version: Option<String>,
    /// In Xen's order.
    pub pools: Vec<XenPool>,
    /// In Xen's order; the first is the one that we run in.
    pub domains: Vec<XenDomain>,
}

/// Whether this Linux is the domain of a Xen host that may ask about the others.
#[must_use]
pub fn is_xen_dom0(root: &ProcRoot) -> bool {
    fs::read_to_string(root.proc.join("xen/capabilities")).is_ok_and(|text| text.contains("control_d"))
}

/// Reads all of it; `xl` runs Xen's tool with these arguments, and says why where it cannot.
///
/// # Errors
/// What `xl` refused, or the line that is not as it was in Xen 4.17.
pub fn xen_host<Refusal>(
    mut xl: impl FnMut(&[&str]) -> Result<String, Refusal>,
) -> Result<XenHost, XenReadError<Refusal>> {
    let (pools, mut tables) = pools_and_tables(&mut xl)?;
    let mut ask = |words: &[&str]| xl(words).map_err(XenReadError::Xl);
    let version = ask(&["info"])?.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "xen_version").then(|| value.trim().to_owned())
    });
    let mut domains: Vec<XenDomain> = lines("xl list", &ask(&["list"])?, domain_list)?;
    for (domain, vcpu) in lines("xl vcpu-list", &ask(&["vcpu-list"])?, vcpu_list)? {
        // One that was started between the two has come too late for this look.
        if let Some(domain) = domains.iter_mut().find(|known| known.id == domain) {
            domain.vcpus.push(vcpu);
        }
    }
    for domain in &mut domains {
        if let Some(entry) = tables.domains.remove(&domain.id) {
            domain.pool = Some(entry.pool);
            domain.weight = entry.weight;
            domain.cap_percent = entry.cap_percent;
        }
    }
    Ok(XenHost { version, pools, domains })
}

/// The cpupools alone, for who needs no more: each `xl` takes its time.
///
/// # Errors
/// As [`xen_host`].
pub fn xen_pools<Refusal>(
    mut xl: impl FnMut(&[&str]) -> Result<String, Refusal>,
) -> Result<Vec<XenPool>, XenReadError<Refusal>> {
    pools_and_tables(&mut xl).map(|(pools, _)| pools)
}

fn pools_and_tables<Refusal>(
    xl: &mut impl FnMut(&[&str]) -> Result<String, Refusal>,
) -> Result<(Vec<XenPool>, SchedTables), XenReadError<Refusal>> {
    let mut ask = |words: &[&str]| xl(words).map_err(XenReadError::Xl);
    let mut pools: Vec<XenPool> = lines("xl cpupool-list", &ask(&["cpupool-list"])?, cpupool_list)?;
    let mut tables = SchedTables::default();
    for (scheduler, words) in [
        (XenScheduler::Credit, &["sched-credit"] as &[&str]),
        (XenScheduler::Credit2, &["sched-credit2"]),
        (XenScheduler::Rtds, &["sched-rtds", "-v", "all"]),
    ] {
        if pools.iter().any(|pool| pool.scheduler == scheduler) {
            sched_tables(&ask(words)?, &scheduler, &mut tables).map_err(|line| line.of(&words.join(" ")))?;
        }
    }
    for pool in &mut pools {
        pool.settings = tables.settings.remove(&pool.name).unwrap_or_default();
    }
    Ok((pools, tables))
}

/// The rows of a table without its head.
fn lines<Row, Refusal>(
    command: &str,
    text: &str,
    row: impl Fn(&str) -> Option<Row>,
) -> Result<Vec<Row>, XenReadError<Refusal>> {
    let rows = text.lines().filter(|line| !line.trim().is_empty()).skip(1);
    rows.map(|line| row(line).ok_or_else(|| Line(line.to_owned()).of(command))).collect()
}

impl XenHost {
    /// The domains that a word means: a name or a number.
    #[must_use]
    pub fn domain(&self, word: &str) -> Option<&XenDomain> {
        let by_name = self.domains.iter().find(|domain| domain.name == word);
        by_name.or_else(|| self.domains.iter().find(|domain| word.parse() == Ok(domain.id)))
    }

    /// What a vCPU under RTDS is set to.
    #[must_use]
    pub fn rtds(&self, domain: u32, vcpu: u32) -> Option<&XenSetting> {
        let mut all = self.pools.iter().flat_map(|pool| &pool.settings);
        all.find(|setting| {
            matches!(setting, XenSetting::Rtds { domain: of, vcpu: index, .. } if (*of, *index) == (domain, vcpu))
        })
    }
}

#[cfg(test)]
mod tests;
