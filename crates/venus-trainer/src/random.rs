//! The order in which examples are visited, from a seed alone.

/// SplitMix64 (Steele, Lea, Flood 2014). Written out because a checkpointed run must visit its examples in the same
/// order under any version of any library.
pub(crate) struct SplitMix(pub u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `0..count` in random order (Fisher-Yates).
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            // Multiply-shift: the bias of one part in 2^64 / count does not matter here.
            let other = (u128::from(self.next()) * (last as u128 + 1)) >> 64;
            order.swap(last, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_holds_everything_once_and_depends_on_the_seed() {
        let first = SplitMix(1).permutation(50);
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        assert_eq!(first, SplitMix(1).permutation(50));
        assert_ne!(first, SplitMix(2).permutation(50));
    }
}
