//! Reads the claims on the targets of a volume, as a standby sees them. It changes nothing and
//! locks nothing. A target that hangs delays no other one. It is asked again once it has answered.

use super::seat::{Peer, Vote};
use super::trail::Course;
use crate::address::StoreAddress;
use crate::places::ClusterPlaces;
use fs::label::{Label, Member};
use plan::TargetId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::target::{ClaimRequest, ClaimState, Disk, Lease, Target};
use volume::{Wait, ask_all, lock};

/// How long one round waits for answers.
const ROUND_TIMEOUT: Duration = Duration::from_millis(900);

/// How often labels are read when too few targets are free.
const SEARCH_INTERVAL: Duration = Duration::from_secs(3);

/// What a standby found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchResult {
    /// What each target says.
    pub votes: Vec<Vote>,
    /// The server whose claim is the highest, whether its lease runs or not.
    pub last: Option<Peer>,
    /// Whether that one's lease runs at some target.
    pub held: bool,
    /// The highest generation of a label that a claim names.
    pub generation: u64,
    /// The number and the id of the highest epoch that a claim names.
    pub epoch: Option<(u64, u128)>,
}

/// What targets say of their claims, in one sentence. `own` is the id of this server.
pub(super) fn judge(claims: &[Option<ClaimState>], own: u128) -> WatchResult {
    let mut found = WatchResult::default();
    let mut highest = None;
    for claims in claims {
        let Some(ClaimState { claim, lease, .. }) = claims else {
            found.votes.push(Vote::Silent);
            continue;
        };
        let Some(claim) = claim else {
            found.votes.push(Vote::Free);
            continue;
        };
        let holder = Peer { name: claim.holder.name.clone(), address: claim.holder.address.clone() };
        found.generation = found.generation.max(claim.generation);
        let is_own = claim.holder.id == own;
        found.votes.push(match lease {
            _ if is_own => Vote::Free,
            Lease::Over => Vote::Free,
            Lease::Released => Vote::Released,
            Lease::Runs(_) | Lease::Locked => Vote::Held { holder: holder.clone() },
        });
        let epoch = (claim.epoch.number, claim.epoch.id);
        if highest.is_none_or(|other| epoch >= other) {
            found.held = lease.runs() && !is_own || found.held && highest == Some(epoch);
            (highest, found.last) = (Some(epoch), Some(holder));
        }
    }
    found.epoch = highest;
    found
}

type ClaimAnswer = (TargetId, Option<ClaimState>);

/// Asks the voters of a volume.
pub(super) struct Watch {
    own: u128,
    places: Arc<ClusterPlaces>,
    label: Label,
    targets: BTreeMap<TargetId, Arc<dyn Target>>,
    /// Targets that have not answered yet.
    asked: BTreeSet<TargetId>,
    /// When labels were last read because too few targets were free.
    searched: Option<Instant>,
    answers: (Sender<ClaimAnswer>, Mutex<Receiver<ClaimAnswer>>),
}

impl Watch {
    /// Watches the targets of the volume whose pointer is in the directory.
    ///
    /// # Errors
    /// When the directory holds no volume.
    pub fn new(directory: &Path, own: u128, places: Arc<ClusterPlaces>) -> fs::Result<Self> {
        let label = Label::read_pointer(directory)?;
        let (sender, receiver) = channel();
        let answers = (sender, Mutex::new(receiver));
        Ok(Self { own, places, label, targets: BTreeMap::new(), asked: BTreeSet::new(), searched: None, answers })
    }

    /// The label that is used now.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// How many voters must say that they are free.
    pub fn enough(&self) -> usize {
        self.label.voters().len().saturating_sub(self.losses()).max(1)
    }

    /// How many targets may be lost.
    fn losses(&self) -> usize {
        ec::parse(&self.label.code).map_or(0, |code| code.shape().m)
    }

    /// How to follow the holder, with what was found.
    pub fn course(&self, found: &WatchResult) -> Option<Course> {
        let places = self.targets.iter().map(|(&id, target)| (id, target.clone())).collect();
        Some(Course { volume: self.label.id().ok()?, losses: self.losses(), places, epoch: found.epoch })
    }

    /// Reads the claims of all voters that are not still busy with the last round.
    pub fn look(&mut self) -> WatchResult {
        let members: Vec<Member> = self.label.members().filter(|member| member.votes).cloned().collect();
        self.targets.retain(|id, _| members.iter().any(|member| member.id == *id));
        let mut claims: BTreeMap<TargetId, Option<ClaimState>> = BTreeMap::new();
        for member in &members {
            let id = member.id;
            if !self.targets.contains_key(&id)
                && let Some(target) = open(&self.places, &member.path)
            {
                self.targets.insert(id, target);
            }
            let Some(target) = self.targets.get(&id).filter(|_| !self.asked.contains(&id)) else { continue };
            let (target, sender) = (target.clone(), self.answers.0.clone());
            self.asked.insert(id);
            std::thread::spawn(move || _ = sender.send((id, target.claim(&ClaimRequest::Read).ok())));
        }
        let begun = Instant::now();
        let receiver = lock(&self.answers.1);
        while !self.asked.is_empty() {
            let Ok((id, answer)) = receiver.recv_timeout(ROUND_TIMEOUT.saturating_sub(begun.elapsed())) else { break };
            self.asked.remove(&id);
            claims.insert(id, answer);
        }
        let claims: Vec<_> = members.iter().map(|member| claims.remove(&member.id).flatten()).collect();
        judge(&claims, self.own)
    }

