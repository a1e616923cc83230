//! Ridge regression that learns a row at a time and forgets.
//!
//! Kept in information form (sums of products) and not as the inverse that recursive least squares updates: the same
//! answer, but a feature that stays constant for long, such as failures in a task without any, cannot blow it up.
//! A row costs O(features^2); solving costs O(features^3) and is done once every `COUNT` rows.

use super::features::COUNT;
use super::{Violation, require};

/// Features are scaled by their deviation, but by no less than this. All are logarithms or shares, so one that varied
/// less has not shown what it does: unscaled, a coefficient fitted to its trifles would be let loose on whatever comes
/// next (the first prompts that have a history, after an epoch of prompts that had none).
const LEAST_SCALE: f64 = 0.3;

/// A linear model of a value given [`COUNT`] features, and the sums it is solved from.
#[derive(Clone, Debug)]
pub(super) struct Ridge {
    penalty: f64,
    weight: f64,
    sums: Vec<f64>,
    sum: f64,
    /// Lower triangle of the sum of `x x^T`, row by row.
    products: Vec<f64>,
    moments: Vec<f64>,
    coefficients: Vec<f64>,
    intercept: f64,
    unsolved: usize,
}

impl Ridge {
    /// A model that knows nothing. `penalty` is in rows: with as many rows, coefficients of independent standardized
    /// features are half of what least squares would say.
    pub fn new(penalty: f64) -> Self {
        Self {
            penalty,
            weight: 0.0,
            sums: vec![0.0; COUNT],
            sum: 0.0,
            products: vec![0.0; COUNT * (COUNT + 1) / 2],
            moments: vec![0.0; COUNT],
            coefficients: vec![0.0; COUNT],
            intercept: 0.0,
            unsolved: 0,
        }
    }

    pub fn predict(&self, x: &[f64; COUNT]) -> f64 {
        self.intercept + dot(&self.coefficients, x)
    }

    pub fn add(&mut self, x: &[f64; COUNT], y: f64, weight: f64) {
        self.weight += weight;
        self.sum += weight * y;
        let mut at = 0;
        for (row, &value) in x.iter().enumerate() {
            let value = weight * value;
            self.sums[row] += value;
            self.moments[row] += value * y;
            for (product, other) in self.products[at..=at + row].iter_mut().zip(x) {
                *product += value * other;
            }
            at += row + 1;
        }
        self.unsolved += 1;
    }

    pub fn fade(&mut self, kept: f64) {
        self.weight *= kept;
        self.sum *= kept;
        for sums in [&mut self.sums, &mut self.products, &mut self.moments] {
            sums.iter_mut().for_each(|sum| *sum *= kept);
        }
    }

    /// Solves again if enough was learned since: after every row at first, then every [`COUNT`] rows.
    pub fn settle(&mut self) {
        if self.unsolved >= COUNT || (self.unsolved > 0 && self.weight < (4 * COUNT) as f64) {
            self.solve();
            self.unsolved = 0;
        }
    }

    /// Solves `(C + penalty / weight) b = c` for the scaled features, `C` being their covariance and `c` that with the
    /// value. The mean is not penalized.
    fn solve(&mut self) {
        let means: Vec<f64> = self.sums.iter().map(|sum| sum / self.weight).collect();
        let mean = self.sum / self.weight;
        let covariance = |a: usize, b: usize| self.products[a * (a + 1) / 2 + b] / self.weight - means[a] * means[b];
        let scales: Vec<f64> = (0..COUNT).map(|f| covariance(f, f).max(0.0).sqrt().max(LEAST_SCALE)).collect();
        let mut matrix = vec![0.0; self.products.len()];
        let mut right = vec![0.0; COUNT];
        for a in 0..COUNT {
            for b in 0..=a {
                matrix[a * (a + 1) / 2 + b] = covariance(a, b) / (scales[a] * scales[b]);
            }
            matrix[a * (a + 1) / 2 + a] += self.penalty / self.weight;
            right[a] = (self.moments[a] / self.weight - means[a] * mean) / scales[a];
        }
        cholesky_solve(&mut matrix, &mut right);
        for f in 0..COUNT {
            self.coefficients[f] = right[f] / scales[f];
        }
        self.intercept = mean - dot(&self.coefficients, &means);
    }

