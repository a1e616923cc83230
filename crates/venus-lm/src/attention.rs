//! Causal attention over paged keys and values.
//!
//! The query heads that share a key head are rows of one product, over a block of consecutive tokens. Rows are independent:
//! each scores positions `0..=its own`, takes the softmax over them, and mixes the values in ascending order, page by page.

use crate::elementwise;
use crate::inference::Segment;
use crate::kernel::{self, Isa};
use crate::kv::Kv;
use crate::workers::Workers;
use std::cell::RefCell;

/// Rows of queries (tokens times heads in a group) that are scored together: their scores stay in the cache.
const BLOCK_ROWS: usize = 24;

/// Most query heads that share a key head.
pub(crate) const MOST_GROUPED: usize = 64;

/// A block has one token's rows at least.
const MOST_ROWS: usize = if BLOCK_ROWS > MOST_GROUPED { BLOCK_ROWS } else { MOST_GROUPED };

/// The queries of a pass and where the results go; rows are tokens.
pub(crate) struct Queries<'a> {
    /// Query heads first in each row.
    pub qkv: &'a [f32],
    /// Floats from one row of `qkv` to the next.
    pub stride: usize,
    pub query_heads: usize,
}

/// A stretch of one segment's tokens.
#[derive(Clone, Copy)]
struct Block<'a> {
    segment: &'a Segment<'a>,
    /// Row of the first token in the pass.
    row: usize,
    /// First token within the segment.
    first: usize,
    tokens: usize,
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Fills `out` (`[tokens, query_heads * head_dim]`) with the mixed values of all segments' tokens, and, where given, `lse`
/// (`[tokens, query_heads]`) with the logarithm of each softmax's denominator.
pub(crate) fn attend(
    workers: &Workers,
    kv: &Kv,
    layer: usize,
    segments: &[Segment],
    queries: &Queries,
    out: &mut [f32],
    mut lse: Option<&mut [f32]>,
) {
    let shape = kv.shape();
    let width = queries.query_heads * shape.head_dim;
    let operations: usize = segments.iter().map(|s| s.tokens.len() * (s.start + s.tokens.len()) * width * 4).sum();
    let block_tokens = (BLOCK_ROWS / (queries.query_heads / shape.heads)).max(1);
    if workers.worth_splitting(operations) {
        debug_assert!(lse.is_none(), "training runs on one thread");
        let mut rest = out;
        let parts = blocks(segments, block_tokens).map(|block| {
            let (mine, others) = std::mem::take(&mut rest).split_at_mut(block.tokens * width);
            rest = others;
            (block, mine)
        });
        workers.scope(parts, |(block, out)| attend_block(workers.isa(), kv, layer, queries, block, out, None));
        return;
    }
    for block in blocks(segments, block_tokens) {
        let rows = block.row..block.row + block.tokens;
        let out = &mut out[rows.start * width..rows.end * width];
        let lse = lse.as_deref_mut().map(|lse| &mut lse[rows.start * queries.query_heads..]);
        attend_block(workers.isa(), kv, layer, queries, block, out, lse);
    }
}

fn blocks<'a>(segments: &'a [Segment<'a>], block_tokens: usize) -> impl Iterator<Item = Block<'a>> + Send {
    let starts = segments.iter().scan(0, |row, segment| {
        *row += segment.tokens.len();
        Some((segment, *row - segment.tokens.len()))
    });
    starts.flat_map(move |(segment, row)| {
        (0..segment.tokens.len()).step_by(block_tokens).map(move |first| {
            let tokens = block_tokens.min(segment.tokens.len() - first);
            Block { segment, row: row + first, first, tokens }
        })
    })
}

fn attend_block(
    isa: Isa,
    kv: &Kv,
    layer: usize,
    queries: &Queries,
    block: Block,
    out: &mut [f32],
    mut lse: Option<&mut [f32]>,
) {
    let shape = kv.shape();
    let (dim, query_heads) = (shape.head_dim, queries.query_heads);
    let group = query_heads / shape.heads;
    let rows = block.tokens * group;
    let context = block.segment.start + block.first + block.tokens;
    SCRATCH.with_borrow_mut(|scratch| {
        let needed = rows * (2 * dim + context);
        if scratch.len() < needed {
            scratch.resize(needed.next_power_of_two(), 0.0);
        }
        let (q, rest) = scratch.split_at_mut(rows * dim);
        let (mixed, rest) = rest.split_at_mut(rows * dim);
        let scores = &mut rest[..rows * context];
        for head in 0..shape.heads {
            gather(isa, queries, block, head * group, group, dim, q);
            score(isa, kv, layer, head, block.segment, q, scores, context);
            let mut inverse_sums = [0.0; MOST_ROWS];
            for row in 0..rows {
                let visible = context - block.tokens + row / group + 1;
                let (seen, hidden) = scores[row * context..][..context].split_at_mut(visible);
                let (max, sum) = elementwise::exp_scores(isa, seen);
                hidden.fill(0.0);
                inverse_sums[row] = 1.0 / sum;
                if let Some(lse) = lse.as_deref_mut() {
                    lse[row / group * query_heads + head * group + row % group] = max + sum.ln();
                }
            }
            mix(isa, kv, layer, head, block.segment, scores, context, mixed);
            for row in 0..rows {
                let to = (row / group * query_heads + head * group + row % group) * dim;
                elementwise::scaled(isa, &mixed[row * dim..][..dim], inverse_sums[row], &mut out[to..][..dim]);
            }
        }
    });
}

/// Copies the block's query heads `first_head ..` together, row by row, scaled by `1 / sqrt(dim)`.
fn gather(isa: Isa, queries: &Queries, block: Block, first_head: usize, group: usize, dim: usize, q: &mut [f32]) {
    let scale = 1.0 / (dim as f32).sqrt();
    for (token, q) in q.chunks_exact_mut(group * dim).enumerate() {
        let from = (block.row + token) * queries.stride + first_head * dim;
        elementwise::scaled(isa, &queries.qkv[from..][..group * dim], scale, q);
    }
}

/// `scores[rows, context] = q K^T`, page by page.
#[expect(clippy::too_many_arguments, reason = "names a place in the cache and two operands")]
fn score(
    isa: Isa,
    kv: &Kv,
    layer: usize,
    head: usize,
    segment: &Segment,
    q: &[f32],
    scores: &mut [f32],
    context: usize,
) {
    let shape = kv.shape();
    let rows = q.len() / shape.head_dim;
    for (page, from) in segment.pages.iter().zip((0..context).step_by(shape.page_size)) {
        let keys = kv.keys(*page, layer, head, shape.page_size.min(context - from));
        kernel::multiply(isa, rows, q, shape.head_dim, keys, &mut scores[from..], context, false);
    }
}

/// `mixed[rows, dim] = weights[rows, context] V`, page by page.
#[expect(clippy::too_many_arguments, reason = "names a place in the cache and two operands")]
fn mix(
    isa: Isa,
    kv: &Kv,
    layer: usize,
    head: usize,
    segment: &Segment,
    weights: &[f32],
    context: usize,
    mixed: &mut [f32],
) {
    let shape = kv.shape();
    let rows = mixed.len() / shape.head_dim;
    for (page, from) in segment.pages.iter().zip((0..context).step_by(shape.page_size)) {
        let values = kv.values(*page, layer, head, shape.page_size.min(context - from));
        kernel::multiply(isa, rows, &weights[from..], context, values, mixed, shape.head_dim, from > 0);
    }
}
