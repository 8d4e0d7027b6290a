//! The scenario format that the test bed and the simulator read.
