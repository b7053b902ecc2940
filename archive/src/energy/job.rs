//! An archive job's energy: what its instruments read, shared out to its phases and causes.

use super::sampler::Sampler;
use crate::report::Facts;

/// Ends the sampler of a job that has ended and puts the accounts into its facts; the reasons why instruments have none are what is
/// returned. Its phases overlap, so that each takes as much of the energy as it took of the processor time.
pub fn account(sampler: Sampler, facts: &mut Facts) -> Vec<String> {
    let coding: f64 = facts.phases.iter().filter(|phase| phase.name == "encode").map(|phase| phase.cpu_seconds).sum();
    let busy: f64 = facts.workers.iter().map(|worker| worker.timeline.busy_seconds).sum();
    // What a worker did without a processor was waiting for what it read or wrote.
    let finished = sampler.finish((busy - coding).max(0.0), coding);
    let phases: Vec<(&str, f64)> = facts.phases.iter().map(|phase| (phase.name.as_str(), phase.cpu_seconds)).collect();
    facts.energy = finished.accounts;
    facts.energy.iter_mut().for_each(|account| account.share_out(&phases));
    finished.refused
}

#[cfg(test)]
mod tests {
    use super::super::source::Choice;
    use super::*;
    use crate::report::{Phase, Worker};

    #[test]
    fn phases_share_what_the_job_took() {
        let mut worker = Worker::default();
        worker.timeline.add(0.0, 5.0);
        let phase = |name: &str, cpu_seconds| Phase { name: name.into(), wall_seconds: 5.0, cpu_seconds };
        let mut facts = Facts {
            workers: vec![worker],
            phases: vec![phase("explore", 1.0), phase("encode", 3.0)],
            ..Facts::default()
        };
        let choice = Choice { powercap: "/nonexistent".into(), ..Choice::default() };
        account(Sampler::start(&choice, "job"), &mut facts);
        let model = facts.energy.last().unwrap();
        assert_eq!(model.source, "model");
        assert!((model.phases[1].joules - 3.0 * model.phases[0].joules).abs() < 1e-9);
        assert!((model.phases[0].joules + model.phases[1].joules - model.joules).abs() < 1e-9);
    }
}
