//! The label: the identity of a volume and the places of its targets. Every target has a copy as
//! its label, and the volume directory has one as the pointer. Of the copies that are found, the
//! one with the highest generation counts.

use crate::{Error, Result};
use plan::coding::Coding;
use plan::placement::Placement;
use plan::topology::{Coordinates, Torus};
use plan::voters::{self, VoterCandidate};
use plan::{Domain, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use volume::Targets;
use volume::target::{Durable, ReadAt, Target, TargetFile};

/// The newest version of labels, and so of volumes, that this build reads.
const FORMAT: u32 = 3;
/// The version of a label in which all targets vote, so that an earlier build can read it.
const ALL_VOTE_FORMAT: u32 = 2;
/// How many generations of labels each epoch has. Its number is in front.
pub(crate) const GENERATIONS_PER_EPOCH: u64 = 1 << 24;
/// How far the epochs in generations go ahead with each accepted loss, so that no target that was
/// given up has a newer label.
const EPOCHS_PER_LOSS: u64 = 1 << 20;
/// How far the label goes ahead when a loss is accepted, so that no target that was given up has a
/// newer one.
const LABEL_SKIP: u64 = EPOCHS_PER_LOSS * GENERATIONS_PER_EPOCH;
/// The largest label, in bytes.
const MAX_LABEL: usize = 1 << 20;
/// The pointer in the volume directory.
pub(crate) const POINTER: &str = "volume.json";

/// A volume, as its labels and its pointer describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// The version of the format.
    pub format: u32,
    /// The volume's id, in hexadecimal.
    pub volume: String,
    /// The name that the owner gave the volume.
    pub name: String,
    /// The code of new chunk sets.
    pub code: String,
    /// The largest length of a chunk, in bytes.
    pub chunk_bytes: u32,
    /// How many targets must have a stripe before it is acknowledged.
    pub durability: usize,
    /// Which side codes stripes, unless a client says otherwise.
    #[serde(default)]
    pub coding: Coding,
    /// How new chunk sets are placed.
    #[serde(default)]
    pub placement: Placement,
    /// Where there are fewer targets than a set has chunks, several of them may be on one target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_sharing: bool,
    /// User data of the longest stripe, in bytes; None for the usual length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe_bytes: Option<u32>,
    /// The torus that its servers are connected in. A program that does not know of it takes every
    /// server for as near as any other, and drops it when it changes the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torus: Option<Torus>,
    /// Grows with every change.
    pub generation: u64,
    /// The target that holds this label; None in the pointer.
    pub target: Option<TargetId>,
    /// All targets of the volume.
    pub targets: Vec<Member>,
    /// The losses that its owner accepted; the volume may lack what was durable before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// While a change of the targets is not complete: the voters before it. Of a label that was
    /// read, those of them that are voters after it, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<TargetId>,
}

/// An opening with so few targets that newer changes may have been lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When, in seconds since 1970.
    pub when: u64,
    /// The targets that were given up.
    pub targets: Vec<TargetId>,
    /// The number of targets before.
    pub of: usize,
}

/// A target of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: TargetId,
    /// Where it was last seen.
    pub path: PathBuf,
    /// What it may be used for.
    pub role: Role,
    /// The failure domain; a target without one is its own domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// Where its server is in the volume's torus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Coordinates>,
    /// The target that this one replaces, so that an interrupted replacement can continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<TargetId>,
    /// Whether it votes about the newest state of the volume, and may have the metadata.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub votes: bool,
}

fn yes() -> bool {
    true
}

impl Member {
    /// A target for everything, which is its own failure domain.
    pub fn new(id: TargetId, path: PathBuf) -> Self {
        Self { id, path, role: Role::Active, domain: None, at: None, replaces: None, votes: true }
    }
}

/// What a target may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reading and writing.
    Active,
    /// Reading only: it is being emptied.
    Draining,
    /// Nothing: it was emptied or replaced.
    Removed,
}

