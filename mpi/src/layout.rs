//! Which process has which roles. Pure.

use archive::transport::{Crew, MANAGER, REPORTER, Rank};
use serde::{Deserialize, Serialize};

/// The number of a process of the job: MPI's rank.
pub type Process = u32;
/// The process that has the manager, the volume and the terminal.
pub const LEADER: Process = 0;

/// Which process has which roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    explorers: u32,
    workers: u32,
    /// The process of each role.
    processes: Vec<Process>,
}

impl Layout {
    /// Gives roles to processes on these hosts: 0 is the manager, 1 the reporter, then come
    /// explorers, and each other process has `workers_each` workers. If there are too few
    /// processes, explorers share one with the reporter, or all roles but the workers share one.
    ///
    /// Explorers run on the host of the manager: they find the names of one file by the number of
    /// its file system, which means something else on another host. `with_leader` puts them into
    /// the manager's own process.
    pub fn new(hosts: &[String], explorers: u32, workers_each: u32, with_leader: bool) -> Self {
        let count = hosts.len() as u32;
        let at_leader = |process: Process| hosts.get(process as usize) == hosts.first();
        let reporter = if count > 2 { 1 } else { LEADER };
        let mut exploring: Vec<Process> =
            (reporter + 1..count).filter(|&process| at_leader(process)).take(explorers as usize).collect();
        let enough = exploring.len() == explorers as usize && count > reporter + 1 + explorers;
        if with_leader || !enough || count <= 2 {
            let shared = if with_leader || !at_leader(reporter) { LEADER } else { reporter };
            exploring = vec![shared; explorers as usize];
        }
        let others = (reporter + 1..count).filter(|process| !exploring.contains(process));
        let mut working: Vec<Process> = others.collect();
        if working.is_empty() {
            working.push(LEADER);
        }
        let each = |process: Process| std::iter::repeat_n(process, workers_each as usize);
        let working: Vec<Process> = working.into_iter().flat_map(each).collect();
        let workers = working.len() as u32;
        Self { explorers, workers, processes: [vec![LEADER, reporter], exploring, working].concat() }
    }

    /// All roles.
    pub fn crew(&self) -> Crew {
        Crew { explorers: self.explorers, workers: self.workers }
    }

    /// The process that has a role.
    pub fn process_of(&self, role: Rank) -> Option<Process> {
        self.processes.get(role as usize).copied()
    }

    /// The roles that a process has.
    pub fn roles_of(&self, process: Process) -> Vec<Rank> {
        (MANAGER..).zip(&self.processes).filter(|(_, at)| **at == process).map(|(role, _)| role).collect()
    }

    /// Whether a process touches files: it explores or works.
    pub fn touches_files(&self, process: Process) -> bool {
        self.roles_of(process).iter().any(|&role| role > REPORTER)
    }

    /// How many workers a process has.
    pub fn workers_of(&self, process: Process) -> u32 {
        self.roles_of(process).iter().filter(|&&role| self.crew().worker_of(role).is_some()).count() as u32
    }

    /// The name of each worker, with the host of its process.
    pub fn worker_names(&self, hosts: &[String]) -> Vec<String> {
        let mut names = Vec::new();
        for role in (0..self.workers).map(|number| self.crew().worker(number)) {
            let process = self.process_of(role).unwrap_or(LEADER);
            let host = hosts.get(process as usize).map_or("", String::as_str);
            let first = self.roles_of(process).into_iter().find(|&role| self.crew().worker_of(role).is_some());
            names.push(match self.workers_of(process) {
                1 => format!("rank {process} on {host}"),
                _ => format!("rank {process} on {host}, {}", role - first.unwrap_or(role) + 1),
            });
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(hosts: &[(&str, usize)]) -> Vec<String> {
        hosts.iter().flat_map(|(host, count)| std::iter::repeat_n((*host).to_owned(), *count)).collect()
    }

    #[test]
    fn few_processes_share_roles() {
        let processes = |count, explorers| Layout::new(&on(&[("a", count)]), explorers, 1, false).processes;
        assert_eq!(processes(1, 1), [0, 0, 0, 0]);
        assert_eq!(processes(2, 2), [0, 0, 0, 0, 1]);
        assert_eq!(processes(3, 1), [0, 1, 1, 2]);
        assert_eq!(processes(4, 1), [0, 1, 2, 3]);
        assert_eq!(processes(4, 2), [0, 1, 1, 1, 2, 3]);
        assert_eq!(processes(6, 2), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn explorers_are_where_the_manager_is() {
        let layout = |hosts: &[(&str, usize)], here| Layout::new(&on(hosts), 2, 2, here);
        assert_eq!(layout(&[("a", 4), ("b", 2)], false).processes, [0, 1, 2, 3, 4, 4, 5, 5]);
        assert_eq!(layout(&[("a", 2), ("b", 2)], false).processes, [0, 1, 1, 1, 2, 2, 3, 3]);
        assert_eq!(layout(&[("a", 1), ("b", 3)], false).processes, [0, 1, 0, 0, 2, 2, 3, 3]);
        assert_eq!(layout(&[("a", 4)], true).processes, [0, 1, 0, 0, 2, 2, 3, 3]);
    }

    #[test]
    fn every_role_has_one_process_and_every_process_something_to_do() {
        for count in 1..40 {
            for explorers in 1..5 {
                let layout = Layout::new(&on(&[("a", count)]), explorers, 1, false);
                assert_eq!(layout.processes.len() as u32, layout.crew().ranks());
                let all: usize = (0..count as u32).map(|process| layout.roles_of(process).len()).sum();
                assert_eq!(all as u32, layout.crew().ranks());
                assert!((0..count as u32).all(|process| !layout.roles_of(process).is_empty()), "{count} {explorers}");
                assert!(layout.crew().workers > 0);
            }
        }
    }

    #[test]
    fn workers_are_named_by_rank_and_host() {
        let hosts = on(&[("a", 3), ("b", 2)]);
        assert_eq!(Layout::new(&hosts, 1, 1, false).worker_names(&hosts), ["rank 3 on b", "rank 4 on b"]);
        let two = Layout::new(&hosts, 1, 2, false).worker_names(&hosts);
        assert_eq!(two, ["rank 3 on b, 1", "rank 3 on b, 2", "rank 4 on b, 1", "rank 4 on b, 2"]);
    }
}
