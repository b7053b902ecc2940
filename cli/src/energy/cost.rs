//! `weft energy cost`: what storing an amount of data costs on machines like a calibrated one,
//! coded and as copies.

use crate::failure::{Failure, Outcome};
use crate::show;
use archive::report::words::{count, plain, time};
use clap::Args;
use plan::energy::{
    Coding, Cost, JOULES_PER_KWH, Overlap, Profile, Storing, project, published_coded, published_copies, site_bytes,
};
use plan::sizes;
use plan::words::rounded;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show what storing data costs in energy, coded and as copies
#[derive(Args)]
#[command(after_help = "Examples:
  # One data set, with the code of weft-energy.json.
  weft energy cost --size 40GB
  # A site that makes 3 PB in a month.
  weft energy cost --site-tb-per-month 3000 --years 3
  weft energy cost --size 120PB --code rs:160+80 \\
      --price 0.25 --currency EUR --cores 16

The profile comes from `weft energy calibrate`. Data is read once, and what is stored is written once. Networks, \
cooling and the years that disks run are not in it. docs/energy.md has the formulas.")]
pub struct Arguments {
    /// The profile, from `weft energy calibrate`
    #[arg(long, value_name = "FILE", default_value = "weft-energy.json")]
    profile: PathBuf,
    /// How much user data
    #[arg(long, value_name = "SIZE", default_value = "1TB", value_parser = size, conflicts_with = "site_tb_per_month")]
    size: f64,
    /// How much user data a site makes in a month, in TB (10^12 bytes)
    #[arg(long, value_name = "TB", value_parser = amount, requires = "years")]
    site_tb_per_month: Option<f64>,
    /// For how many years
    #[arg(
        long,
        value_name = "N",
        requires = "site_tb_per_month",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    years: Option<u32>,
    /// The code, one of the profile [default: its first]
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// The copies to compare with
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: u32,
    /// Cores that code while the machine reads and writes [default: one process does one thing
    /// after the other]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,
    /// The price of a kWh; the default is the study's
    #[arg(long, value_name = "PRICE", default_value_t = 0.107, value_parser = amount)]
    price: f64,
    /// The price's currency
    #[arg(long, value_name = "WORD", default_value = "USD")]
    currency: String,
}

fn amount(given: &str) -> Result<f64, String> {
    super::number(given, 0.0, 1e12)
}

/// Bytes with a unit, up to exabytes.
fn size(given: &str) -> Result<f64, String> {
    sizes::bytes(given).map(|bytes| bytes as f64)
}

/// Coded and copied, and each as the study counts.
struct Answer {
    coded: Cost,
    copied: Cost,
    published_coded: f64,
    published_copies: f64,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let profile = super::read_profile(&arguments.profile)?;
    let coding = coding(&profile, arguments.code.as_deref())?;
    let bytes = match (arguments.site_tb_per_month, arguments.years) {
        (Some(terabytes), Some(years)) => site_bytes(terabytes * 1e12, years * 12),
        _ => arguments.size,
    };
    if bytes <= 0.0 {
        return Err(Failure::Usage("there is no data to store: give more than 0".into()));
    }
    let answer = answer(&profile, coding, bytes, arguments);
    if as_json {
        let document = json!({
            "machine": profile.machine,
            "powers": { "basis": profile.basis, "source": profile.source, "scope": profile.scope },
            "user_bytes": bytes,
            "price_per_kwh": arguments.price,
            "currency": arguments.currency,
            "code": coding.code,
            "copies": arguments.copies,
            "cores": arguments.cores,
            "coded": of(&answer.coded, answer.published_coded),
            "copied": of(&answer.copied, answer.published_copies),
        });
        return show::json(&document);
    }
    text(&profile, coding, &answer, arguments)
}

fn coding<'a>(profile: &'a Profile, wanted: Option<&str>) -> Result<&'a Coding, Failure> {
    let found = wanted.map_or_else(|| profile.coding.first(), |code| profile.coding(code));
    found.ok_or_else(|| {
        let known: Vec<&str> = profile.coding.iter().map(|coding| coding.code.as_str()).collect();
        let wanted = wanted.map_or_else(|| "a code".into(), |code| format!("{code:?}"));
        Failure::Usage(format!(
            "the profile does not know {wanted}, it knows {}; measure it with weft energy calibrate --code",
            if known.is_empty() { "none".into() } else { known.join(", ") }
        ))
    })
}

