//! An archive job's energy: what its instruments read, split by phases and by causes.

use super::sampler::Sampler;
use crate::report::Facts;

/// Ends the sampler of a finished job and puts the accounts into its facts. Returns, for each
/// instrument without an account, the reason. Phases overlap, so that each gets the share of the
/// energy that it has of the processor time.
pub fn account(sampler: Sampler, facts: &mut Facts) -> Vec<String> {
    let coding: f64 = facts.phases.iter().filter(|phase| phase.name == "encode").map(|phase| phase.cpu_seconds).sum();
    let busy: f64 = facts.workers.iter().map(|worker| worker.timeline.busy_seconds).sum();
    // The time that a worker was busy without a processor is time that it waited for I/O.
    let finished = sampler.finish((busy - coding).max(0.0), coding);
    let phases: Vec<(&str, f64)> = facts.phases.iter().map(|phase| (phase.name.as_str(), phase.cpu_seconds)).collect();
    facts.energy = finished.accounts;
    facts.energy.iter_mut().for_each(|account| account.share_out(&phases));
    finished.refused
}

#[cfg(test)]
mod tests {
    use super::super::choice::Choice;
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
