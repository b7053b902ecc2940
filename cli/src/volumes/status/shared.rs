//! What several blocks of a stripe on one target mean, in words: `volume create --allow-sharing`.

use crate::show;
use fs::Status;
use plan::placement::{survived_when_shared, taken_by_domains};
use std::path::Path;
use volume::Shown;

/// How many targets are named.
const NAMED: usize = 3;

/// What new data survives on `targets` targets with a code of k+m blocks: a loud line.
pub fn warning(k: usize, m: usize, targets: usize) -> String {
    let most = plan::placement::most_on_one(k + m, targets);
    let survives = match survived_when_shared(k + m, targets, m) {
        0 => "NONE may be lost".to_owned(),
        lost => format!("only {lost} may be lost, not {m}"),
    };
    format!(
        "SHARED TARGETS: {} have up to {most} of the {} blocks of a stripe: {survives}; add {}",
        show::count(targets, "target"),
        k + m,
        show::count(k + m - targets, "more target"),
    )
}

/// What domains with so many targets each cannot keep of the rule that no domain gets more than m
/// blocks of a stripe: a loud line, or nothing if they can.
pub fn too_few_domains(k: usize, m: usize, targets: impl IntoIterator<Item = usize>) -> Option<String> {
    let targets: Vec<usize> = targets.into_iter().collect();
    let taken = taken_by_domains(targets.iter().copied(), m);
    if targets.is_empty() || m == 0 || taken >= k + m {
        return None;
    }
    Some(format!(
        "TOO FEW DOMAINS: {} can take {taken} of {} blocks, {m} each: the loss of one LOSES data; add {}",
        show::count(targets.len(), "domain"),
        k + m,
        show::count((k + m - taken).div_ceil(m), "more domain"),
    ))
}

/// The lines for a volume, or none.
pub fn lines(status: &Status, volume: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let shape = ec::parse(&status.code).map(|code| code.shape()).ok();
    let domains = status.domains.iter().map(|domain| domain.targets);
    lines.extend(shape.and_then(|shape| too_few_domains(shape.k, shape.m, domains)));
    let active = status.targets.iter().filter(|target| target.role == fs::label::Role::Active).count();
    if let Some(shape) = shape.filter(|shape| status.most_on_one > 1 && active < shape.blocks()) {
        lines.push(warning(shape.k, shape.m, active));
    } else if status.shared > 0 {
        let have = if status.shared == 1 { "has" } else { "have" };
        lines.push(format!(
            "{} still {have} several blocks on one target; spread them: weft rebalance {}",
            show::count(status.shared, "chunk set"),
            Shown(volume)
        ));
    }
    let fatal: Vec<_> = status.targets.iter().filter(|target| target.would_lose > 0).collect();
    for target in fatal.iter().take(NAMED) {
        let sets = show::count(target.would_lose, "chunk set");
        lines.push(format!("survives no loss of {}: {sets} would be LOST", Shown(&target.path)));
    }
    if fatal.len() > NAMED {
        lines.push(format!("survives no loss of {} either", show::count(fatal.len() - NAMED, "more target")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_survived_is_counted_by_targets() {
        let said = warning(4, 2, 4);
        assert!(said.contains("4 targets have up to 2 of the 6 blocks"), "{said}");
        assert!(said.ends_with("only 1 may be lost, not 2; add 2 more targets"), "{said}");
        assert!(warning(8, 2, 4).contains("NONE may be lost"), "{}", warning(8, 2, 4));
    }

    #[test]
    fn too_few_domains_are_told_of_before_they_lose_anything() {
        for enough in [vec![], vec![2, 2, 2], vec![1; 6], vec![5, 2, 9]] {
            assert_eq!(too_few_domains(4, 2, enough), None);
        }
        assert_eq!(too_few_domains(4, 0, [2, 2]), None);
        let said = too_few_domains(4, 2, [3, 3]).unwrap();
        assert!(said.contains("2 domains can take 4 of 6 blocks, 2 each"), "{said}");
        assert!(said.ends_with("add 1 more domain"), "{said}");
    }
}
