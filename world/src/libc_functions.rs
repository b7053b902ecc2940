//! The C functions under `std` that make threads, let them wait, and tell the time and random
//! numbers. A program that links this crate calls these instead of those of the C library.
//!
//! Each one asks first whether its thread belongs to a world; if not, it calls the C library.

use crate::real::{self, Start};
use crate::state::On;
use crate::turn;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The wall clock when the world begins: 2026-01-01.
const EPOCH_NS: i64 = 1_767_225_600_000_000_000;
/// What a look at the clock counts as, in allocations.
const CLOCK_READ_ALLOCATIONS: u64 = 10;
/// How long it takes.
const CLOCK_READ_NS: u64 = 50;
/// The number of processors that the program sees.
const PROCESSORS: usize = 2;

fn set_errno(number: c_int) {
    // SAFETY: the address is that of this thread's own variable.
    unsafe { *libc::__errno_location() = number };
}

fn nanoseconds(time: &libc::timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// What a clock shows in the process of this thread.
fn shows(clock: libc::clockid_t) -> u64 {
    turn::with(|state| {
        let shown = state.group().shows_with_sleep(state.now);
        match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => {
                (EPOCH_NS + shown as i64 + state.group().wall_offset) as u64
            }
            libc::CLOCK_BOOTTIME => shown,
            _ => state.group().shows(state.now),
        }
    })
}

/// What a clock shows, in a world or not.
fn look(clock: libc::clockid_t) -> Duration {
    let mut shown = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `shown` is a place for the result.
    unsafe { clock_gettime(clock, &mut shown) };
    Duration::from_nanos(nanoseconds(&shown))
}

/// The time since the machine of this process was started, in which it may have been suspended.
pub fn boot_time() -> Duration {
    look(libc::CLOCK_BOOTTIME)
}

/// The same without the time for which it was suspended.
pub fn monotonic_time() -> Duration {
    look(libc::CLOCK_MONOTONIC)
}

/// The time of the world at which a clock of this process shows `shown`.
fn when(clock: libc::clockid_t, shown: u64) -> u64 {
    turn::with(|state| match clock {
        libc::CLOCK_REALTIME => {
            let since = shown as i64 - EPOCH_NS - state.group().wall_offset;
            state.group().when_with_sleep(since.max(0) as u64)
        }
        _ => state.group().when(shown),
    })
}

/// Sleeps for `wanted` nanoseconds of this process's clock.
fn sleep(wanted: u64) {
    let until = turn::with(|state| {
        let shown = state.group().shows(state.now);
        state.group().when(shown.saturating_add(wanted))
    });
    turn::block(On::Time, Some(until));
}

/// Replaces `syscall`, through which `std` waits and wakes.
///
/// # Safety
/// That of the C function. Callers pass any number of arguments in the registers that these
/// parameters have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    }
    match number {
        libc::SYS_futex => {
            let operation = b as c_int & !libc::FUTEX_PRIVATE_FLAG & !libc::FUTEX_CLOCK_REALTIME;
            let clock = match b as c_int & libc::FUTEX_CLOCK_REALTIME {
                0 => libc::CLOCK_MONOTONIC,
                _ => libc::CLOCK_REALTIME,
            };
            match operation {
                libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
                    // SAFETY: the caller passes null or a time that it does not change meanwhile.
                    let limit = unsafe { (d as *const libc::timespec).as_ref() }.map(nanoseconds);
                    let until = limit.map(|limit| match operation {
                        libc::FUTEX_WAIT => when(clock, shows(clock).saturating_add(limit)),
                        _ => when(clock, limit),
                    });
                    // SAFETY: the caller passes the address of a futex word, which is atomic.
                    let word = unsafe { &*(a as *const AtomicU32) };
                    wait(a, word, c as u32, until)
                }
                libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
                    let woken = turn::with(|state| state.wake_at(a, (c as u32).min(i32::MAX as u32) as usize));
                    turn::point(CLOCK_READ_ALLOCATIONS);
                    woken as c_long
                }
                other => turn::fail(&format!("a futex operation that is not known: {other}")),
            }
        }
        // SAFETY: the caller vouches for the buffer.
        libc::SYS_getrandom => unsafe { getrandom(a as *mut c_void, b, c as c_uint) as c_long },
        // SAFETY: it has no arguments.
        libc::SYS_sched_yield => c_long::from(unsafe { sched_yield() }),
        // SAFETY: the caller vouches for the arguments.
        _ => unsafe { real::syscall(number, a, b, c, d, e, f) },
    }
}

fn wait(address: usize, word: &AtomicU32, expected: u32, until: Option<u64>) -> c_long {
    if word.load(std::sync::atomic::Ordering::SeqCst) != expected {
        set_errno(libc::EAGAIN);
        return -1;
    }
    if turn::block(On::Futex(address), until) {
        set_errno(libc::ETIMEDOUT);
        return -1;
    }
    0
}

/// What a new thread is told.
struct Birth {
    start: Start,
    argument: *mut c_void,
    number: usize,
    turn: &'static AtomicU32,
}