fn answer(profile: &Profile, coding: &Coding, bytes: f64, arguments: &Arguments) -> Answer {
    let overlap = arguments.cores.map_or(Overlap::None, Overlap::Cores);
    let (coded, copies) = (Storing::Coded(coding), Storing::Copies(arguments.copies));
    let price = arguments.price;
    // The study's test: 40 GB, and its meter counted 10 dollars a kWh.
    let (test_bytes, test_price) = (40e9, 10.0);
    let test = project(profile, coded, overlap, test_bytes, test_price);
    let read_write = project(profile, Storing::Copies(1), overlap, test_bytes, price);
    Answer {
        coded: project(profile, coded, overlap, bytes, price),
        copied: project(profile, copies, overlap, bytes, price),
        published_coded: published_coded(test.money, test_price, test_bytes, bytes, coded.overhead(), price),
        published_copies: published_copies(read_write.money / test_bytes, arguments.copies, bytes),
    }
}

fn of(cost: &Cost, published: f64) -> Value {
    json!({ "cost": cost.rounded(DIGITS), "money_as_the_study_counts": rounded(published, DIGITS) })
}

/// The significant digits of figures in JSON. Rates and powers are not known better.
const DIGITS: usize = 6;

fn text(profile: &Profile, coding: &Coding, answer: &Answer, arguments: &Arguments) -> Outcome {
    let (coded, copied) = (&answer.coded, &answer.copied);
    show::text(format_args!("{} of user data, on machines like: {}", decimal(coded.user_bytes), profile.machine))?;
    show::text(format_args!(
        "powers of the {}, {} ({}); rates measured",
        profile.scope.word(),
        profile.basis.word(),
        profile.source
    ))?;
    let way = arguments.cores.map_or_else(
        || "one process, one thing after the other".into(),
        |cores| format!("{cores} cores code while it reads and writes"),
    );
    show::text(format_args!("{} {} a kWh; {way}\n", arguments.price, arguments.currency))?;
    let line = |name: &str, coded: &str, copied: &str| show::text(format_args!("{name:<22} {coded:>16} {copied:>16}"));
    let kwh = |joules: f64| format!("{} kWh", significant(joules / JOULES_PER_KWH));
    let money = |money: f64| format!("{} {}", significant(money), arguments.currency);
    line("", &coding.code, &format!("{} copies", arguments.copies))?;
    line("stored", &decimal(coded.stored_bytes), &decimal(copied.stored_bytes))?;
    line("machine time", &time(coded.times.total_seconds), &time(copied.times.total_seconds))?;
    line("  reading and writing", &time(coded.times.io_seconds), &time(copied.times.io_seconds))?;
    line("  coding", &time(coded.times.coding_seconds), &time(copied.times.coding_seconds))?;
    line("energy", &kwh(coded.split.joules()), &kwh(copied.split.joules()))?;
    line("  idling", &kwh(coded.split.idle_joules), &kwh(copied.split.idle_joules))?;
    line("  reading and writing", &kwh(coded.split.io_joules), &kwh(copied.split.io_joules))?;
    line("  coding", &kwh(coded.split.coding_joules), &kwh(copied.split.coding_joules))?;
    line("cost", &money(coded.money), &money(copied.money))?;
    line("  as the study counts", &money(answer.published_coded), &money(answer.published_copies))
}

/// A number that may be small: three significant digits, or all digits before the point.
fn significant(value: f64) -> String {
    if value.abs() < 1.0 { rounded(value, 3).to_string() } else { plain(value) }
}

/// Bytes in units of a thousand, as the study and makers of disks count.
fn decimal(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let unit = (0..units.len()).rev().find(|&unit| bytes >= 1000f64.powi(unit as i32)).unwrap_or(0);
    let value = bytes / 1000f64.powi(unit as i32);
    if value.fract() == 0.0 {
        format!("{} {}", count(value as u64), units[unit])
    } else {
        format!("{} {}", plain(value), units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_costs_keep_their_digits() {
        let shown = [0.0, 0.000_428_333, 0.034_999, 1.5, 56.78, 10_800.0].map(significant);
        assert_eq!(shown, ["0", "0.000428", "0.035", "1.50", "56.8", "10,800"]);
    }

    #[test]
    fn sizes_go_up_to_exabytes() {
        assert_eq!(size("120PB"), Ok(120e15));
        assert_eq!(size("1.5 EB"), Ok(1.5e18));
        assert_eq!(size("40GB"), Ok(40e9));
        assert!(size("40 furlongs").is_err() && size("-1PB").is_err());
        assert_eq!([40e9, 162e15, 1.5e12, 12.0].map(decimal), ["40 GB", "162 PB", "1.50 TB", "12 B"]);
    }
}
