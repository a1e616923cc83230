//! What is learned from what, and measured on what.

use super::measure::{Figures, Sample};
use super::trace::{Group, Recorded, Trace};
use std::collections::BTreeMap;
use venus_core::ids::{PromptId, TrajectoryId, Version};
use venus_core::predict::{LearnedConfig, Predictor, PredictorConfig, Trail};

/// What may be known of the other samples of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Nothing.
    None,
    /// Those that have finished, all running in lockstep by tokens generated.
    Siblings,
    /// All the others, as if from an earlier epoch.
    Epoch,
}

impl History {
    /// As written in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Siblings => "siblings",
            Self::Epoch => "epoch",
        }
    }
}

/// A predictor under a protocol, and its figures: one a seed, each the mean over folds.
#[derive(Clone, Debug)]
pub struct Row {
    /// The predictor.
    pub predictor: &'static str,
    /// The protocol.
    pub history: History,
    /// Its figures by seed.
    pub by_seed: Vec<Figures>,
}

/// The figures of a file.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Trajectories in it.
    pub trajectories: usize,
    /// Turn boundaries predicted at.
    pub boundaries: usize,
    /// Tasks it was split by.
    pub tasks: usize,
    /// Prompts with more than one sample.
    pub groups: usize,
    /// Folds.
    pub folds: usize,
    /// Mean of what was left, tokens.
    pub mean_left: f64,
    /// One a predictor and protocol.
    pub rows: Vec<Row>,
}

/// The policy does not move in a recorded file.
const VERSION: Version = Version(0);

/// Evaluates every predictor on a trace.
pub fn evaluate(trace: &Trace, seeds: u64, folds: usize) -> Evaluation {
    let groups = trace.groups.iter().filter(|group| group.members.len() > 1).count();
    let rows = contenders(groups > 0)
        .into_iter()
        .map(|(predictor, config, history)| {
            let by_seed = (0..seeds).map(|seed| across_folds(trace, &config, history, seed, folds)).collect();
            Row { predictor, history, by_seed }
        })
        .collect();
    let left: Vec<f64> = trace.groups.iter().flat_map(|group| &group.members).flat_map(lefts).collect();
    Evaluation {
        trajectories: trace.groups.iter().map(|group| group.members.len()).sum(),
        boundaries: left.len(),
        tasks: trace.tasks(),
        groups,
        folds,
        mean_left: left.iter().sum::<f64>() / left.len() as f64,
        rows,
    }
}

fn contenders(has_siblings: bool) -> Vec<(&'static str, PredictorConfig, History)> {
    let learned = || PredictorConfig::Learned(LearnedConfig::default());
    let constant = PredictorConfig::Constant { prior: LearnedConfig::default().prior };
    let mut all = vec![
        ("none", PredictorConfig::None, History::None),
        ("random", PredictorConfig::Random { seed: 0 }, History::None),
        ("constant", constant, History::None),
        ("learned", learned(), History::None),
    ];
    if has_siblings {
        all.push(("learned", learned(), History::Siblings));
        all.push(("learned", learned(), History::Epoch));
    }
    all.push(("oracle", PredictorConfig::Oracle, History::None));
    all
}

/// What was left at each boundary of a trajectory.
fn lefts(recorded: &Recorded) -> impl Iterator<Item = f64> {
    let mut left = recorded.total().0;
    recorded.turns.iter().map(move |turn| {
        let now = left;
        left -= turn.generated.0;
        now as f64
    })
}

/// The mean of the figures over all folds of one split.
fn across_folds(trace: &Trace, config: &PredictorConfig, history: History, seed: u64, folds: usize) -> Figures {
    let split = split(trace, seed, folds);
    let figures: Vec<Figures> = (0..folds)
        .map(|fold| {
            let (mut learn, mut test) = (Vec::new(), Vec::new());
            for (part, group) in &split {
                if *part == fold { test.push(*group) } else { learn.push(*group) }
            }
            Figures::of(&learn_and_test(config, history, &learn, &test))
        })
        .collect();
    mean(&figures)
}

