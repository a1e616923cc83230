//! The register tile in plain Rust, for processors without AVX2. The compiler vectorises the inner loop as it can.

use super::{PANEL, Tile};

/// # Safety
/// The tile's pointers are valid for its shape.
pub(super) unsafe fn run(rows: usize, panels: usize, t: Tile) {
    for row in 0..rows {
        for panel in 0..panels {
            // SAFETY: every offset is inside the shapes that the caller promised.
            unsafe {
                let a = std::slice::from_raw_parts(t.a.add(row * t.a_stride), t.k);
                let b = std::slice::from_raw_parts(t.b.add(panel * t.b_stride), t.k * PANEL);
                let c = t.c.add(row * t.c_stride + panel * PANEL);
                let mut sums = [0.0f32; PANEL];
                if t.accumulate {
                    c.copy_to_nonoverlapping(sums.as_mut_ptr(), PANEL);
                }
                for (a, b) in a.iter().zip(b.as_chunks::<PANEL>().0) {
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum += a * b;
                    }
                }
                c.copy_from_nonoverlapping(sums.as_ptr(), PANEL);
            }
        }
    }
}
