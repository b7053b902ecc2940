//! Interrupts threads: where a program allocates memory, its thread may lose its turn. Most
//! instructions are near an allocation, so races between two instructions show.

use crate::turn::point;
use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, for `#[global_allocator]`. Without it threads are interrupted only where
/// they wake others, sleep, or look at the clock.
pub struct Preempting;

// SAFETY: all memory is that of `System`, asked for with the same arguments.
unsafe impl GlobalAlloc for Preempting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        point(1);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        point(1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        point(1);
        // SAFETY: `pointer` came from `System`, as the caller vouches.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
