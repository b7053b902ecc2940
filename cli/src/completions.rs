//! `weft completions`: scripts with which shells complete commands and options.

use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use clap_complete::Shell;

/// Print a script with which a shell completes commands and options
#[derive(Args)]
#[command(after_help = "Examples:
  # For this user, from the next shell on.
  weft completions bash > \\
      ~/.local/share/bash-completion/completions/weft
  weft completions zsh > ~/.zfunc/_weft
  weft completions fish > \\
      ~/.config/fish/completions/weft.fish")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::commands(), "weft", &mut script);
    let script = String::from_utf8(script).map_err(|why| Failure::Other(why.to_string()))?;
    show::text(script.trim_end())
}
