//! Which Linux: what it can do is known by its version where it cannot be tried.

/// Major and minor number of a kernel; they order as the kernels do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// Reads it from a release as `uname -r` prints it; `None` when it does not begin with two numbers.
    pub fn of_release(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_gives_its_version() {
        for (release, version) in [
            ("6.18.44-fc-v445", Some(KernelVersion(6, 18))),
            ("5.10.0", Some(KernelVersion(5, 10))),
            ("6.1.0-49-cloud", Some(KernelVersion(6, 1))),
            ("x", None),
        ] {
            assert_eq!(KernelVersion::of_release(release), version);
        }
        assert!(KernelVersion(6, 2) > KernelVersion(6, 1) && KernelVersion(6, 2) > KernelVersion(5, 19));
    }
}
