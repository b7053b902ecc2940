//! Which targets of a volume vote about its newest state. N-m of the N voters know it, so a failure
//! domain with more than m of them takes the metadata along when it fails. Where the data survive
//! the loss of a domain, none has more than m voters, and the metadata survives it, too. But 2m+1
//! must be left: fewer cannot be written with m of them away.

use crate::placement::{Place, place_of, taken_by_domains};
use crate::{Domain, TargetId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A target that may vote.
#[derive(Clone, Debug)]
pub struct VoterCandidate {
    /// Its number.
    pub id: TargetId,
    /// Where it is; one without a domain is its own.
    pub domain: Option<Domain>,
    /// Whether it votes now.
    pub votes: bool,
    /// Whether it is to stay: it is not being emptied, and not out.
    pub stays: bool,
    /// Whether it is there, and has no failure.
    pub healthy: bool,
}

/// The targets that should vote, where chunk sets of `width` chunks survive the loss of `spare`: in
/// each domain `spare` at most, those that stay and vote already first. All of them, where a domain
/// takes the data along, or these are too few.
pub fn voters(
    candidates: &[VoterCandidate],
    domain_level: Option<u8>,
    width: usize,
    spare: usize,
) -> BTreeSet<TargetId> {
    let domains = by_domain(candidates, domain_level);
    let count = taken_by_domains(domains.values().map(Vec::len), spare);
    if spare == 0 || count < width.max(2 * spare + 1) {
        return candidates.iter().map(|candidate| candidate.id).collect();
    }
    let chosen = domains.into_values().flat_map(|mut members| {
        members.sort_by_key(|it| (Reverse(it.stays), Reverse(it.votes), Reverse(it.healthy), it.id));
        members.into_iter().take(spare)
    });
    chosen.map(|member| member.id).collect()
}

/// These targets in an order in which the first ones are in different domains.
pub fn by_turns(candidates: &[VoterCandidate], domain_level: Option<u8>) -> Vec<TargetId> {
    let mut turns: Vec<(usize, TargetId)> = Vec::new();
    for mut members in by_domain(candidates, domain_level).into_values() {
        members.sort_by_key(|member| member.id);
        turns.extend(members.into_iter().enumerate().map(|(turn, member)| (turn, member.id)));
    }
    turns.sort_unstable();
    turns.into_iter().map(|(_, id)| id).collect()
}

/// The members of each domain.
fn by_domain(candidates: &[VoterCandidate], domain_level: Option<u8>) -> BTreeMap<Place<'_>, Vec<&VoterCandidate>> {
    let mut domains: BTreeMap<Place<'_>, Vec<&VoterCandidate>> = BTreeMap::new();
    for candidate in candidates {
        let place = place_of(candidate.id, candidate.domain.as_ref(), domain_level);
        domains.entry(place).or_default().push(candidate);
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines with these numbers of disks, numbered one after the other. All vote.
    fn machines(disks: &[u16]) -> Vec<VoterCandidate> {
        let machines = disks.iter().enumerate();
        let of = machines.flat_map(|(machine, &disks)| (0..disks).map(move |_| format!("rack/machine{machine}")));
        of.enumerate()
            .map(|(id, domain)| VoterCandidate {
                id: TargetId(id as u16),
                domain: Some(domain.parse().unwrap()),
                votes: true,
                stays: true,
                healthy: true,
            })
            .collect()
    }

    fn ids(ids: impl IntoIterator<Item = u16>) -> BTreeSet<TargetId> {
        ids.into_iter().map(TargetId).collect()
    }

    /// Any machine may be lost, and any m voters: N-m are left, and m+1 for the journal.
    #[test]
    fn a_domain_that_is_lost_leaves_enough_voters() {
        for (k, m) in [(2, 1), (4, 1), (4, 2), (2, 2), (8, 3), (1, 2)] {
            for count in 2..8 {
                for disks in [1, 2, 3, 10] {
                    let all = machines(&vec![disks; count]);
                    let voting = voters(&all, None, k + m, m);
                    if usize::from(disks).min(m) * count < (k + m).max(2 * m + 1) {
                        assert_eq!(voting.len(), all.len(), "a machine takes the data along, or they are too few");
                        continue;
                    }
                    let needed = voting.len() - m;
                    for machine in 0..count as u16 {
                        let lost = ids(machine * disks..(machine + 1) * disks);
                        let left = voting.difference(&lost).count();
                        assert!(left >= needed, "{k}+{m} on {count} machines of {disks}: {left} of {needed}");
                        assert!(left > m, "{k}+{m} on {count} machines of {disks}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_vote_moves_only_when_it_must() {
        let mut all = machines(&[3, 3, 3]);
        assert_eq!(voters(&all, None, 3, 1), ids([0, 3, 6]));
        all.iter_mut().for_each(|it| it.votes = [1, 5, 6].contains(&it.id.0));
        assert_eq!(voters(&all, None, 3, 1), ids([1, 5, 6]));
        // One is emptied or dead, and in one domain all are.
        all.iter_mut().for_each(|it| it.stays = ![5, 6, 7, 8].contains(&it.id.0));
        assert_eq!(voters(&all, None, 3, 1), ids([1, 3, 6]));
        // Of equal ones, not the one that does not answer.
        all.iter_mut().for_each(|it| (it.votes, it.stays, it.healthy) = (true, true, it.id.0 != 3));
        assert_eq!(voters(&all, None, 3, 1), ids([0, 4, 6]));
        // All are in one rack, which takes the data along.
        assert_eq!(voters(&all, Some(1), 3, 1).len(), 9);
        // Without domains each is its own.
        all.iter_mut().for_each(|it| it.domain = None);
        assert_eq!(voters(&all, None, 3, 1).len(), 9);
        assert_eq!(voters(&machines(&[3, 3, 3]), None, 3, 0).len(), 9);
    }

    #[test]
    fn the_first_are_in_different_domains() {
        let turns = |disks: &[u16], level| by_turns(&machines(disks), level).into_iter().map(|id| id.0).collect();
        let expected: [(&[u16], Option<u8>, Vec<u16>); 3] = [
            (&[2, 1, 3], None, vec![0, 2, 3, 1, 4, 5]),
            (&[2, 1, 3], Some(1), vec![0, 1, 2, 3, 4, 5]),
            (&[], None, vec![]),
        ];
        for (disks, level, order) in expected {
            let found: Vec<u16> = turns(disks, level);
            assert_eq!(found, order);
        }
    }
}
