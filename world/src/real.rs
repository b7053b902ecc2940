//! The functions of the C library behind those that this crate replaces.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread's first function.
pub(crate) type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// The address of the next definition of a function: that of the C library.
fn next(cache: &AtomicUsize, name: &CStr) -> usize {
    match cache.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: `name` is a C string; the function keeps no reference to it.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert!(found != 0, "the C library has no {name:?}");
            cache.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {
        $(
            /// The C library's function of this name.
            ///
            /// # Safety
            /// That of the C function.
            pub(crate) unsafe fn $name($($argument: $of),*) -> $result {
                static FOUND_ADDRESS: AtomicUsize = AtomicUsize::new(0);
                let name = const {
                    match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("it ends in a zero"),
                    }
                };
                type Function = unsafe extern "C" fn($($of),*) -> $result;
                // SAFETY: the C library has this function with these arguments (its manual pages).
                let function: Function = unsafe { std::mem::transmute(next(&FOUND_ADDRESS, name)) };
                // SAFETY: the caller vouches for the arguments.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

real! {
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
    pthread_create(
        thread: *mut libc::pthread_t, with: *const libc::pthread_attr_t, start: Start, argument: *mut c_void
    ) -> c_int;
    pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int;
    clock_gettime(clock: libc::clockid_t, into: *mut libc::timespec) -> c_int;
    nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int;
    clock_nanosleep(
        clock: libc::clockid_t, flags: c_int, wanted: *const libc::timespec, left: *mut libc::timespec
    ) -> c_int;
    sched_yield() -> c_int;
    sched_getaffinity(of: libc::pid_t, size: usize, into: *mut libc::cpu_set_t) -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    getrandom(into: *mut c_void, length: usize, flags: libc::c_uint) -> isize;
}
