//! The result as tables, beside what the study published and why that differs.

use super::result::{Job, Measurement, Took};
use super::study::{MIXED, PRICE, REDUCTIONS, SHAPES, SHARES, YEARS_BYTES, YEARS_REDUCTION};
use crate::paper::table::Table;
use archive::report::charts::escape;
use archive::report::page::framed;
use archive::report::words::{energy, percent, plain, signed_percent, time};
use plan::energy::{Basis, JOULES_PER_KWH};

/// Tables for a terminal.
pub fn text(result: &Measurement) -> String {
    let mut out = head(result).join("\n") + "\n";
    tables(result).iter().for_each(|table| out += &table.text());
    out
}

/// The same as a page.
pub fn html(result: &Measurement) -> String {
    let title = "Weft: the energy study";
    let lines: String = head(result).iter().map(|line| format!("<p class=\"how\">{}</p>", escape(line))).collect();
    let mut body = format!("<header><h1>{title}</h1>{lines}</header>\n");
    tables(result).iter().for_each(|table| body += &table.section());
    body += "<p class=\"legend\"><i class=\"second\"></i>reading, writing, waiting<i class=\"own\"></i>coding</p>";
    framed(title, &body)
}

fn head(result: &Measurement) -> Vec<String> {
    let mut lines = vec![
        format!("weft {}, {}, {}, {} cores", result.weft, result.date, result.processor, result.cores),
        format!(
            "{} of user data a job (the study: 40 GB), rounds: {}, SIMD methods by the kernel {}, the others by plain",
            size(result.bytes),
            result.rounds,
            result.simd
        ),
        format!("Energy is {}.", result.energy),
    ];
    lines.extend(result.refused.iter().map(|why| format!("No account: {why}")));
    if result.quick {
        lines.push("Tiny sizes: the figures show that everything works, and nothing else.".into());
    }
    lines
}

fn tables(result: &Measurement) -> Vec<Table> {
    let mut all = vec![copies(result)];
    all.extend(SHAPES.map(|shape| methods(result, shape)));
    all.extend([reductions(result), shares(result)]);
    if result.pairs.len() > 1 {
        all.push(pairs(result));
    }
    all.push(three_years(result));
    all
}

/// Bytes in units of a thousand, as the study and makers of disks count.
fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let unit = (0..units.len()).rev().find(|&unit| bytes >= 1000u64.pow(unit as u32)).unwrap_or(0);
    format!("{} {}", plain(bytes as f64 / 1000f64.powi(unit as i32)), units[unit])
}

fn megabytes(bytes: u64, seconds: f64) -> String {
    format!("{} MB/s", plain(bytes as f64 / 1e6 / seconds))
}

fn most(tooks: impl Iterator<Item = Took>) -> f64 {
    tooks.map(|took| took.seconds).fold(f64::MIN_POSITIVE, f64::max)
}

fn energy_head(result: &Measurement) -> &'static str {
    if result.basis == Basis::Measured { "energy" } else { "energy, modelled" }
}

fn copies(result: &Measurement) -> Table {
    let most = most(result.copies.iter().map(|copied| copied.took));
    let rows = result.copies.iter().map(|copied| {
        let bytes = copied.objects * copied.object_bytes;
        let published = match (copied.objects, copied.object_bytes / result.bytes) {
            (6, _) => "485 s for 6 x 40 GB, flash",
            (_, 6) => "625.46 s for 240 GB, flash",
            _ => "disk 48 to 72 MB/s, flash 393 to 504",
        };
        let cells = vec![
            result.pairs[copied.pair].name(),
            format!("{} x {}", copied.objects, size(copied.object_bytes)),
            time(copied.took.seconds),
            megabytes(bytes, copied.took.seconds),
            energy(copied.took.joules),
            published.into(),
        ];
        (cells, vec![("second", copied.took.seconds / most)])
    });
    Table {
        title: "Read, then write, without coding (figure 2)".into(),
        how: "As dd does, 1 MiB at a time; the source has left the page cache, each object is synced. The study's six \
              objects take less time than one of their size; here they are synced six times, so that they may take \
              more."
            .into(),
        head: vec!["devices", "objects", "time", "bandwidth", energy_head(result), "in the study"],
        rows: rows.collect(),
    }
}

fn methods(result: &Measurement, (k, m): (usize, usize)) -> Table {
    let jobs: Vec<&Job> =
        result.jobs.iter().filter(|job| (job.k, job.m) == (k, m) && result.pairs[job.pair].is_whole()).collect();
    let most = most(jobs.iter().map(|job| job.encode));
    let rows = jobs.iter().map(|job| {
        let took = &job.encode;
        let decode = |of: fn(&Took) -> String| job.decode.as_ref().map_or_else(|| "-".into(), of);
        let cells = vec![
            if job.method == job.what { job.method.into() } else { format!("{} {}", job.method, job.what) },
            result.pairs[job.pair].name(),
            job.kernel.into(),
            time(took.seconds),
            megabytes(result.bytes, took.seconds),
            time(took.user_seconds),
            energy(took.joules),
            decode(|took| time(took.seconds)),
            decode(|took| energy(took.joules)),
        ];
        (cells, vec![("second", took.io_seconds() / most), ("own", took.user_seconds.min(took.seconds) / most)])
    });
    Table {
        title: format!("{k}+{m}: seven methods, and this engine's code (figures 3 to 5)"),
        how: format!(
            "weft file encode of a file on the source device into {} chunk files on the destination, synced, by one \
             thread; T_ec is processor time in the program, checksums included. Decoding: {m} data chunks are lost. \
             The study's charts have no numbers in its text; its processor is of 2013, and its \
             disk seeks between 240 files.",
            k + m
        ),
        head: vec![
            "method",
            "devices",
            "kernel",
            "encode",
            "bandwidth",
            "T_ec",
            energy_head(result),
            "decode",
            "its energy",
        ],
        rows: rows.collect(),
    }
}

