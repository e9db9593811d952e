//! An allocator that counts the bytes that are in use, for laws and figures about memory.
//!
//! ```
//! use tidegate_tests::live_bytes::{LiveBytes, live_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: LiveBytes = LiveBytes;
//!
//! let before = live_bytes();
//! let block = vec![0_u8; 1 << 16];
//! assert_eq!(live_bytes() - before, 1 << 16);
//! # drop(block);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

/// The bytes that this thread has allocated and not given back. Only meaningful while [`LiveBytes`] is the global
/// allocator, and where what a thread allocates is given back by that thread.
#[must_use]
pub fn live_bytes() -> isize {
    LIVE.get()
}

/// The system's allocator, and a counter for each thread.
#[derive(Debug)]
pub struct LiveBytes;

fn count(bytes: isize) {
    LIVE.with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is handed on to the system's allocator as it came; the counter allocates nothing.
unsafe impl GlobalAlloc for LiveBytes {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size().cast_signed()));
        // SAFETY: the caller keeps the contract of `dealloc`, and `System` made the block.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `realloc`, and `System` made the block.
        unsafe { System.realloc(block, layout, size) }
    }
}
