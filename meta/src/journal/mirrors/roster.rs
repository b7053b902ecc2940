//! The set of mirrors: replaces mirrors that fail, are full, or are no longer wanted.

use super::super::claim::claims::check_kept;
use super::super::files::{Failed, same};
use super::super::options::{MirrorTarget, is_full, unavailable};
use super::mirror::Mirror;
use super::recruit::RecruitState;
use super::writer::Writer;
use crate::kv::KvError;
use plan::TxId;
use std::cmp::Reverse;
use std::io;
use std::sync::Weak;
use std::sync::atomic::Ordering;

/// How many times in a row the sources of a copy may go away before the target counts as failed.
const MAX_STRANDED: u32 = 8;

impl Writer {
    /// Makes a target a mirror that was one. `has` is its snapshot. It counts when it says that it
    /// has lost nothing.
    fn rejoin(&mut self, place: &MirrorTarget, has: TxId) {
        let epoch = self.shared.claim.epoch;
        self.join_as(place, false, |_, mirror| {
            let copied = mirror.copied.clone();
            mirror.copy(Box::new(move |target| {
                check_kept(target, epoch).map(|()| copied.store(has.0, Ordering::Relaxed))
            }));
        });
    }

    /// Makes a target a mirror. With `copies`, it gets the state from the others before it counts.
    pub fn join(&mut self, place: &MirrorTarget, whole: bool, copies: bool) {
        self.join_as(place, whole, |writer, mirror| {
            if copies {
                let (state, place, copied) = (writer.state(place), place.clone(), mirror.copied.clone());
                mirror.copy(Box::new(move |_| state.bring(&place).map(|last| copied.store(last.0, Ordering::Relaxed))));
            } else if !whole {
                // It gets all from now on.
                let epoch = writer.shared.claim.epoch;
                mirror.check(Box::new(move |target| check_kept(target, epoch)));
            }
        });
    }

    fn join_as(&mut self, place: &MirrorTarget, whole: bool, begin: impl FnOnce(&Self, &mut Mirror)) {
        self.next_key += 1;
        let started = Mirror::start(self.next_key, place.clone(), self.durable, &self.shared, self.answers.clone());
        let mut mirror = match started {
            Ok(mirror) => mirror,
            Err(error) => return self.note_failure(place, &error, Weak::new()),
        };
        (mirror.whole, mirror.done) = (whole, self.number.saturating_sub(u64::from(self.batch.is_some())));
        mirror.acked = if whole { self.durable } else { TxId(0) };
        begin(self, &mut mirror);
        self.mirrors.push(mirror);
        if let Some(batch) = self.batch.clone() {
            self.send(self.mirrors.len() - 1, &batch);
        }
    }

    /// What a new mirror gets before the batch in progress. Sources with a newer snapshot come
    /// first.
    fn state(&self, place: &MirrorTarget) -> RecruitState {
        let witnesses = self.shared.witnesses();
        let files = self.shared.files();
        let complete = |place: &MirrorTarget| files.complete.get(&place.0).copied();
        let whole = self.mirrors.iter().filter(|mirror| mirror.whole).map(|mirror| &mirror.place);
        let parked = self.parked.iter().map(|(place, _, snapshot)| (place, Some(*snapshot)));
        let sources = whole.map(|place| (place, complete(place))).chain(parked);
        let mut sources: Vec<(&MirrorTarget, Option<TxId>)> =
            sources.filter(|(source, _)| !same(source, place)).collect();
        sources.sort_by_key(|(_, snapshot)| Reverse(*snapshot));
        RecruitState {
            volume: self.shared.volume,
            claim: self.shared.claim_request(),
            witnesses,
            segments: files.segments.clone(),
            last: self.durable,
            lineage: self.shared.lineage.clone(),
            sources: sources.into_iter().map(|(source, _)| source.clone()).collect(),
            need_bytes: files.need(&self.shared.limits),
        }
    }

    /// A mirror has got the whole state.
    pub fn joined(&mut self, number: usize) {
        let id = self.mirrors[number].place.0;
        self.stranded.remove(&id);
        let behind = {
            let mut files = self.shared.files();
            let snapshot = files.snapshot;
            // The snapshot that it got may be an older one by now.
            let has = TxId(self.mirrors[number].copied.load(Ordering::Relaxed));
            files.complete.insert(id, has);
            has != snapshot
        };
        self.changed();
        // What was kept for it can go, and it may lack the newest snapshot.
        if behind || self.shared.files().grown() > 0 {
            self.shared.task(|tasks| tasks.snapshot = true);
        }
    }

