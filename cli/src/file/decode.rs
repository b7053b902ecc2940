//! `weft file decode`: decodes a file from the fragments that are left.

use super::encode::name_of;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;
use volume::Shown;
use volume::object::{DecodeOptions, Destination, decode, find};

/// Decode a file from the fragments that are left
#[derive(Args)]
#[command(
    override_usage = "weft file decode [OPTIONS] <NAME>\n            --from <DIR>... --out <FILE>",
    after_help = "Examples:
  weft file decode film.mkv --from /disk* --out film.mkv
  weft file decode src.tar --from /disk* --out - | tar x

Damaged fragments are named on standard error; the others give the file."
)]
pub struct Arguments {
    /// The name it was encoded by
    name: OsString,
    /// Where the fragments are
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// The file to write; - writes to standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the file if there is one
    #[arg(long)]
    force: bool,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let stream = arguments.out.as_os_str() == "-";
    if stream && as_json {
        return Err(Failure::Usage("--json and --out - would both use standard output".into()));
    }
    let control = interrupt::control(stream);
    let begun = Instant::now();
    let object = find(Some(&arguments.name), &arguments.from)?;
    let output;
    let destination = if stream {
        let standard = std::io::stdout().as_fd().try_clone_to_owned();
        output =
            File::from(standard.map_err(|error| Failure::Other(format!("cannot write to standard output: {error}")))?);
        Destination::Stream(&output)
    } else {
        Destination::File { path: &arguments.out, replace: arguments.force }
    };
    let options = DecodeOptions { destination, threads: arguments.threads };
    let (result, problems) = progress::shown("decoding", &control, || decode(object, &options, &control));
    show::warn_of(&problems);
    let (header, time) = (result?, begun.elapsed());
    let bytes = header.layout.object_bytes();
    if as_json {
        show::json(&json!({
            "object": header.object.to_string(),
            "name": show::name(&header.name),
            "code": header.code,
            "bytes": bytes,
            "out": show::path(&arguments.out),
            "problems": show::problems(&problems),
            "seconds": time.as_secs_f64(),
            "mebibytes_per_second": show::mebibytes_per_second(bytes, time),
        }))
    } else if stream {
        Ok(())
    } else {
        show::text(format_args!(
            "{}: {} from {} to {}, {}, {}",
            Shown(name_of(&header.name)),
            show::bytes(bytes),
            header.code,
            Shown(&arguments.out),
            show::time(time),
            show::rate(bytes, time)
        ))
    }
}
