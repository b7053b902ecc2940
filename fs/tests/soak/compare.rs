//! What the file system has is what the model has.

use super::{Node, Soak};
use crate::lab::content;
use fs::Seek;
use plan::Ino;
use std::collections::BTreeMap;

impl Soak {
    pub fn read_some(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.bytes(ino).len() as u64;
        let (offset, length) = (self.dice.u64(..size + 100), self.dice.usize(1..200_000));
        let mut found = vec![0xEE; length];
        let read = self.fs.read(ino, offset, &mut found).unwrap();
        let want = &self.bytes(ino)[offset.min(size) as usize..(offset + length as u64).min(size) as usize];
        assert!(found[..read] == *want, "{ino} {offset}+{length}");
        // A hole reads as zeroes; data may contain zeroes, too.
        if let Ok(hole) = self.fs.seek(ino, offset, Seek::Hole) {
            let data = self.fs.seek(ino, hole, Seek::Data).unwrap_or(size);
            assert!(
                self.bytes(ino)[hole as usize..data as usize].iter().all(|byte| *byte == 0),
                "{ino} {hole}..{data}"
            );
        } else {
            assert!(offset >= size);
        }
    }

    pub fn compare(&mut self) {
        let named = self.named();
        for (&ino, node) in &self.nodes {
            let attributes = self.fs.attributes(ino).unwrap();
            match node {
                Node::File { now, .. } => {
                    assert_same(&content(&self.fs, ino).unwrap(), &now.bytes, ino);
                    assert_eq!(attributes.size, now.bytes.len() as u64, "size of {ino}");
                    assert_eq!(attributes.links, named.get(&ino).copied().unwrap_or(0), "links of {ino}");
                    let names = self.fs.attribute_names(ino).unwrap().into_iter();
                    let found: BTreeMap<_, _> =
                        names.map(|name| (name.clone(), self.fs.attribute(ino, &name).unwrap())).collect();
                    assert_eq!(found, now.attributes, "attributes of {ino}");
                }
                Node::Directory(names) => {
                    let (mut found, mut cookie) = (BTreeMap::new(), 0);
                    loop {
                        let some = self.fs.list(ino, cookie, 5).unwrap();
                        let Some(last) = some.last() else { break };
                        cookie = last.cookie;
                        found.extend(some.into_iter().map(|entry| (entry.name, entry.attributes.ino)));
                    }
                    assert_eq!(found, *names, "names in {ino}");
                    let below = names.values().filter(|ino| matches!(self.nodes[*ino], Node::Directory(_))).count();
                    assert_eq!(attributes.links as usize, 2 + below, "links of {ino}");
                }
                Node::Link(to) => assert_eq!(self.fs.read_link(ino).unwrap(), *to),
            }
        }
    }
}

/// Reports where two contents differ, which is more useful than printing them.
#[track_caller]
fn assert_same(found: &[u8], wanted: &[u8], ino: Ino) {
    assert_eq!(found.len(), wanted.len(), "size of {ino}");
    let differs: Vec<usize> = (0..found.len()).filter(|&at| found[at] != wanted[at]).collect();
    if let (Some(first), Some(last)) = (differs.first(), differs.last()) {
        let zero = differs.iter().all(|&at| found[at] == 0);
        panic!(
            "content of {ino}: {} bytes of {} differ, {first}..={last}; all zero: {zero}",
            differs.len(),
            found.len()
        );
    }
}
