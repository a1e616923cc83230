use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::sleep;
use venus_core::ids::{GroupId, Version};
use venus_core::message::trainer::{StepMetrics, StepResult, TrainBatch};
use venus_plane::record::Checkpoint;
use venus_plane::trainer::{TrainError, TrainerClient};

#[derive(Default)]
struct State {
    version: Version,
    /// Groups in the weights of `version`.
    trained: BTreeSet<GroupId>,
    checkpoints: Vec<Checkpoint>,
    batches: Vec<TrainBatch>,
    fail: bool,
}

/// A trainer that takes 100 ms a batch, keeps all checkpoints and panics when it is given a group twice.
#[derive(Clone, Default)]
pub struct Trainers(Arc<Mutex<State>>);

impl Trainers {
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        self.state().checkpoints.clone()
    }

    /// Checkpoints as found on a disk.
    pub fn holding(checkpoints: Vec<Checkpoint>) -> Self {
        Self(Arc::new(Mutex::new(State { checkpoints, ..State::default() })))
    }

    /// Loads a checkpoint: the groups in its weights are those of all checkpoints up to it.
    pub fn restart(&self, version: Version, believed: impl Iterator<Item = GroupId>) {
        let mut state = self.state();
        state.version = version;
        state.checkpoints.retain(|c| c.version <= version);
        state.trained = state.checkpoints.iter().flat_map(|c| c.groups.clone()).collect();
        assert_eq!(believed.collect::<BTreeSet<_>>(), state.trained, "the record knows what the weights have seen");
    }

    pub fn trained(&self) -> BTreeSet<GroupId> {
        self.state().trained.clone()
    }

    pub fn batches(&self) -> Vec<TrainBatch> {
        self.state().batches.clone()
    }

    pub fn fail(&self, fail: bool) {
        self.state().fail = fail;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl TrainerClient for Trainers {
    async fn train(&self, batch: TrainBatch) -> Result<StepResult, TrainError> {
        sleep(Duration::from_millis(100)).await;
        let mut state = self.state();
        if state.fail {
            return Err(TrainError("out of memory".to_owned()));
        }
        for group in &batch.groups {
            assert!(state.trained.insert(group.group), "{} was trained twice", group.group);
            for t in &group.trajectories {
                assert!(t.tokens.len() == t.mask.len() && t.tokens.len() == t.logprobs.len());
                assert!(t.mask.contains(&1) && t.reward.is_finite());
            }
        }
        state.version.0 += 1;
        let (version, groups) = (state.version, batch.groups.iter().map(|g| g.group).collect());
        let dir = std::path::PathBuf::from(format!("run/checkpoints/{version}"));
        state.checkpoints.push(Checkpoint { version, batch: batch.batch, groups, dir: dir.clone() });
        let result = StepResult { batch: batch.batch, version, dir, metrics: StepMetrics::default() };
        state.batches.push(batch);
        Ok(result)
    }
}