/// The groups, each with the fold of its task, in an order of tasks drawn by `seed`.
fn split(trace: &Trace, seed: u64, folds: usize) -> Vec<(usize, &Group)> {
    let mut tasks: BTreeMap<&str, Vec<&Group>> = BTreeMap::new();
    for group in &trace.groups {
        tasks.entry(&group.task).or_default().push(group);
    }
    let mut tasks: Vec<Vec<&Group>> = tasks.into_values().collect();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for at in (1..tasks.len()).rev() {
        // xorshift64; the modulo's bias is far below the noise of a split.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        tasks.swap(at, (state % (at as u64 + 1)) as usize);
    }
    let parts = tasks.into_iter().enumerate();
    parts.flat_map(|(at, groups)| groups.into_iter().map(move |group| (at % folds, group))).collect()
}

fn learn_and_test(config: &PredictorConfig, history: History, learn: &[&Group], test: &[&Group]) -> Vec<Sample> {
    let mut predictor = config.build().expect("the evaluated settings are the defaults");
    let mut ids = Ids::default();
    for group in learn {
        for trail in observe(&mut *predictor, group, history, &mut ids, &mut Vec::new()) {
            predictor.learn(&trail, VERSION);
        }
    }
    let mut samples = Vec::new();
    for group in test {
        // Remembered where the protocol says so, never learned from.
        observe(&mut *predictor, group, history, &mut ids, &mut samples);
    }
    samples
}

/// Counts up, so that no two groups share a history.
#[derive(Debug, Default)]
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn begin(&mut self, recorded: &Recorded, prompt: PromptId) -> Trail {
        Trail::new(TrajectoryId(self.next()), prompt, recorded.prompt).with_total(recorded.total())
    }
}

/// Lets the predictor speak at every boundary of a group, with the history the protocol allows. Gives the trails.
fn observe(
    predictor: &mut dyn Predictor,
    group: &Group,
    history: History,
    ids: &mut Ids,
    samples: &mut Vec<Sample>,
) -> Vec<Trail> {
    if history == History::Siblings {
        return in_lockstep(predictor, group, ids, samples);
    }
    let mut trails = Vec::new();
    for (at, recorded) in group.members.iter().enumerate() {
        let prompt = PromptId(ids.next());
        if history == History::Epoch {
            for (_, other) in group.members.iter().enumerate().filter(|(other, _)| *other != at) {
                let mut finished = ids.begin(other, prompt);
                other.turns.iter().for_each(|turn| finished.turn(*turn));
                predictor.remember(&finished, VERSION);
            }
        }
        let mut trail = ids.begin(recorded, prompt);
        for turn in 0..recorded.turns.len() {
            speak(predictor, &mut trail, recorded, turn, samples);
        }
        trails.push(trail);
    }
    trails
}

/// All members start at once and generate at the same rate. One that ends at the same token as another reaches
/// a boundary is not known to have ended yet.
fn in_lockstep(predictor: &mut dyn Predictor, group: &Group, ids: &mut Ids, samples: &mut Vec<Sample>) -> Vec<Trail> {
    let prompt = PromptId(ids.next());
    let mut trails: Vec<Trail> = group.members.iter().map(|recorded| ids.begin(recorded, prompt)).collect();
    let mut events = Vec::new();
    for (member, recorded) in group.members.iter().enumerate() {
        let total = recorded.total().0;
        events.extend(lefts(recorded).enumerate().map(|(turn, left)| (total - left as u64, Some(turn), member)));
        events.push((total, None, member));
    }
    events.sort_by_key(|(tokens, turn, member)| (*tokens, turn.is_none(), *turn, *member));
    for (_, turn, member) in events {
        match turn {
            Some(turn) => speak(predictor, &mut trails[member], &group.members[member], turn, samples),
            None => predictor.remember(&trails[member], VERSION),
        }
    }
    trails
}

/// One boundary, and the turn after it.
fn speak(predictor: &dyn Predictor, trail: &mut Trail, recorded: &Recorded, turn: usize, samples: &mut Vec<Sample>) {
    let left = recorded.total().saturating_sub(trail.progress().generated).0 as f64;
    if let Some(prediction) = predictor.predict(trail, VERSION) {
        samples.push(Sample { turn: turn as u32, said: prediction.remaining.0 as f64, left });
    }
    trail.turn(recorded.turns[turn]);
}