    pub fn check(&self) -> Result<(), Violation> {
        let learned = self.coefficients.iter().chain([&self.intercept, &self.weight, &self.sum]);
        let finite = learned.chain(&self.products).chain(&self.moments).all(|value| value.is_finite());
        require(finite, "the model is made of numbers", || format!("{:?}", self.coefficients))?;
        let squares = (0..COUNT).all(|f| self.products[f * (f + 3) / 2] >= 0.0);
        require(squares && self.weight >= 0.0, "sums of squares are not negative", || format!("{:?}", self.products))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves `A x = b` for a positive definite `A` given as its lower triangle; both are overwritten, `b` by `x`.
fn cholesky_solve(a: &mut [f64], b: &mut [f64]) {
    let row = |r: usize| r * (r + 1) / 2;
    for r in 0..b.len() {
        for c in 0..=r {
            let inner = dot(&a[row(r)..row(r) + c], &a[row(c)..row(c) + c]);
            let rest = a[row(r) + c] - inner;
            // The penalty keeps the matrix positive definite; rounding must not undo that.
            a[row(r) + c] = if r == c { rest.max(1e-12).sqrt() } else { rest / a[row(c) + c] };
        }
        b[r] = (b[r] - dot(&a[row(r)..row(r) + r], &b[..r])) / a[row(r) + r];
    }
    for r in (0..b.len()).rev() {
        let above: f64 = (r + 1..b.len()).map(|below| a[row(below) + r] * b[below]).sum();
        b[r] = (b[r] - above) / a[row(r) + r];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A feature vector and a value that depends on three of its features.
    fn row(n: u64) -> ([f64; COUNT], f64) {
        let mut x = [0.0; COUNT];
        for (place, value) in x.iter_mut().enumerate().take(8) {
            *value = (crate::predict::baseline::scatter(n, place as u64) % 1000) as f64 / 100.0;
        }
        (x, 2.0 + 0.5 * x[0] - 1.5 * x[3] + 0.25 * x[7])
    }

    #[test]
    fn a_linear_dependency_is_found_among_constant_features() {
        let mut ridge = Ridge::new(1e-6);
        for n in 0..500 {
            let (x, y) = row(n);
            ridge.add(&x, y, 1.0);
            ridge.settle();
        }
        let (x, y) = row(1234);
        assert!((ridge.predict(&x) - y).abs() < 1e-4, "{} for {y}", ridge.predict(&x));
        ridge.check().unwrap();
    }

    #[test]
    fn with_little_to_go_by_it_says_about_the_mean() {
        let mut ridge = Ridge::new(1e6);
        let rows: Vec<_> = (0..100).map(row).collect();
        rows.iter().for_each(|(x, y)| ridge.add(x, *y, 1.0));
        ridge.settle();
        let mean = rows.iter().map(|(_, y)| y).sum::<f64>() / 100.0;
        assert!((ridge.predict(&rows[0].0) - mean).abs() < 0.01);
    }

    #[test]
    fn what_faded_gives_way_to_what_is_new() {
        let mut ridge = Ridge::new(1e-6);
        for n in 0..200 {
            let (x, y) = row(n);
            ridge.add(&x, -y, 1.0);
        }
        ridge.fade(1e-9);
        for n in 0..200 {
            let (x, y) = row(n);
            ridge.add(&x, y, 1.0);
        }
        ridge.settle();
        let (x, y) = row(777);
        assert!((ridge.predict(&x) - y).abs() < 1e-3);
    }
}
