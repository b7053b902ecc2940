//! `weft man`: manual pages, for packagers.

use crate::failure::{Failure, Outcome};
use crate::{output, show};
use clap::{Args, Command};
use std::path::{Path, PathBuf};
use volume::Shown;

/// Write the manual pages into a directory
#[derive(Args)]
#[command(after_help = "Examples:
  weft man /usr/local/share/man/man1
  man weft-volume-create")]
pub struct Arguments {
    /// The directory
    directory: PathBuf,
    /// Replace pages that are there
    #[arg(long)]
    force: bool,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let mut commands = crate::commands();
    commands.build();
    let mut pages = Vec::new();
    walk(&commands, "weft", &mut pages)?;
    for (name, page) in &pages {
        output::write(&arguments.directory.join(name), page, arguments.force)?;
    }
    if as_json {
        return show::json(&serde_json::json!({ "directory": show::path(&arguments.directory), "pages": pages.len() }));
    }
    tell(&arguments.directory, pages.len())
}

fn tell(directory: &Path, pages: usize) -> Outcome {
    show::text(format_args!("{} in {}", show::count(pages, "manual page"), Shown(directory)))
}

/// The pages of a command and of all below it, and the names of their files.
fn walk(command: &Command, name: &str, pages: &mut Vec<(String, String)>) -> Outcome {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut page);
    rendered.map_err(|why| Failure::Other(why.to_string()))?;
    let page = String::from_utf8(page).map_err(|why| Failure::Other(why.to_string()))?;
    pages.push((format!("{name}.1"), page));
    for inside in command.get_subcommands().filter(|inside| inside.get_name() != "help" && !inside.is_hide_set()) {
        walk(inside, &format!("{name}-{}", inside.get_name()), pages)?;
    }
    Ok(())
}
