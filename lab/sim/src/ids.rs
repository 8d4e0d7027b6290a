//! Places in the simulator's tables. Everything refers to everything else by them.

macro_rules! place {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            pub(crate) fn at(self) -> usize {
                self.0 as usize
            }

            /// The place `n`. What is built is checked to be few enough beforehand.
            pub(crate) fn of(n: usize) -> Self {
                debug_assert!(u32::try_from(n).is_ok());
                #[allow(clippy::cast_possible_truncation)]
                Self(n as u32)
            }
        }
    };
}

place!(
    /// A physical CPU.
    PcpuIx
);
place!(
    /// A virtual machine.
    VmIx
);
place!(
    /// A virtual CPU, counted over all virtual machines.
    VcpuIx
);
place!(
    /// A thread, counted over all virtual machines.
    ThreadIx
);
