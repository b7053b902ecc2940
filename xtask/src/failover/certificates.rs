//! What the processes of a run show to each other, if they are to.

use super::network::{address, home_address};
use crate::peers::run;
use crate::torture::world::words;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who gives commands.
pub const OPERATOR: &str = "operator";
const CLIENT: &str = "client";

/// A directory with all of them, and one with those of clients, which have no key of the cluster.
pub struct Certificates {
    all: PathBuf,
    clients: PathBuf,
}

impl Certificates {
    /// For so many stores and metadata servers.
    pub fn new(weft: &Path, folder: &Path, (stores, servers): (usize, usize), separate: bool) -> Result<Self, String> {
        let (all, clients) = (folder.join("ids"), folder.join("ids-of-clients"));
        let stores = (0..stores).map(|store| format!("store{store}={}", home_address(separate)));
        let servers = (0..servers).map(|server| format!("meta{server}={}", address(separate, server)));
        let mut init = Command::new(weft);
        init.args(["cluster", "init"]).arg(&all).args(["--operator", OPERATOR, "--member", CLIENT]);
        stores.chain(servers).for_each(|member| _ = init.args(["--member", &member]));
        run(&mut init)?;
        fs::create_dir(&clients).map_err(|why| format!("{}: {why}", clients.display()))?;
        for file in ["authority.pem", "client.pem", "client.key"] {
            fs::copy(all.join(file), clients.join(file)).map_err(|why| format!("{file}: {why}"))?;
        }
        Ok(Self { all, clients })
    }

    /// The arguments of a process or command before all others, by its name.
    pub fn of(&self, name: &str) -> Vec<OsString> {
        let identity = if name.starts_with("mount") { self.clients.join(CLIENT) } else { self.all.join(name) };
        [words(&["--identity"]), vec![identity.into()]].concat()
    }
}
