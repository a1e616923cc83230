//! A checked door to the `gemm` crate, for the backward pass.

/// A matrix in a slice: element `(row, column)` at `row * row_stride + column * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub data: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl<'a> View<'a> {
    /// A matrix whose rows are `row_stride` apart.
    pub(crate) fn new(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> View<'a> {
        View { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// The transpose.
    pub(crate) fn t(self) -> View<'a> {
        let View { data, rows, columns, row_stride, column_stride } = self;
        View { data, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }

    fn end(&self) -> usize {
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }
}

/// A matrix to be written, rows `row_stride` apart.
pub(crate) struct ViewMut<'a> {
    pub data: &'a mut [f32],
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
}

impl<'a> ViewMut<'a> {
    /// A matrix whose rows are `row_stride` apart.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> ViewMut<'a> {
        ViewMut { data, rows, columns, row_stride }
    }
}

/// `c = a b`, or `c += a b`, on the calling thread.
///
/// # Panics
/// If the shapes do not match or a slice is too short for its shape.
pub(crate) fn gemm(c: ViewMut, a: View, b: View, accumulate: bool) {
    assert!(a.columns == b.rows && c.rows == a.rows && c.columns == b.columns, "shapes of a product match");
    if c.rows == 0 || c.columns == 0 || a.columns == 0 {
        return;
    }
    let c_end = (c.rows - 1) * c.row_stride + c.columns;
    assert!(a.end() <= a.data.len() && b.end() <= b.data.len() && c_end <= c.data.len(), "a matrix fits its slice");
    let (m, n, k) = (c.rows, c.columns, a.columns);
    // SAFETY: the shapes match and every element lies in its slice, as asserted; `c` is borrowed exclusively.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.data.as_mut_ptr(),
            1,
            c.row_stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
