//! Rotary positions in the half-rotation form of Hugging Face: pair `(i, i + head_dim / 2)`.

/// Cosines and sines of all pairs for each position, `[position][cosines then sines]`, made as far as needed.
pub(crate) struct RopeTable {
    head_dim: usize,
    theta: f32,
    values: Vec<f32>,
}

impl RopeTable {
    pub(crate) fn new(head_dim: usize, theta: f32) -> RopeTable {
        RopeTable { head_dim, theta, values: Vec::new() }
    }

    /// Whether the table is for these heads.
    pub(crate) fn is_for(&self, head_dim: usize, theta: f32) -> bool {
        self.head_dim == head_dim && self.theta == theta
    }

    /// Makes at least `positions` positions.
    pub(crate) fn cover(&mut self, positions: usize) {
        let (half, made) = (self.head_dim / 2, self.values.len() / self.head_dim);
        if made >= positions {
            return;
        }
        let target = positions.next_power_of_two().max(256);
        self.values.reserve_exact((target - made) * self.head_dim);
        for position in made..target {
            // Single precision throughout, as in transformers: its rounding is part of what the weights were trained with.
            let angle =
                |pair: usize| position as f32 * (1.0 / self.theta.powf((2 * pair) as f32 / self.head_dim as f32));
            self.values.extend((0..half).map(|pair| angle(pair).cos()));
            self.values.extend((0..half).map(|pair| angle(pair).sin()));
        }
    }

    /// The cosines, then the sines, of a position that is covered.
    pub(crate) fn at(&self, position: usize) -> &[f32] {
        &self.values[position * self.head_dim..][..self.head_dim]
    }
}
