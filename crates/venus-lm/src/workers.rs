//! The threads that share a product, and when sharing pays.

use crate::kernel::Isa;
use std::sync::Mutex;

/// Below this many floating-point operations a product takes less time than waking a thread (some 10 us at 50 GF/s).
const WORTH_SPLITTING: usize = 1 << 20;

/// Threads of one model, and the packing buffer of products whose weight is not packed yet.
pub(crate) struct Workers {
    isa: Isa,
    pool: Option<rayon::ThreadPool>,
    packing: Mutex<Vec<f32>>,
}

impl Default for Workers {
    fn default() -> Workers {
        Workers::new(1)
    }
}

impl Workers {
    /// `threads` threads; the calling one alone if 1, or if the system gives no more.
    pub(crate) fn new(threads: usize) -> Workers {
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("lm-{i}")).build();
        let pool = if threads > 1 { build().ok() } else { None };
        Workers { isa: Isa::detect(), pool, packing: Mutex::default() }
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Whether work of so many floating-point operations should be split.
    pub(crate) fn worth_splitting(&self, operations: usize) -> bool {
        self.pool.is_some() && operations >= WORTH_SPLITTING
    }

    /// Runs the whole of `work` on a thread of the pool, so that what it splits needs no crossing from outside.
    pub(crate) fn enter<R: Send>(&self, operations: usize, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) if operations >= WORTH_SPLITTING => pool.install(work),
            _ => work(),
        }
    }

    /// Runs `work` on every part, in parallel where there are threads, and waits.
    pub(crate) fn scope<T: Send>(&self, parts: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
        match &self.pool {
            Some(pool) => pool.install(|| share(parts, &work)),
            None => parts.for_each(work),
        }
    }

    /// A buffer of at least `floats`, for packing.
    pub(crate) fn with_packing_buffer(&self, floats: usize, work: impl FnOnce(&mut [f32])) {
        let mut buffer = self.packing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if buffer.len() < floats {
            buffer.resize(floats, 0.0);
        }
        work(&mut buffer);
    }
}

/// Hands each part but the first to whichever thread is free. `join` keeps its job on the stack: nothing is allocated.
fn share<T: Send>(mut parts: impl Iterator<Item = T> + Send, work: &(impl Fn(T) + Sync)) {
    if let Some(part) = parts.next() {
        rayon::join(|| work(part), || share(parts, work));
    }
}
