//! The numbers a prediction is made from: logarithms of counters, and how the prompt went before.

use super::ToolKind;
use super::history::Past;
use super::log;
use super::trail::Progress;

const KINDS: usize = ToolKind::ALL.len();
const OWN: usize = 13 + 2 * KINDS;
const PAST: usize = 9;
/// Places of the features that also enter squared: prompt, turns, generated, longest turn, output, tool seconds.
const SQUARED: [usize; 6] = [0, 1, 2, 3, 7, 9];

/// How many numbers are noted at a boundary.
const NOTED: usize = OWN + PAST;
/// How many enter the regression.
pub(super) const COUNT: usize = NOTED + SQUARED.len();

/// What is noted at a boundary.
pub(super) type Features = [f32; NOTED];

/// For predictors that look at no features.
pub(super) const NOTHING: Features = [0.0; NOTED];

/// The mean over all prompts, against which a prompt's history is taken. Logarithms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Level {
    pub total: f64,
    pub turns: f64,
    pub seconds: f64,
}

/// The features of a trajectory at a boundary. `past` is what is known of its prompt, if anything.
pub(super) fn of(progress: &Progress, past: Option<Past>, level: Level) -> Features {
    let mut features = NOTHING;
    let (own, history) = features.split_at_mut(OWN);
    fill(own, own_features(progress));
    fill(history, past_features(progress, past, level));
    features
}

fn fill(out: &mut [f32], values: impl IntoIterator<Item = f64>) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = value as f32;
    }
}

fn own_features(p: &Progress) -> impl Iterator<Item = f64> {
    let turns = f64::from(p.turns);
    let mean = p.generated.0 as f64 / turns.max(1.0);
    let counters = [
        log(p.prompt.0),
        turns.ln_1p(),
        log(p.generated.0),
        log(p.longest.0),
        mean.ln_1p(),
        log(p.last.generated.0),
        log(p.previous.0),
        log(p.output.0),
        log(p.last.output.0),
        p.seconds.ln_1p(),
        p.last.seconds.ln_1p(),
        f64::from(p.failures) / turns.max(1.0),
        f64::from(u8::from(p.last.failed)),
    ];
    let (kinds, last, begun) = (p.kinds, p.last.tool, p.turns > 0);
    let counts = kinds.into_iter().map(|count| f64::from(count).ln_1p());
    let latest = ToolKind::ALL.into_iter().map(move |kind| f64::from(u8::from(begun && kind == last)));
    counters.into_iter().chain(counts).chain(latest)
}

/// How the prompt differs from the rest, times how far that is to be trusted: a prompt without history, or with a
/// faded one, is like any other. And what would be left if this trajectory went like those before it.
fn past_features(progress: &Progress, past: Option<Past>, level: Level) -> [f64; PAST] {
    let past = past.unwrap_or(Past::like(level));
    let trust = past.trust();
    let differs = |mean: f64, level: f64| trust * (mean - level);
    let (total, turns) = (differs(past.total, level.total), differs(past.turns, level.turns));
    let expected_total = (level.total + total).exp_m1();
    let expected_turns = (level.turns + turns).exp_m1();
    let (generated, turned) = (progress.generated.0 as f64, f64::from(progress.turns));
    [
        trust,
        total,
        turns,
        differs(past.seconds, level.seconds),
        trust * (past.longest - past.total),
        (expected_total - generated).max(0.0).ln_1p(),
        (generated - expected_total).max(0.0).ln_1p(),
        (expected_turns - turned).max(0.0).ln_1p(),
        (turned - expected_turns).max(0.0).ln_1p(),
    ]
}

/// The numbers that enter the regression.
pub(super) fn expand(features: &Features) -> [f64; COUNT] {
    let mut all = [0.0; COUNT];
    for (out, value) in all.iter_mut().zip(features) {
        *out = f64::from(*value);
    }
    for (out, place) in all[NOTED..].iter_mut().zip(SQUARED) {
        *out = f64::from(features[place]).powi(2);
    }
    all
}
