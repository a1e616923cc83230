//! The embedded trainer on a thread of its own.

use std::path::PathBuf;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use venus_core::message::trainer::{StepResult, TrainBatch};
use venus_plane::trainer::{TrainError, TrainerClient};
use venus_trainer::{Trainer, prune};

type Reply = oneshot::Sender<Result<StepResult, TrainError>>;

/// A trainer that takes one batch at a time. Dropping it lets a running step finish and joins the thread.
pub struct EmbeddedTrainer {
    batches: Option<mpsc::UnboundedSender<(TrainBatch, Reply)>>,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddedTrainer {
    /// Moves `trainer` to a thread of its own. Versions are written beneath `checkpoints`, where the newest `keep` stay.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(mut trainer: Trainer, checkpoints: PathBuf, keep: usize) -> anyhow::Result<Self> {
        let (batches, mut queue) = mpsc::unbounded_channel::<(TrainBatch, Reply)>();
        let work = move || {
            while let Some((batch, reply)) = queue.blocking_recv() {
                // The engines have loaded the newest version before another batch comes, so older ones are free to go.
                let result = prune(&checkpoints, keep).and_then(|_| trainer.step(&batch, &checkpoints));
                let result = result.map_err(|e| TrainError(e.to_string()));
                // Nobody waits any more when the run was aborted; the checkpoint is on disk all the same.
                let _ = reply.send(result);
            }
        };
        let thread = std::thread::Builder::new().name("venus-trainer".to_owned()).spawn(work)?;
        Ok(Self { batches: Some(batches), thread: Some(thread) })
    }
}

impl TrainerClient for EmbeddedTrainer {
    async fn train(&self, batch: TrainBatch) -> Result<StepResult, TrainError> {
        let gone = || TrainError("the trainer thread ended; see the message above".to_owned());
        let (reply, answer) = oneshot::channel();
        let batches = self.batches.as_ref().ok_or_else(gone)?;
        batches.send((batch, reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for EmbeddedTrainer {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}
