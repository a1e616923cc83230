//! Running quantiles of logarithms, in constant space.

use super::{Violation, require};

/// Bins of a sixteenth: quantiles are good to about 3 % of the token count they stand for.
const WIDTH: f64 = 1.0 / 16.0;
/// Values from -16 to 16; what lies outside counts for the outermost bin.
const BINS: usize = 512;

/// A histogram of logarithms whose weights can fade.
#[derive(Clone, Debug)]
pub(super) struct Quantiles {
    bins: Vec<f64>,
    weight: f64,
}

impl Quantiles {
    pub fn new() -> Self {
        Self { bins: vec![0.0; BINS], weight: 0.0 }
    }

    /// Weight of what it holds.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    pub fn add(&mut self, value: f64, weight: f64) {
        let bin = value / WIDTH + BINS as f64 / 2.0;
        self.bins[bin.clamp(0.0, (BINS - 1) as f64) as usize] += weight;
        self.weight += weight;
    }

    pub fn fade(&mut self, kept: f64) {
        self.weight *= kept;
        self.bins.iter_mut().for_each(|bin| *bin *= kept);
    }

    /// The value below which `share` of the weight lies, between 0 and 1; 0 when nothing was added.
    pub fn at(&self, share: f64) -> f64 {
        let (mut left, mut highest) = (share * self.weight, 0.0);
        for (bin, &weight) in self.bins.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            let low = (bin as f64 - BINS as f64 / 2.0) * WIDTH;
            if left <= weight {
                return low + WIDTH * left / weight;
            }
            left -= weight;
            highest = low + WIDTH;
        }
        highest
    }

    /// The quantiles 16, 50 and 84 %: a middle, and one standard deviation around it if values are normal.
    pub fn middle(&self) -> [f64; 3] {
        [0.16, 0.5, 0.84].map(|share| self.at(share))
    }

    pub fn check(&self) -> Result<(), Violation> {
        let sum: f64 = self.bins.iter().sum();
        let holds = (sum - self.weight).abs() <= 1e-6 * (1.0 + self.weight) && self.bins.iter().all(|bin| *bin >= 0.0);
        require(holds, "a histogram weighs what was put in", || format!("{sum} instead of {}", self.weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bin_of_the_exact_ones() {
        let mut quantiles = Quantiles::new();
        (0..1000).for_each(|n| quantiles.add(f64::from(n) / 100.0, 1.0));
        for (found, exact) in quantiles.middle().into_iter().zip([1.6, 5.0, 8.4]) {
            assert!((found - exact).abs() <= WIDTH, "{found} for {exact}");
        }
        quantiles.check().unwrap();
    }

    #[test]
    fn what_faded_gives_way_to_what_is_new() {
        let mut quantiles = Quantiles::new();
        quantiles.add(2.0, 100.0);
        quantiles.fade(1e-3);
        quantiles.add(-1000.0, 1.0);
        assert_eq!(quantiles.at(0.5).round(), -16.0);
        quantiles.check().unwrap();
    }
}
