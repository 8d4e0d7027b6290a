//! Runs a scenario in real virtual machines.

fn main() {}
