//! streamcluster (PARSEC): phases of all threads between barriers that spin, then block.
//!
//! parsec_barrier.hpp defines `ENABLE_SPIN_BARRIER`, and parsec_barrier.cpp spins for `SPIN_COUNTER_MAX` turns ("so we
//! spin no more than
//! 0.1 ms") on a flag, without a pause instruction: no pause-loop exit sees it. After that it waits on a condition
//! variable.

use super::machine::{US, begin};
use crate::Time;
use crate::program::{Builder, Op, Span, Test, Workload};

/// parsec_barrier.cpp.
const SPINS: Time = 100 * US;
/// How often the flag is looked at here. The real loop does it every 3 ns; the time lost is at most this.
const LOOK: Time = 5 * US;

/// With native input: 129,600 barriers of 8 threads in 22.12 G instructions for blocks of 16,384 points (TR-811-08), at
/// 5.77 an ns and for 200,000 points a block and 16 threads.
pub(super) const PHASE: Time = 181 * US;

/// An item is a phase of all threads.
pub(super) fn workload(threads: u32, phase: Time) -> Workload {
    let mut b = Builder::new();
    let (mutex, cond) = (b.mutex(), b.cond());
    // Two barriers in turn, so that nobody overtakes: arrived[n] counts up to `threads`, open[n] is 1 when all have
    // come.
    let arrived = [b.counter(0), b.counter(0)];
    let open = [b.counter(0), b.counter(0)];
    for _ in 0..threads {
        begin(&mut b);
        let turns = b.counter(0);
        let again = b.label_here();
        for n in 0..2 {
            let (last, spin, blocks, through) = (b.label(), b.label(), b.label(), b.label());
            b.op(Op::Stamp).op(Op::Compute(Span::Fixed(phase)));
            b.op(Op::Lock(mutex)).op(Op::Add(arrived[n], 1));
            b.unless(Test::AtMost(arrived[n], i64::from(threads) - 1), last);
            b.op(Op::Unlock(mutex));
            b.op(Op::Add(turns, i64::try_from(SPINS / LOOK).unwrap_or(0)));
            b.here(spin);
            let look = b.label();
            b.unless(Test::AtMost(open[n], 0), through);
            b.claim(turns, blocks);
            b.jump(look);
            b.here(look);
            b.op(Op::Compute(Span::Fixed(LOOK))).jump(spin);
            b.here(blocks);
            b.op(Op::Lock(mutex));
            b.op(Op::WaitUntil { cond, mutex, guard: Test::AtLeast(open[n], 1).into() });
            b.op(Op::Unlock(mutex)).jump(through);
            b.here(last);
            // Closes the other barrier before it opens this one.
            b.op(Op::Add(arrived[n], -i64::from(threads)));
            let closed = b.label();
            b.claim(open[1 - n], closed);
            b.here(closed);
            b.op(Op::Add(open[n], 1)).op(Op::Done).op(Op::Broadcast(cond)).op(Op::Unlock(mutex));
            b.here(through);
            let none = b.label();
            let drain = b.label_here();
            b.claim(turns, none).jump(drain);
            b.here(none);
        }
        b.jump(again);
        b.threads(1, 0);
    }
    b.build()
}
