//! The comparison of placement policies in paper 003 (ECFS), figures 8 to 11, as a model:
//! `cargo run --release -p sim --example study [SERVERS..] [evenness=32] [spread=0.3] [seeds=4]`.

use sim::study::{Options, study, text};

fn main() -> Result<(), String> {
    let (mut options, mut servers) = (Options::default(), Vec::new());
    for argument in std::env::args().skip(1) {
        let odd = || format!("{argument} is not a number of servers, evenness=.., spread=.. or seeds=..");
        match argument.split_once('=') {
            Some(("evenness", value)) => options.setting.evenness = value.parse().map_err(|_| odd())?,
            Some(("spread", value)) => options.setting.speed_spread = value.parse().map_err(|_| odd())?,
            Some(("seeds", value)) => options.seeds = value.parse().map_err(|_| odd())?,
            _ => servers.push(argument.parse().map_err(|_| odd())?),
        }
    }
    if !servers.is_empty() {
        options.servers = servers;
    }
    println!("{}", text(&study(&options)?));
    Ok(())
}
