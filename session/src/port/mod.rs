//! The port to the names, attributes and extents of a volume. Behind it is this process's own
//! [`Meta`] or a server.
//!
//! A table lists the operations. Macros generate from it the trait, the implementation that sends
//! requests through a [`Call`] ([`Remote`]), and the function that answers them. A request is the
//! operation's number and its arguments; an answer is a `Result`. Both use the encoding of the
//! metadata's own records (postcard). Behind the answer to a request that waited for the journal
//! are 16 bytes with what that took ([`Carried`]); clients that do not know them ignore them.

mod bound;
mod codec;
mod file_lock;
mod sound;
#[macro_use]
mod table;
mod takeover;

pub use bound::{
    answered_by, only_within_session, opening_of_answer, opening_of_work, session_of_work, within_opening,
    within_session,
};
pub use file_lock::FileLock;
pub use takeover::{Entered, Entry, Held, Opening, VERSION, Welcome};

use crate::transport::Call;
use codec::{decode, decode_answer, encode};
use meta::{
    AttributeChange, Attributes, BulkFile, BulkResult, ContentEdit, DeadStripe, Error, KeyPage, Listed, Meta, New,
    Removed, Rename, Result, SetRecord, Time, Totals,
};
use plan::{Extent, Ino, Position, RecordOffset, SessionId, SetId, TargetId, TxId};
use serde::{Deserialize, Serialize};
use sound::Sound;
use std::ops::Range;
use volume::Carried;

/// The port's implementation over a [`Call`].
pub struct Remote<C>(pub C);

macro_rules! port {
    ($to:ident $($head:tt)*) => {
        $to! { $($head)*;
            1 attributes(ino: Ino) -> Attributes;
            2 lookup(parent: Ino, name: Vec<u8> as &[u8]) -> Attributes;
            3 parent(ino: Ino) -> Ino;
            4 describe(ino: Ino) -> (Attributes, Option<Vec<u8>>);
            5 set_attributes(ino: Ino, change: AttributeChange, now: Time) -> (Attributes, TxId);
            6 read_link(ino: Ino) -> Vec<u8>;
            7 attribute(ino: Ino, name: Vec<u8> as &[u8]) -> Vec<u8>;
            8 attribute_names(ino: Ino) -> Vec<Vec<u8>>;
            9 set_attribute(
                ino: Ino, name: Vec<u8> as &[u8], value: Vec<u8> as &[u8], must_exist: Option<bool>, now: Time
            ) -> TxId;
            10 remove_attribute(ino: Ino, name: Vec<u8> as &[u8], now: Time) -> TxId;
            11 make(parent: Ino, name: Vec<u8> as &[u8], new: New as &New, now: Time) -> (Attributes, TxId);
            12 link(ino: Ino, parent: Ino, name: Vec<u8> as &[u8], now: Time) -> (Attributes, TxId);
            13 unlink(parent: Ino, name: Vec<u8> as &[u8], ino: Ino, keep: bool, now: Time) -> Removed;
            14 remove_directory(parent: Ino, name: Vec<u8> as &[u8], ino: Ino, keep: bool, now: Time) -> Removed;
            15 rename(rename: Rename as &Rename, now: Time) -> (Option<Removed>, TxId);
            16 list(parent: Ino, cookie: u64, limit: usize) -> Vec<Listed>;
            17 extents(ino: Ino, range: Range<u64>) -> Vec<Extent>;
            18 change_content(ino: Ino, edit: ContentEdit as &ContentEdit) -> (Attributes, Vec<DeadStripe>, TxId);
            19 change_contents(edits: Vec<(Ino, ContentEdit)> as &[(Ino, ContentEdit)]) -> (Vec<DeadStripe>, TxId);
            20 share(stripes: Vec<(SetId, RecordOffset)> as &[(SetId, RecordOffset)], ino: Ino) -> TxId;
            21 set(set: SetId) -> SetRecord;
            22 seal_set(set: SetId, length: u32) -> TxId;
            23 queue_repair(set: SetId, positions: Vec<Position> as &[Position]) -> TxId;
            24 totals() -> Totals;
            25 sync(seq: TxId) -> ();
            26 new_inos(count: u32) -> Ino;
            27 put_files(files: Vec<BulkFile> as &[BulkFile]) -> BulkResult;
            28 lookups(names: Vec<(Ino, Vec<u8>)> as &[(Ino, Vec<u8>)]) -> Vec<Option<Attributes>>;
            29 change_contents_durably(
                edits: Vec<(Ino, ContentEdit)> as &[(Ino, ContentEdit)]
            ) -> (Vec<DeadStripe>, TxId);
            31 content(ino: Ino, range: Range<u64>) -> (u64, Vec<Extent>);
            32 has_privileges(ino: Ino) -> bool;
            33 list_by_key(
                parent: Ino, from: Vec<u8> as &[u8], limit: usize, attribute: Vec<u8> as &[u8]
            ) -> Option<KeyPage>;
        }
    };
}

