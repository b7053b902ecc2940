//! Creates a volume: labels on its targets, a pointer to them, and metadata with a root directory.

use crate::volume::label::{Label, Member, POINTER};
use crate::volume::opened::OpenOptions;
use crate::volume::places::{Directories, Places};
use crate::volume::stripe_size::{block_bytes, of_process};
use crate::volume::torus::InTorus;
use crate::volume::voters::divide;
use crate::{Error, Result, now};
use meta::journal::{JournalLimits, Journaled};
use meta::kv::MemoryIndex;
use plan::coding::Coding;
use plan::placement::{Placement, most_on_one, taken_by_domains};
use plan::{Domain, TargetId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::target::{Space, Target, make_private};

/// Longest name of a volume: clients show it when they connect.
const MAX_NAME_BYTES: usize = 255;

/// The parameters of a new volume.
#[derive(Clone, Debug)]
pub struct Create {
    /// The name that the owner gives the volume.
    pub name: String,
    /// The erasure code, as a spec.
    pub code: String,
    /// The largest length of a chunk, in bytes.
    pub chunk_bytes: u32,
    /// How many targets must have a stripe before it is acknowledged. None means k+1, or k when m
    /// is 0.
    pub durability: Option<usize>,
    /// Which side codes stripes, unless a client says otherwise.
    pub coding: Coding,
    /// The places of the targets: at least as many as the code has blocks, or m+2 with
    /// `allow_sharing`.
    pub targets: Vec<PathBuf>,
    /// The failure domains of some targets. A target of a storage server is in the domain that the
    /// server reports; any other target is its own domain.
    pub domains: Vec<(PathBuf, Domain)>,
    /// How chunk sets are placed.
    pub placement: Placement,
    /// With fewer targets than the code has blocks, several blocks of a stripe go to one target,
    /// and are lost together.
    pub allow_sharing: bool,
    /// The domains may be so few that one has more than m blocks of a stripe, and its loss loses
    /// data.
    pub allow_few_domains: bool,
    /// User data of the longest stripe, in bytes; None for the usual length, which is the most.
    pub stripe_bytes: Option<usize>,
    /// The torus that the servers are connected in.
    pub torus: Option<InTorus>,
    /// Finds the targets at these places.
    pub places: Arc<dyn Places>,
}

pub(crate) fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    // An id is never all zeroes.
    id[0] = 1;
    fastrand::Rng::new().fill(&mut id[1..]);
    id
}

/// The user who creates a volume owns its root directory.
pub(crate) fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Create {
    /// A volume on directories of this machine, with chunks of 64 MiB and all else as usual.
    pub fn new(name: &str, code: &str, targets: Vec<PathBuf>) -> Self {
        Self {
            name: name.into(),
            code: code.into(),
            chunk_bytes: 64 << 20,
            durability: None,
            coding: Coding::Client,
            targets,
            domains: Vec::new(),
            placement: Placement::default(),
            allow_sharing: false,
            allow_few_domains: false,
            stripe_bytes: None,
            torus: None,
            places: Arc::new(Directories),
        }
    }

    /// Creates the volume: labels on its targets, a pointer in `directory`, and a root directory.
    ///
    /// # Errors
    /// When the code cannot be used, there are too few targets or one is in use, or something
    /// cannot be written.
    pub fn run(&self, directory: &Path) -> Result<()> {
        let code = ec::parse(&self.code).map_err(|why| Error::Invalid(why.to_string()))?;
        let shape = code.shape();
        let given = self.targets.len();
        if given < shape.blocks() && !self.allow_sharing {
            return Err(Error::Invalid(format!(
                "{} needs {} directories, one for each block of a stripe, and {given} were given; with --allow-sharing \
                 one has several blocks, and fewer losses are survived",
                code.spec(),
                shape.blocks(),
            )));
        }
        // The metadata is on m+1 different ones, and one that is lost must leave as many: else the
        // volume could be read, and nothing could take the place of what is lost.
        let least = (shape.m + 2).min(shape.blocks());
        if given < least {
            return Err(Error::Invalid(format!(
                "also with shared ones, {} needs {least} directories: its metadata is on {} of them, and one may be \
                 away; {given} were given",
                code.spec(),
                shape.m + 1,
            )));
        }
        let wanted = self.durability.unwrap_or(shape.k + usize::from(shape.m > 0));
        if !(shape.k..=shape.blocks()).contains(&wanted) {
            return Err(Error::Invalid(format!(
                "durability must be between {} and {}, the data blocks and all blocks of {}",
                shape.k,
                shape.blocks(),
                code.spec()
            )));
        }
        let least = 2 * (block_bytes(shape.k) as u32 + 65_536);
        if self.chunk_bytes < least || self.chunk_bytes > 1 << 30 {
            return Err(Error::Invalid(format!("a chunk can have {least} bytes to 1 GiB")));
        }
        of_process(shape.k, self.stripe_bytes)?;
        if self.name.len() > MAX_NAME_BYTES {
            return Err(Error::Invalid(format!("a volume's name has at most {MAX_NAME_BYTES} bytes")));
        }
        if directory.join(POINTER).exists() {
            return Err(Error::Conflict(format!("{} is a volume already", volume::Shown(directory))));
        }
        let targets: Vec<PathBuf> = self.targets.iter().map(|path| self.places.full(path)).collect::<Result<_>>()?;
        let (members, spec) = (self.members(&targets)?, code.spec().to_string());
        let label = Label::new(random_id(), &self.name, &spec, self.chunk_bytes, wanted, members);
        let (coding, placement, allow_sharing) = (self.coding, self.placement, self.allow_sharing);
        let stripe_bytes = self.stripe_bytes.map(|bytes| bytes as u32);
        let mut label = Label { coding, placement, allow_sharing, stripe_bytes, ..label };
        if let Some(InTorus { torus, at }) = &self.torus {
            label.set_torus(Some(torus.clone()), at, &*self.places)?;
        }
        if !self.allow_few_domains {
            enough_domains(&label, shape)?;
        }
        label.set_voters(&label.wanted_voters(|_| (true, true)));
        // Check that the directory can be written before anything is changed elsewhere.
        make_private(directory)
            .map_err(|why| Error::Invalid(format!("cannot make {}: {why}", volume::Shown(directory))))?;
        let probe = directory.join(format!("{POINTER}.new"));
        let probed = std::fs::write(&probe, []).and_then(|()| std::fs::remove_file(&probe));
        probed.map_err(|why| cannot_write(directory, &why))?;
        let disks: Vec<Arc<dyn Target>> = targets.iter().map(|path| self.places.format(path)).collect::<Result<_>>()?;
        for (disk, member) in disks.iter().zip(&label.targets) {
            label.write(&**disk, member.id).map_err(|why| cannot_write(&member.path, &why))?;
        }
        let disks = disks.into_iter().zip(&label.targets).map(|(disk, member)| (member.id, disk));
        begin(&label, disks.collect())?;
        label.write_pointer(directory).map_err(|why| cannot_write(directory, &why))
    }
}

