//! What primes tell: scores on their way up (paper 003, ECFS, section IV.C and figure 4).
//!
//! A prime of a cabinet (L3) sorts its servers and tells the best ones, what all of them have
//! together, and what the others are like. A prime of a row (L2) puts its cabinets together, one of
//! a sub-network (L1) its rows, and the metadata server keeps a sorted queue of sub-networks: what
//! it hears grows with the cabinets, not with the servers.

use crate::TargetId;
use crate::placement::score::{Coefficients, Typical};
use crate::placement::{Load, Placer, Report, TargetCandidate, algorithm_1};
use std::collections::BTreeMap;

/// The number of servers that a cabinet reports one by one. The paper's cabinets have 10 to 20.
pub const BEST_SERVERS: usize = 16;

/// A server in a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Brief {
    /// The server's target.
    pub id: TargetId,
    /// Its score.
    pub score: f64,
    /// What the score comes from.
    pub report: Report,
}

/// What a cabinet's prime (L3) tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CabinetSummary {
    /// The path of the cabinet.
    pub name: String,
    /// The sum of the scores of all its servers that take data.
    pub score: f64,
    /// How many these are.
    pub servers: usize,
    /// The best of them, the very best first.
    pub best: Vec<Brief>,
    /// The mean of the others.
    pub others: Option<Report>,
}

/// What a sub-network's prime (L1) tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubNetworkSummary {
    /// The path of the sub-network.
    pub name: String,
    /// The sum of the scores of its servers.
    pub score: f64,
    /// Its cabinets, the best first.
    pub cabinets: Vec<CabinetSummary>,
}

impl CabinetSummary {
    /// What a prime tells of the servers of its cabinet. `typical` is what the metadata server last
    /// said of the whole cluster, so that scores of different cabinets can be compared.
    pub fn of(name: &str, servers: &[TargetCandidate], typical: &Typical, coefficients: &Coefficients) -> Self {
        let brief = |server: &TargetCandidate| {
            let load = server.load.unwrap_or(Load {
                idle: typical.idle,
                network: typical.network,
                temperature: typical.temperature,
                queue: typical.queue,
                service: typical.service,
                answer: typical.answer,
                ..Load::default()
            });
            let Load { idle, network, temperature, queue, service, answer, .. } = load;
            let (free, total) = (server.free, server.total);
            let report = Report { idle, network, temperature, queue, service, answer, free, total };
            Brief { id: server.id, score: coefficients.score(&typical.reported(server)), report }
        };
        let mut best: Vec<Brief> = servers.iter().map(brief).collect();
        best.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
        let score = best.iter().map(|brief| brief.score).sum();
        let others = mean(best.get(BEST_SERVERS..).unwrap_or_default());
        best.truncate(BEST_SERVERS);
        Self { name: name.to_owned(), score, servers: servers.len(), best, others }
    }
}

fn mean(of: &[Brief]) -> Option<Report> {
    let part = |value: &dyn Fn(&Report) -> f64| of.iter().map(|b| value(&b.report)).sum::<f64>() / of.len() as f64;
    (!of.is_empty()).then(|| Report {
        idle: part(&|report| report.idle),
        network: part(&|report| report.network),
        temperature: part(&|report| report.temperature),
        queue: part(&|report| report.queue),
        service: part(&|report| report.service),
        answer: part(&|report| report.answer),
        free: part(&|report| report.free as f64) as u64,
        total: part(&|report| report.total as f64) as u64,
    })
}

impl SubNetworkSummary {
    /// What the prime of a sub-network tells, from the cabinets of all its rows.
    pub fn of(name: &str, rows: impl IntoIterator<Item = Vec<CabinetSummary>>) -> Self {
        let mut cabinets: Vec<CabinetSummary> = rows.into_iter().flatten().collect();
        cabinets.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.name.cmp(&b.name)));
        Self { name: name.to_owned(), score: cabinets.iter().map(|cabinet| cabinet.score).sum(), cabinets }
    }
}

/// What the metadata server has: all sub-networks, the one with the highest score first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue(BTreeMap<String, SubNetworkSummary>);

