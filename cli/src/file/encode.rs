//! `weft file encode`: one file into k+m fragments.

use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show, unprotected};
use clap::Args;
use ec::Code;
use plan::sizes;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;
use volume::Shown;
use volume::object::{EncodeOptions, Encoded, Source, encode};
use volume::target::Directory;

/// Encode a file into fragments of which any few may be lost
#[derive(Args)]
#[command(after_help = "Examples:
  weft file encode film.mkv --to /disk1 /disk2 /disk3
  weft file encode film.mkv --code rs:10+4 --to /disk*
  tar c src | weft file encode - --name src.tar --to /disk*

Fragments go to the directories in turn. `weft codes` lists the codes. Fragments of the same name are replaced \
only with --force.")]
pub struct Arguments {
    /// The file; - reads standard input
    file: PathBuf,
    /// The code and its shape, data + parity
    #[arg(long, default_value = "rs:4+2")]
    code: String,
    /// Where the fragments go
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    to: Vec<PathBuf>,
    /// The name to decode it by [default: that of the file]
    #[arg(long)]
    name: Option<std::ffi::OsString>,
    /// Replace the fragments that have this name
    #[arg(long)]
    force: bool,
    /// Length of a block, a multiple of the code's unit
    #[arg(long, value_name = "SIZE", value_parser = sizes::length::<usize>)]
    block_bytes: Option<usize>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let code = unprotected::parse_if(&arguments.code, false)?;
    let stream = arguments.file.as_os_str() == "-";
    let own_name = if stream { None } else { arguments.file.file_name() };
    let name = arguments
        .name
        .as_deref()
        .or(own_name)
        .ok_or_else(|| Failure::Usage("there is no name to decode it by; give one with --name NAME".into()))?;
    let control = interrupt::control(false);
    warn_of_crowding(&*code, &arguments.to);
    let source = if stream {
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
        Source::stream(File::from(input), "standard input")?
    } else {
        Source::file(&arguments.file).map_err(|error| match error {
            volume::Error::Invalid(what) => Failure::Other(format!(
                "{what}; weft file encode - --name NAME encodes standard input, for example what tar c DIR writes"
            )),
            error => error.into(),
        })?
    };
    let options = EncodeOptions {
        code,
        name: name.as_bytes(),
        directories: &Directory::open_all(&arguments.to)?,
        force: arguments.force,
        block_bytes: arguments.block_bytes,
        threads: arguments.threads,
    };
    let begun = Instant::now();
    let encoded = progress::shown("encoding", &control, || encode(&source, &options, &control))?;
    report(arguments, &encoded, begun, as_json)
}

fn report(arguments: &Arguments, encoded: &Encoded, begun: Instant, as_json: bool) -> Outcome {
    let (header, layout, time) = (&encoded.header, &encoded.header.layout, begun.elapsed());
    if as_json {
        return show::json(&json!({
            "object": header.object.to_string(),
            "name": show::name(&header.name),
            "code": header.code,
            "bytes": layout.object_bytes(),
            "stripes": layout.stripes(),
            "block_bytes": layout.full_block_bytes(),
            "fragment_bytes": layout.file_bytes(),
            "fragments": encoded.fragments.iter().map(|path| show::path(path)).collect::<Vec<_>>(),
            "seconds": time.as_secs_f64(),
            "mebibytes_per_second": show::mebibytes_per_second(layout.object_bytes(), time),
        }));
    }
    show::text(format_args!(
        "{}: {} as {} in {} of {}, {}, {}",
        Shown(name_of(&header.name)),
        show::bytes(layout.object_bytes()),
        header.code,
        show::count(encoded.fragments.len(), "fragment"),
        show::bytes(layout.file_bytes()),
        show::time(time),
        show::rate(layout.object_bytes(), time),
    ))?;
    for (number, directory) in arguments.to.iter().enumerate() {
        let count = encoded.fragments.iter().skip(number).step_by(arguments.to.len()).count();
        if count > 0 {
            show::text(format_args!("  {} in {}", show::count(count, "fragment"), Shown(directory)))?;
        }
    }
    Ok(())
}

/// An object's name, to be shown.
pub fn name_of(name: &[u8]) -> &std::path::Path {
    std::ffi::OsStr::from_bytes(name).as_ref()
}

/// Says so when losing a single directory would lose more than the code survives.
fn warn_of_crowding(code: &dyn Code, directories: &[PathBuf]) {
    let mut fragments: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for position in 0..code.shape().blocks() {
        let directory = &directories[position % directories.len()];
        *fragments.entry(directory.canonicalize().unwrap_or_else(|_| directory.clone())).or_default() += 1;
    }
    if let Some((directory, count)) = fragments.into_iter().find(|&(_, count)| count > code.tolerates()) {
        show::warning(format_args!(
            "losing {} would lose {}, more than the {} that {} survives; give more directories",
            Shown(&directory),
            show::count(count, "fragment"),
            code.tolerates(),
            code.spec()
        ));
    }
}
