//! Programs as they are run: one after the other in one table, each once however many virtual machines run it, so that
//! they share what the processor's caches hold of it.

use super::Op;

/// All programs of all virtual machines. Targets are places in the whole table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    ops: Vec<Op>,
    /// What is in the table, and where.
    known: Vec<(Vec<Op>, u32)>,
}

impl Code {
    /// Where a program begins; it is put into the table unless it is there.
    pub(crate) fn place(&mut self, program: &[Op]) -> u32 {
        if let Some((_, start)) = self.known.iter().find(|(known, _)| known == program) {
            return *start;
        }
        // Programs are built in memory; there are fewer instructions than that.
        let start = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        for mut op in program.iter().copied() {
            if let Op::Claim { otherwise: to, .. } | Op::Unless(_, to) | Op::Jump(to) = &mut op {
                *to += start;
            }
            self.ops.push(op);
        }
        // Whoever runs past the end, ends.
        self.ops.push(Op::Exit);
        self.known.push((program.to_vec(), start));
        start
    }

    pub(crate) fn op(&self, at: u32) -> Op {
        self.ops[at as usize]
    }
}
