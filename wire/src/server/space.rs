//! Limits the memory for messages. There is a limit for all messages; one member gets at most half
//! of it, and long messages together get at most half of it. Connections that have space but do not
//! move their bytes are ended when others wait.

use crate::lock;
use crate::outgoing::Outgoing;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bytes per permit: a semaphore counts in 32 bits.
pub(super) const UNIT_BYTES: u64 = 1024;
/// While others wait, a connection that has space and moves nothing for this long is ended.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// After that time, so is one whose whole message would take longer than this.
const MAX_TRANSFER_TIME: Duration = Duration::from_secs(8);
/// Short messages may take longer, as long as they move at least this many bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;
/// Messages longer than this, in bytes, together get half of the space, so that other messages soon
/// get some.
const LONG_MESSAGE_BYTES: u64 = 4 << 20;
/// Maximum number of known members. Beyond it, members without connections are forgotten.
const MAX_MEMBERS: usize = 256;

pub(super) fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// The space of a message, held until the message is done.
pub(super) type Space = Vec<OwnedSemaphorePermit>;

/// A message that has space and is being transferred.
struct Moving {
    begun: Instant,
    bytes: u64,
    /// A counter of the bytes that its connection has moved, and its value at the beginning.
    moved: Arc<AtomicU64>,
    before: u64,
    outgoing: Arc<Outgoing>,
}

impl Moving {
    /// Whether the transfer is too slow while others wait.
    fn is_late(&self, now: Instant) -> bool {
        let Some(time) = now.saturating_duration_since(self.begun).checked_sub(STALL_TIMEOUT) else { return false };
        let rate = MIN_BYTES_PER_SECOND.max(self.bytes / MAX_TRANSFER_TIME.as_secs()) as f64;
        let moved = self.moved.load(Ordering::Relaxed).saturating_sub(self.before);
        (moved as f64) < time.as_secs_f64() * rate
    }
}

/// The space for requests, or for answers.
pub(super) struct SpacePool {
    all: Arc<Semaphore>,
    bytes: u64,
    /// The part of it that long messages may use.
    long: Arc<Semaphore>,
    /// The shares of members that have connections.
    members: Mutex<HashMap<String, Weak<Semaphore>>>,
    moving: Mutex<BTreeMap<u64, Moving>>,
    next: AtomicU64,
}

/// A connection's share of the space.
pub(super) struct Share {
    own: Arc<Semaphore>,
    own_bytes: u64,
    member: Option<Arc<Semaphore>>,
}

/// A transfer; dropping it ends the transfer.
pub(super) struct Mover {
    pool: Arc<SpacePool>,
    number: u64,
}

