//! Changes in memory over an index: a read returns the value from the newest layer that has the
//! key.

use super::index::{End, can_hold};
use super::{KvError, Order, View, Visit};
use plan::TxId;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

/// The estimated overhead of an entry, in bytes: tree nodes and reference counts.
const ENTRY_BYTES: usize = 96;

type Entry<'a> = (&'a [u8], Option<&'a [u8]>);
type Entries<'a> = Box<dyn Iterator<Item = Entry<'a>> + 'a>;

/// Changes by key, `None` for a removed one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    map: BTreeMap<Arc<[u8]>, Option<Arc<[u8]>>>,
    bytes: usize,
    /// The last transaction in the layer; for an empty layer, the last one before it.
    pub last: TxId,
}

impl Layer {
    /// Creates an empty layer that follows transaction `last`.
    pub fn after(last: TxId) -> Self {
        Self { last, ..Self::default() }
    }

    pub fn insert(&mut self, key: &[u8], value: Option<&[u8]>) {
        let size = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        self.bytes += size(value);
        let value: Option<Arc<[u8]>> = value.map(Into::into);
        match self.map.get_mut(key) {
            Some(old) => self.bytes -= size(std::mem::replace(old, value).as_deref()),
            None => {
                self.bytes += key.len() + ENTRY_BYTES;
                self.map.insert(key.into(), value);
            }
        }
    }

    /// The approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.map.iter().map(|(key, value)| (&**key, value.as_deref()))
    }

    fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        self.map.get(key).map(|value| value.as_deref().map(<[u8]>::to_vec))
    }

    fn range<'a>(&'a self, low: End<'a>, high: End<'a>, order: Order) -> Entries<'a> {
        let range = self.map.range::<[u8], _>((low, high)).map(|(key, value)| (&**key, value.as_deref()));
        match order {
            Order::Ascending => Box::new(range),
            Order::Descending => Box::new(range.rev()),
        }
    }
}

/// Layers over a base, the newest first.
pub(crate) struct Layered<'a> {
    pub layers: [Option<&'a Layer>; 2],
    pub base: &'a dyn View,
}

impl Layered<'_> {
    /// Looks a key up in the layers, without the base. The outer `None` means that no layer has it.
    pub fn above(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        self.layers.iter().flatten().find_map(|layer| layer.get(key))
    }
}

impl View for Layered<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.above(key).map_or_else(|| self.base.get(key), Ok)
    }

    fn visit(&self, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        if !can_hold(low, high) {
            return Ok(());
        }
        let mut above = Merged {
            sides: self.layers.map(|layer| layer.map(|layer| layer.range(low, high, order).peekable())),
            order,
        };
        let mut stopped = false;
        let mut emit = |key: &[u8], value: Option<&[u8]>| match value {
            Some(value) => {
                let more = visit(key, value)?;
                stopped |= !more;
                Ok(more)
            }
            None => Ok(true),
        };
        self.base.visit(low, high, order, &mut |key, value| {
            while let Some(next) = above.peek() {
                let at = compare(next, key, order);
                if at == Ordering::Greater {
                    break;
                }
                let Some((next, changed)) = above.next() else { break };
                let more = emit(next, changed)?;
                if at == Ordering::Equal || !more {
                    return Ok(more);
                }
            }
            emit(key, Some(value))
        })?;
        while !stopped && let Some((key, value)) = above.next() {
            if let Some(value) = value {
                stopped = !visit(key, value)?;
            }
        }
        Ok(())
    }
}

fn compare(a: &[u8], b: &[u8], order: Order) -> Ordering {
    match order {
        Order::Ascending => a.cmp(b),
        Order::Descending => b.cmp(a),
    }
}

/// The merged entries of two layers, in order. For a key in both, the first layer's entry.
struct Merged<'a> {
    sides: [Option<Peekable<Entries<'a>>>; 2],
    order: Order,
}

impl<'a> Merged<'a> {
    fn peek(&mut self) -> Option<&'a [u8]> {
        let order = self.order;
        let keys = self.sides.iter_mut().flatten().filter_map(|side| side.peek().map(|&(key, _)| key));
        keys.min_by(|a, b| compare(a, b, order))
    }
}

impl<'a> Iterator for Merged<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let key = self.peek()?;
        let mut first = None;
        for side in self.sides.iter_mut().flatten() {
            if let Some(entry) = side.next_if(|&(candidate, _)| candidate == key) {
                first.get_or_insert(entry);
            }
        }
        first
    }
}
