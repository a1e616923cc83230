//! The predictor that learns during the run.

use super::baseline;
use super::features::{self, Features, Level};
use super::history::{History, fade};
use super::quantiles::Quantiles;
use super::ridge::Ridge;
use super::{LOG_MOST, LearnedConfig, Prediction, Predictor, Trail, Violation, log, require};
use crate::ids::Version;

/// First turns of the bands that residuals are kept for: accuracy rises as turns accumulate (paper, observation 2).
const BANDS: [u32; 6] = [0, 1, 3, 6, 11, 21];

/// Ridge regression of `ln(1 + remaining)` on logarithms of the trajectory's own counters and on how its prompt went
/// before, learned online; the spread is what residuals in the same band of turns were lately.
///
/// **Cold start.** Before the first trajectory finished it says the configured prior; until
/// [`LearnedConfig::warm_after`] have, the median of what was left at all boundaries so far; then the model speaks.
///
/// **Drift.** The model and the median forget with [`LearnedConfig::half_life`], the history of a prompt with
/// [`LearnedConfig::history_half_life`], both in weight versions: a policy that does not move makes nothing outdated.
/// Residuals are those of the last few hundred trajectories.
#[derive(Clone, Debug)]
pub struct Learned {
    config: LearnedConfig,
    version: Version,
    learned: u64,
    history: History,
    level: Level,
    level_weight: f64,
    model: Ridge,
    outcomes: Quantiles,
    residuals: Residuals,
    median: [f64; 3],
    highest: f64,
}

/// How far off the model was lately: `truth - prediction`, in logarithms.
#[derive(Clone, Debug)]
struct Residuals {
    /// Of all rows, with their sign.
    signed: Quantiles,
    /// By band, without.
    sizes: [Quantiles; BANDS.len()],
    /// The median of `signed`: what turns the mean that a regression says into a median.
    shift: f64,
    /// What 68 % of the rows of a band stay below.
    spreads: [f64; BANDS.len()],
}

/// The spread of a band that has seen nothing: what is measured on cold prompts (`docs/predictor.md`).
const UNKNOWN: f64 = 1.0;
/// Rows at which what was seen counts for half.
const LITTLE: f64 = 50.0;
/// Trajectories over which residuals are kept: older ones are those of an older model.
const WINDOW: f64 = 256.0;

impl Residuals {
    fn new() -> Self {
        Self {
            signed: Quantiles::new(),
            sizes: std::array::from_fn(|_| Quantiles::new()),
            shift: 0.0,
            spreads: [UNKNOWN; BANDS.len()],
        }
    }

    fn add(&mut self, turns: u32, residual: f64, weight: f64) {
        self.signed.add(residual, weight);
        self.sizes[band(turns)].add(residual.abs(), weight);
    }

    /// After each trajectory: forgets a little, and takes the quantiles anew.
    fn settle(&mut self) {
        let share = |seen: &Quantiles| seen.weight() / (seen.weight() + LITTLE);
        self.signed.fade(1.0 - 1.0 / WINDOW);
        self.shift = share(&self.signed) * self.signed.at(0.5);
        for (seen, spread) in self.sizes.iter_mut().zip(&mut self.spreads) {
            seen.fade(1.0 - 1.0 / WINDOW);
            *spread = share(seen) * seen.at(0.68) + (1.0 - share(seen)) * UNKNOWN;
        }
    }

    /// Around what the model says: a median, and a standard deviation below and above it.
    fn around(&self, model: f64, turns: u32) -> [f64; 3] {
        let (middle, spread) = (model + self.shift, self.spreads[band(turns)]);
        [middle - spread, middle, middle + spread]
    }

    fn check(&self) -> Result<(), Violation> {
        self.signed.check()?;
        self.sizes.iter().try_for_each(Quantiles::check)?;
        let finite = self.shift.is_finite() && self.spreads.iter().all(|spread| spread.is_finite() && *spread >= 0.0);
        require(finite, "a spread is a number and not negative", || format!("{:?} {:?}", self.shift, self.spreads))
    }
}