impl SpacePool {
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(permits(bytes) as usize)),
            bytes,
            long: Arc::new(Semaphore::new(permits(bytes.div_ceil(2)) as usize)),
            members: Mutex::default(),
            moving: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// The semaphore of all space.
    pub fn all(&self) -> &Semaphore {
        &self.all
    }

    /// Bytes in use.
    pub fn taken(&self) -> u64 {
        (permits(self.bytes) as usize).saturating_sub(self.all.available_permits()) as u64 * UNIT_BYTES
    }

    /// The limit of a member, however many connections it has, and of all long messages together.
    fn half(&self) -> u64 {
        self.bytes.div_ceil(2)
    }

    /// The share of a new connection, which gets at most `own_bytes`. With certificates, all
    /// connections of its member together are limited, too.
    pub fn share(&self, member: Option<&str>, own_bytes: u64) -> Share {
        let member = member.map(|name| {
            let mut members = lock(&self.members);
            if members.len() >= MAX_MEMBERS {
                members.retain(|_, share| share.strong_count() > 0);
            }
            let known = members.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let new = Arc::new(Semaphore::new(permits(self.half()) as usize));
                members.insert(name.to_owned(), Arc::downgrade(&new));
                new
            })
        });
        Share { own: Arc::new(Semaphore::new(permits(own_bytes) as usize)), own_bytes, member }
    }

    /// Waits for space of this many bytes. A member first waits for its own share, where it delays
    /// no other member.
    pub async fn take(&self, share: &Share, bytes: u64) -> Space {
        let of = |limit: u64| permits(bytes.min(limit)).max(1);
        let mut space = vec![share.own.clone().acquire_many_owned(of(share.own_bytes)).await];
        if let Some(member) = &share.member {
            space.push(member.clone().acquire_many_owned(of(self.half())).await);
        }
        if bytes > LONG_MESSAGE_BYTES {
            space.push(self.long.clone().acquire_many_owned(of(self.half())).await);
        }
        // A long message never waits for all of the space.
        let most = if bytes > LONG_MESSAGE_BYTES { self.half() } else { self.bytes };
        space.push(self.all.clone().acquire_many_owned(of(most)).await);
        space.into_iter().map(|permit| permit.expect("limits are never closed")).collect()
    }

    /// Begins the transfer of a message that has space, on a connection that counts the bytes it
    /// moves.
    pub fn moves(self: &Arc<Self>, bytes: u64, moved: &Arc<AtomicU64>, outgoing: &Arc<Outgoing>) -> Mover {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let before = moved.load(Ordering::Relaxed);
        let (moved, outgoing) = (moved.clone(), outgoing.clone());
        lock(&self.moving).insert(number, Moving { begun: Instant::now(), bytes, moved, before, outgoing });
        Mover { pool: self.clone(), number }
    }

    /// Another message waits for space: ends the connections whose transfers are too slow. Returns
    /// their number.
    pub fn press(&self) -> usize {
        self.press_at(Instant::now())
    }

    fn press_at(&self, now: Instant) -> usize {
        let mut late = 0;
        for moving in lock(&self.moving).values().filter(|moving| moving.is_late(now)) {
            late += usize::from(!moving.outgoing.is_closed());
            moving.outgoing.close();
        }
        late
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        lock(&self.pool.moving).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_member_has_half_of_it_at_most() {
        let pool = SpacePool::new(4 << 20);
        let (a, again, b) =
            (pool.share(Some("a"), 3 << 20), pool.share(Some("a"), 3 << 20), pool.share(Some("b"), 3 << 20));
        let first = pool.take(&a, 3 << 20).await;
        assert!(tokio::time::timeout(Duration::from_millis(50), pool.take(&again, 1)).await.is_err());
        let other = pool.take(&b, 1 << 20).await;
        drop(first);
        drop(pool.take(&again, 2 << 20).await);
        drop(other);
        assert_eq!(pool.taken(), 0);
        for number in 0..3 * MAX_MEMBERS {
            pool.share(Some(&number.to_string()), 1);
        }
        assert!(lock(&pool.members).len() <= MAX_MEMBERS);
    }

    #[tokio::test]
    async fn who_is_late_is_given_up_and_who_moves_is_not() {
        let pool = SpacePool::new(4 << 20);
        let outgoing = || Arc::new(Outgoing::new(Box::new(tokio::io::sink())));
        let (quick, slow, short) = (outgoing(), outgoing(), outgoing());
        let moves = pool.moves(16 << 20, &quick.moved, &quick);
        let (_trickles, _few) = (pool.moves(60 << 20, &slow.moved, &slow), pool.moves(100, &short.moved, &short));
        assert_eq!(pool.press(), 0);
        let later = Instant::now() + STALL_TIMEOUT + Duration::from_secs(1);
        quick.moved.store(4 << 20, Ordering::Relaxed);
        assert_eq!(pool.press_at(later), 2);
        assert!(!quick.is_closed() && slow.is_closed() && short.is_closed());
        drop(moves);
        assert_eq!(pool.press_at(later + MAX_TRANSFER_TIME), 0);
        assert!(!quick.is_closed(), "it is done");
    }
}
