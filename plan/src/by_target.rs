//! Something of each target, by its number. Numbers are small and nearly all in use, and a metadata
//! server takes in reports of thousands of targets in a second: so it is an array, and neither a
//! tree nor a table of hashes.

use crate::TargetId;

/// A map from targets.
#[derive(Clone, Debug)]
pub(crate) struct ByTarget<T> {
    all: Vec<Option<T>>,
    count: usize,
}

impl<T> Default for ByTarget<T> {
    fn default() -> Self {
        Self { all: Vec::new(), count: 0 }
    }
}

impl<T> ByTarget<T> {
    /// How many targets have one.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn get(&self, id: TargetId) -> Option<&T> {
        self.all.get(usize::from(id.0))?.as_ref()
    }

    pub fn get_mut(&mut self, id: TargetId) -> Option<&mut T> {
        self.all.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Puts it in place of what was there. Returns that.
    pub fn insert(&mut self, id: TargetId, new: T) -> Option<T> {
        let at = usize::from(id.0);
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        let before = self.all[at].replace(new);
        self.count += usize::from(before.is_none());
        before
    }

    /// By number.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten()
    }

    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        for (number, one) in self.all.iter_mut().enumerate() {
            if one.is_some() && !is_there(TargetId(number as u16)) {
                *one = None;
                self.count -= 1;
            }
        }
    }
}

impl<T> FromIterator<(TargetId, T)> for ByTarget<T> {
    fn from_iter<I: IntoIterator<Item = (TargetId, T)>>(all: I) -> Self {
        let mut new = Self::default();
        all.into_iter().for_each(|(id, one)| _ = new.insert(id, one));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_targets() {
        let mut map: ByTarget<u8> = [(TargetId(7), 1), (TargetId(2), 2), (TargetId(7), 3)].into_iter().collect();
        assert_eq!((map.len(), map.get(TargetId(7)), map.get(TargetId(3))), (2, Some(&3), None));
        assert_eq!(map.get(TargetId(u16::MAX)), None);
        assert_eq!(map.insert(TargetId(u16::MAX), 4), None);
        *map.get_mut(TargetId(2)).unwrap() += 5;
        assert_eq!(map.values().copied().collect::<Vec<_>>(), [7, 3, 4]);
        map.retain(|id| id != TargetId(7));
        map.retain(|id| id != TargetId(7));
        assert_eq!((map.len(), map.values().copied().collect::<Vec<_>>()), (2, vec![7, 4]));
    }
}
