//! `weft file inspect`: what one fragment file says about itself.

use super::encode::name_of;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use volume::Shown;
use volume::format::{Header, Timestamp};
use volume::object::{Inspection, inspect};

/// Show what a fragment file says about itself, and check it
#[derive(Args)]
#[command(after_help = "Examples:
  weft file inspect /disk1/film.mkv.000.weft")]
pub struct Arguments {
    /// The fragment file
    fragment: PathBuf,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let control = interrupt::control(true);
    let found = progress::shown("reading", &control, || inspect(&arguments.fragment, &control))?;
    let header = match &found.header {
        Ok(header) => header,
        Err(why) => {
            return Err(Failure::Other(format!("{} has no sound header: {why}", Shown(&arguments.fragment))));
        }
    };
    if as_json {
        show::json(&document(&found, header))?;
    } else {
        print(&found, header)?;
        found.problems.iter().for_each(show::warning);
    }
    if found.problems.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

fn print(found: &Inspection, header: &Header) -> Outcome {
    let layout = &header.layout;
    let role = super::verify::role(header, header.position);
    show::text(format_args!("name      {}", Shown(name_of(&header.name))))?;
    show::text(format_args!(
        "object    {}, {} ({} bytes)",
        header.object,
        show::bytes(layout.object_bytes()),
        layout.object_bytes()
    ))?;
    show::text(format_args!("code      {}", header.code))?;
    show::text(format_args!("position  {} of {} ({role})", header.position, layout.blocks()))?;
    show::text(format_args!(
        "stripes   {} of {} data bytes; blocks of {} bytes, a checksum for each {}",
        layout.stripes(),
        layout.stripe_bytes(),
        layout.full_block_bytes(),
        layout.granule_bytes()
    ))?;
    show::text(format_args!(
        "file      {} bytes; {} blocks of {} match their checksums",
        found.file_bytes,
        found.sound_blocks,
        layout.stripes()
    ))?;
    show::text(format_args!("mode      {:04o}", header.mode))?;
    show::text(format_args!("modified  {}", date(header.modified)))?;
    show::text(format_args!("encoded   {}", date(header.created)))
}

fn document(found: &Inspection, header: &Header) -> serde_json::Value {
    let layout = &header.layout;
    let time = |time: Timestamp| json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds });
    json!({
        "name": show::name(&header.name),
        "object": header.object.to_string(),
        "chunk_set": header.chunk_set,
        "code": header.code,
        "position": header.position,
        "k": layout.k(),
        "m": layout.m(),
        "bytes": layout.object_bytes(),
        "stripes": layout.stripes(),
        "unit": layout.unit(),
        "block_bytes": layout.full_block_bytes(),
        "granule_bytes": layout.granule_bytes(),
        "file_bytes": found.file_bytes,
        "sound_blocks": found.sound_blocks,
        "mode": header.mode,
        "modified": time(header.modified),
        "accessed": time(header.accessed),
        "created": time(header.created),
        "problems": found.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// A moment in UTC, by the rules of the Gregorian calendar.
fn date(time: Timestamp) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    // Eras of 400 years from 1 March of year 0: leap days come last in each year, century and era.
    let day = days.saturating_add(719_468);
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = (if month < 10 { month + 3 } else { month - 9 }, year + era * 400 + i64::from(month >= 10));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:09} UTC", time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = |seconds| date(Timestamp { seconds, nanoseconds: 5 })[..19].to_owned();
        assert_eq!(shown(0), "1970-01-01 00:00:00");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(shown(1_709_251_199), "2024-02-29 23:59:59");
        assert_eq!(shown(-1), "1969-12-31 23:59:59");
        date(Timestamp { seconds: i64::MAX, nanoseconds: 0 });
        date(Timestamp { seconds: i64::MIN, nanoseconds: 0 });
    }
}
