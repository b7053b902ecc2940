//! The policies of the comparison, block by block: the paper chooses a server for each block
//! (section IV.B and algorithm 1), not for a whole stripe.

use super::setting::{Policy, Setting};
use plan::membership::TargetState;
use plan::placement::score::{Coefficients, Typical};
use plan::placement::temperature::Tau;
use plan::placement::{Crush, Observed, Observer, Placer, Rules, TargetCandidate, Tuning, algorithm_1, place};
use plan::{SetId, TargetId};

/// Chooses servers.
pub struct Chooser {
    policy: Policy,
    servers: usize,
    rules: Rules,
    placer: Placer,
    observer: Observer,
    candidates: Vec<TargetCandidate>,
    /// For algorithm 1: the servers of each sub-network with their scores, the best first.
    networks: Vec<Vec<(f64, TargetId)>>,
    in_network: usize,
    seed: u64,
    random: fastrand::Rng,
}

/// The stripe that is written: whose it is, its number, and where its blocks are so far.
pub struct Stripe<'a> {
    /// The node of the writer.
    pub node: usize,
    /// The number of the stripe among all.
    pub number: u64,
    /// Blocks that this client has placed before.
    pub before: u64,
    /// The servers of the blocks so far.
    pub used: &'a [TargetId],
}

impl Chooser {
    /// For this many servers, all empty.
    pub fn new(policy: Policy, setting: &Setting, seed: u64) -> Self {
        let total = setting.disk_bytes;
        let candidate = |id: usize| TargetCandidate {
            id: TargetId(id as u16),
            free: total,
            total,
            domain: format!("net{}/host{id}", id / setting.in_network).parse().ok(),
            state: TargetState::Up,
            load: None,
        };
        let candidates: Vec<TargetCandidate> = (0..setting.servers).map(candidate).collect();
        let need = setting.block_bytes;
        // Each server is a domain, as in the paper's test.
        let rules = Rules { width: setting.k + setting.m, spare: setting.m, domain_level: None, need };
        let tuning = Tuning { chunk_bytes: setting.block_bytes, evenness: setting.evenness, ..Tuning::default() };
        let mut placer = Placer::new(rules, tuning, seed);
        placer.handle_members(&candidates);
        let mut new = Self {
            policy,
            servers: setting.servers,
            rules,
            placer,
            observer: Observer::new(Tau::Tuned),
            candidates,
            networks: Vec::new(),
            in_network: setting.in_network,
            seed,
            random: fastrand::Rng::with_seed(seed ^ 0xB10C),
        };
        new.score();
        new
    }

    /// The server of the next block.
    pub fn next(&mut self, stripe: &Stripe<'_>) -> TargetId {
        let used = stripe.used;
        match self.policy {
            Policy::Adaptive => {
                let found = self.placer.place_more(SetId(stripe.number), 1, used);
                found.first().copied().unwrap_or_else(|| self.any(used))
            }
            Policy::Algorithm1 => {
                let mut used = used.to_vec();
                algorithm_1(&self.networks, &mut used).expect("there are servers").0
            }
            // Each client goes round by itself, from its own node on.
            Policy::RoundRobin => {
                let at = (stripe.node as u64 + stripe.before) % self.servers as u64;
                TargetId(at as u16)
            }
            Policy::Random => self.any(used),
            Policy::Crush => {
                let crush = Crush { seed: self.seed };
                let placed = place(&crush, &self.candidates, &self.rules, SetId(stripe.number));
                placed.get(used.len()).copied().flatten().unwrap_or_else(|| self.any(used))
            }
        }
    }

    /// A server by chance that the stripe does not use; any, if it uses all.
    fn any(&mut self, used: &[TargetId]) -> TargetId {
        loop {
            let id = TargetId(self.random.usize(0..self.servers) as u16);
            if !used.contains(&id) || used.len() >= self.servers {
                return id;
            }
        }
    }

    /// All servers reported, and have so many bytes.
    pub fn report(&mut self, seen: &[(TargetId, Observed)], used: &[u64]) {
        for (id, _) in seen {
            let total = self.candidates[usize::from(id.0)].total;
            let free = total.saturating_sub(used[usize::from(id.0)]);
            self.candidates[usize::from(id.0)].free = free;
        }
        // With the load comes the space of before, less what was placed; so space needs no report.
        self.observer.handle(seen, &mut self.placer);
        if self.policy == Policy::Algorithm1 {
            for candidate in &mut self.candidates {
                candidate.load = self.placer.load(candidate.id);
            }
            self.score();
        }
    }

    /// The scores as reported, for algorithm 1.
    fn score(&mut self) {
        let typical = Typical::of(self.candidates.iter().filter_map(|target| target.load));
        let score = |target: &TargetCandidate| Coefficients::default().score(&typical.reported(target));
        self.networks = self
            .candidates
            .chunks(self.in_network)
            .map(|servers| {
                let mut servers: Vec<(f64, TargetId)> =
                    servers.iter().map(|server| (score(server), server.id)).collect();
                servers.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
                servers
            })
            .collect();
    }
}