impl Queue {
    /// A sub-network's prime told something new.
    pub fn handle_summary(&mut self, summary: SubNetworkSummary) {
        self.0.insert(summary.name.clone(), summary);
    }

    /// Sub-networks that are not there any more are forgotten.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_there(name));
    }

    /// The sub-networks, the best first.
    pub fn sorted(&self) -> Vec<&SubNetworkSummary> {
        let mut all: Vec<&SubNetworkSummary> = self.0.values().collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all
    }

    /// Chooses the next server for a stripe by algorithm 1 of the paper.
    pub fn select(&self, used: &mut Vec<TargetId>) -> Option<(TargetId, bool)> {
        let servers = |summary: &&SubNetworkSummary| {
            let briefs = summary.cabinets.iter().flat_map(|cabinet| &cabinet.best);
            let mut servers: Vec<(f64, TargetId)> = briefs.map(|brief| (brief.score, brief.id)).collect();
            servers.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            servers
        };
        algorithm_1(&self.sorted().iter().map(servers).collect::<Vec<_>>(), used)
    }
}

/// Tells a placer what a summary says: our variant of the algorithm. Servers that are not told one
/// by one are as the mean of their cabinet's others; `servers_of` says who they are.
pub fn tell<'a>(placer: &mut Placer, summary: &SubNetworkSummary, servers_of: impl Fn(&str) -> &'a [TargetId]) {
    for cabinet in &summary.cabinets {
        cabinet.best.iter().for_each(|brief| placer.handle_report(brief.id, &brief.report));
        if let Some(report) = &cabinet.others {
            let is_told = |id: TargetId| cabinet.best.iter().any(|brief| brief.id == id);
            let others = servers_of(&cabinet.name).iter().filter(|id| !is_told(**id));
            others.for_each(|id| placer.handle_load(*id, report));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Rules, Tuning};
    use crate::topology::Layers;

    const TYPICAL: Typical =
        Typical { idle: 0.5, network: 0.5, temperature: 100.0, queue: 0.0, service: 0.0, answer: 0.0 };

    /// Servers in cabinets of so many, twenty cabinets in a row, five rows in a sub-network.
    fn servers(cabinets: u16, in_each: u16) -> Vec<TargetCandidate> {
        let mut random = fastrand::Rng::with_seed(u64::from(in_each));
        let mut server = |id: u16| {
            let cabinet = id / in_each;
            let path = format!("net{}/row{}/cab{cabinet}/host{id}", cabinet / 100, cabinet / 20);
            let load = Load {
                idle: random.f64(),
                network: random.f64(),
                temperature: 200.0 * random.f64(),
                ..Load::default()
            };
            let (free, state) = (random.u64(0..1 << 40), TargetState::Up);
            TargetCandidate {
                id: TargetId(id),
                free,
                total: 1 << 40,
                domain: path.parse().ok(),
                state,
                load: Some(load),
            }
        };
        (0..cabinets * in_each).map(&mut server).collect()
    }

    fn collect(layers: &Layers, servers: &[TargetCandidate]) -> Vec<SubNetworkSummary> {
        let cabinet = |(name, ids): (&String, &Vec<TargetId>)| {
            let of: Vec<TargetCandidate> = ids.iter().map(|id| servers[usize::from(id.0)].clone()).collect();
            CabinetSummary::of(name, &of, &TYPICAL, &Coefficients::default())
        };
        let rows = |rows: &BTreeMap<String, BTreeMap<String, Vec<TargetId>>>| -> Vec<Vec<CabinetSummary>> {
            rows.values().map(|row| row.iter().map(cabinet).collect()).collect()
        };
        layers.sub_networks.iter().map(|(name, of)| SubNetworkSummary::of(name, rows(of))).collect()
    }

    fn layers(servers: &[TargetCandidate]) -> Layers {
        Layers::of(servers.iter().map(|server| (server.id, server.domain.as_ref())), 3)
    }

    /// Nothing is lost on the way: sums are those of all servers, the best are the best, and the
    /// order is that of the scores.
    #[test]
    fn summaries_are_sorted_and_whole() {
        let servers = servers(200, 20);
        let told = collect(&layers(&servers), &servers);
        let score = |server: &TargetCandidate| Coefficients::default().score(&TYPICAL.reported(server));
        let all: f64 = servers.iter().map(score).sum();
        assert_eq!(told.len(), 2);
        assert!((told.iter().map(|network| network.score).sum::<f64>() - all).abs() < 1e-9 * all);
        for cabinet in told.iter().flat_map(|network| &network.cabinets) {
            let mut of: Vec<f64> = servers
                .iter()
                .filter(|server| server.domain.as_ref().unwrap().at(Some(3)) == cabinet.name)
                .map(score)
                .collect();
            of.sort_by(|a, b| b.total_cmp(a));
            assert_eq!(cabinet.best.iter().map(|brief| brief.score).collect::<Vec<_>>(), of[..BEST_SERVERS]);
            assert_eq!(cabinet.servers, 20);
        }
        assert!(told.iter().all(|network| network.cabinets.is_sorted_by(|a, b| a.score >= b.score)));
    }

    #[test]
    fn the_metadata_server_hears_of_cabinets_and_not_of_servers() {
        let heard = |in_each: u16| {
            let servers = servers(100, in_each);
            let told = collect(&layers(&servers), &servers);
            (told.len(), told.iter().flat_map(|network| &network.cabinets).map(|c| c.best.len()).sum::<usize>())
        };
        // One message from each sub-network; the same length for six times the servers.
        assert_eq!((heard(100), heard(600), heard(10)), ((1, 1600), (1, 1600), (1, 1000)));
    }

    #[test]
    fn the_queue_selects_by_algorithm_1() {
        let servers = servers(200, 10);
        let mut queue = Queue::default();
        collect(&layers(&servers), &servers).into_iter().for_each(|summary| queue.handle_summary(summary));
        let best = queue.sorted()[0];
        let of_best: Vec<f64> = best.cabinets.iter().flat_map(|cabinet| &cabinet.best).map(|b| b.score).collect();
        let highest = of_best.iter().copied().fold(0.0, f64::max);
        let mut used = Vec::new();
        let (first, again) = queue.select(&mut used).unwrap();
        let score = |id: TargetId| Coefficients::default().score(&TYPICAL.reported(&servers[usize::from(id.0)]));
        assert!(!again && score(first) == highest && queue.sorted()[0].score >= queue.sorted()[1].score);
        while queue.select(&mut used).is_some_and(|(_, again)| !again) {}
        assert_eq!(used.len(), 2000, "each once");
        let best = best.name.clone();
        queue.retain(|name| name != best);
        assert_eq!(queue.sorted().len(), 1);
    }

    /// A placer that hears of cabinets rather takes what one takes that hears of every server.
    #[test]
    fn a_placer_learns_from_summaries() {
        let servers = servers(100, 20);
        let layers = layers(&servers);
        let by_name: BTreeMap<&str, &[TargetId]> = layers.cabinets().collect();
        let unknown: Vec<TargetCandidate> =
            servers.iter().map(|server| TargetCandidate { load: None, ..server.clone() }).collect();
        let rules = Rules { width: 8, spare: 2, domain_level: Some(3), need: 1 };
        let mut placer = Placer::new(rules, Tuning { evenness: 0.0, chunk_bytes: 1, ..Tuning::default() }, 1);
        placer.handle_members(&unknown);
        let typical = Typical::of(servers.iter().filter_map(|server| server.load));
        let score = |id: TargetId| Coefficients::default().score(&typical.reported(&servers[usize::from(id.0)]));
        let mean = |placer: &mut Placer| {
            let placed: Vec<TargetId> = (0..100).flat_map(|set| placer.place(crate::SetId(set))).flatten().collect();
            placed.iter().map(|id| score(*id)).sum::<f64>() / placed.len() as f64
        };
        let blind = mean(&mut placer.clone());
        collect(&layers, &servers).iter().for_each(|summary| tell(&mut placer, summary, |name| by_name[name]));
        placer.handle_interval();
        let seeing = mean(&mut placer);
        assert!(seeing > 1.07 * blind, "{seeing} and {blind}");
    }
}