    /// Reads the labels of the targets if a claim names a newer one, and keeps the newest in the
    /// directory. Also when nobody holds the volume and too few targets are free: others may vote
    /// by now. Call it only with the lock of the directory.
    pub fn follow(&mut self, directory: &Path, found: &WatchResult) {
        let free = found.votes.iter().filter(|vote| matches!(vote, Vote::Free | Vote::Released)).count();
        let searches = !found.held
            && free < self.enough()
            && self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH_INTERVAL);
        if found.generation <= self.label.generation && !searches {
            return;
        }
        if searches {
            self.searched = Some(Instant::now());
        }
        let others = self.label.members().filter(|member| searches && !member.votes);
        let others: Vec<_> = others.map(|member| (None, member.path.clone())).collect();
        let voters = self.targets.values().map(|target| (Some(target.clone()), PathBuf::new()));
        let questions = voters.chain(others).map(|(target, path)| {
            let places = self.places.clone();
            move || match target.or_else(|| open(&places, &path)) {
                Some(target) => Label::read(&*target, "a target"),
                None => Ok(None),
            }
        });
        let wait = Wait { least: free, wanted: usize::MAX, deadline: ROUND_TIMEOUT };
        let read = ask_all(questions, Result::is_ok, wait).into_iter().flatten().filter_map(|read| read.ok().flatten());
        let newer = read.filter(|label| label.volume == self.label.volume && label.generation > self.label.generation);
        if let Some(label) = newer.max_by_key(|label| label.generation) {
            self.label = Label { target: None, ..label };
            // It is found again from the targets if it cannot be written.
            let _ = self.label.write_pointer(directory);
        }
    }
}

/// Opens a target without locking out who works on it.
fn open(places: &ClusterPlaces, path: &Path) -> Option<Arc<dyn Target>> {
    match StoreAddress::of(path) {
        Some(address) => Some(Arc::new(places.stores().target(&address.ok()?))),
        None => Some(Arc::new(Disk::open(path).ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::format::VolumeId;
    use volume::target::{Claim, Epoch, Holder};

    fn claims(number: u64, id: u128, lease: Lease) -> Option<ClaimState> {
        let holder = Holder { id, name: format!("s{id}"), address: format!("s{id}:7600") };
        let epoch = Epoch { number, id };
        let claim = Claim { volume: VolumeId([7; 16]), generation: number, epoch, mirrors: Vec::new(), holder };
        Some(ClaimState { claim: Some(claim), lease, blank: 0 })
    }

    fn peer(id: u128) -> Peer {
        Peer { name: format!("s{id}"), address: format!("s{id}:7600") }
    }

    #[test]
    fn votes_are_what_targets_say() {
        let runs = Lease::Runs(Duration::from_secs(1));
        let found = judge(
            &[
                claims(5, 1, runs),
                claims(5, 1, Lease::Over),
                claims(5, 1, Lease::Released),
                claims(5, 1, Lease::Locked),
                Some(ClaimState::default()),
                None,
            ],
            9,
        );
        let held = || Vote::Held { holder: peer(1) };
        assert_eq!(found.votes, [held(), Vote::Free, Vote::Released, held(), Vote::Free, Vote::Silent]);
        assert_eq!((found.last, found.held, found.generation), (Some(peer(1)), true, 5));
    }

    #[test]
    fn an_earlier_claim_of_this_server_keeps_it_from_nothing() {
        let found = judge(&[claims(5, 9, Lease::Runs(Duration::from_secs(1))), claims(5, 9, Lease::Released)], 9);
        assert_eq!(found.votes, [Vote::Free, Vote::Free]);
        assert!(!found.held);
    }

    #[test]
    fn the_highest_claim_says_who_has_the_volume() {
        let runs = Lease::Runs(Duration::from_secs(1));
        // One target missed the takeover, and believes in the one before.
        for claims in [[claims(5, 1, runs), claims(6, 2, runs)], [claims(6, 2, runs), claims(5, 1, runs)]] {
            let found = judge(&claims, 9);
            assert_eq!((found.last, found.held), (Some(peer(2)), true));
        }
        let found = judge(&[claims(5, 1, runs), claims(6, 2, Lease::Over)], 9);
        assert_eq!((found.last, found.held), (Some(peer(2)), false));
        assert_eq!(judge(&[None, Some(ClaimState::default())], 9).last, None);
    }
}
