//! Every schema's name, once; and that each result prints what its document says.

use crate::{
    AbReport, CaptureReport, DoctorReport, HostListReport, HostProbeReport, HostRunReport, ProbeReport, ReplayReport,
    RunReport, StatusReport, VerifyReport, WorkloadReport, XenSliceReport,
};

/// For results of other crates too.
#[macro_export]
macro_rules! contracts {
    ($($of:ty: $schema:literal,)*) => { $(
        impl $of {
            pub const SCHEMA: &'static str = $schema;
        }

        impl ::std::fmt::Display for $of {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&$crate::show::Shown::document(self), f)
            }
        }
    )* };
}

contracts! {
    AbReport: "gleaner.ab/1",
    CaptureReport: "gleaner.capture/1",
    DoctorReport: "gleaner.doctor/1",
    HostListReport: "gleaner.host-list/1",
    HostProbeReport: "gleaner.host-probe/1",
    HostRunReport: "gleaner.host-run/1",
    ProbeReport: "gleaner.probe/1",
    ReplayReport: "gleaner.replay/1",
    RunReport: "gleaner.run/1",
    StatusReport: "gleaner.status/1",
    VerifyReport: "gleaner.verify/1",
    WorkloadReport: "gleaner.workload/1",
    XenSliceReport: "gleaner.xen-slice/1",
}
