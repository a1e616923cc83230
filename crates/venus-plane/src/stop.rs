//! Stopping a run from outside: once gently, twice at once.

use std::sync::Arc;
use tokio::sync::watch;

/// How urgently a run is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Go on.
    #[default]
    None,
    /// Finish the step in progress, then end.
    AfterStep,
    /// End now. What is in flight is dropped; it starts again when the run is resumed.
    Now,
}

/// Ends a run. Cheap to clone; works from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<watch::Sender<Urgency>>);

/// The run's end of a [`StopHandle`].
#[derive(Debug)]
pub struct StopSignal(watch::Receiver<Urgency>);

/// A handle, and the signal it gives.
#[must_use]
pub fn stop() -> (StopHandle, StopSignal) {
    let (sender, receiver) = watch::channel(Urgency::None);
    (StopHandle(Arc::new(sender)), StopSignal(receiver))
}

impl StopHandle {
    /// The first call lets the step in progress finish, the second ends the run at once. Returns what is asked for now.
    pub fn stop(&self) -> Urgency {
        let mut urgency = Urgency::None;
        self.0.send_modify(|current| {
            *current = if *current == Urgency::None { Urgency::AfterStep } else { Urgency::Now };
            urgency = *current;
        });
        urgency
    }
}

impl StopSignal {
    /// Returns when more urgency is asked for than before. Never, once nobody can ask any more.
    pub(crate) async fn changed(&mut self) -> Urgency {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.0.borrow_and_update()
    }
}
