//! Targets of storage servers that were away and are back: they are used again without anybody saying so.

use crate::label::{Member, Role};
use crate::mutex::lock;
use crate::open::open_target;
use crate::{FileSystem, Result};
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A target that does not answer is asked again after this time.
const PAUSE: Duration = Duration::from_secs(1);
/// One that answers and goes on failing is left alone for so long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Targets that are or were away.
#[derive(Debug, Default)]
pub(crate) struct Returns(Mutex<BTreeMap<TargetId, Look>>);

#[derive(Debug)]
struct Look {
    /// It is being asked, which may take long.
    asked: bool,
    next: Instant,
    pause: Duration,
    /// When it was used again.
    back: Option<Instant>,
}

impl Returns {
    /// Whether a target that fails is to be asked now.
    fn is_due(&self, id: TargetId, now: Instant) -> bool {
        let mut looks = lock(&self.0);
        let look = looks.entry(id).or_insert(Look { asked: false, next: now, pause: PAUSE, back: None });
        if let Some(back) = look.back.take() {
            // It failed again.
            let soon = now.saturating_duration_since(back) < LONGEST_PAUSE;
            look.pause = if soon { (look.pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
            look.next = now + look.pause;
        }
        let due = !look.asked && now >= look.next;
        look.asked |= due;
        due
    }

    fn asked(&self, id: TargetId, is_back: bool, now: Instant) {
        if let Some(look) = lock(&self.0).get_mut(&id) {
            look.asked = false;
            look.next = now + PAUSE;
            look.back = is_back.then_some(now);
        }
    }
}

impl FileSystem {
    /// Looks whether targets that were away or failed answer again. Does not wait for them.
    pub(crate) fn look_for_returns(self: &Arc<Self>) {
        let label = self.volume.label();
        for member in label.members() {
            let id = member.id;
            let failed = self.store.targets.get(id).is_none() || self.store.targets.error(id).is_some();
            if !failed || !self.returns.is_due(id, Instant::now()) {
                continue;
            }
            let (fs, member) = (self.clone(), member.clone());
            std::thread::spawn(move || {
                let done = fs.look_for_return(&member);
                fs.returns.asked(member.id, done.is_ok_and(|is_back| is_back), Instant::now());
            });
        }
    }

    /// Uses a target again if it answers.
    fn look_for_return(&self, member: &Member) -> Result<bool> {
        let (id, targets) = (member.id, &self.store.targets);
        if targets.get(id).is_none() {
            let target = match &self.client {
                Some(client) => (client.find)(member)?,
                None => open_target(&*self.volume.places, &member.path, &self.volume.label().volume, Some(id))?.0,
            };
            targets.add(id, target);
            lock(&self.volume.missing).remove(&id);
            if member.role != Role::Active {
                self.store.close_target(id, true);
            }
            if let Some(engine) = &self.engine {
                let all = targets.ids().into_iter().filter_map(|id| Some((id, targets.get(id)?))).collect();
                engine.journal.set_targets(all)?;
            }
        } else if targets.hangs(id) || !targets.is_usable(id) {
            return Ok(false);
        }
        targets.forgive(id);
        if let Some(engine) = &self.engine {
            self.strays.suspect(id);
            engine.journal.retry();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_and_again_is_asked_less_often() {
        let (returns, id) = (Returns::default(), TargetId(3));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(returns.is_due(id, at(0)));
        assert!(!returns.is_due(id, at(9)), "it is being asked");
        returns.asked(id, false, at(10));
        assert!(!returns.is_due(id, at(10)));
        assert!(returns.is_due(id, at(11)));
        returns.asked(id, true, at(11));
        // Back for two seconds.
        assert!(!returns.is_due(id, at(13)));
        assert!(!returns.is_due(id, at(14)));
        assert!(returns.is_due(id, at(15)));
        returns.asked(id, true, at(15));
        assert!(!returns.is_due(id, at(16)));
        assert!(!returns.is_due(id, at(19)));
        assert!(returns.is_due(id, at(20)));
        returns.asked(id, true, at(20));
        // Back for long.
        assert!(!returns.is_due(id, at(200)));
        assert!(returns.is_due(id, at(201)));
    }
}