impl Learned {
    /// One that knows nothing yet. `config` is taken to be valid; see [`LearnedConfig::validate`].
    #[must_use]
    pub fn new(config: LearnedConfig) -> Self {
        Self {
            version: Version(0),
            learned: 0,
            history: History::new(config.history_half_life),
            level: Level { total: log(config.prior.0), turns: 0.0, seconds: 0.0 },
            level_weight: 0.0,
            model: Ridge::new(config.ridge),
            outcomes: Quantiles::new(),
            residuals: Residuals::new(),
            median: baseline::prior(config.prior),
            highest: 0.0,
            config,
        }
    }

    fn features(&self, trail: &Trail, version: Version) -> Features {
        let past = self.history.get(trail.prompt(), version);
        features::of(trail.progress(), past, self.level)
    }

    fn is_warm(&self) -> bool {
        self.learned >= u64::from(self.config.warm_after)
    }

    /// What the model says, never more than was ever seen: a line goes on for ever, trajectories do not.
    fn regress(&self, features: &Features) -> f64 {
        self.model.predict(&features::expand(features)).clamp(0.0, self.highest)
    }

    /// The policy moved: what was learned under older versions counts for less.
    fn advance(&mut self, version: Version) {
        let kept = fade(self.version, version, self.config.half_life);
        self.version = self.version.max(version);
        if kept < 1.0 {
            self.level_weight *= kept;
            self.model.fade(kept);
            self.outcomes.fade(kept);
        }
    }

    fn learn_level(&mut self, trail: &Trail) {
        let progress = trail.progress();
        self.level_weight += 1.0;
        let share = 1.0 / self.level_weight;
        let Level { total, turns, seconds } = &mut self.level;
        let finished = [log(progress.generated.0), f64::from(progress.turns).ln_1p(), progress.seconds.ln_1p()];
        for (mean, value) in [total, turns, seconds].into_iter().zip(finished) {
            *mean += (value - *mean) * share;
        }
    }
}

fn band(turns: u32) -> usize {
    BANDS.iter().rposition(|first| *first <= turns).unwrap_or(0)
}

impl Predictor for Learned {
    fn predict(&self, trail: &mut Trail, version: Version) -> Option<Prediction> {
        let features = self.features(trail, version);
        trail.note(features);
        if !self.is_warm() {
            return Some(Prediction::from_log(self.median));
        }
        Some(Prediction::from_log(self.residuals.around(self.regress(&features), trail.progress().turns)))
    }

    fn remember(&mut self, trail: &Trail, version: Version) {
        self.history.add(trail.prompt(), trail.progress(), version);
    }

    fn learn(&mut self, trail: &Trail, version: Version) {
        self.advance(version);
        let weight = trail.weight();
        for (boundary, left) in trail.outcomes() {
            let (x, y) = (features::expand(&boundary.features), log(left.0).min(LOG_MOST));
            if self.is_warm() {
                // Before the row is learned from: what it would have said, not what it says knowing the answer.
                let residual = y - self.regress(&boundary.features);
                self.residuals.add(boundary.turns, residual, weight);
            }
            self.model.add(&x, y, weight);
            self.outcomes.add(y, weight);
            self.highest = self.highest.max(y);
        }
        self.learn_level(trail);
        self.learned += 1;
        self.model.settle();
        self.residuals.settle();
        if self.outcomes.weight() > 0.0 {
            self.median = self.outcomes.middle();
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.history.check()?;
        self.model.check()?;
        self.outcomes.check()?;
        self.residuals.check()?;
        let level = [self.level.total, self.level.turns, self.level.seconds, self.level_weight];
        require(level.iter().all(|value| value.is_finite() && *value >= 0.0), "lengths are not negative", || {
            format!("{:?} of weight {}", self.level, self.level_weight)
        })
    }
}
