//! The report for a terminal: at most 100 columns.

use super::Report;
use crate::fill::Filled;
use crate::growth::Grown;
use crate::hops::Hops;
use crate::writes::Writes;
use crate::years::Years;
use plan::words::{bytes, count};

/// A time in a unit that suits it.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s if s < 2.0 * 365.25 * 86_400.0 => format!("{:.1} days", s / 86_400.0),
        s if s < 1e6 * 365.25 * 86_400.0 => format!("{:.0} years", s / 365.25 / 86_400.0),
        s => format!("{:.1e} years", s / 365.25 / 86_400.0),
    }
}

/// A part, with as many digits as it has meaning.
pub fn part(value: f64) -> String {
    if value == 0.0 || value >= 1e-3 { format!("{:.2} %", 100.0 * value) } else { format!("{value:.1e}") }
}

/// Bytes a second.
pub fn rate(value: f64) -> String {
    format!("{:.0} MB/s", value / 1e6)
}

/// All of it.
pub fn text(report: &Report) -> String {
    let volume = &report.config.volume;
    let mut lines = vec![
        format!(
            "{} with {}, {} of {}+{}, {}, domain level {}",
            count(report.stores as usize, "store"),
            bytes(report.capacity),
            count(volume.sets as usize, "set"),
            volume.k,
            volume.m,
            volume.policy,
            volume.domain_level
        ),
        String::new(),
        "placed".into(),
    ];
    filled(&report.filled, &mut lines);
    if let Some(seen) = &report.torus {
        torus(seen, &mut lines);
    }
    report.growth.iter().for_each(|step| growth(step, &mut lines));
    if let Some(after) = &report.grown {
        lines.extend([String::new(), "after growth".into()]);
        filled(after, &mut lines);
    }
    if let Some(seen) = &report.writes {
        writes(seen, &mut lines);
    }
    if let Some(seen) = &report.years {
        years(seen, &mut lines);
    }
    lines.join("\n")
}

fn three(of: &[f64; 3], shown: impl Fn(f64) -> String) -> String {
    format!("{} to {}, mean {}", shown(of[0]), shown(of[2]), shown(of[1]))
}

fn filled(of: &Filled, lines: &mut Vec<String>) {
    lines.push(format!("  chunks                    {}", of.chunks));
    if of.unplaced > 0 {
        lines.push(format!("  WITHOUT A STORE           {}", of.unplaced));
    }
    lines.push(format!("  sets against the rule     {}", of.against_the_rule));
    lines.push(format!("  used part of a store      {}", three(&of.used, part)));
}

fn torus(seen: &Hops, lines: &mut Vec<String>) {
    lines.extend([
        String::new(),
        format!("torus {}, mean hops of a block ({} sets of each policy)", seen.torus, seen.sets),
        "                            writes   repairs".into(),
    ]);
    for of in &seen.policies {
        lines.push(format!("  {:<24} {:>7.2}   {:>7.2}", of.name(), of.writes, of.repairs));
    }
    lines.push(format!("  {:<24} {:>7.2}", "between any two stores", seen.any_two));
}

fn growth(step: &Grown, lines: &mut Vec<String>) {
    let over = if step.least_bytes == 0 { 0.0 } else { step.bytes as f64 / step.least_bytes as f64 - 1.0 };
    lines.extend([
        String::new(),
        step.what.clone(),
        format!("  moved                     {}, {}", count(step.chunks as usize, "chunk"), bytes(step.bytes)),
        format!("  the least possible        {} ({:+.1} %)", bytes(step.least_bytes), 100.0 * over),
        format!("  time at the limit         {}", duration(step.seconds_at_limit)),
        format!("  without a limit           {}", duration(step.seconds_of_busiest)),
        format!("  used before               {}", three(&step.before, part)),
        format!("  used after                {}", three(&step.after, part)),
    ]);
    if let Some([before, after]) = step.hops {
        lines.push(format!("  hops of a write           {before:.2} before, {after:.2} after"));
    }
    if step.stuck > 0 {
        lines.push(format!("  CHUNKS WITHOUT A PLACE    {}", step.stuck));
    }
}

fn writes(seen: &Writes, lines: &mut Vec<String>) {
    lines.extend([
        String::new(),
        "clients (modelled)".into(),
        format!("  written                   {}", rate(seen.written_per_second)),
        format!("  read                      {}", rate(seen.read_per_second)),
        format!("  written to a store        {}", three(&seen.got, |value| bytes(value as u64))),
        format!("  disks busy                {}", three(&seen.busy, part)),
    ]);
}

fn years(seen: &Years, lines: &mut Vec<String>) {
    let rebuild = &seen.rebuild_seconds;
    lines.extend([
        String::new(),
        format!("failures, {} (modelled)", count(seen.years as usize, "year")),
        format!("  stores lost               {}", seen.failures),
        format!("  chunks rebuilt            {}", seen.rebuilt_chunks),
    ]);
    if seen.latent_errors > 0 {
        lines.push(format!("  bad sectors met           {}", seen.latent_errors));
    }
    lines.push(format!(
        "  a store is rebuilt in     {} (99 %: {}, longest: {})",
        duration(rebuild.median),
        duration(rebuild.most_of_99),
        duration(rebuild.longest)
    ));
    for level in &seen.exposure {
        let whole =
            level.mean_seconds.map_or("never seen whole again".into(), |it| format!("whole after {}", duration(it)));
        let most = level.most.iter().max().unwrap_or(&0);
        let hours = level.set_hours_per_year;
        lines.push(format!(
            "  sets with {} lost{}         {hours:.1} set-hours a year, {most} at most, {whole}",
            level.lost,
            if level.lost < 10 { " " } else { "" },
        ));
    }
    let loss = &seen.loss_per_year;
    lines.extend([
        format!("  sets lost                 {}", seen.lost_sets),
        format!(
            "  loss in a year            {} (95 %: {} to {}), in {} of {} years",
            part(loss.part),
            part(loss.low),
            part(loss.high),
            loss.happened,
            loss.of
        ),
        format!("  by a Markov chain         {}", part(seen.markov.loss_per_year)),
    ]);
    if let Some(years) = seen.markov.years_to_loss_of_a_set {
        lines.push(format!("  a set lives               {} by that chain", duration(years * 365.25 * 86_400.0)));
    }
}