port! { operations
    /// The metadata operations that the file system uses. Each is described at the function of the
    /// same name of [`Meta`].
    Port, answer, PORT_NAMES
}
port! { inherent Meta, Port }

/// The server's answer to a heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Capacity for user data, in bytes; 0 while it is not known.
    pub total: u64,
    /// Bytes that are still free.
    pub free: u64,
    /// The generation of the volume's label. It grows when targets join or leave.
    pub generation: u64,
    /// The number of other sessions. With no other session, only this client changes what it has
    /// read.
    pub others: u32,
    /// The number of the latest removal of a file's last name.
    pub removed: u64,
}

/// Begins a session of version 1.
pub const BEGIN: u16 = 64;
/// Begins a session.
pub const ENTER: u16 = 82;
/// Tells what a session has that the server does not know.
pub const RECLAIM: u16 = 83;
/// Ends a session.
pub const END: u16 = 66;
/// Keeps a session alive.
pub const HEARTBEAT: u16 = 65;
/// Like the next four, this operation may wait for other clients, if there are any.
pub const ATTRIBUTES: u16 = 1;
/// See [`ATTRIBUTES`].
pub const LOOKUP: u16 = 2;
/// See [`ATTRIBUTES`].
pub const LIST: u16 = 16;
/// See [`ATTRIBUTES`].
pub const LOOKUPS: u16 = 28;
/// See [`ATTRIBUTES`].
pub const LIST_BY_KEY: u16 = 33;
/// Returns where the bytes of a file are.
pub const EXTENTS: u16 = 17;
/// Returns the same together with the size; takes the same arguments.
pub const CONTENT: u16 = 31;
/// Changes the content of a file.
pub const CHANGE_CONTENT: u16 = 18;

/// Whether an operation only reads. Such an operation can safely be carried out twice. Some of them
/// wait for other clients; none waits for anything else.
pub fn only_reads(operation: u16) -> bool {
    matches!(operation, 1..=4 | 6..=8 | 16 | 17 | 21 | 24 | 28 | 31..=33 | 73 | 76)
}

/// Whether an operation may wait for other clients, or after a restart until earlier clients have
/// reconnected.
pub fn waits_for_clients(operation: u16) -> bool {
    matches!(operation, ATTRIBUTES | LOOKUP | LIST | LOOKUPS | LIST_BY_KEY | BEGIN | ENTER | 69 | 72 | 74)
}

