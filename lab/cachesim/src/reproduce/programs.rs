//! The programs of Table VI and their mixes.
//!
//! SPEC's programs cannot be shipped, so each is a profile: how many of a thousand instructions look beyond the L1, and
//! how far back the line they want was last used. The figures are ours. They follow the paper's three types (section
//! IV-B), each program placed within its type by what is generally known of it: omnetpp, astar, xalancbmk and mcf chase
//! pointers (few loads at a time), libquantum and milc stream, omnetpp and soplex nearly fill 2 MB. Accesses that hit
//! the L1 for certain are left out and are part of the base CPI: the other end of the cost, refilling 512 lines of L1
//! after a switch, is below a thousandth of a 1 ms slice.

use crate::core_model::CoreConfig;
use crate::trace::synthetic::{Band, Profile};

/// Share of stores among accesses beyond the L1.
pub(super) const STORE_RATIO: f64 = 0.25;

/// The paper's types of programs (section IV-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The working set fits the L2.
    Cpu,
    /// It fits the last level.
    CacheFriendly,
    /// It fits nowhere.
    Thrashing,
}

/// A program of Table VI.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Program {
    /// As the paper spells it.
    pub name: &'static str,
    /// Its type.
    pub class: Class,
    /// A program from Debian, recorded, that stands for it.
    pub stand_in: &'static str,
    /// (accesses beyond the L1 per 1,000 instructions, smallest stack distance, largest), lines.
    bands: Bands,
    /// Lines used one after the other, round and round: accesses per 1,000 instructions, and lines in all.
    stream: (f64, u64),
    base_cpi: f64,
    mlp_max: u32,
}

/// Data that is used once and not again before everything else was: 64 MB.
const ONCE_LINES: u64 = 1 << 20;

/// (accesses beyond the L1 per 1,000 instructions, smallest stack distance, largest).
type Bands = &'static [(f64, u64, u64)];

/// All of them.
pub const PROGRAMS: [Program; 12] = [
    cpu("namd", "x264", &[(9.0, 600, 2_500)], 0.1, 0.55),
    cpu("sjeng", "sjeng", &[(8.0, 600, 3_000)], 0.3, 0.70),
    cpu("h264", "x264", &[(10.0, 600, 3_300), (0.5, 4_200, 6_000)], 0.2, 0.50),
    friendly("bzip2", "bzip2", &[(14.0, 600, 3_500), (13.0, 4_000, 22_000)], 0.5, 4),
    friendly("gcc", "cc1", &[(16.0, 600, 3_500), (14.0, 4_000, 20_000)], 0.8, 4),
    friendly("astar", "bzip2", &[(20.0, 600, 3_500), (12.0, 4_000, 16_000)], 0.7, 2),
    friendly("omnetpp", "xalan", &[(20.0, 600, 3_500), (18.0, 4_000, 26_000)], 1.0, 2),
    friendly("xalancbmk", "xalan", &[(22.0, 600, 3_500), (17.0, 4_000, 20_000)], 0.6, 3),
    friendly("soplex", "cc1", &[(18.0, 600, 3_500), (20.0, 4_000, 25_000)], 2.0, 6),
    thrashing("libquantum", &[], (27.0, 1 << 17), 10),
    thrashing("milc", &[(4.0, 600, 3_500)], (22.0, 200_000), 8),
    thrashing("mcf", &[(20.0, 600, 3_500), (15.0, 4_000, 30_000), (43.0, 40_000, 300_000)], (2.0, ONCE_LINES), 3),
];

const fn cpu(name: &'static str, stand_in: &'static str, bands: Bands, once: f64, base_cpi: f64) -> Program {
    Program { name, class: Class::Cpu, stand_in, bands, stream: (once, ONCE_LINES), base_cpi, mlp_max: 10 }
}

const fn friendly(name: &'static str, stand_in: &'static str, bands: Bands, once: f64, mlp_max: u32) -> Program {
    let stream = (once, ONCE_LINES);
    Program { name, class: Class::CacheFriendly, stand_in, bands, stream, base_cpi: 0.60, mlp_max }
}

