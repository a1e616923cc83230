//! The door for a predictor that runs elsewhere.

use super::{Prediction, Predictor, Trail, Violation};
use crate::ids::Version;

/// Passes on what an outside service said, and asks a predictor of our own where it said nothing in time.
///
/// The service is never waited for. Whoever talks to it (with a time-out) puts the answer in the trail by
/// [`Trail::hear`] when it comes; a later boundary of the same trajectory uses it, less what was generated since.
/// The paper overlaps the prediction with the tool call, which is not enough where tools take less time than the
/// model that predicts (Heddle, arXiv 2603.28101: 0.27 s against 0.05 s).
#[derive(Debug)]
pub struct Outside {
    patience: u32,
    fallback: Box<dyn Predictor>,
}

impl Outside {
    /// Uses answers that are at most `patience` turns old, else `fallback`.
    #[must_use]
    pub fn new(patience: u32, fallback: Box<dyn Predictor>) -> Self {
        Self { patience, fallback }
    }
}

impl Predictor for Outside {
    fn predict(&self, trail: &mut Trail, version: Version) -> Option<Prediction> {
        // Also when it is not needed: the fallback notes what it will learn from.
        let own = self.fallback.predict(trail, version);
        let progress = *trail.progress();
        let answer = trail.answer().filter(|answer| progress.turns.saturating_sub(answer.turns) <= self.patience);
        let Some(answer) = answer else { return own };
        let since = progress.generated.saturating_sub(answer.generated);
        let remaining = answer.prediction.remaining.saturating_sub(since);
        // Generated more than it was to: the answer is refuted.
        if remaining.0 == 0 { own } else { Some(Prediction { remaining, ..answer.prediction }) }
    }

    fn remember(&mut self, trail: &Trail, version: Version) {
        self.fallback.remember(trail, version);
    }

    fn learn(&mut self, trail: &Trail, version: Version) {
        self.fallback.learn(trail, version);
    }

    fn check(&self) -> Result<(), Violation> {
        self.fallback.check()
    }
}
