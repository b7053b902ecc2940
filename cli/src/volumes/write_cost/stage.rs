//! The cluster of a run: stores, a metadata server and a mount, all on loopback, in one temporary
//! directory.

use super::Arguments;
use crate::failure::{Failure, Outcome};
use crate::volumes::processes::{Process, free_port, serve};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use volume::Shown;

/// The cluster. When it goes, it is unmounted, its servers end, and its directory is removed.
pub struct Stage {
    place: PathBuf,
    mounted: bool,
    servers: Vec<Process>,
}

impl Stage {
    /// Starts everything. The directory must not be there.
    pub fn set(place: &Path, code: &str, arguments: &Arguments) -> Result<Self, Failure> {
        let failed = |path: &Path, why: std::io::Error| Failure::Other(format!("{}: {why}", Shown(path)));
        std::fs::create_dir(place).map_err(|why| failed(place, why))?;
        let mut stage = Self { place: place.into(), mounted: false, servers: Vec::new() };
        let point = stage.mountpoint();
        std::fs::create_dir(&point).map_err(|why| failed(&point, why))?;
        let mut create: Vec<String> = ["volume", "create", "films", "--code", code].map(String::from).into();
        for number in 1..=arguments.stores {
            let (disk, listen) = (format!("disk{number}"), format!("127.0.0.1:{}", free_port()?));
            std::fs::create_dir(place.join(&disk)).map_err(|why| failed(&place.join(&disk), why))?;
            stage.servers.push(serve(place, &["serve", "store", &disk, "--listen", &listen])?);
            create.push(format!("store://{listen}/{disk}"));
        }
        stage.weft(&create.iter().map(String::as_str).collect::<Vec<_>>())?;
        let listen = format!("127.0.0.1:{}", free_port()?);
        stage.servers.push(serve(place, &["serve", "meta", "films", "--listen", &listen])?);
        let (volume, coding) = (format!("weft://{listen}/films"), arguments.coding.to_string());
        let mounted = stage.weft(&["mount", &volume, "mountpoint", "--coding", &coding]);
        mounted
            .map_err(|why| Failure::Other(format!("write-cost needs a mount, and this is not possible here: {why}")))?;
        stage.mounted = true;
        Ok(stage)
    }

    /// Where the volume is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.place.join("mountpoint")
    }

    /// What the mount counted since it began, in seconds: CT, MT, DT, MP, PC, DD, SP; and the
    /// stripes that were coded.
    pub fn counted(&self) -> Result<([f64; 7], u64), Failure> {
        let said = self.weft(&["status", "mountpoint", "--json"])?;
        let unclear = || Failure::Other("the status of the mount has no write cost".into());
        let status: Value = serde_json::from_str(&said).map_err(|_| unclear())?;
        let steps = status["write_cost"]["steps"].as_array().ok_or_else(unclear)?;
        let mut seconds = [0.0; 7];
        if steps.len() != seconds.len() {
            return Err(unclear());
        }
        for (second, step) in seconds.iter_mut().zip(steps) {
            *second = step["seconds"].as_f64().ok_or_else(unclear)?;
        }
        Ok((seconds, steps[4]["count"].as_u64().ok_or_else(unclear)?))
    }

    /// Unmounts and ends everything.
    pub fn clear(mut self) -> Outcome {
        self.weft(&["unmount", "mountpoint"])?;
        self.mounted = false;
        Ok(())
    }

    /// Runs a command of this program in the place; returns what it printed. A status that needs
    /// attention is no failure.
    fn weft(&self, arguments: &[&str]) -> Result<String, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("weft {}: {why}", arguments.join(" ")));
        let program = std::env::current_exe().map_err(|why| failed(&why))?;
        let done =
            Command::new(program).args(arguments).current_dir(&self.place).output().map_err(|why| failed(&why))?;
        if done.status.success() || arguments[0] == "status" && done.status.code() == Some(1) {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(if done.stderr.is_empty() { &done.stdout } else { &done.stderr });
        Err(failed(&said.lines().last().unwrap_or("it failed").trim_start_matches("weft: ")))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let unmounted = !self.mounted || self.weft(&["unmount", "--lazy", "mountpoint"]).is_ok();
        self.servers.clear();
        // What may still be mounted is left alone.
        if unmounted {
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }
}
