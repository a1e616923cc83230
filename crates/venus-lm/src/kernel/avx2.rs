//! Register tiles in AVX2 and FMA.

use super::{PANEL, Tile};
use std::arch::x86_64::{
    __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

/// Panels of one tile: at least 8 independent chains, and few enough for the 16 registers.
pub(super) fn panels_at_once(rows: usize) -> usize {
    match rows {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

/// # Safety
/// The processor has AVX2 and FMA, and the tile's pointers are valid for its shape.
pub(super) unsafe fn run(rows: usize, panels: usize, t: Tile) {
    // SAFETY: the caller's promise, for each of the shapes below.
    unsafe {
        match (rows, panels) {
            (1, 4) => tile::<1, 4>(t),
            (1, 2) => tile::<1, 2>(t),
            (1, 1) => tile::<1, 1>(t),
            (2, 2) => tile::<2, 2>(t),
            (2, 1) => tile::<2, 1>(t),
            (3, 2) => tile::<3, 2>(t),
            (3, 1) => tile::<3, 1>(t),
            (4, 2) => tile::<4, 2>(t),
            (4, 1) => tile::<4, 1>(t),
            (5, 1) => tile::<5, 1>(t),
            (6, 1) => tile::<6, 1>(t),
            _ => unreachable!("no tile of {rows} rows and {panels} panels"),
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const ROWS: usize, const PANELS: usize>(t: Tile) {
    let mut sums: [[[__m256; 2]; PANELS]; ROWS] = [[[_mm256_setzero_ps(); 2]; PANELS]; ROWS];
    // SAFETY: every offset is inside the shapes that the caller promised.
    unsafe {
        if t.accumulate {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, sums) in sums.iter_mut().enumerate() {
                    let c = t.c.add(row * t.c_stride + panel * PANEL);
                    *sums = [_mm256_loadu_ps(c), _mm256_loadu_ps(c.add(8))];
                }
            }
        }
        for step in 0..t.k {
            for panel in 0..PANELS {
                let b = t.b.add(panel * t.b_stride + step * PANEL);
                let (low, high) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(8)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm256_broadcast_ss(&*t.a.add(row * t.a_stride + step));
                    sums[panel][0] = _mm256_fmadd_ps(a, low, sums[panel][0]);
                    sums[panel][1] = _mm256_fmadd_ps(a, high, sums[panel][1]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (panel, [low, high]) in sums.iter().enumerate() {
                let c = t.c.add(row * t.c_stride + panel * PANEL);
                _mm256_storeu_ps(c, *low);
                _mm256_storeu_ps(c.add(8), *high);
            }
        }
    }
}