    /// Drops a mirror that failed.
    pub fn lose(&mut self, number: usize, error: &io::Error) {
        let mirror = self.mirrors.remove(number);
        self.park(&mirror);
        self.note_failure(&mirror.place, error, mirror.running());
        self.changed();
    }

    /// Drops a mirror whose sources went away while it copied from them. It begins again with
    /// others, unless that happens again and again.
    pub fn strand(&mut self, number: usize, error: &io::Error) {
        let id = self.mirrors[number].place.0;
        let times = self.stranded.entry(id).or_default();
        *times += 1;
        if *times > MAX_STRANDED {
            self.stranded.remove(&id);
            return self.lose(number, error);
        }
        let mirror = self.mirrors.remove(number);
        self.park(&mirror);
        self.changed();
    }

    /// Remembers what a former mirror has.
    fn park(&mut self, mirror: &Mirror) {
        let complete = self.shared.files().complete.get(&mirror.place.0).copied();
        if let Some(snapshot) = complete.filter(|_| mirror.whole) {
            self.parked.push((mirror.place.clone(), mirror.done, snapshot));
        }
        self.ending.push((mirror.place.0, mirror.running()));
    }

    /// Handles the requests since the last call: drops the mirrors that the checkpointer reported
    /// as failed, and switches to other targets.
    pub fn settle(&mut self) -> Result<(), KvError> {
        let (asked, suspects) = {
            let mut files = self.shared.files();
            // A suspect that comes before its request is kept for that.
            if files.asked == self.settled {
                return Ok(());
            }
            (files.asked, std::mem::take(&mut files.suspects))
        };
        for (place, why, running) in suspects {
            // Its thread may still work on the target, which is no mirror again until that ends.
            self.ending.push((place.0, running));
            if let fenced @ KvError::Fenced(_) = unavailable(place.0, &why) {
                return Err(fenced);
            }
            if let Some(number) = self.mirrors.iter().position(|mirror| mirror.is(&place)) {
                self.lose(number, &why);
            }
        }
        self.renew();
        self.promote();
        self.fill();
        self.release();
        self.settled = asked;
        self.shared.task(|tasks| tasks.settled = asked);
        Ok(())
    }

    /// Drops mirrors whose target was opened again; `fill` takes the new one. There are never two
    /// mirrors with the same id, since they may be one target.
    fn renew(&mut self) {
        let places = self.shared.files().places.clone();
        let anew = |mirror: &Mirror| places.iter().any(|place| place.0 == mirror.place.0 && !mirror.is(place));
        while let Some(number) = self.mirrors.iter().position(anew) {
            let mirror = self.mirrors.remove(number);
            // It can still be read.
            self.park(&mirror);
            self.shared.files().complete.remove(&mirror.place.0);
            self.changed();
        }
    }

    /// A mirror with all records behind its snapshot is whole.
    fn promote(&mut self) {
        let complete = self.shared.files().complete.clone();
        let mut more = false;
        for mirror in self.mirrors.iter_mut().filter(|mirror| !mirror.whole && mirror.copying.is_none()) {
            if complete.get(&mirror.place.0).is_some_and(|&last| last >= mirror.since) {
                (mirror.whole, more) = (true, true);
            }
        }
        if more {
            self.fresh = false;
            self.changed();
        }
    }

    /// Drops mirrors that are no longer wanted, unless they are still needed.
    fn release(&mut self) {
        let gone = {
            let files = self.shared.files();
            let (_, whole) = files.staying();
            let unwanted = |mirror: &Mirror| !files.has_place(&mirror.place);
            if whole < files.expected { None } else { self.mirrors.iter().position(unwanted) }
        };
        let Some(number) = gone else { return };
        let mirror = self.mirrors.remove(number);
        self.ending.push((mirror.place.0, mirror.running()));
        self.changed();
        self.release();
    }