impl Create {
    /// The targets with their domains.
    fn members(&self, targets: &[PathBuf]) -> Result<Vec<Member>> {
        let mut given = BTreeMap::new();
        for (path, domain) in &self.domains {
            let full = self.places.full(path)?;
            if !targets.contains(&full) {
                let shown = volume::Shown(path);
                return Err(Error::Invalid(format!("a domain is given for {shown}, which is not among the targets")));
            }
            given.insert(full, domain.clone());
        }
        let member = |(number, path): (usize, &PathBuf)| {
            let domain = given.remove(path).map_or_else(|| self.places.domain(path), |domain| Ok(Some(domain)))?;
            Ok(Member { domain, ..Member::new(TargetId(number as u16), path.clone()) })
        };
        targets.iter().enumerate().map(member).collect()
    }
}

/// Refuses domains of which one would have to take more than m blocks of a stripe, if all targets
/// have one.
fn enough_domains(label: &Label, shape: ec::Shape) -> Result<()> {
    let mut domains = BTreeMap::<String, usize>::new();
    for member in &label.targets {
        let Some(domain) = member.domain() else { return Ok(()) };
        *domains.entry(domain.at(label.placement.domain_level).to_owned()).or_default() += 1;
    }
    let most = if label.allow_sharing { most_on_one(shape.blocks(), label.targets.len()) } else { 1 };
    let taken = taken_by_domains(domains.values().map(|targets| targets * most), shape.m);
    if shape.m == 0 || taken >= shape.blocks() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the targets are in {} domains, which can take {taken} of the {} blocks of {}, {} each; with \
         --allow-few-domains one takes more, and its loss loses data",
        domains.len(),
        shape.blocks(),
        label.code,
        shape.m
    )))
}

/// Creates the metadata of a new volume, with a root directory in it.
pub(crate) fn begin(label: &Label, targets: Vec<(TargetId, Arc<dyn Target>)>) -> Result<()> {
    let (targets, _) = divide(label, targets);
    let code = ec::parse(&label.code).map_err(|why| Error::Invalid(why.to_string()))?;
    let spaces: Vec<Space> = targets.iter().filter_map(|(_, target)| target.space().ok()).collect();
    let journal = Arc::new(Journaled::create(meta::journal::Options {
        volume: label.id()?,
        voters: targets.iter().map(|(id, _)| *id).collect(),
        targets,
        losses: code.shape().m,
        generation: label.generation,
        holder: OpenOptions::default().holder(None),
        lease: None,
        access: meta::journal::Access::Write,
        index: Box::new(MemoryIndex::default()),
        merge: meta::MERGE,
        limits: journal_limits(spaces),
        accept_loss: false,
        local_wal: None,
    })?);
    meta::Meta::open(journal.clone(), owner(), now())?;
    Ok(journal.close()?)
}

/// The sizes of a journal, by the space of the smallest target.
pub(crate) fn journal_limits(spaces: impl IntoIterator<Item = Space>) -> JournalLimits {
    JournalLimits::for_targets(spaces.into_iter().map(|space| space.total).min().unwrap_or(u64::MAX))
}

fn cannot_write(path: &Path, why: &std::io::Error) -> Error {
    Error::Invalid(format!("cannot write to {}: {why}", volume::Shown(path)))
}
