//! Plain storage for keys and values, in pages.

use crate::Config;
use crate::kernel::{PANEL, Panels};

/// Keys and values of all layers in pages of a fixed number of positions, f32.
///
/// It knows nothing of who owns a page; a page's content is what the last [`Segment`](crate::Segment) that covered it
/// left there.
///
/// Both lie in the form the product kernel reads. For each page, layer and head: the keys as right-hand side of the scores,
/// panels of 16 positions, then the values as right-hand side of the mix, panels of 16 dimensions. A page size that is not
/// a multiple of 16 therefore wastes room.
pub struct Kv {
    shape: KvShape,
    pages: usize,
    data: Vec<f32>,
}

/// Sizes of a page and of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub page_size: usize,
}

impl KvShape {
    /// Floats of one head's keys in a page.
    fn keys(&self) -> usize {
        self.page_size.next_multiple_of(PANEL) * self.head_dim
    }

    /// Floats of one head's values in a page.
    fn values(&self) -> usize {
        self.page_size * self.head_dim.next_multiple_of(PANEL)
    }

    fn page_floats(&self) -> usize {
        self.layers * self.heads * (self.keys() + self.values())
    }

    fn keys_start(&self, page: u32, layer: usize, head: usize) -> usize {
        page as usize * self.page_floats() + (layer * self.heads + head) * (self.keys() + self.values())
    }
}

impl Kv {
    /// Storage for `pages` pages of `page_size` positions each.
    ///
    /// # Panics
    /// If `page_size` is 0.
    pub fn new(config: &Config, pages: usize, page_size: usize) -> Kv {
        let (layers, heads) = (config.num_hidden_layers, config.num_key_value_heads);
        let mut kv = Kv::of_shape(KvShape { layers, heads, head_dim: config.head_dim, page_size });
        kv.grow(pages);
        kv
    }

    /// Storage of that shape without pages.
    pub(crate) fn of_shape(shape: KvShape) -> Kv {
        assert!(shape.page_size > 0, "a page holds at least one position");
        Kv { shape, pages: 0, data: Vec::new() }
    }

    /// Makes at least `pages` pages.
    pub(crate) fn grow(&mut self, pages: usize) {
        if pages > self.pages {
            self.data.resize(pages * self.shape.page_floats(), 0.0);
            self.pages = pages;
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Positions a page holds.
    pub fn page_size(&self) -> usize {
        self.shape.page_size
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.data.len() * size_of::<f32>()
    }

    /// Copies the content of a page over that of another.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn copy_page(&mut self, from: u32, to: u32) {
        let floats = self.shape.page_floats();
        self.data.copy_within(from as usize * floats..(from as usize + 1) * floats, to as usize * floats);
    }

    pub(crate) fn shape(&self) -> KvShape {
        self.shape
    }

    /// Stores one position's key and value of one head.
    pub(crate) fn store(&mut self, page: u32, slot: usize, layer: usize, head: usize, key: &[f32], value: &[f32]) {
        let KvShape { head_dim, page_size, .. } = self.shape;
        let start = self.shape.keys_start(page, layer, head);
        let (keys, values) = self.data[start..].split_at_mut(self.shape.keys());
        let panel = &mut keys[slot / PANEL * PANEL * head_dim..];
        for (key, column) in key.iter().zip(panel.as_chunks_mut::<PANEL>().0) {
            column[slot % PANEL] = *key;
        }
        for (panel, value) in value.chunks(PANEL).enumerate() {
            values[(panel * page_size + slot) * PANEL..][..value.len()].copy_from_slice(value);
        }
    }

    /// The first `positions` keys of a page as `[head_dim, positions]`.
    pub(crate) fn keys(&self, page: u32, layer: usize, head: usize, positions: usize) -> Panels<'_> {
        let KvShape { head_dim, .. } = self.shape;
        let data = &self.data[self.shape.keys_start(page, layer, head)..][..self.shape.keys()];
        Panels { data, k: head_dim, n: positions, stride: head_dim * PANEL }
    }

    /// The first `positions` values of a page as `[positions, head_dim]`.
    pub(crate) fn values(&self, page: u32, layer: usize, head: usize, positions: usize) -> Panels<'_> {
        let KvShape { head_dim, page_size, .. } = self.shape;
        let start = self.shape.keys_start(page, layer, head) + self.shape.keys();
        let data = &self.data[start..][..self.shape.values()];
        Panels { data, k: positions, n: head_dim, stride: page_size * PANEL }
    }
}
