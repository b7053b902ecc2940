//! `model [--voters N] [--losses M] [--openings N] [--writes N] [--wipes N] [--drops N] [--leases]
//! [--change add|remove|replace] [--broken RULE] [--limit STATES]`: checks all states, and prints
//! the way to one that is wrong.

use model::{Bounds, Broken, Change, Protocol, check};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (protocol, limit) = match read(&arguments) {
        Ok(read) => read,
        Err(why) => {
            eprintln!("model: {why}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let checked = check(&protocol, limit);
    if let Some((why, steps)) = &checked.wrong {
        steps.iter().enumerate().for_each(|(number, step)| println!("{:3}  {step}", number + 1));
        println!("wrong: {why}");
    }
    let end = if checked.complete { "" } else { "; not all" };
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} states, {} steps deep, {seconds:.1} s{end}", checked.states, checked.depth);
    if checked.complete && checked.wrong.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(arguments: &[String]) -> Result<(Protocol, usize), String> {
    let mut bounds =
        Bounds { voters: 3, losses: 1, openings: 2, writes: 1, wipes: 0, drops: 0, leases: false, change: None };
    let (mut broken, mut limit) = (None, usize::MAX);
    let mut left = arguments.iter().map(String::as_str);
    while let Some(name) = left.next() {
        if name == "--leases" {
            bounds.leases = true;
            continue;
        }
        let value = left.next().ok_or(format!("{name} needs a value"))?;
        let number = || value.parse::<u8>().map_err(|_| format!("{value:?} is not a small number"));
        match name {
            "--voters" => bounds.voters = number()?,
            "--losses" => bounds.losses = number()?,
            "--openings" | "--servers" => bounds.openings = number()?,
            "--writes" => bounds.writes = number()?,
            "--wipes" => bounds.wipes = number()?,
            "--drops" => bounds.drops = number()?,
            "--limit" => limit = value.parse().map_err(|_| format!("{value:?} is not a number"))?,
            "--change" => {
                let change = Change::ALL.iter().find(|(name, _)| *name == value);
                bounds.change = Some(change.ok_or(format!("there is no change {value}"))?.1);
            }
            "--broken" => {
                let rule = Broken::ALL.iter().find(|(name, _)| *name == value);
                broken = Some(rule.ok_or(format!("there is no rule {value}"))?.1);
            }
            _ => return Err(format!("what is {name}?")),
        }
    }
    bounds.sound()?;
    Ok((Protocol { bounds, broken }, limit))
}