/// Field by field, over those that have one.
fn mean(all: &[Figures]) -> Figures {
    let over = |field: &dyn Fn(&Figures) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(field).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    Figures {
        pooled: over(&|f| f.pooled),
        fixed: over(&|f| f.fixed),
        at: std::array::from_fn(|turn| over(&|f| f.at[turn])),
        mae: over(&|f| f.mae),
        relative: over(&|f| f.relative),
        straggler: std::array::from_fn(|turn| over(&|f| f.straggler[turn])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use venus_core::predict::Turn;
    use venus_core::units::Tokens;

    fn trace() -> Trace {
        let recorded = |turns: u64| Recorded {
            prompt: Tokens(10),
            turns: (0..turns).map(|_| Turn { generated: Tokens(10), ..Turn::default() }).collect(),
        };
        let group = |n: u64| Group { task: (n / 2).to_string(), members: vec![recorded(2 + n), recorded(3 + n)] };
        Trace { groups: (0..12).map(group).collect() }
    }

    #[test]
    fn a_task_is_never_both_learned_from_and_measured() {
        let trace = trace();
        for seed in 0..20 {
            let split = split(&trace, seed, 2);
            assert_eq!(split.len(), 12);
            for task in 0..6 {
                let parts: Vec<usize> =
                    split.iter().filter(|(_, group)| group.task == task.to_string()).map(|(part, _)| *part).collect();
                assert!(parts.len() == 2 && parts[0] == parts[1], "task {task} with seed {seed} is in {parts:?}");
            }
            assert_eq!(split.iter().filter(|(part, _)| *part == 0).count(), 6);
        }
        assert_ne!(format!("{:?}", split(&trace, 1, 2)), format!("{:?}", split(&trace, 2, 2)));
    }

    /// Remembers what it was shown, and says nothing.
    #[derive(Debug, Default)]
    struct Witness(std::sync::Mutex<Vec<String>>);

    impl Predictor for Witness {
        fn predict(&self, trail: &mut Trail, _version: Version) -> Option<venus_core::predict::Prediction> {
            self.0.lock().expect("one thread").push(format!("ask {}", trail.progress().generated.0));
            None
        }

        fn remember(&mut self, trail: &Trail, _version: Version) {
            self.0.lock().expect("one thread").push(format!("end {}", trail.progress().generated.0));
        }
    }

    #[test]
    fn in_lockstep_a_sibling_is_known_once_it_would_have_finished() {
        let mut witness = Witness::default();
        let group = &trace().groups[0];
        observe(&mut witness, group, History::Siblings, &mut Ids::default(), &mut Vec::new());
        let seen = witness.0.into_inner().expect("one thread");
        assert_eq!(seen, ["ask 0", "ask 0", "ask 10", "ask 10", "ask 20", "end 20", "end 30"]);
    }

    #[test]
    fn an_earlier_epoch_holds_the_others_and_never_the_trajectory_itself() {
        let mut witness = Witness::default();
        let group = &trace().groups[0];
        observe(&mut witness, group, History::Epoch, &mut Ids::default(), &mut Vec::new());
        let seen = witness.0.into_inner().expect("one thread");
        assert_eq!(seen, ["end 30", "ask 0", "ask 10", "end 20", "ask 0", "ask 10", "ask 20"]);
    }

    #[test]
    fn the_oracle_orders_perfectly_and_who_is_silent_has_no_figures() {
        let evaluation = evaluate(&trace(), 3, 2);
        let row = |name| evaluation.rows.iter().find(|row| row.predictor == name).expect("it takes part");
        assert!(row("oracle").by_seed.iter().all(|f| f.pooled == Some(1.0) && f.mae == Some(0.0)));
        assert!(row("none").by_seed.iter().all(|f| f.pooled.is_none()));
        assert_eq!((evaluation.trajectories, evaluation.tasks, evaluation.groups), (24, 6, 12));
    }
}
