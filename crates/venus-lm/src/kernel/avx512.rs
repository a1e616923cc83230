//! Register tiles in AVX-512: a panel's row is one register. Each output is the same chain of fused multiply-adds as with
//! AVX2, so both give the same bits.

use super::{PANEL, Tile};
use std::arch::x86_64::{
    __m512, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

/// Panels of one tile: at least 8 independent chains, and few enough for the 32 registers.
pub(super) fn panels_at_once(rows: usize) -> usize {
    match rows {
        1 => 8,
        2 | 3 => 4,
        _ => 2,
    }
}

/// # Safety
/// The processor has AVX-512F, and the tile's pointers are valid for its shape.
pub(super) unsafe fn run(rows: usize, panels: usize, t: Tile) {
    // SAFETY: the caller's promise, for each of the shapes below.
    unsafe {
        match (rows, panels) {
            (1, 8) => tile::<1, 8>(t),
            (1, 4) => tile::<1, 4>(t),
            (1, 2) => tile::<1, 2>(t),
            (1, 1) => tile::<1, 1>(t),
            (2, 4) => tile::<2, 4>(t),
            (2, 2) => tile::<2, 2>(t),
            (2, 1) => tile::<2, 1>(t),
            (3, 4) => tile::<3, 4>(t),
            (3, 2) => tile::<3, 2>(t),
            (3, 1) => tile::<3, 1>(t),
            (4, 2) => tile::<4, 2>(t),
            (4, 1) => tile::<4, 1>(t),
            (5, 2) => tile::<5, 2>(t),
            (5, 1) => tile::<5, 1>(t),
            (6, 2) => tile::<6, 2>(t),
            (6, 1) => tile::<6, 1>(t),
            (7, 2) => tile::<7, 2>(t),
            (7, 1) => tile::<7, 1>(t),
            (8, 2) => tile::<8, 2>(t),
            (8, 1) => tile::<8, 1>(t),
            _ => unreachable!("no tile of {rows} rows and {panels} panels"),
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn tile<const ROWS: usize, const PANELS: usize>(t: Tile) {
    let mut sums: [[__m512; PANELS]; ROWS] = [[_mm512_setzero_ps(); PANELS]; ROWS];
    // SAFETY: every offset is inside the shapes that the caller promised.
    unsafe {
        if t.accumulate {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_loadu_ps(t.c.add(row * t.c_stride + panel * PANEL));
                }
            }
        }
        for step in 0..t.k {
            let mut b = [_mm512_setzero_ps(); PANELS];
            for (panel, b) in b.iter_mut().enumerate() {
                *b = _mm512_loadu_ps(t.b.add(panel * t.b_stride + step * PANEL));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_ps(*t.a.add(row * t.a_stride + step));
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = _mm512_fmadd_ps(a, b, *sum);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (panel, sum) in sums.iter().enumerate() {
                _mm512_storeu_ps(t.c.add(row * t.c_stride + panel * PANEL), *sum);
            }
        }
    }
}
