//! The memory of a world. Where a program allocates, its thread may lose its turn: most
//! instructions are near an allocation, so races between two instructions show. And the addresses
//! are the same in each run of a seed: some code looks at the alignment of what it gets.

use crate::turn::{inside, point};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the memory of a world begins, and how much there is. The system gives pages that are used.
const HEAP_START: usize = 0x1000_0000_0000;
const HEAP_BYTES: usize = 1 << 38;
/// Blocks have 2^4 bytes, 2^5 and so on: each size has a list of free ones.
const MIN_SIZE_LOG2: u32 = 4;
const SIZE_CLASSES: usize = 34;
/// Blocks are aligned to their size, up to this.
const PAGE: usize = 4096;

/// The end of what was ever used; 0 before the first block.
static END: AtomicUsize = AtomicUsize::new(0);
/// The first free block of each size. Each begins with the address of the next one.
static FREE_LISTS: [AtomicUsize; SIZE_CLASSES] = [const { AtomicUsize::new(0) }; SIZE_CLASSES];

/// The allocator of a simulation, for `#[global_allocator]`. Outside of a world it is the system's.
pub struct Preempting;

/// The list for a layout, and the length of its blocks; None when the system has to do it.
fn class(layout: Layout) -> Option<(usize, usize)> {
    let length = layout.size().max(layout.align()).max(1 << MIN_SIZE_LOG2).checked_next_power_of_two()?;
    let class = (length.trailing_zeros() - MIN_SIZE_LOG2) as usize;
    (class < SIZE_CLASSES && layout.align() <= PAGE).then_some((class, length))
}

fn is_own(pointer: *mut u8) -> bool {
    (HEAP_START..HEAP_START + HEAP_BYTES).contains(&pointer.addr())
}

/// A new block at the end of what is used. None when there is no more memory.
fn extend(length: usize) -> Option<usize> {
    let mut end = END.load(Ordering::Relaxed);
    if end == 0 {
        let (rights, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let how = how | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: `MAP_FIXED_NOREPLACE` takes no pages that somebody has.
        let found = unsafe { libc::mmap(HEAP_START as *mut _, HEAP_BYTES, rights, how, -1, 0) };
        if found.addr() != HEAP_START {
            return None;
        }
        end = HEAP_START;
    }
    let begin = end.next_multiple_of(length.min(PAGE));
    END.store(begin + length, Ordering::Relaxed);
    (begin + length <= HEAP_START + HEAP_BYTES).then_some(begin)
}

/// A block. Only the thread whose turn it is calls this, so nobody else changes the lists.
fn take(class: usize, length: usize) -> Option<*mut u8> {
    match FREE_LISTS[class].load(Ordering::Relaxed) {
        0 => extend(length).map(|begin| begin as *mut u8),
        found => {
            // SAFETY: a free block of this size, which begins with the address of the next one.
            let next = unsafe { (found as *const usize).read() };
            FREE_LISTS[class].store(next, Ordering::Relaxed);
            Some(found as *mut u8)
        }
    }
}

// SAFETY: a block of a world is as long as its layout and aligned to it, and belongs to one
// allocation at a time: it leaves the list when it is given out. All other memory is that of
// `System`, asked for with the same arguments.
unsafe impl GlobalAlloc for Preempting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        point(1);
        let own = class(layout).filter(|_| inside()).and_then(|(class, length)| take(class, length));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        own.unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !inside() {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as above; a block that is not null has space for `size` bytes.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_own(pointer) && !inside() {
            // SAFETY: `pointer` came from `System`, as the caller vouches.
            return unsafe { System.realloc(pointer, layout, size) };
        }
        // SAFETY: the caller passes a size that is a layout with this alignment, and a block of
        // `layout` that is its own until now.
        unsafe {
            let new = Layout::from_size_align_unchecked(size, layout.align());
            if is_own(pointer) && class(new) == class(layout) {
                return pointer;
            }
            let block = self.alloc(new);
            if !block.is_null() {
                block.copy_from_nonoverlapping(pointer, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            block
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !is_own(pointer) {
            // SAFETY: as above.
            return unsafe { System.dealloc(pointer, layout) };
        }
        // The C library and `std` free a little after the last moment of a thread, while others
        // run: nobody gets that again.
        let Some((class, _)) = class(layout).filter(|_| inside()) else { return };
        // SAFETY: the block is nobody's any more, and long enough for an address.
        unsafe { pointer.cast::<usize>().write(FREE_LISTS[class].load(Ordering::Relaxed)) };
        FREE_LISTS[class].store(pointer.addr(), Ordering::Relaxed);
    }
}