impl Label {
    /// The first label of a volume with this id. Chunk sets are placed at random, and clients code
    /// stripes. A chunk has at most `chunk_bytes`, and `durability` targets must have a stripe
    /// before it is acknowledged.
    pub fn new(
        volume: [u8; 16],
        name: &str,
        code: &str,
        chunk_bytes: u32,
        durability: usize,
        targets: Vec<Member>,
    ) -> Self {
        Self {
            format: ALL_VOTE_FORMAT,
            volume: format!("{:032x}", u128::from_be_bytes(volume)),
            name: name.into(),
            code: code.into(),
            chunk_bytes,
            durability,
            coding: Coding::default(),
            placement: Placement::default(),
            allow_sharing: false,
            stripe_bytes: None,
            torus: None,
            generation: 1,
            target: None,
            targets,
            losses: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Whether its journals have epochs, which those of format 1 have not.
    pub(crate) fn is_current(&self) -> bool {
        self.format >= ALL_VOTE_FORMAT
    }

    /// Raises it from format 1. Format 2 has the same label, and journals with epochs.
    pub(crate) fn upgrade(&mut self) {
        (self.format, self.generation) = (ALL_VOTE_FORMAT, self.generation + 1);
    }

    /// Gives these targets votes, and no others.
    pub(crate) fn set_voters(&mut self, voters: &BTreeSet<TargetId>) {
        self.targets.iter_mut().for_each(|member| member.votes = voters.contains(&member.id));
        self.set_format();
    }

    /// Where some do not vote, the format is one that an earlier build refuses: it would look for
    /// the metadata on them.
    pub(crate) fn set_format(&mut self) {
        self.format = if self.members().all(|member| member.votes) { ALL_VOTE_FORMAT } else { FORMAT };
    }

    /// The label in a format that clients of an earlier version read, too: who votes does not
    /// matter to them.
    #[must_use]
    pub fn for_clients(self) -> Self {
        Self { format: self.format.min(ALL_VOTE_FORMAT), ..self }
    }

    /// The volume's id.
    ///
    /// # Errors
    /// When the label does not hold a valid id.
    pub fn id(&self) -> Result<[u8; 16]> {
        u128::from_str_radix(&self.volume, 16)
            .map(u128::to_be_bytes)
            .map_err(|_| Error::Invalid(format!("{:?} is not the id of a volume", self.volume)))
    }

    /// The targets that have data or may get some: all that are not removed.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.targets.iter().filter(|member| member.role != Role::Removed)
    }

    /// The members that vote about the newest state, and may have the metadata. The first ones are
    /// in different failure domains.
    pub fn voters(&self) -> Vec<TargetId> {
        let mut voting = self.candidates(|_| (true, true));
        voting.retain(|member| member.votes);
        voters::by_turns(&voting, self.placement.domain_level)
    }

    /// The members that should vote, where `stays_and_healthy` says of each whether it is to stay,
    /// and whether it is there without a failure.
    pub(crate) fn wanted_voters(&self, stays_and_healthy: impl Fn(&Member) -> (bool, bool)) -> BTreeSet<TargetId> {
        let Ok(code) = ec::parse(&self.code) else { return self.voters().into_iter().collect() };
        let shape = code.shape();
        voters::voters(&self.candidates(stays_and_healthy), self.placement.domain_level, shape.blocks(), shape.m)
    }

    fn candidates(&self, stays_and_healthy: impl Fn(&Member) -> (bool, bool)) -> Vec<VoterCandidate> {
        let candidate = |member: &Member| {
            let (stays, healthy) = stays_and_healthy(member);
            VoterCandidate { id: member.id, domain: member.domain(), votes: member.votes, stays, healthy }
        };
        self.members().map(candidate).collect()
    }

    /// The generation of the next label that an opening writes. The number of its epoch is in
    /// front, so that of two openings that do not know of one another the later one has the newer
    /// label.
    pub(crate) fn next_generation(&self, epoch: u64) -> u64 {
        let ahead = EPOCHS_PER_LOSS.saturating_mul(self.losses.len() as u64);
        let first = epoch.saturating_add(ahead).saturating_mul(GENERATIONS_PER_EPOCH);
        self.generation.saturating_add(1).max(first)
    }

    /// In the midst of a change, the voters before it and those after it count. One target joins or
    /// leaves at a time, so one of the two has all of them, and enough of these are enough of both:
    /// a target that was to leave, or to lose its vote, keeps it until that is done once more.
    pub(crate) fn with_both(mut self) -> Self {
        let (before, after) = (std::mem::take(&mut self.before), self.voters());
        for member in self.targets.iter_mut().filter(|member| before.contains(&member.id)) {
            if member.role == Role::Removed {
                member.role = Role::Draining;
            }
            member.votes = true;
        }
        self.before = before.into_iter().filter(|id| after.contains(id)).collect();
        self
    }

    /// Notes that these targets were given up. The label is newer than all that they may have.
    pub(crate) fn accept_loss(&mut self, lost: Vec<TargetId>) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.losses.push(Loss { when: since.as_secs(), targets: lost, of: self.members().count() });
        self.before.clear();
        self.generation += LABEL_SKIP;
    }

