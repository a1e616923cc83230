//! Matrix products whose result does not depend on the batch.
//!
//! The right-hand side is packed in panels of [`PANEL`] columns. Every output element is one chain of multiply-adds over
//! the inner dimension in ascending order, whatever the number of rows, their grouping into tiles, or the threads. So a
//! token's logits are the same bits alone, in a batch, in a chunked prompt, and in training. (A general GEMM picks its
//! blocking by the shape and so changes the rounding with the batch.)

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod gemm;
mod packed;
mod portable;
#[cfg(test)]
mod tests;

pub(crate) use gemm::{View, ViewMut, gemm};
pub(crate) use packed::{Matrix, Packed};

/// Columns of a packed panel: two AVX2 registers or one of AVX-512.
pub(crate) const PANEL: usize = 16;

/// Rows of the largest register tile.
const MOST_TILE_ROWS: usize = 8;

/// Which instructions the products use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// AVX-512F, with AVX2 and FMA, found at run time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 and FMA, found at run time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Plain Rust.
    Portable,
}

impl Isa {
    /// The best this machine has.
    pub(crate) fn detect() -> Isa {
        Isa::present().next().unwrap_or(Isa::Portable)
    }

    /// Those this machine has, the best first.
    pub(crate) fn present() -> impl Iterator<Item = Isa> {
        #[cfg(target_arch = "x86_64")]
        let (avx2, avx512) = {
            let avx2 = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
            let avx512 = avx2 && std::arch::is_x86_feature_detected!("avx512f");
            (avx2.then_some(Isa::Avx2), avx512.then_some(Isa::Avx512))
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (avx2, avx512) = (None, None);
        [avx512, avx2, Some(Isa::Portable)].into_iter().flatten()
    }

    /// Rows of the largest register tile. With AVX2, 6 rows of 2 registers leave 4 of the 16 for operands.
    fn tile_rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => MOST_TILE_ROWS,
            _ => 6,
        }
    }

    /// Panels of a tile of so many rows: enough independent chains to hide the latency of a multiply-add (4 cycles, 2 a
    /// cycle). A power of two.
    fn panels_at_once(self, rows: usize) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::panels_at_once(rows),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::panels_at_once(rows),
            Isa::Portable => 1,
        }
    }
}

/// A packed right-hand side of `k` rows and `n` columns: panel `j` holds columns `16 j ..`, element `(row, column)` at
/// `j * stride + row * 16 + column % 16`.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    pub data: &'a [f32],
    pub k: usize,
    pub n: usize,
    pub stride: usize,
}

/// One register tile: `rows x (panels * 16)` outputs.
#[derive(Clone, Copy)]
struct Tile {
    k: usize,
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    accumulate: bool,
}

/// `c[m, n] = a[m, k] b[k, n]`, or `c += a b` with the chain starting at what `c` holds. Rows of `a` and `c` are
/// `a_stride` and `c_stride` apart.
///
/// # Panics
/// If a slice is too short for its shape.
#[expect(clippy::too_many_arguments, reason = "a matrix product has three operands with their strides")]
pub(crate) fn multiply(
    isa: Isa,
    m: usize,
    a: &[f32],
    a_stride: usize,
    b: Panels,
    c: &mut [f32],
    c_stride: usize,
    accumulate: bool,
) {
    if m == 0 || b.n == 0 {
        return;
    }
    assert!(c.len() >= (m - 1) * c_stride + b.n && b.n <= c_stride, "output of {m} x {} is too short", b.n);
    // SAFETY: `c` is exclusively ours and holds all rows and columns, as asserted.
    unsafe { multiply_columns(isa, m, a, a_stride, b, c.as_mut_ptr(), c_stride, accumulate) }
}

