//! `weft demo`: the whole story on real files, in a temporary directory: encode, lose, damage,
//! decode, compare, repair, verify. Everything it prints was done and measured in this run.

pub(crate) mod timing;

use crate::failure::{Failure, Outcome};
use crate::volumes::demo::{Load, cluster, embedded, same};
use crate::{interrupt, progress, show};
use clap::Args;
use plan::Position;
use plan::sizes;
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timing::{speed, timed};
use volume::object::{DecodeOptions, Destination, EncodeOptions, Source, decode, encode, find, repair, verify};
use volume::target::Directory;
use volume::{Control, Shown};

const CODE: &str = "rs:4+2";
const DISKS: usize = 6;
/// Which fragment is lost and which is damaged: as many as the code survives.
const LOST: usize = 2;
const DAMAGED: usize = 4;

/// Show Weft at work: damaged files, a volume that loses disks, a cluster that loses servers
#[derive(Args)]
#[command(after_help = "Examples:
  weft demo
  weft demo --bytes 4GiB --dir /disk1

It encodes, damages, decodes and repairs real files; then a volume loses two disks, and a cluster two servers. It \
works in a temporary directory and removes it.")]
pub struct Arguments {
    /// Length of the generated file
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = sizes::bytes)]
    bytes: u64,
    /// Where to create the temporary directory [default: that of the system]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let control = interrupt::control(false);
    let place = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let scene = Scene::create(&place.join(format!("weft-demo-{}", std::process::id())), control)?;
    let sources = scene.path.join("sources");
    let generated = scene.path.join("generated");
    let tree = scene.path.join("tree");
    let count = scene.io("write", &sources, gather_sources(&sources, &tree))?;
    scene.io("write", &generated, generate(&generated, arguments.bytes))?;
    let say = |line: String| if as_json { Ok(()) } else { show::text(line) };
    say(format!("Six directories in {} stand for six disks.", Shown(&scene.path)))?;
    say(format!(
        "Two files: the {count} files that this program was made of, joined, {}; and {} of pseudo-random bytes.",
        show::bytes(length(&sources)),
        show::bytes(arguments.bytes)
    ))?;
    let mut documents = Vec::new();
    for file in [&sources, &generated] {
        documents.push(scene.tell(file, &say)?);
    }
    scene.lose_too_much(&sources, &say)?;
    let load = Load { files: &[&sources, &generated], tree: &tree };
    let volume = embedded::tell(&scene.path, load, &say)?;
    let cluster = cluster::tell(&scene.path, load, &say)?;
    if !as_json {
        return Ok(());
    }
    show::json(&json!({ "code": CODE, "files": documents, "volume": volume, "cluster": cluster }))
}