extern "C" fn born(birth: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` made it, for this thread alone. It is freed only when it is this
    // thread's turn.
    let (number, turn) = unsafe { ((*birth.cast::<Birth>()).number, (*birth.cast::<Birth>()).turn) };
    turn::begin(number, turn);
    // SAFETY: as above.
    let Birth { start, argument, .. } = *unsafe { Box::from_raw(birth.cast::<Birth>()) };
    // SAFETY: the key exists; its value is a number, not an address.
    unsafe { libc::pthread_setspecific(last_key(), std::ptr::dangling::<c_void>()) };
    start(argument)
}

/// The key whose destructor is the last thing that a thread does: the C library calls destructors
/// of Rust's thread-local variables before those of keys.
fn last_key() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    extern "C" fn last(_: *mut c_void) {
        turn::end();
    }
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is a place for the result; the destructor lives as long as the program.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(last)) };
        assert_eq!(made, 0, "there is a key left");
        key
    })
}

/// Replaces the C function: the thread waits for its first turn.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    with: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::pthread_create(thread, with, start, argument) };
    }
    let made = turn::atomically(|| {
        last_key();
        let turn = turn::new_turn();
        let number = turn::with(|state| state.add(turn::next_process(), turn));
        let birth = Box::into_raw(Box::new(Birth { start, argument, number, turn }));
        // SAFETY: the caller vouches for the rest; `born` takes `birth` over.
        let made = unsafe { real::pthread_create(thread, with, born, birth.cast()) };
        if made != 0 {
            turn::fail(&format!("a thread cannot be started: error {made}"));
        }
        // SAFETY: the C library has written the thread's number there.
        let name = unsafe { *thread };
        turn::with(|state| state.numbers.insert(name, number));
        made
    });
    turn::point(CLOCK_READ_ALLOCATIONS);
    made
}

/// Replaces the C function.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    if turn::inside()
        && let Some(number) = turn::with(|state| state.numbers.get(&thread).copied())
    {
        use crate::state::Doing;
        while turn::with(|state| state.threads[number].doing != Doing::Gone) {
            turn::block(On::End(number), None);
        }
        if turn::with(|state| state.groups[state.threads[number].process].dead) {
            // It is kept for ever, and so is a thread that waits for it.
            turn::block(On::Time, None);
        }
    }
    // SAFETY: the caller vouches for the arguments. A thread of the world is about to end itself.
    unsafe { real::pthread_join(thread, result) }
}

/// Replaces the C function.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, into: *mut libc::timespec) -> c_int {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::clock_gettime(clock, into) };
    }
    turn::point(CLOCK_READ_ALLOCATIONS);
    // A thread that waits by looking at the clock gets on.
    turn::with(|state| state.now += CLOCK_READ_NS);
    let shown = shows(clock);
    let time = libc::timespec { tv_sec: (shown / 1_000_000_000) as _, tv_nsec: (shown % 1_000_000_000) as _ };
    // SAFETY: the caller passes a place for the result.
    unsafe { into.write(time) };
    0
}

/// Replaces the C function.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::nanosleep(wanted, left) };
    }
    // SAFETY: the caller passes a time.
    sleep(nanoseconds(unsafe { &*wanted }));
    0
}

/// Replaces the C function.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    wanted: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::clock_nanosleep(clock, flags, wanted, left) };
    }
    // SAFETY: the caller passes a time.
    let wanted = nanoseconds(unsafe { &*wanted });
    if flags & libc::TIMER_ABSTIME == 0 {
        sleep(wanted);
    } else {
        let until = when(clock, wanted);
        turn::block(On::Time, Some(until));
    }
    0
}

/// Replaces the C function.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_yield() -> c_int {
    if !turn::inside() {
        // SAFETY: it has no arguments.
        return unsafe { real::sched_yield() };
    }
    turn::pause();
    0
}

/// Replaces the C function: the program sees the same number of processors everywhere.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(of: libc::pid_t, size: usize, into: *mut libc::cpu_set_t) -> c_int {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::sched_getaffinity(of, size, into) };
    }
    // SAFETY: the caller passes a place for a set of this size, and all zeroes are a set.
    unsafe {
        into.cast::<u8>().write_bytes(0, size);
        (0..PROCESSORS).for_each(|processor| libc::CPU_SET(processor, &mut *into));
    }
    0
}

/// Replaces the C function.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(into: *mut c_void, length: usize, flags: c_uint) -> isize {
    if !turn::inside() {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { real::getrandom(into, length, flags) };
    }
    // SAFETY: the caller passes a place for `length` bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
    turn::with(|state| bytes.iter_mut().for_each(|byte| *byte = state.entropy.next() as u8));
    length as isize
}

/// Replaces the C function: `std` believes that the program handles the signals of a stack that is
/// too short, and so does not keep a map of threads by their addresses, which differ from run to
/// run.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    let done = unsafe { real::sigaction(signal, new, old) };
    if done == 0 && new.is_null() && matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
        // SAFETY: the caller passes null or a place for the result.
        if let Some(old) = unsafe { old.as_mut() }
            && old.sa_sigaction == libc::SIG_DFL
        {
            old.sa_sigaction = libc::SIG_IGN;
        }
    }
    done
}
