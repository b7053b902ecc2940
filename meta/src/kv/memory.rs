//! The index in memory. A view shares the map. The first change while a view lives copies the map;
//! keys and values stay shared.

use super::index::{End, can_hold};
use super::{Edit, Index, IndexState, KvError, Order, View, Visit};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use volume::unpoisoned;

type Map = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

/// An index in memory.
#[derive(Debug, Default)]
pub struct MemoryIndex(RwLock<Contents>);

#[derive(Debug, Default)]
struct Contents {
    map: Arc<Map>,
    state: IndexState,
}

struct MemoryView(Arc<Map>);

impl MemoryIndex {
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        unpoisoned(self.0.read())
    }
}

impl View for MemoryIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.read().map.get(key).map(|value| value.to_vec()))
    }

    fn visit(&self, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        walk(&self.read().map, low, high, order, visit)
    }
}

impl Index for MemoryIndex {
    fn state(&self) -> Result<IndexState, KvError> {
        Ok(self.read().state)
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        _durable: bool,
    ) -> Result<(), KvError> {
        let mut contents = unpoisoned(self.0.write());
        let map = Arc::make_mut(&mut contents.map);
        for (key, value) in edits {
            match value {
                Some(value) => drop(map.insert(key.into(), value.into())),
                None => drop(map.remove(key)),
            }
        }
        contents.state = state;
        Ok(())
    }

    fn clear(&self) -> Result<(), KvError> {
        *unpoisoned(self.0.write()) = Contents::default();
        Ok(())
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        Ok(Box::new(MemoryView(self.read().map.clone())))
    }
}

impl View for MemoryView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.0.get(key).map(|value| value.to_vec()))
    }

    fn visit(&self, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        walk(&self.0, low, high, order, visit)
    }
}

fn walk(map: &Map, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
    if !can_hold(low, high) {
        return Ok(());
    }
    let mut range = map.range::<[u8], _>((low, high));
    let mut next = || match order {
        Order::Ascending => range.next(),
        Order::Descending => range.next_back(),
    };
    while let Some((key, value)) = next() {
        if !visit(key, value)? {
            break;
        }
    }
    Ok(())
}
