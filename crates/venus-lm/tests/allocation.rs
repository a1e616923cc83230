//! A decode step allocates nothing once its buffers have their size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts this thread's allocations.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_decode_step_does_not_allocate() {
    let model = Arc::new(Model::random(Config::tiny(100), 1));
    let mut kv = Kv::new(&model.config, 8, 16);
    let mut inference = Inference::new(model, 1);
    let (one, two) = ([0u32, 1, 2, 3], [4u32, 5, 6, 7]);
    let mut step = |position: usize| {
        let segment = |pages| Segment { tokens: &[7], start: position, pages, logits: LogitRows::Last };
        let segments = [segment(&one[..]), segment(&two[..])];
        let before = ALLOCATIONS.get();
        inference.forward(&mut kv, &segments);
        ALLOCATIONS.get() - before
    };
    assert!(step(0) > 0, "the first step makes the buffers: the counter works");
    // Scores grow with the context, by doubling: 63 positions are within what the first steps made.
    (1..40).for_each(|position| _ = step(position));
    assert_eq!((40..60).map(&mut step).sum::<usize>(), 0);
}
