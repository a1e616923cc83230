//! Plain storage for keys and values, in pages.

use crate::Config;

/// Keys and values of all layers in pages of a fixed number of positions, f32.
///
/// It knows nothing of who owns a page; a page's content is what the last [`Segment`](crate::Segment) that covered it
/// left there.
pub struct Kv {
    pages: usize,
    page_size: usize,
    #[expect(dead_code, reason = "read by attention")]
    data: Vec<f32>,
}

impl Kv {
    /// Storage for `pages` pages of `page_size` positions each.
    ///
    /// # Panics
    /// If `page_size` is 0.
    pub fn new(config: &Config, pages: usize, page_size: usize) -> Kv {
        assert!(page_size > 0, "a page holds at least one position");
        Kv { pages, page_size, data: vec![0.0; pages * page_size * config.kv_floats_per_position()] }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Positions a page holds.
    pub fn page_size(&self) -> usize {
        self.page_size
    }
}
