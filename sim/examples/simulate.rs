//! A simulation without the program: `cargo run --release -p sim --example simulate FILE.toml
//! [THREADS]`.

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("give a file")?;
    let threads = arguments.next().map_or(Ok(2), |threads| threads.parse()).map_err(|_| "threads are a number")?;
    let text = std::fs::read_to_string(&file).map_err(|why| format!("{file}: {why}"))?;
    let report = sim::run(&sim::Config::parse(&text)?, threads, &sim::Watch::default())?;
    println!("{}", sim::report::text(&report));
    Ok(())
}