    /// Adds mirrors from the other targets.
    pub fn fill(&mut self) {
        let (places, busy) = {
            let files = self.shared.files();
            (files.places.clone(), files.snapshotting.clone())
        };
        self.ending.retain(|(_, running)| running.upgrade().is_some());
        let wanted = self.shared.wanted(places.len());
        self.wanted = wanted;
        let full = self.mirrors.iter().filter(|mirror| mirror.full.is_some()).count();
        // A copy that takes long may hang.
        let slow = |mirror: &&Mirror| mirror.copying.is_some_and(|at| at.elapsed() > self.shared.limits.deadline);
        let slow = self.mirrors.iter().filter(slow).count();
        let stays = |mirror: &&Mirror| places.iter().any(|place| mirror.is(place));
        let staying = self.mirrors.iter().filter(stays).count();
        let mut lacking = (wanted + full + slow).saturating_sub(staying);
        for place in &places {
            if lacking == 0 {
                break;
            }
            let used = self.mirrors.iter().any(|mirror| mirror.place.0 == place.0)
                || self.ending.iter().any(|(id, _)| *id == place.0)
                || busy.contains(&place.0);
            if used {
                continue;
            }
            {
                let mut files = self.shared.files();
                if files.has_failed(place) || files.is_reserved(place.0) {
                    continue;
                }
                // From now on only the copy of the state claims it.
                files.mirrors.push(place.clone());
            }
            lacking -= 1;
            let current = self.number.saturating_sub(u64::from(self.batch.is_some()));
            let purged = self.shared.files().purged;
            let has_all = |(parked, done, snapshot): &(MirrorTarget, u64, TxId)| {
                same(parked, place) && *done >= current && *snapshot >= purged
            };
            let parked = self.parked.iter().position(has_all);
            match parked {
                // It has everything but the batch in progress.
                Some(number) => {
                    let (_, _, has) = self.parked.remove(number);
                    self.rejoin(place, has);
                }
                None => self.join(place, false, !self.fresh),
            }
            self.changed();
        }
    }

    /// How many targets become mirrors as soon as they have done what they are doing.
    pub fn coming(&self) -> usize {
        let files = self.shared.files();
        let used = |place: &MirrorTarget| self.mirrors.iter().any(|mirror| mirror.place.0 == place.0);
        let busy = |place: &MirrorTarget| {
            // One that has just ended is a mirror again as soon as `fill` sees that.
            self.ending.iter().any(|(id, _)| *id == place.0)
                || files.snapshotting.contains(&place.0)
                || files.is_reserved(place.0)
        };
        let comes = |place: &&MirrorTarget| !used(place) && busy(place) && !files.has_failed(place);
        files.places.iter().filter(comes).count()
    }

    /// Notes a change of mirrors. The next batch begins a segment, whose head names them.
    pub fn changed(&mut self) {
        let (mirrors, whole): (Vec<MirrorTarget>, Vec<MirrorTarget>) = (
            self.mirrors.iter().map(|mirror| mirror.place.clone()).collect(),
            self.mirrors.iter().filter(|mirror| mirror.whole).map(|mirror| mirror.place.clone()).collect(),
        );
        {
            let mut files = self.shared.files();
            files.mirrors = mirrors;
            files.whole = whole;
            let copying = self.mirrors.iter().filter(|mirror| mirror.copying.is_some());
            files.copying = copying.map(|mirror| mirror.place.0).collect();
            files.generation += 1;
        }
        self.restart = true;
        // The mirrors that are left may be needed now.
        self.mirrors.iter().for_each(Mirror::hurry);
        self.note_least();
        self.shared.task(|_| ());
    }

    /// Notes what all mirrors have: older files are not needed by any of them.
    pub fn note_least(&self) {
        // What it got by a copy it has, too.
        let has = |mirror: &Mirror| if mirror.whole { mirror.acked.max(mirror.since) } else { mirror.since };
        let whole = self.mirrors.iter().filter(|mirror| mirror.whole);
        let have = whole.map(|mirror| (mirror.place.0, has(mirror))).collect();
        *self.shared.have.lock() = have;
        let least = self.mirrors.iter().map(has);
        let copying = self.mirrors.iter().any(|mirror| mirror.copying.is_some());
        self.shared.least.store(if copying { 0 } else { least.min().unwrap_or_default().0 }, Ordering::Relaxed);
    }

    pub fn note_failure(&self, place: &MirrorTarget, error: &io::Error, running: Weak<()>) {
        let mut files = self.shared.files();
        files.complete.remove(&place.0);
        files.last_error = Some(format!("target {}: {error}", place.0.0));
        // A target that has left the volume may come back.
        if files.has_place(place) {
            files.failed.push(Failed { place: place.clone(), why: error.to_string(), full: is_full(error) });
            files.retries.failed(place.0, self.shared.limits.retry, running);
        }
    }
}