    /// Parses a label that `to_json` wrote.
    ///
    /// # Errors
    /// When it is damaged or of a newer format.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::parse(text.as_bytes(), "the label of the volume")
    }

    /// The label as JSON.
    pub fn to_json(&self) -> String {
        String::from_utf8_lossy(&self.to_bytes()).into_owned()
    }

    fn parse(bytes: &[u8], place: &str) -> Result<Self> {
        // Check the version first: the rest may mean something else in a newer one.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let damaged = |why: serde_json::Error| Error::Invalid(format!("{place} is not a label of a volume: {why}"));
        let Version { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format > FORMAT {
            return Err(Error::Invalid(format!(
                "{place} is of format {format}; {FORMAT} is the newest that this weft reads"
            )));
        }
        serde_json::from_slice(bytes).map(Self::with_both).map_err(damaged)
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a label has nothing that JSON has not")
    }

    /// Reads the label of a target; None when it has none.
    ///
    /// # Errors
    /// `Unavailable` when the target does not answer. Also when the label cannot be read, is
    /// damaged or of a newer format.
    pub fn read(target: &dyn Target, place: &str) -> Result<Option<Self>> {
        let mut bytes = vec![0; MAX_LABEL];
        match target.read_at(TargetFile::Label, 0, &mut bytes) {
            Ok(length) => Self::parse(&bytes[..length], place).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let why = format!("cannot read the label of {place}: {error}");
                let silent = [ErrorKind::NotConnected, ErrorKind::TimedOut, ErrorKind::ResourceBusy];
                Err(if silent.contains(&error.kind()) { Error::Unavailable(why) } else { Error::Invalid(why) })
            }
        }
    }

    /// Writes the label of a target. After a crash, the old label or the new one is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, target: &dyn Target, id: TargetId) -> std::io::Result<()> {
        let label = Self { target: Some(id), ..self.clone() };
        target.remove(TargetFile::NewLabel)?;
        target.write(TargetFile::NewLabel, 0, &[IoSlice::new(&label.to_bytes())], Durable::Later)?;
        target.sync(TargetFile::NewLabel)?;
        target.rename(TargetFile::NewLabel, TargetFile::Label)
    }

    /// A line with the paths of targets instead of their numbers: what people know them by.
    pub fn with_paths(&self, line: &str) -> String {
        const TARGET_PREFIX: &str = "target ";
        let (mut shown, mut rest) = (String::new(), line);
        while let Some(at) = rest.find(TARGET_PREFIX) {
            let (before, number) = rest.split_at(at + TARGET_PREFIX.len());
            let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            let (number, behind) = number.split_at(end);
            // What begins like a number may be an address.
            let is_whole = behind.is_empty() || behind.starts_with([' ', ':', ',', ';', ')']);
            let id = number.parse().ok().filter(|_| is_whole).map(TargetId);
            let member = id.and_then(|id| self.targets.iter().find(|member| member.id == id));
            shown += before;
            match member {
                Some(member) => shown += &volume::Shown(&member.path).to_string(),
                None => shown += number,
            }
            rest = behind;
        }
        shown + rest
    }

    /// Writes the label of each of these targets. Returns those that have it now, and why others do
    /// not.
    pub(crate) fn write_to(
        &self,
        targets: &Targets,
        ids: Vec<TargetId>,
    ) -> (Vec<TargetId>, Vec<(TargetId, io::Error)>) {
        let label = self.clone();
        let numbered = ids.into_iter().map(|id| (usize::from(id.0), id));
        let (mut written, mut failed) = (Vec::new(), Vec::new());
        for (_, id, done) in targets.each(numbered, move |number, target| label.write(target, TargetId(number as u16)))
        {
            match done {
                Ok(_) => written.push(id),
                Err(why) => failed.push((id, why)),
            }
        }
        (written, failed)
    }

    /// Reads the pointer in a volume directory.
    ///
    /// # Errors
    /// `NotFound` when the directory holds no volume. Also when the pointer is damaged or of a
    /// newer format.
    pub fn read_pointer(volume: &Path) -> Result<Self> {
        let path = volume.join(POINTER);
        let shown = volume::Shown(&path).to_string();
        match std::fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes, &shown),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(Error::NotFound(format!("{} is not a volume", volume::Shown(volume))))
            }
            Err(error) => Err(Error::Invalid(format!("cannot read {shown}: {error}"))),
        }
    }

    /// Writes the pointer of a volume directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_pointer(&self, volume: &Path) -> std::io::Result<()> {
        let (new, path) = (volume.join(format!("{POINTER}.new")), volume.join(POINTER));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&Self { target: None, ..self.clone() }.to_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(volume)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_label_is_refused_in_one_line() {
        for bad in ["", "{}", "{\"format\":1}", "[1]", "{\"format\":3,\"new\":true}", "\u{0}"] {
            let error = Label::parse(bad.as_bytes(), "a label").unwrap_err().to_string();
            assert!(error.starts_with("a label ") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn lines_name_targets() {
        let members = vec![Member::new(TargetId(1), "/d1".into()), Member::new(TargetId(12), "/d\n12".into())];
        let label = Label::new([7; 16], "v", "rs:1+1", 1 << 20, 2, members);
        for (line, named) in [
            ("target 1 fails: full", "target /d1 fails: full"),
            ("target 12: target 2 is not target 1", "target /d\\n12: target 2 is not target /d1"),
            ("target 12.0.0.1:7701/d1 and a target ", "target 12.0.0.1:7701/d1 and a target "),
            ("targets", "targets"),
        ] {
            assert_eq!(label.with_paths(line), named);
        }
    }

    #[test]
    fn the_text_of_format_2_stays() {
        let mut members = vec![Member::new(TargetId(0), "/d0".into()), Member::new(TargetId(5), "/d5".into())];
        members[1].domain = Some("rack1/host3".parse().unwrap());
        members[1].replaces = Some(TargetId(3));
        members[1].role = Role::Draining;
        let mut label = Label::new([7; 16], "v", "rs:2+1", 1 << 20, 2, members);
        label.target = Some(TargetId(5));
        let head = r#"{"format":2,"volume":"ID","name":"v","code":"rs:2+1","chunk_bytes":1048576,"durability":2,"#;
        let how = r#""coding":"client","placement":{"policy":"random","domain_level":null},"generation":1,"target":5,"#;
        let first = r#"{"id":0,"path":"/d0","role":"active"}"#;
        let second = r#"{"id":5,"path":"/d5","role":"draining","domain":"rack1/host3","replaces":3}"#;
        let text = format!("{head}{how}\"targets\":[{first},{second}]}}").replace("ID", &"07".repeat(16));
        assert_eq!(label.to_json().replace(['\n', ' '], ""), text);
        assert_eq!(Label::from_json(&text).unwrap(), label);
    }

    #[test]
    fn in_the_midst_of_a_change_both_vote() {
        let member = |id: u16| Member::new(TargetId(id), format!("/d{id}").into());
        let mut label = Label::new([7; 16], "v", "rs:2+1", 1 << 20, 2, (0..4).map(member).collect());
        let ids = |ids: std::ops::Range<u16>| ids.map(TargetId).collect::<Vec<_>>();
        // One leaves.
        (label.before, label.targets[3].role) = (label.voters(), Role::Removed);
        let text = label.to_json();
        assert!(text.replace(['\n', ' '], "").ends_with("\"before\":[0,1,2,3]}"), "{text}");
        let read = Label::from_json(&text).unwrap();
        assert_eq!((read.voters(), &read.before, read.targets[3].role), (ids(0..4), &ids(0..3), Role::Draining));
        assert_eq!(Label::from_json(&read.to_json()).unwrap(), read);
        // One joins.
        (label.before, label.targets[3].role) = (ids(0..3), Role::Active);
        assert_eq!(Label::from_json(&label.to_json()).unwrap(), label);
        // One loses its vote.
        label.before = ids(0..4);
        label.set_voters(&ids(0..3).into_iter().collect());
        let read = Label::from_json(&label.to_json()).unwrap();
        assert_eq!((read.voters(), &read.before, read.targets[3].role), (ids(0..4), &ids(0..3), Role::Active));
        assert_eq!(Label::from_json(&read.to_json()).unwrap(), read);
    }

    #[test]
    fn an_earlier_version_refuses_a_label_in_which_some_do_not_vote() {
        let member = |id: u16| {
            let domain = format!("machine{}", id / 2).parse().ok();
            Member { domain, ..Member::new(TargetId(id), format!("/d{id}").into()) }
        };
        let mut label = Label::new([7; 16], "v", "rs:2+1", 1 << 20, 2, (0..6).map(member).collect());
        assert_eq!((label.format, label.voters().len()), (2, 6));
        label.set_voters(&label.wanted_voters(|member| (member.id != TargetId(2), true)));
        assert_eq!((label.format, label.voters()), (3, [0, 3, 4].map(TargetId).to_vec()));
        assert!(label.is_current() && label.to_json().contains("\"votes\": false"));
        assert_eq!(Label::from_json(&label.to_json()).unwrap(), label);
        assert_eq!(label.clone().for_clients().format, 2);
        label.set_voters(&(0..6).map(TargetId).collect());
        assert!(label.format == 2 && !label.to_json().contains("votes"));
    }

    #[test]
    fn of_two_openings_the_later_one_writes_the_newer_label() {
        let mut label = Label::new([7; 16], "v", "rs:2+1", 1 << 20, 2, Vec::new());
        let first = label.next_generation(5);
        label.generation = first + 1000;
        assert_eq!(label.next_generation(5), first + 1001);
        assert!(label.next_generation(6) > first + 1001);
        // What was given up with a loss may have had any newer one.
        label.losses.push(Loss { when: 0, targets: Vec::new(), of: 3 });
        let skipped = label.generation + LABEL_SKIP;
        assert!(label.next_generation(6) > skipped && skipped > label.generation);
    }

    /// A label that was written before failure domains existed.
    #[test]
    fn what_is_not_said_is_the_default() {
        let member = r#"{"id":0,"path":"/d0","role":"active"}"#;
        let text = format!(
            r#"{{"format":1,"volume":"00","name":"v","code":"rs:2+1","chunk_bytes":1,"durability":2,"generation":1,"target":null,"targets":[{member}]}}"#
        );
        let label = Label::from_json(&text).unwrap();
        assert_eq!((label.placement, &label.targets[0].domain), (Placement::default(), &None));
        let domain = label.to_json().replace(r#""role": "active""#, r#""role": "active", "domain": "rack 1""#);
        assert!(Label::from_json(&domain).unwrap_err().to_string().contains("rack1/host3"), "{domain}");
    }

    #[test]
    fn the_newest_format_is_named() {
        let error = Label::parse(br#"{"format":7}"#, "d/label").unwrap_err().to_string();
        assert!(error.contains("format 7") && error.contains("newest"), "{error}");
    }
}