const fn thrashing(name: &'static str, bands: Bands, stream: (f64, u64), mlp_max: u32) -> Program {
    Program { name, class: Class::Thrashing, stand_in: "libquantum", bands, stream, base_cpi: 0.60, mlp_max }
}

impl Program {
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROGRAMS.iter().find(|program| program.name == name)
    }

    /// How it uses the memory that it comes back to, without what hits the L1 for certain; `None` if there is none.
    pub fn profile(&self) -> Option<Profile> {
        let band = |(weight, from_lines, to_lines): &(f64, u64, u64)| Band {
            weight: *weight,
            from_lines: *from_lines,
            to_lines: *to_lines,
        };
        (!self.bands.is_empty()).then(|| Profile {
            bands: self.bands.iter().map(band).collect(),
            footprint_lines: self.bands.iter().map(|(.., to_lines)| to_lines + 1).max().unwrap_or(1),
            accesses_per_instruction: self.accesses_per_instruction(),
            store_ratio: STORE_RATIO,
        })
    }

    /// Accesses beyond the L1, the stream's included.
    pub fn accesses_per_instruction(&self) -> f64 {
        (self.bands.iter().map(|(weight, ..)| weight).sum::<f64>() + self.stream.0) / 1000.0
    }

    /// The stream's share of these accesses, and its lines.
    pub fn stream(&self) -> (f64, u64) {
        (self.stream.0 / 1000.0 / self.accesses_per_instruction(), self.stream.1)
    }

    /// How it runs on Table V's core.
    pub fn core_model(&self) -> CoreConfig {
        CoreConfig { base_cpi: self.base_cpi, mlp_max: self.mlp_max }
    }
}

/// A mix of Table VI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// 1 to 17.
    pub number: u32,
    /// 1 to 6.
    pub kind: u32,
    /// A and B of Figures 8, 10, 11 and 12.
    pub programs: [&'static str; 2],
}

const fn mix(number: u32, kind: u32, a: &'static str, b: &'static str) -> Mix {
    Mix { number, kind, programs: [a, b] }
}

/// All of them.
pub const MIXES: [Mix; 17] = [
    mix(1, 1, "namd", "sjeng"),
    mix(2, 1, "namd", "h264"),
    mix(3, 2, "sjeng", "astar"),
    mix(4, 2, "sjeng", "soplex"),
    mix(5, 2, "sjeng", "bzip2"),
    mix(6, 3, "namd", "milc"),
    mix(7, 3, "sjeng", "libquantum"),
    mix(8, 3, "h264", "mcf"),
    mix(9, 4, "omnetpp", "gcc"),
    mix(10, 4, "astar", "xalancbmk"),
    mix(11, 4, "bzip2", "soplex"),
    mix(12, 5, "gcc", "libquantum"),
    mix(13, 5, "bzip2", "libquantum"),
    mix(14, 5, "omnetpp", "libquantum"),
    mix(15, 5, "astar", "libquantum"),
    mix(16, 5, "xalancbmk", "libquantum"),
    mix(17, 6, "milc", "libquantum"),
];

/// What a type of mixes consists of, as the paper writes it.
pub fn kind_name(kind: u32) -> &'static str {
    match kind {
        1 => "CPU - CPU",
        2 => "CPU - CFR",
        3 => "CPU - THR",
        4 => "CFR - CFR",
        5 => "CFR - THR",
        _ => "THR - THR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_has_the_types_its_number_says() {
        let class = |name| Program::by_name(name).expect(name).class;
        for mix in MIXES {
            let expected = match mix.kind {
                1 => [Class::Cpu, Class::Cpu],
                2 => [Class::Cpu, Class::CacheFriendly],
                3 => [Class::Cpu, Class::Thrashing],
                4 => [Class::CacheFriendly; 2],
                5 => [Class::CacheFriendly, Class::Thrashing],
                _ => [Class::Thrashing; 2],
            };
            assert_eq!(mix.programs.map(class), expected, "mix {}", mix.number);
        }
        assert!(MIXES.iter().zip(1..).all(|(mix, number)| mix.number == number));
    }
}
