//! The `gleaner` binary: all of it is in the library beside.

fn main() -> std::process::ExitCode {
    gleaner::main()
}
