//! A made-up workload of known structure: each prompt has a length of its own that its text length half gives away,
//! each trajectory departs from it, and turns are drawn around a rate that shows in the turns themselves.

use venus_core::ids::{PromptId, TrajectoryId, Version};
use venus_core::predict::{Prediction, Predictor, ToolKind, Trail, Turn};
use venus_core::units::Tokens;

/// A generator of numbers (xorshift64*), so that a workload is a function of its seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Roughly standard normal.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// A recorded trajectory.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub prompt: PromptId,
    pub length: Tokens,
    pub turns: Vec<Turn>,
}

impl Recorded {
    pub fn total(&self) -> u64 {
        self.turns.iter().map(|turn| turn.generated.0).sum()
    }
}

/// `samples` trajectories of each of `prompts` prompts; lengths are multiplied by `scale`.
pub fn workload(seed: u64, prompts: u64, samples: usize, scale: f64) -> Vec<Recorded> {
    let mut out = Vec::new();
    for prompt in 0..prompts {
        // The prompt's own dice, so that it is the same in every epoch.
        let mut nature = Dice::new(prompt + 1);
        let (shown, hidden) = (nature.normal(), nature.normal());
        let mut dice = Dice::new(seed.wrapping_mul(1_000_003) + prompt + 1);
        for _ in 0..samples {
            let turns = 2.0 + 10.0 * (0.5 * shown + 0.5 * hidden + 0.2 * dice.normal()).exp();
            let rate = 100.0 * scale * (0.3 * dice.normal()).exp();
            let turn = |dice: &mut Dice| Turn {
                generated: Tokens((rate * (0.5 * dice.normal()).exp()).ceil() as u64),
                tool: ToolKind::ALL[(dice.uniform() * 6.0) as usize % 6],
                output: Tokens((200.0 * dice.uniform()) as u64),
                seconds: dice.uniform(),
                failed: dice.uniform() < 0.1,
            };
            out.push(Recorded {
                prompt: PromptId(prompt),
                length: Tokens((500.0 * (0.5 * shown).exp()) as u64),
                turns: (0..turns as usize).map(|_| turn(&mut dice)).collect(),
            });
        }
    }
    out
}

/// Replays one trajectory; `seen` is told each prediction with what was left. The trail is that of its end.
pub fn replay(
    predictor: &dyn Predictor,
    id: u64,
    recorded: &Recorded,
    version: Version,
    mut seen: impl FnMut(Option<Prediction>, u64),
) -> Trail {
    let mut trail = Trail::new(TrajectoryId(id), recorded.prompt, recorded.length).with_total(Tokens(recorded.total()));
    for turn in &recorded.turns {
        let left = recorded.total() - trail.progress().generated.0;
        seen(predictor.predict(&mut trail, version), left);
        trail.turn(*turn);
    }
    trail
}

/// Replays and learns, one trajectory after the other.
pub fn teach(predictor: &mut dyn Predictor, workload: &[Recorded], version: Version) {
    for (id, recorded) in workload.iter().enumerate() {
        let trail = replay(predictor, id as u64, recorded, version, |_, _| {});
        predictor.remember(&trail, version);
        predictor.learn(&trail, version);
    }
    predictor.check().unwrap();
}

/// Mean absolute error of the logarithm, over all boundaries of a workload that is not learned from.
pub fn error(predictor: &dyn Predictor, workload: &[Recorded], version: Version) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for (id, recorded) in workload.iter().enumerate() {
        replay(predictor, id as u64, recorded, version, |said, left| {
            sum += ((said.unwrap().remaining.0 as f64).ln_1p() - (left as f64).ln_1p()).abs();
            count += 1.0;
        });
    }
    sum / count
}