/// [`multiply`] with the output as a pointer, so that several threads may each fill their own columns.
///
/// # Safety
/// `c` is valid for writes (reads too if `accumulate`) of `b.n` floats at every `c_stride` for `m` rows, and nobody else
/// touches those floats meanwhile.
#[expect(clippy::too_many_arguments, reason = "as `multiply`")]
pub(crate) unsafe fn multiply_columns(
    isa: Isa,
    m: usize,
    a: &[f32],
    a_stride: usize,
    b: Panels,
    c: *mut f32,
    c_stride: usize,
    accumulate: bool,
) {
    let panels = b.n.div_ceil(PANEL);
    if m == 0 || panels == 0 {
        return;
    }
    assert!(a.len() >= (m - 1) * a_stride + b.k, "left side of {m} x {} is too short", b.k);
    assert!(b.data.len() >= (panels - 1) * b.stride + b.k * PANEL, "right side of {} x {} is too short", b.k, b.n);
    let whole = b.n / PANEL;
    let mut first_row = 0;
    for block in row_blocks(isa, m, b.k) {
        let mut panel = 0;
        // The shortest tile sets the pace: all tiles of a block take the same panels while these are in the cache.
        let at_once = isa.panels_at_once(block / block.div_ceil(isa.tile_rows()));
        while panel < panels {
            let mut step = at_once;
            while step > 1 && panel + step > whole {
                step /= 2;
            }
            let columns = PANEL.min(b.n - panel * PANEL);
            let mut row = first_row;
            for rows in even_parts(block, isa.tile_rows()) {
                // SAFETY: the asserts above and this function's contract bound every row and panel offset.
                let tile = unsafe {
                    Tile {
                        k: b.k,
                        a: a.as_ptr().add(row * a_stride),
                        a_stride,
                        b: b.data.as_ptr().add(panel * b.stride),
                        b_stride: b.stride,
                        c: c.add(row * c_stride + panel * PANEL),
                        c_stride,
                        accumulate,
                    }
                };
                // SAFETY: as above; a ragged last panel goes through a whole one of its own.
                unsafe {
                    if columns == PANEL { run(isa, rows, step, tile) } else { run_ragged(isa, rows, columns, tile) }
                }
                row += rows;
            }
            panel += step;
        }
        first_row += block;
    }
}

/// Row counts of the blocks whose left side stays in the second-level cache while all panels pass by.
fn row_blocks(isa: Isa, m: usize, k: usize) -> impl Iterator<Item = usize> {
    const CACHED_FLOATS: usize = 96 * 1024;
    let most = (CACHED_FLOATS / k.max(1)).next_multiple_of(isa.tile_rows()).max(isa.tile_rows());
    even_parts(m, most)
}

/// The fewest parts of at most `most`, as even as can be: no tile of one or two rows then wastes the multiply units.
fn even_parts(total: usize, most: usize) -> impl Iterator<Item = usize> {
    let parts = total.div_ceil(most);
    (0..parts).map(move |part| (part + 1) * total / parts - part * total / parts)
}

/// # Safety
/// The tile's pointers are valid for `rows` rows, `panels` whole panels and `k` steps.
unsafe fn run(isa: Isa, rows: usize, panels: usize, tile: Tile) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::Avx512` is only made where AVX-512F was found; the rest is this function's contract.
        Isa::Avx512 => unsafe { avx512::run(rows, panels, tile) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::Avx2` is only made where AVX2 and FMA were found; the rest is this function's contract.
        Isa::Avx2 => unsafe { avx2::run(rows, panels, tile) },
        // SAFETY: this function's contract.
        Isa::Portable => unsafe { portable::run(rows, panels, tile) },
    }
}

/// A tile whose panel has fewer than 16 real columns: computed whole beside the output, then copied.
///
/// # Safety
/// As [`run`], but `c` is only valid for `columns` columns.
unsafe fn run_ragged(isa: Isa, rows: usize, columns: usize, tile: Tile) {
    let mut whole = [0.0f32; MOST_TILE_ROWS * PANEL];
    for row in 0..rows {
        if tile.accumulate {
            // SAFETY: `c` is valid for `columns` floats in each of its rows.
            let from = unsafe { std::slice::from_raw_parts(tile.c.add(row * tile.c_stride), columns) };
            whole[row * PANEL..][..columns].copy_from_slice(from);
        }
    }
    // SAFETY: `whole` has room for the largest tile of one panel.
    unsafe { run(isa, rows, 1, Tile { c: whole.as_mut_ptr(), c_stride: PANEL, ..tile }) };
    for row in 0..rows {
        // SAFETY: as above.
        let to = unsafe { std::slice::from_raw_parts_mut(tile.c.add(row * tile.c_stride), columns) };
        to.copy_from_slice(&whole[row * PANEL..][..columns]);
    }
}
