//! The episodes that run: each a task of its own, held by a guard.

use super::Fact;
use crate::agent::{Episode, EpisodeOptions, Failure, Line, News, Protocol, TurnOrder, Who};
use crate::sandbox::SandboxClient;
use crate::task::Task;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use venus_core::ids::{AttemptId, SandboxId, WorkerId};

/// Starts episodes and notices when one breaks.
pub(super) struct Crew<C> {
    client: Arc<C>,
    protocol: Arc<Protocol>,
    facts: UnboundedSender<Fact>,
    tasks: JoinSet<()>,
    who: HashMap<Id, Who>,
    next_sandbox: SandboxId,
}

/// An episode at work. Dropping it cancels the episode, and with it the tool or grader it is waiting for (slime#2176).
#[derive(Debug)]
pub(super) struct Live {
    pub who: Who,
    pub news: UnboundedSender<News>,
    /// The turn it wants or has running; kept until the turn ended, for its engine may be lost.
    pub order: Option<TurnOrder>,
    /// Where its turn runs.
    pub running: Option<(AttemptId, WorkerId)>,
    /// Engines that may hold pages for it.
    pub visited: Vec<WorkerId>,
    /// Whether its sandbox is up.
    pub ready: bool,
    abort: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl<C: SandboxClient> Crew<C> {
    pub fn new(client: C, protocol: Arc<Protocol>, facts: UnboundedSender<Fact>) -> Self {
        Self {
            client: Arc::new(client),
            protocol,
            facts,
            tasks: JoinSet::new(),
            who: HashMap::new(),
            next_sandbox: SandboxId(0),
        }
    }

    pub fn start(&mut self, who: Who, task: Arc<Task>, options: Arc<EpisodeOptions>) -> Live {
        let (sender, news) = unbounded_channel();
        let episode = Episode {
            client: self.client.clone(),
            task,
            protocol: self.protocol.clone(),
            options,
            sandbox: self.next_sandbox,
            line: Line { who, facts: self.facts.clone(), news },
        };
        self.next_sandbox.0 += 1;
        let abort = self.tasks.spawn(episode.run());
        self.who.insert(abort.id(), who);
        Live { who, news: sender, order: None, running: None, visited: Vec::new(), ready: false, abort }
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits until an episode's task is over; whose, and why, if it broke.
    pub async fn over(&mut self) -> Option<(Who, Failure)> {
        let result = self.tasks.join_next_with_id().await?;
        let id = result.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let who = self.who.remove(&id)?;
        let error = result.err().filter(JoinError::is_panic)?;
        Some((who, Failure::Loop(error.to_string())))
    }

    /// Cancels all episodes and returns when their sandboxes are freed.
    pub async fn dismiss(&mut self) {
        self.tasks.shutdown().await;
        self.who.clear();
    }
}