fn less(of: f64, than: f64) -> f64 {
    if than > 0.0 { of / than - 1.0 } else { 0.0 }
}

fn reductions(result: &Measurement) -> Table {
    let mut rows = vec![];
    let whole = (0..result.pairs.len()).filter(|&pair| result.pairs[pair].is_whole());
    for pair in whole {
        for (at, (k, m)) in SHAPES.into_iter().enumerate() {
            for known in &REDUCTIONS {
                let of = |name| result.job(pair, name, (k, m)).map(|job| job.encode);
                let (Some(plain), Some(simd)) = (of(known.plain), of(known.simd)) else { continue };
                let said = |figures: [Option<([f64; 3], &str)>; 2]| {
                    let each = figures.into_iter().flatten();
                    let words: Vec<String> = each.map(|(of, device)| format!("-{:.2} % ({device})", of[at])).collect();
                    if words.is_empty() { "a picture".to_owned() } else { words.join(", ") }
                };
                let published_time = match known.time_on_flash {
                    None if known.plain == "EC1-A" => "-85.33 to -90.25 %".into(),
                    on_flash => said([None, on_flash.map(|of| (of, "flash"))]),
                };
                let published_energy =
                    said([known.energy_on_disk.map(|of| (of, "disk")), known.energy_on_flash.map(|of| (of, "flash"))]);
                let energy = less(simd.joules, plain.joules);
                let cells = vec![
                    result.pairs[pair].name(),
                    format!("{k}+{m}"),
                    format!("{} to {}", known.plain, known.simd),
                    signed_percent(less(simd.seconds, plain.seconds)),
                    published_time,
                    signed_percent(energy),
                    published_energy,
                ];
                rows.push((cells, vec![("own", energy.min(0.0).abs())]));
            }
        }
    }
    Table {
        title: "What SIMD saves (figures 4, 5, 6A and 6B)".into(),
        how: "Encoding: the job with the SIMD kernel beside the same job with the plain one. The more of a job is \
              input and output, the less SIMD can save. In the study some plain Cauchy methods beat those with SIMD \
              on the disk."
            .into(),
        head: vec!["devices", "shape", "methods", "time", "in the study", "energy", "in the study"],
        rows,
    }
}

fn shares(result: &Measurement) -> Table {
    let whole = result.jobs.iter().filter(|job| result.pairs[job.pair].is_whole());
    let rows = whole.map(|job| {
        let at = SHAPES.iter().position(|&shape| shape == (job.k, job.m)).unwrap_or(0);
        let published = SHARES.iter().find(|known| known.0 == job.method).map(|known| known.1[at]);
        let shares = job.encode.split.map(|split| split.shares());
        let share = |at: usize| shares.map_or_else(|| "-".into(), |shares| percent(shares[at]));
        let cells = vec![
            result.pairs[job.pair].name(),
            format!("{}+{}", job.k, job.m),
            format!("{} {}", job.method, job.kernel),
            share(1),
            share(2),
            share(0),
            published.map_or_else(|| "-".into(), |[io, coding, idle]| format!("{io} / {coding} / {idle} %")),
        ];
        let bars = shares.map_or_else(Vec::new, |[_, io, coding]| vec![("second", io), ("own", coding)]);
        (cells, bars)
    });
    let how = if result.basis == Basis::Measured {
        "What a job's energy was spent on, by the powers of the profile; without --profile of measured powers it \
         cannot be told. The study's shares are of its disk."
    } else {
        "The model: idle power by the time, the rest by processor time in the program (coding, checksums) and in the \
         system (I/O). It knows of no power of devices, so that I/O is less than it would be at a plug, and idle is \
         what the constants make it. The study's shares are of its disk."
    };
    Table {
        title: "Shares of I/O, coding and idling (table 4)".into(),
        how: how.into(),
        head: vec!["devices", "shape", "method", "I/O", "coding", "idle", "in the study"],
        rows: rows.collect(),
    }
}