operations! {
    /// What the metadata server does for a client's session, in addition to [`Port`].
    ///
    /// - `enter` opens a session, possibly in place of one that ended, or reclaims the caller's
    ///   own, in this version of the messages. `reclaim` then tells a server all that the session
    ///   has, in parts that are numbered from 0; they count as a whole with the last one. It
    ///   returns the locks that others hold by now. Until all sessions have done so, or a lease's
    ///   time has passed, the server grants nothing to other clients and releases nothing, and it
    ///   accepts nothing else from a session. `heartbeat` keeps the session alive; `end` closes it.
    /// - `begin`, `reclaim_open`, `reclaim_append` and `reclaim_complete` are the same for clients
    ///   of version 1, which reclaim by one message for each opener, reservation and lock.
    /// - `new_sets` places chunk sets for this session only, and not on the targets to `avoid`. An
    ///   answer may have been lost: the server releases the session's sets that are not in `known`.
    ///   `release_sets` returns sets to which nothing uncommitted refers.
    /// - `open` counts an opener and has other clients commit what they wrote to the file; `close`
    ///   removes one opener. A client that opens for writing numbers its opens and closes, each
    ///   with a greater number than the last; others pass 0. `clean` says that these files have no
    ///   uncommitted data written before that number. It says nothing about later writes, even if
    ///   they arrive first. `recalled` says the same of one file, as the answer to that recall and
    ///   all earlier ones. `reclaim_open` and `close` report openers and writers to a restarted
    ///   server and do not wait.
    /// - `lock` tries to take a lock and returns whether it succeeded; with `wait` it waits briefly
    ///   before it fails. `unlock` removes a range from the owner's locks. `unlock_owing` does the
    ///   same when the client could not commit what it wrote to the file before: `number` is as in
    ///   `clean`. `conflicting_lock` returns the lock of any client that is in the way.
    /// - A client owes what was written before a close, or before `unlock_owing`, until it says
    ///   that the file is clean. When another client opens the file, or locks it, and does not get
    ///   what is owed in time, it goes on without it. Then changes of the content by the one that
    ///   owes are refused as superseded, until `dropped` says that it dropped what it had of these
    ///   files.
    /// - `removed` returns the files that have lost their last name since removal number `after`,
    ///   and the number of the last removal in the answer. The server keeps such a file for a
    ///   client only while the client reports it in `kept`, because its kernel still knows the
    ///   file. The client later reports those it forgot in `forgotten`.
    /// - `reserve_append` reserves a range behind the end of a file for an append. `reclaim_append`
    ///   reports to a restarted server the end of the ranges that a client has reserved.
    Session, answer_session, SESSION_NAMES;
    64 begin(session: Option<SessionId>, name: String, sets: Vec<SetId>) -> Welcome;
    65 heartbeat() -> Heartbeat;
    66 end() -> ();
    67 new_sets(
        count: u32, avoid: Vec<TargetId> as &[TargetId], known: Vec<SetId> as &[SetId]
    ) -> Vec<(SetId, SetRecord)>;
    68 release_sets(sets: Vec<SetId> as &[SetId]) -> ();
    69 open(ino: Ino, writes: u64) -> Attributes;
    70 close(ino: Ino, wrote: u64) -> ();
    71 clean(files: Vec<(Ino, u64)> as &[(Ino, u64)]) -> ();
    72 reserve_append(ino: Ino, length: u64) -> u64;
    73 label() -> String;
    74 lock(ino: Ino, lock: FileLock, wait: bool) -> bool;
    75 unlock(ino: Ino, owner: u64, first: u64, last: u64) -> ();
    77 reclaim_append(ino: Ino, end: u64) -> ();
    76 conflicting_lock(ino: Ino, lock: FileLock) -> Option<FileLock>;
    78 reclaim_complete() -> ();
    79 recalled(ino: Ino, number: u64, question: u64) -> ();
    80 reclaim_open(ino: Ino, writes: u64) -> ();
    81 removed(after: u64, kept: Vec<Ino> as &[Ino], forgotten: Vec<Ino> as &[Ino]) -> (u64, Vec<Ino>);
    82 enter(version: u16, entry: Entry as &Entry) -> Entered;
    83 reclaim(part: u32, last: bool, held: Held as &Held) -> Vec<(Ino, FileLock)>;
    84 unlock_owing(ino: Ino, owner: u64, first: u64, last: u64, number: u64) -> ();
    85 dropped(files: Vec<Ino> as &[Ino]) -> ();
}
