//! Predictors to compare with: silent, constant, exact, noisy and random ones.

use super::quantiles::Quantiles;
use super::{LOG_MOST, NoisyConfig, Prediction, Predictor, Trail, Violation, features, log};
use crate::ids::Version;
use crate::units::Tokens;

/// Says nothing: work is ordered as if there were no predictor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Predictor for Silent {
    fn predict(&self, _trail: &mut Trail, _version: Version) -> Option<Prediction> {
        None
    }
}

/// Says the same of everybody: the median of what was left at all boundaries learned from, or what it was set to
/// before there were any.
#[derive(Clone, Debug)]
pub struct Constant {
    prior: Tokens,
    outcomes: Quantiles,
}

impl Constant {
    /// Says `prior` until it has learned.
    #[must_use]
    pub fn new(prior: Tokens) -> Self {
        Self { prior, outcomes: Quantiles::new() }
    }
}

/// What is said before anything was learned: the prior, and that it may be off by a factor of `e`.
pub(super) fn prior(tokens: Tokens) -> [f64; 3] {
    let middle = log(tokens.0);
    [middle - 1.0, middle, middle + 1.0]
}

impl Predictor for Constant {
    fn predict(&self, trail: &mut Trail, _version: Version) -> Option<Prediction> {
        trail.note(features::NOTHING);
        let learned = self.outcomes.weight() > 0.0;
        Some(Prediction::from_log(if learned { self.outcomes.middle() } else { prior(self.prior) }))
    }

    fn learn(&mut self, trail: &Trail, _version: Version) {
        for (_, left) in trail.outcomes() {
            self.outcomes.add(log(left.0), trail.weight());
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.outcomes.check()
    }
}

/// Says what will be, without spread, of trajectories whose total is known; nothing of others. The upper bound of what
/// any predictor can gain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oracle;

impl Predictor for Oracle {
    fn predict(&self, trail: &mut Trail, _version: Version) -> Option<Prediction> {
        trail.known_remaining().map(|remaining| Prediction { remaining, spread: Tokens::ZERO })
    }
}

/// The oracle, wrong in the way that measured predictors are: by a factor that stays with the trajectory, and one that
/// wanders from turn to turn. Both are log-normal. Says nothing of trajectories whose total is not known.
#[derive(Clone, Copy, Debug)]
pub struct Noisy {
    config: NoisyConfig,
}

impl Noisy {
    /// A predictor with these errors.
    #[must_use]
    pub fn new(config: NoisyConfig) -> Self {
        Self { config }
    }

    /// Standard normal at every fourth turn, in between the mean of its neighbours weighted to stay standard normal:
    /// correlated from turn to turn, without a state to carry along.
    fn wander(&self, id: u64, turns: u32) -> f64 {
        let (knot, along) = (u64::from(turns / KNOT), f64::from(turns % KNOT) / f64::from(KNOT));
        let (from, to) = (normal(self.config.seed, id, 1 + knot), normal(self.config.seed, id, 2 + knot));
        (from * (1.0 - along) + to * along) / (along * along + (1.0 - along) * (1.0 - along)).sqrt()
    }
}

/// Turns between two values drawn afresh.
const KNOT: u32 = 4;

impl Predictor for Noisy {
    fn predict(&self, trail: &mut Trail, _version: Version) -> Option<Prediction> {
        let NoisyConfig { seed, bias, noise } = self.config;
        let remaining = trail.known_remaining()?;
        let (id, turns) = (trail.trajectory().0, trail.progress().turns);
        let middle = log(remaining.0) + bias * normal(seed, id, 0) + noise * self.wander(id, turns);
        let spread = bias.hypot(noise);
        Some(Prediction::from_log([middle - spread, middle, middle + spread]))
    }
}

/// Says anything: what it says of a trajectory at a turn depends on the seed alone. Shows what a bad order costs.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    seed: u64,
}

impl Random {
    /// One that depends on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Predictor for Random {
    fn predict(&self, trail: &mut Trail, _version: Version) -> Option<Prediction> {
        let at = scatter(trail.trajectory().0, u64::from(trail.progress().turns));
        // Log-uniform up to a quarter of a million tokens: as unequal as lengths are.
        let middle = unit(self.seed, at) * 0.6 * LOG_MOST + 0.5;
        Some(Prediction::from_log([middle - 1.0, middle, middle + 1.0]))
    }
}

/// A hash of two numbers (SplitMix64's finalizer).
pub(super) fn scatter(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(b).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Uniform in (0, 1].
fn unit(seed: u64, at: u64) -> f64 {
    ((scatter(seed, at) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Standard normal (Box and Muller), the same for the same arguments.
fn normal(seed: u64, id: u64, at: u64) -> f64 {
    let at = scatter(id, at);
    let (radius, angle) = (unit(seed, at), unit(seed, !at));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