/// The temporary directory, which goes when this does.
struct Scene {
    path: PathBuf,
    disks: Vec<PathBuf>,
    control: Arc<Control>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Scene {
    fn create(path: &Path, control: Arc<Control>) -> Result<Self, Failure> {
        let disks = (1..=DISKS).map(|number| path.join(format!("disk{number}"))).collect();
        let scene = Self { path: path.to_path_buf(), disks, control };
        for disk in &scene.disks {
            scene.io("create", disk, fs::create_dir_all(disk))?;
        }
        Ok(scene)
    }

    fn io<T>(&self, operation: &'static str, path: &Path, result: io::Result<T>) -> Result<T, Failure> {
        result.map_err(|error| Failure::Other(format!("cannot {operation} {}: {error}", Shown(path))))
    }

    fn fragment(&self, file: &Path, position: Position) -> PathBuf {
        let name = file.file_name().unwrap_or_default();
        self.disks[position.index()].join(volume::target::fragment_file_name(name.as_encoded_bytes(), position))
    }

    /// The story of one file.
    fn tell(&self, file: &Path, say: &impl Fn(String) -> Outcome) -> Result<serde_json::Value, Failure> {
        let bytes = length(file);
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let copied = self.copy(file)?;
        let (encoded, ()) = timed(|| self.encode(file))?;
        say(format!(
            "\n{name}: encoded as {CODE}, one fragment to each disk: {}. cp of the file: {}; both with fsync.",
            speed(bytes, encoded),
            speed(bytes, copied)
        ))?;
        self.damage(file)?;
        say(format!(
            "{name}: the fragment on disk{} is deleted, three bits on disk{} are flipped.",
            LOST + 1,
            DAMAGED + 1
        ))?;
        let again = self.path.join(format!("{name}.decoded"));
        let (decoded, problems) = timed(|| self.decode(file, &again))?;
        problems.iter().try_for_each(|problem| say(format!("  found: {problem}")))?;
        if !self.io("compare", &again, same(file, &again))? {
            return Err(Failure::Other(format!("{name} is not what it was; this must never happen")));
        }
        say(format!(
            "{name}: decoded all the same, and equal to the original byte for byte: {}.",
            speed(bytes, decoded)
        ))?;
        let (repaired, made) = timed(|| self.repair(file))?;
        let (verified, survives) = timed(|| self.verify(file))?;
        say(format!("{name}: {} rebuilt: {}.", show::count(made, "fragment"), speed(bytes, repaired)))?;
        say(format!(
            "{name}: verified, {}: {}.",
            crate::file::verify::survival(Some(survives)),
            speed(bytes, verified)
        ))?;
        let seconds = |time: Duration| time.as_secs_f64();
        Ok(json!({
            "name": name, "bytes": bytes, "problems": problems, "identical": true, "made": made, "survives": survives,
            "seconds": {
                "cp": seconds(copied), "encode": seconds(encoded), "decode": seconds(decoded),
                "repair": seconds(repaired), "verify": seconds(verified),
            },
        }))
    }

    /// How long `cp` and an fsync take.
    fn copy(&self, file: &Path) -> Result<Duration, Failure> {
        let copy = self.path.join("copy");
        let begun = Instant::now();
        let done = Command::new("cp").arg(file).arg(&copy).status().is_ok_and(|status| status.success());
        if !done {
            self.io("copy", file, fs::copy(file, &copy))?;
        }
        self.io("sync", &copy, File::open(&copy).and_then(|copy| copy.sync_all()))?;
        let time = begun.elapsed();
        self.io("remove", &copy, fs::remove_file(&copy))?;
        Ok(time)
    }

    fn encode(&self, file: &Path) -> Outcome {
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        let options = EncodeOptions {
            code: ec::parse(CODE)?,
            name,
            directories: &Directory::open_all(&self.disks)?,
            force: false,
            block_bytes: None,
            threads: None,
        };
        let source = Source::file(file)?;
        progress::shown("encoding", &self.control, || encode(&source, &options, &self.control))?;
        Ok(())
    }

    fn damage(&self, file: &Path) -> Outcome {
        let lost = self.fragment(file, Position::at(LOST));
        self.io("remove", &lost, fs::remove_file(&lost))?;
        let damaged = self.fragment(file, Position::at(DAMAGED));
        self.io("damage", &damaged, flip_bits(&damaged))
    }

    fn decode(&self, file: &Path, out: &Path) -> Result<Vec<String>, Failure> {
        let object = find(file.file_name(), &self.disks)?;
        let options = DecodeOptions { destination: Destination::File { path: out, replace: true }, threads: None };
        let work = || decode(object, &options, &self.control);
        let (result, problems) = progress::shown("decoding", &self.control, work);
        result?;
        let short =
            |problem: &volume::object::Problem| problem.to_string().replace(&format!("{}/", Shown(&self.path)), "");
        Ok(problems.listed.iter().map(short).collect())
    }

    fn repair(&self, file: &Path) -> Result<usize, Failure> {
        let object = find(file.file_name(), &self.disks)?;
        let work = || repair(object, None, None, &self.control);
        let repaired = progress::shown("repairing", &self.control, work).map_err(|(error, _)| error)?;
        Ok(repaired.made.len())
    }

    fn verify(&self, file: &Path) -> Result<usize, Failure> {
        let object = find(file.file_name(), &self.disks)?;
        let report = progress::shown("verifying", &self.control, || verify(object, None, &self.control))?;
        match report.survives {
            Some(survives) if report.is_healthy() => Ok(survives),
            _ => {
                Err(Failure::Other(format!("{} is not healthy after its repair; this must never happen", Shown(file))))
            }
        }
    }

    /// One loss more than the code survives: nothing may come out.
    fn lose_too_much(&self, file: &Path, say: &impl Fn(String) -> Outcome) -> Outcome {
        let out = self.path.join("never");
        for position in (0..3).map(Position) {
            let lost = self.fragment(file, position);
            self.io("remove", &lost, fs::remove_file(&lost))?;
        }
        match self.decode(file, &out) {
            Err(error) if !out.exists() => {
                say(format!("\nWith three fragments gone there is no file, but the reason: {error}."))
            }
            _ => Err(Failure::Other("too few fragments were decoded; this must never happen".into())),
        }
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// Joins the sources that this program was built from, or takes the program itself if they are not
/// there, and copies each into a tree; returns the number of files.
fn gather_sources(into: &Path, tree: &Path) -> io::Result<usize> {
    let mut files = Vec::new();
    let _ = collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    if files.is_empty() {
        files.push(std::env::current_exe()?);
    }
    files.sort();
    let mut joined = File::create(into)?;
    for (number, file) in files.iter().enumerate() {
        io::copy(&mut File::open(file)?, &mut joined)?;
        // A few to a directory, under different names.
        let directory = tree.join(format!("{:02}", number / 20));
        fs::create_dir_all(&directory)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        fs::copy(file, directory.join(format!("{number:04}-{name}")))?;
    }
    joined.sync_all()?;
    Ok(files.len())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let (entry, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let kind = path.symlink_metadata()?;
        if kind.is_dir() && entry != "target" && !entry.as_encoded_bytes().starts_with(b".") {
            collect(&path, files)?;
        } else if kind.is_file() && ["rs", "toml", "md"].iter().any(|end| path.extension().is_some_and(|e| e == *end)) {
            files.push(path);
        }
    }
    Ok(())
}

fn generate(into: &Path, bytes: u64) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut file = File::create(into)?;
    let mut piece = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        random.fill(&mut piece);
        let now = left.min(piece.len() as u64);
        file.write_all(&piece[..now as usize])?;
        left -= now;
    }
    file.sync_all()
}

/// Flips a bit in the file's header, in its middle and at its end.
fn flip_bits(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    for at in [100, length / 2, length - 1] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ 4], at)?;
    }
    Ok(())
}
