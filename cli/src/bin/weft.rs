//! `weft`: the command line. All of it is in the library, which `weft-mpi` uses too.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    cli::main()
}