fn pairs(result: &Measurement) -> Table {
    let mut rows = vec![];
    for (k, m) in SHAPES {
        let Some(base) = result.job(0, "EC2-A", (k, m)).map(|job| job.encode) else { continue };
        for (number, pair) in result.pairs.iter().enumerate() {
            let Some(took) = result.job(number, "EC2-A", (k, m)).map(|job| job.encode) else { continue };
            let published = MIXED.iter().find(|known| known.0 == pair.numbers).map(|known| known.1);
            let cells = vec![
                pair.name(),
                format!("{k}+{m}"),
                time(took.seconds),
                energy(took.joules),
                if number == 0 { "-".into() } else { signed_percent(less(took.joules, base.joules)) },
                published.map_or_else(|| "-".into(), |it| format!("{it:+.2} %")),
            ];
            rows.push((cells, vec![("own", took.joules / base.joules / 2.0)]));
        }
    }
    Table {
        title: "Mixed devices, EC2-A (figure 7)".into(),
        how: "Energy beside the first pair. The study's figures are of a disk (given first here) and flash (second), \
              and of one workload that it does not name; where the devices are alike, there is nothing to gain."
            .into(),
        head: vec!["devices", "shape", "time", energy_head(result), "beside the first", "in the study"],
        rows,
    }
}

fn three_years(result: &Measurement) -> Table {
    let mut rows = vec![];
    let whole = (0..result.pairs.len()).filter(|&pair| result.pairs[pair].is_whole());
    let money = |joules: f64| joules / JOULES_PER_KWH * PRICE;
    let site = |took: &Took, bytes: u64| took.joules / bytes as f64 * YEARS_BYTES;
    for (device, pair) in whole.enumerate() {
        let name = result.pairs[pair].name();
        let copied =
            result.copies.iter().find(|it| it.pair == pair && it.objects == 1 && it.object_bytes == result.bytes);
        // Read once and written three times; a read is half of a read-then-write.
        let copies = copied.map(|copied| 2.0 * site(&copied.took, copied.object_bytes));
        for (k, m) in SHAPES {
            let overhead = m as f64 / k as f64;
            let plain_one = result.job(pair, "EC1-A", (k, m)).map(|job| site(&job.encode, result.bytes));
            for (method, kind) in [("EC1-A", "plain"), ("EC2-A", "SIMD"), ("rs", "SIMD")] {
                let Some(joules) = result.job(pair, method, (k, m)).map(|job| site(&job.encode, result.bytes)) else {
                    continue;
                };
                let published = YEARS_REDUCTION.get(device).filter(|_| method == "EC2-A");
                let against =
                    |other: Option<f64>| other.map_or_else(|| "-".into(), |it| signed_percent(less(joules, it)));
                let cells = vec![
                    format!("{name}, {k}+{m}"),
                    format!("{method} {kind}"),
                    percent(overhead),
                    years_of(joules / watts(result, pair, method, (k, m))),
                    format!("{} kWh", plain(joules / JOULES_PER_KWH)),
                    plain(money(joules)),
                    plain(money(joules) * (1.0 + overhead)),
                    against(plain_one.filter(|_| kind != "plain")),
                    published.map_or_else(|| "-".into(), |(a, b)| format!("-{a} to -{b} %")),
                    against(copies),
                ];
                rows.push((cells, bar(joules, plain_one, copies)));
            }
        }
        if let (Some(joules), Some(copied)) = (copies, copied) {
            let seconds = 2.0 * copied.took.seconds / copied.object_bytes as f64 * YEARS_BYTES;
            let cells = vec![
                format!("{name}, 3 copies"),
                "no coding".into(),
                percent(2.0),
                years_of(seconds),
                format!("{} kWh", plain(joules / JOULES_PER_KWH)),
                plain(money(joules)),
                plain(money(joules) * 1.5),
                "-".into(),
                "-".into(),
                "-".into(),
            ];
            rows.push((cells, bar(joules, None, copies)));
        }
    }
    Table {
        title: "Three years, 120 PB: coding beside three copies (figures 8 to 11)".into(),
        how: format!(
            "The jobs above at {PRICE} dollars a kWh, for as many bytes. Ours: what was written is paid once; copies \
             are read once and written three times. As the study counts: the overhead is charged again, and each copy \
             reads again. The study: SIMD costs less than three copies, plain coding does not. What its text says of \
             figure 9, flash, is what it says of 6A, the disk, and its figure 8 agrees with neither. Three petabytes \
             a month are 108 PB."
        ),
        head: vec![
            "devices, stored as",
            "method",
            "overhead",
            "machine time",
            "energy",
            "dollars",
            "as the study counts",
            "beside plain",
            "in the study",
            "beside 3 copies",
        ],
        rows,
    }
}

/// Seconds in years.
fn years_of(seconds: f64) -> String {
    format!("{} years", plain(seconds / (365.25 * 86_400.0)))
}

/// The mean power of a job.
fn watts(result: &Measurement, pair: usize, method: &str, shape: (usize, usize)) -> f64 {
    result.job(pair, method, shape).map_or(1.0, |job| job.encode.joules / job.encode.seconds)
}

/// A bar that is full at the dearest of what a row is compared with.
fn bar(joules: f64, plain: Option<f64>, copies: Option<f64>) -> Vec<(&'static str, f64)> {
    let most = [Some(joules), plain, copies].into_iter().flatten().fold(f64::MIN_POSITIVE, f64::max);
    vec![("own", joules / most)]
}
