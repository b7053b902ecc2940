//! The port behind which the names, attributes and extents of a volume stand: this process's own [`Meta`], or a server.
//!
//! A table says what can be asked. From it come the trait, the implementation that asks through a [`Call`] ([`Remote`]), and the function that
//! carries out what a `Remote` asked. A request is the number of its operation and its arguments, an answer is a `Result`, both in the encoding of the
//! metadata's own records (postcard).

mod bound;
mod sound;
#[macro_use]
mod table;

pub use bound::{session_of_work, within_session};

use crate::record::{decode, encode};
use crate::{
    Attributes, Change, ContentEdit, DeadStripe, Error, Listed, Meta, New, Put, Removed, Rename, Result, Seq,
    SetRecord, Time, Totals, Whole,
};
use plan::{Extent, TargetId};
use serde::{Deserialize, Serialize};
use sound::Sound;
use std::ops::Range;

/// Sends a request and waits for its answer.
pub trait Call: Send + Sync {
    /// The number of an operation and its encoded arguments; returns the encoded result.
    ///
    /// # Errors
    /// When no answer came, or one that was none.
    fn call(&self, operation: u16, arguments: &[u8]) -> Result<Vec<u8>>;
}

/// What stands behind a [`Call`].
pub struct Remote<C>(pub C);

macro_rules! port {
    ($to:ident $($head:tt)*) => {
        $to! { $($head)*;
            1 attributes(ino: u64) -> Attributes;
            2 lookup(parent: u64, name: Vec<u8> as &[u8]) -> Attributes;
            3 parent(ino: u64) -> u64;
            4 describe(ino: u64) -> (Attributes, Option<Vec<u8>>);
            5 set_attributes(ino: u64, change: Change, now: Time) -> (Attributes, Seq);
            6 read_link(ino: u64) -> Vec<u8>;
            7 attribute(ino: u64, name: Vec<u8> as &[u8]) -> Vec<u8>;
            8 attribute_names(ino: u64) -> Vec<Vec<u8>>;
            9 set_attribute(
                ino: u64, name: Vec<u8> as &[u8], value: Vec<u8> as &[u8], must_exist: Option<bool>, now: Time
            ) -> Seq;
            10 remove_attribute(ino: u64, name: Vec<u8> as &[u8], now: Time) -> Seq;
            11 make(parent: u64, name: Vec<u8> as &[u8], new: New as &New, now: Time) -> (Attributes, Seq);
            12 link(ino: u64, parent: u64, name: Vec<u8> as &[u8], now: Time) -> (Attributes, Seq);
            13 unlink(parent: u64, name: Vec<u8> as &[u8], ino: u64, keep: bool, now: Time) -> Removed;
            14 remove_directory(parent: u64, name: Vec<u8> as &[u8], ino: u64, keep: bool, now: Time) -> Removed;
            15 rename(rename: Rename as &Rename, now: Time) -> (Option<Removed>, Seq);
            16 list(parent: u64, cookie: u64, limit: usize) -> Vec<Listed>;
            17 extents(ino: u64, range: Range<u64>) -> Vec<Extent>;
            18 change_content(ino: u64, edit: ContentEdit as &ContentEdit) -> (Attributes, Vec<DeadStripe>, Seq);
            19 change_contents(edits: Vec<(u64, ContentEdit)> as &[(u64, ContentEdit)]) -> (Vec<DeadStripe>, Seq);
            20 share(stripes: Vec<(u64, u32)> as &[(u64, u32)], ino: u64) -> Seq;
            21 set(set: u64) -> SetRecord;
            22 seal_set(set: u64, length: u32) -> Seq;
            23 queue_repair(set: u64, positions: Vec<u16> as &[u16]) -> Seq;
            24 totals() -> Totals;
            25 sync(seq: Seq) -> ();
            26 new_inos(count: u32) -> u64;
            27 put_files(files: Vec<Whole> as &[Whole]) -> Put;
            28 lookups(names: Vec<(u64, Vec<u8>)> as &[(u64, Vec<u8>)]) -> Vec<Option<Attributes>>;
            29 change_contents_durably(
                edits: Vec<(u64, ContentEdit)> as &[(u64, ContentEdit)]
            ) -> (Vec<DeadStripe>, Seq);
            31 content(ino: u64, range: Range<u64>) -> (u64, Vec<Extent>);
            32 has_privileges(ino: u64) -> bool;
        }
    };
}

port! { operations
    /// What the file system asks of the metadata. Each operation is described at the function of the same name of [`Meta`].
    Port, answer, PORT_NAMES
}
port! { inherent Meta, Port }

/// What a client is told when its session begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The number of its session.
    pub session: u64,
    /// What proves that it is this client's. Nobody else hears it.
    pub secret: [u8; 16],
    /// The server did not know it before.
    pub fresh: bool,
    /// The session that was to be taken up had ended. This is another one, in which nothing of the old one is accepted.
    pub lapsed: bool,
    /// The volume's label, as JSON.
    pub label: String,
    /// The first number that the session gives to its stripes.
    pub first_stripe: u64,
    /// Another number when the server's machine was started again: what was not synced may be lost then.
    pub start: u64,
    /// How long the session lives without a beat, in milliseconds.
    pub lease_ms: u32,
    /// The sets that it may write to. Others, which it had before, were given up with what no transaction names of them.
    pub kept: Vec<u64>,
}

