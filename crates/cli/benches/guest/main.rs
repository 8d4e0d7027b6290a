//! Benchmarks of the guest side, on the machine they run on: `cargo bench -p gleaner --bench guest [-- NAME...]`.
//!
//! They print series and ratios measured in one run, and pass or fail nothing. The machine should have nothing else to
//! do.

mod overhead;
mod spread;
mod support;
mod wakeup;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` does not pass --bench: there is nothing to check, and a machine to spare.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    support::describe_machine();
    let wanted =
        |name: &str| arguments.iter().all(|argument| argument == "--bench") || arguments.iter().any(|a| a == name);
    for (name, bench) in [("wakeup", wakeup::main as fn()), ("overhead", overhead::main), ("spread", spread::main)] {
        if wanted(name) {
            println!("\n== {name}");
            bench();
        }
    }
}
