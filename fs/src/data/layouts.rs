//! The layouts of chunk sets as this process knows them, and reads of stripes. Another process may
//! move chunks: then the layout is requested again.

use crate::data::store::Store;
use crate::{Error, Result};
use ec::Code;
use meta::SetRecord;
use plan::{Position, SetId, Span};
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::{SetLayout, lock};

/// The shortest time between two requests for the layout of a set of which some chunks cannot be
/// read.
const MIN_LAYOUT_INTERVAL: Duration = Duration::from_secs(2);
/// How many layouts are requested again at a time: the client has other periodic work.
const LAYOUTS_AT_ONCE: usize = 64;

impl Store {
    /// The code with this spec.
    fn code(&self, spec: &str) -> Result<Arc<dyn Code>> {
        if spec == self.options.code.spec().to_string() {
            return Ok(self.options.code.clone());
        }
        let mut codes = lock(&self.codes);
        if let Some(code) = codes.get(spec) {
            return Ok(code.clone());
        }
        let code = ec::parse(spec).map_err(|why| Error::Invalid(why.to_string()))?;
        codes.insert(spec.into(), code.clone());
        Ok(code)
    }

    /// The layout of a set: the targets of its chunks.
    pub fn layout(&self, set: SetId) -> Result<Arc<SetLayout>> {
        if let Some(layout) = self.layouts.read().get(&set) {
            return Ok(layout.clone());
        }
        self.layout_now(set)
    }

    /// The layout that the metadata has now.
    fn layout_now(&self, set: SetId) -> Result<Arc<SetLayout>> {
        let layout = Arc::new(self.layout_of(set, &self.meta.set(set)?)?);
        self.layouts.write().insert(set, layout.clone());
        Ok(layout)
    }

    pub fn layout_of(&self, set: SetId, record: &SetRecord) -> Result<SetLayout> {
        let code = self.code(&record.code)?;
        Ok(SetLayout { volume: self.options.volume, set, code, places: record.places.clone() })
    }

    /// Drops the cached layout of a set because it changed.
    pub fn forget_layout(&self, set: SetId) {
        self.layouts.write().remove(&set);
    }

    /// Requests the layouts again of sets that were read with chunks missing. Not often for one
    /// set.
    pub fn look_for_moved(&self) -> Result<()> {
        let due: Vec<SetId> = {
            let mut looked = self.looked.lock();
            looked.retain(|_, (when, is_due)| *is_due || when.elapsed() <= MIN_LAYOUT_INTERVAL);
            let due = looked.iter_mut().filter(|(_, (_, is_due))| *is_due).take(LAYOUTS_AT_ONCE);
            due.map(|(set, looked)| {
                *looked = (Instant::now(), false);
                *set
            })
            .collect()
        };
        for set in due {
            match self.layout_now(set) {
                Err(Error::Meta(meta::Error::NotFound)) => self.forget_layout(set),
                found => drop(found?),
            }
        }
        Ok(())
    }

    /// Reads a span.
    pub fn read(&self, span: Span, out: &mut [u8]) -> Result<()> {
        let layout = self.layout(span.set)?;
        let mut done = volume::read(&self.targets, &layout, span, out);
        // Another process may have moved the chunks. What can be read does not wait for the
        // metadata.
        match &done {
            Ok(report) if report.bad.is_empty() => {}
            Ok(_) if self.sets.may_lose() => {
                let mut looked = self.looked.lock();
                let (when, is_due) = looked.entry(span.set).or_insert((Instant::now(), true));
                *is_due |= when.elapsed() > MIN_LAYOUT_INTERVAL;
            }
            Ok(_) => {}
            Err(_) => {
                let now = self.layout_now(span.set)?;
                if now.places != layout.places {
                    done = volume::read(&self.targets, &now, span, out);
                }
            }
        }
        let report = done?;
        if !report.bad.is_empty() {
            let mut damaged = self.damaged.lock();
            damaged.extend(report.bad.iter().map(|(position, _)| (span.set, *position)));
        }
        Ok(())
    }

    /// Reads a span from the page cache, if all of it is there and sound.
    pub fn read_at_hand(&self, span: Span, out: &mut [u8]) -> bool {
        let layout = self.layouts.read().get(&span.set).cloned();
        layout.is_some_and(|layout| volume::read_at_hand(&self.targets, &layout, span, out))
    }

    /// Queues the positions for repair that readers found damaged. What cannot be queued now is
    /// queued by a later call.
    pub fn queue_damaged(&self) -> Result<()> {
        let damaged: Vec<(SetId, Position)> = self.damaged.lock().iter().copied().collect();
        for (set, position) in damaged {
            match self.meta.queue_repair(set, &[position]) {
                // The set was deleted since, or the metadata takes no such position.
                Ok(_) | Err(meta::Error::NotFound | meta::Error::Invalid(_)) => {
                    _ = self.damaged.lock().remove(&(set, position))
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, Way};
    use plan::{Position, Span};
    use session::transport::Call;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use volume::target::{Target, TargetFile};

    /// The way to a server that goes away.
    struct Cut(Way, Arc<AtomicBool>);

    impl Call for Cut {
        fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
            if self.1.load(Ordering::SeqCst) {
                return Err(meta::Error::Unavailable("it does not answer".into()));
            }
            self.0.call(operation, arguments)
        }
    }

    #[test]
    fn a_chunk_that_is_gone_is_read_past_without_the_metadata() {
        let (lab, cut) = (Lab::new("rs:2+1", 3), Arc::new(AtomicBool::new(false)));
        let fs = lab.client_over(|way| Cut(way, cut.clone()));
        let mut buffer = fs.store.pool.take();
        buffer.extend_from_slice(&[7; 10_000]);
        let (stored, _pin) = fs.store.append(buffer, b"").unwrap();
        fs.store.sync().unwrap();
        let layout = fs.store.layout(stored.set).unwrap();
        let (position, target) = Position::placed(&layout.places).next().unwrap();
        lab.by_hand(target.0.into()).remove(TargetFile::Chunk { set: stored.set, position }).unwrap();
        cut.store(true, Ordering::SeqCst);
        let span = Span { set: stored.set, record: stored.record, block: stored.block, start: 0 };
        for _ in 0..3 {
            let mut found = vec![0; 10_000];
            fs.store.read(span, &mut found).unwrap();
            assert!(found == [7; 10_000]);
        }
        fs.store.look_for_moved().unwrap_err();
    }
}