/// What a client hears now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Bytes of user data that fit in all; 0 while that is not known.
    pub total: u64,
    /// Bytes that still fit.
    pub free: u64,
    /// The generation of the volume's label: when it grew, targets came or went.
    pub generation: u64,
    /// Other sessions. With none, what a client saw stays so until it changes it itself.
    pub others: u32,
    /// The number of the last file that lost its last name.
    pub removed: u64,
}

/// The operation with which a session begins.
pub const BEGIN: u16 = 64;
/// The operation that keeps one alive.
pub const HEARTBEAT: u16 = 65;
/// Operations that wait for other clients when there are any.
pub const ATTRIBUTES: u16 = 1;
/// See [`ATTRIBUTES`].
pub const LOOKUP: u16 = 2;
/// See [`ATTRIBUTES`].
pub const LIST: u16 = 16;
/// See [`ATTRIBUTES`].
pub const LOOKUPS: u16 = 28;
/// The operation that says where the bytes of a file are.
pub const EXTENTS: u16 = 17;
/// The one that says so together with the size, and takes the same arguments.
pub const CONTENT: u16 = 31;
/// The operation that changes the content of a file.
pub const CHANGE_CONTENT: u16 = 18;

/// Whether an operation only reads: it can be carried out twice, and waits for nobody but, some of them, for other clients.
pub fn only_reads(operation: u16) -> bool {
    matches!(operation, 1..=4 | 6..=8 | 16 | 17 | 21 | 24 | 28 | 31 | 32 | 73 | 76)
}

/// Whether an operation may wait for other clients, or until those of before a restart are back.
pub fn waits_for_clients(operation: u16) -> bool {
    matches!(operation, ATTRIBUTES | LOOKUP | LIST | LOOKUPS | BEGIN | 69 | 72 | 74)
}

/// A lock of a range of a file, as `fcntl` has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// What the client's kernel calls its owner.
    pub owner: u64,
    /// The first byte.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Whether nobody else may have any part of it.
    pub exclusive: bool,
    /// The process, as its client numbers it.
    pub process: u32,
}

operations! {
    /// What the metadata server does for the session of a client, beside what [`Port`] says.
    ///
    /// - `begin` opens a session, also in place of one that ended, or takes the caller's own up, which writes to these sets; then `reclaim_complete` says that a server that was restarted knows everything of it: nothing is
    ///   given to others, or given up, before all have said so or the time of a lease is over. `heartbeat` keeps it alive; `end` closes it.
    /// - `new_sets` places chunk sets for this session alone, not on the targets to `avoid`. Sets of the session that it does not know of, since an answer was
    ///   lost, are given back. `release_sets` gives sets back when nothing uncommitted refers to them.
    /// - `open` counts an opener, and has others commit what they wrote to the file; `close` counts one less. Openers that write number
    ///   their opening and closing, each with a greater number than the one before, others with 0. `clean` says that nothing of these files is uncommitted
    ///   that was written before that number; what came after it is not meant, even when it overtook it. `recalled` says the same of one file, as the answer to
    ///   a question and all before it. `reclaim_open` and `close` tell a server that was restarted of openers and writers, and wait for nobody.
    /// - `lock` gives a lock, and says whether it did; with `wait` it takes a moment before it says no. `unlock` takes a range from what the owner has.
    ///   `conflicting_lock` is the one that is in the way, of whatever client.
    /// - `removed` tells which files lost their last name since that removal, with the number of the last one that is told of. What a client was told before is
    ///   kept for it only as far as its kernel knows it and it says so; later it says what it forgot of that.
    /// - `reserve_append` gives a range behind the end of a file to an append. `reclaim_append` tells a server that was restarted up to where
    ///   a client has such ranges.
    Session, answer_session, SESSION_NAMES;
    64 begin(session: Option<u64>, name: String, sets: Vec<u64>) -> Welcome;
    65 heartbeat() -> Heartbeat;
    66 end() -> ();
    67 new_sets(count: u32, avoid: Vec<TargetId> as &[TargetId], known: Vec<u64> as &[u64]) -> Vec<(u64, SetRecord)>;
    68 release_sets(sets: Vec<u64> as &[u64]) -> ();
    69 open(ino: u64, writes: u64) -> Attributes;
    70 close(ino: u64, wrote: u64) -> ();
    71 clean(files: Vec<(u64, u64)> as &[(u64, u64)]) -> ();
    72 reserve_append(ino: u64, length: u64) -> u64;
    73 label() -> String;
    74 lock(ino: u64, lock: FileLock, wait: bool) -> bool;
    75 unlock(ino: u64, owner: u64, first: u64, last: u64) -> ();
    77 reclaim_append(ino: u64, end: u64) -> ();
    76 conflicting_lock(ino: u64, lock: FileLock) -> Option<FileLock>;
    78 reclaim_complete() -> ();
    79 recalled(ino: u64, number: u64, question: u64) -> ();
    80 reclaim_open(ino: u64, writes: u64) -> ();
    81 removed(after: u64, kept: Vec<u64> as &[u64], forgotten: Vec<u64> as &[u64]) -> (u64, Vec<u64>);
}
