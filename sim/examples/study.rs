//! The comparison of placement policies in paper 003 (ECFS), figures 8 to 11, as a model:
//! `cargo run --release -p sim --example study [SERVERS..]`.

use sim::study::{Options, study, text};

fn main() -> Result<(), String> {
    let servers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|argument| argument.parse()).collect();
    let servers = servers.map_err(|_| "the numbers of servers")?;
    let options = Options::default();
    let servers = if servers.is_empty() { options.servers.clone() } else { servers };
    println!("{}", text(&study(&Options { servers, ..options })?));
    Ok(())
}
