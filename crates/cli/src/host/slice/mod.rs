//! `gleaner host slice`: give threads a slice, enforce it, measure what was delivered, put everything back.

mod args;
mod chosen;
mod command;
mod enforce;
mod held;

pub use args::SliceArgs;
pub use held::without_room;

use super::shared::takes_ticker;
use super::xen::{self, XenSlice};
use gleaner_act::{SLICE_RANGE, refuse_slice, switch_cost};
use gleaner_command::failure::Failure;
use gleaner_command::interrupt;
use gleaner_command::output::Output;
use gleaner_model::Nanos;
use gleaner_observe::PassedOver;
use std::cell::RefCell;
use std::path::Path;

pub fn main(args: &SliceArgs) -> Result<u8, Failure> {
    // In a dom0 too a thread is a thread.
    if args.tid.is_empty() && args.xen.apply() {
        if !args.command.is_empty() {
            return Err(Failure::input("on a Xen host no command is run meanwhile: say how long with --for"));
        }
        let (slice, domains, length) = (args.slice, args.vm.as_slice(), args.length);
        return xen::slice(&XenSlice { options: &args.xen, slice, domains, length, json: &args.json });
    }
    if args.tid.is_empty() && args.vm.is_empty() && !args.all {
        return Err(Failure::input("whose slice? Name VMs with --vm, threads with --tid, or give --all"));
    }
    let Some(slice) = args.slice.map(Nanos::from) else {
        return Err(Failure::input("--slice is missing: name the slice, like --slice 1ms"));
    };
    // Before anything is measured, looked for or changed.
    if !SLICE_RANGE.contains(&slice) {
        return Err(Failure::input(format!(
            "--slice {slice} is out of range: from {} to {}",
            SLICE_RANGE.start(),
            SLICE_RANGE.end()
        )));
    }
    let mut output = Output::open(args.json.json.as_deref())?;
    let interrupted = interrupt::flag()?;
    let passed_over = PassedOver::default();
    let (threads, wanted) = chosen::choose(args, &passed_over)?;
    let switch = switch_cost();
    let takes_ticker = !args.no_enforce && takes_ticker()(slice);
    refuse_slice(slice, takes_ticker, switch, Path::new("/proc")).map_err(Failure::input)?;
    let wanted = RefCell::new(wanted);
    let look_again = || chosen::look_again(args, &passed_over, &mut wanted.borrow_mut());
    let held = held::Request {
        slice,
        enforce: !args.no_enforce,
        length: args.length,
        command: &args.command,
        look_again: &look_again,
    };
    let report = held::hold(&held, threads, switch, &interrupted)?;
    output.text(&report);
    output.json(&report)?;
    Ok(status(report.exit_status, report.restored))
}

/// The command's own status; 1 where it went well, or there was none, and not everything could be put back.
fn status(command: Option<i32>, restored: bool) -> u8 {
    // A status is a byte.
    let own = command.map_or(0, |status| u8::try_from(status & 0xff).unwrap_or(1));
    if own == 0 { u8::from(!restored) } else { own }
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn what_could_not_be_put_back_is_a_failure() {
        for (command, restored, expected) in [
            (None, true, 0),
            (None, false, 1),
            (Some(0), true, 0),
            (Some(0), false, 1),
            (Some(7), true, 7),
            (Some(7), false, 7),
            (Some(143), false, 143),
        ] {
            assert_eq!(status(command, restored), expected, "{command:?} {restored}");
        }
    }
}
