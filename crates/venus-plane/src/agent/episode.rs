//! One trajectory as a straight line: sandbox, turns and tools, grading.
//!
//! An episode owns its transcript and its sandbox and talks to the coordinator through a [`Line`]. Cancelling it at any point frees
//! the sandbox and with it a running tool or grader.

use super::{AgentOptions, End, Failure, FinishedTrajectory, Protocol, Step, Transcript, Turn};
use super::{draw_seed, observation, seconds, shorten};
use crate::coordinator::Fact;
use crate::grading;
use crate::sandbox::{Sandbox, SandboxClient, shell};
use crate::task::Task;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use venus_core::ids::{SandboxId, TokenId, TrajectoryId};
use venus_core::message::engine::{FinishReason, Sampling, TurnResult};
use venus_core::message::sandbox::{CreateSandbox, SandboxErrorKind};
use venus_core::units::Tokens;

/// What all episodes of a run share.
#[derive(Clone, Debug)]
pub(crate) struct EpisodeOptions {
    pub agent: AgentOptions,
    pub seed: u64,
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
}

/// A turn that wants a slot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TurnOrder {
    pub context: Vec<TokenId>,
    pub sampling: Sampling,
}

/// From an episode to the coordinator.
#[derive(Debug)]
pub(crate) enum Report {
    /// The sandbox is up.
    Ready,
    /// A turn wants a slot.
    Queue(TurnOrder),
    /// The running turn is to be aborted.
    Abort,
    /// The command ended; the next turn or the grader follows.
    ToolEnded,
    /// The agent stopped.
    Grading,
    /// The end, good or bad.
    End(Result<Box<FinishedTrajectory>, Failure>),
}

/// From the coordinator to an episode.
#[derive(Debug)]
pub(crate) enum News {
    /// Its turn is with an engine.
    Dispatched,
    /// Its turn waits again: the engine was lost.
    Requeued,
    /// Its turn ended.
    Ended(TurnResult),
}

/// A trajectory and which of its starts is meant. What an earlier start still says is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub trajectory: TrajectoryId,
    pub restart: u32,
}

/// An episode's connection to the coordinator.
pub(crate) struct Line {
    pub who: Who,
    pub facts: UnboundedSender<Fact>,
    pub news: UnboundedReceiver<News>,
}

impl Line {
    fn report(&self, report: Report) {
        // A coordinator that is gone has cancelled this episode.
        let _ = self.facts.send(Fact::Report(self.who, report));
    }

    async fn next(&mut self) -> Result<News, Failure> {
        self.news.recv().await.ok_or_else(|| Failure::Loop("the coordinator is gone".to_owned()))
    }
}

/// One start of one trajectory.
pub(crate) struct Episode<C> {
    pub client: Arc<C>,
    pub task: Arc<Task>,
    pub protocol: Arc<Protocol>,
    pub options: Arc<EpisodeOptions>,
    pub sandbox: SandboxId,
    pub line: Line,
}

/// What a turn came to.
enum Drawn {
    /// A whole message: its text and its last token.
    Message(String, Option<TokenId>),
    /// No whole message; the agent is stopped.
    Cut(End),
}

/// What an episode has so far.
struct Progress {
    transcript: Transcript,
    turns: Vec<Turn>,
    /// Seconds of generation and tools, which count against the deadline.
    spent: f64,
}

impl<C: SandboxClient> Episode<C> {
    /// Runs the trajectory to its end and reports it.
    pub async fn run(mut self) {
        let result = self.trajectory().await;
        self.line.report(Report::End(result.map(Box::new)));
    }

    async fn trajectory(&mut self) -> Result<FinishedTrajectory, Failure> {
        let started = Instant::now();
        let prompt = self.prompt()?;
        let sandbox = self.create().await?;
        let create = started.elapsed().as_secs_f64();
        self.line.report(Report::Ready);

        let mut progress = Progress { transcript: Transcript::new(&prompt), turns: Vec::new(), spent: 0.0 };
        let end = self.act(&sandbox, &mut progress).await?;
        if progress.transcript.drawn() == 0 {
            return Err(Failure::Engine("it drew no token before the agent's time was up".to_owned()));
        }

        self.line.report(Report::Grading);
        let grading = Instant::now();
        let graded = end == End::Done || self.options.agent.grade_unfinished;
        let reward = if graded { grading::grade(&sandbox, &self.task, self.grace()).await? } else { 0.0 };
        let grading = grading.elapsed().as_secs_f64();
        // The reward is known: a sandbox that is slow to go must not hold it back, and goes with its lease at the latest.
        let _ = timeout(self.grace(), sandbox.kill()).await;

        Ok(FinishedTrajectory {
            train: progress.transcript.into_train(self.line.who.trajectory, reward),
            prompt_tokens: prompt.len(),
            end,
            restart: self.line.who.restart,
            turns: progress.turns,
            create,
            grading,
            total: started.elapsed().as_secs_f64(),
        })
    }

    fn prompt(&self) -> Result<Vec<TokenId>, Failure> {
        let prompt = self.protocol.prompt(&self.task.instruction).map_err(|e| Failure::Prompt(e.to_string()))?;
        let room = self.options.agent.max_context as usize;
        if prompt.len() >= room {
            let (name, length) = (&self.task.name, prompt.len());
            return Err(Failure::Prompt(format!(
                "task {name} has a prompt of {length} tokens, agent.max_context is {room}: raise it or leave the task out"
            )));
        }
        Ok(prompt)
    }

    async fn create(&self) -> Result<C::Sandbox, Failure> {
        let options = &self.options.agent;
        let deadline = Instant::now() + seconds(options.create_timeout);
        let mut pause = Duration::from_millis(50);
        loop {
            let request = CreateSandbox {
                sandbox: self.sandbox,
                template: self.task.name.clone(),
                limits: self.task.limits.clone(),
                deadline_ms: (options.sandbox_lifetime * 1e3) as u64,
            };
            let failure = match timeout_at(deadline, self.client.create(request, &self.task)).await {
                Ok(Ok(sandbox)) => return Ok(sandbox),
                Ok(Err(e)) if e.kind == SandboxErrorKind::Busy => e.message,
                Ok(Err(e)) => return Err(Failure::NoSandbox(e.message)),
                Err(_) => format!("none came within {} s", options.create_timeout),
            };
            if Instant::now() + pause >= deadline {
                return Err(Failure::NoSandbox(failure));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Turns and tools until the agent stops.
    async fn act(&mut self, sandbox: &C::Sandbox, progress: &mut Progress) -> Result<End, Failure> {
        loop {
            progress.turns.push(Turn::default());
            let (text, last) = match self.turn(progress).await? {
                Drawn::Message(text, last) => (text, last),
                Drawn::Cut(end) => return Ok(end),
            };
            let Step::Run(command) = Protocol::step(&text) else { return Ok(End::Done) };
            let output = self.tool(sandbox, progress, command).await?;
            self.line.report(Report::ToolEnded);
            // The last result is appended only if a turn can follow: nobody would read it.
            if progress.turns.len() >= self.options.agent.max_turns as usize {
                return Ok(End::TurnLimit);
            }
            let tokens = self.protocol.result(last, &output).map_err(|e| Failure::Loop(e.to_string()))?;
            if progress.transcript.len() + tokens.len() >= self.options.agent.max_context as usize {
                return Ok(End::ContextLimit);
            }
            if self.remaining(progress).is_zero() {
                return Ok(End::Deadline);
            }
            progress.transcript.push_given(&tokens);
        }
    }

    /// Draws one message, in as many pieces as the scheduler cuts it into.
    async fn turn(&mut self, progress: &mut Progress) -> Result<Drawn, Failure> {
        let start = progress.transcript.len();
        loop {
            let drawn = progress.transcript.len() - start;
            let context_room = self.options.agent.max_context as usize - progress.transcript.len();
            let turn_room = self.options.agent.max_turn_tokens as usize - drawn;
            if turn_room == 0 || context_room == 0 {
                return Ok(self.finish(progress, start, context_room));
            }
            let (result, out_of_time) = self.piece(progress, turn_room.min(context_room)).await?;
            progress.transcript.push_drawn(&result).map_err(|e| Failure::Engine(e.to_string()))?;
            let turn = current(progress);
            turn.cached += result.cached_tokens;
            turn.recomputed += result.recomputed_tokens;
            match result.finish {
                FinishReason::Stop { .. } => return Ok(self.finish(progress, start, 1)),
                FinishReason::Length => {
                    let room = self.options.agent.max_context as usize - progress.transcript.len();
                    return Ok(self.finish(progress, start, room));
                }
                FinishReason::Aborted if out_of_time => {
                    self.finish(progress, start, 1);
                    return Ok(Drawn::Cut(End::Deadline));
                }
                FinishReason::Aborted => {}
                FinishReason::Rejected { reason } => return Err(Failure::Engine(reason)),
            }
        }
    }

    /// Writes the turn down and says whether it is a whole message.
    fn finish(&self, progress: &mut Progress, start: usize, context_room: usize) -> Drawn {
        let end = progress.transcript.len();
        let drawn = &progress.transcript.tokens()[start..];
        let last = drawn.last().copied();
        let message = self.protocol.text(drawn);
        let turn = current(progress);
        turn.drawn = start..end;
        turn.message.clone_from(&message);
        match last {
            Some(token) if self.protocol.stop().contains(&token) => Drawn::Message(message, last),
            _ if context_room == 0 => Drawn::Cut(End::ContextLimit),
            _ => Drawn::Cut(End::TurnCut),
        }
    }

    /// Has one piece of a turn generated. The second value is true when it was aborted because the agent's time was up.
    async fn piece(&mut self, progress: &mut Progress, room: usize) -> Result<(TurnResult, bool), Failure> {
        let transcript = &progress.transcript;
        let order =
            TurnOrder { context: transcript.tokens().to_vec(), sampling: self.sampling(room, transcript.drawn()) };
        let context = Tokens(order.context.len() as u64);
        self.line.report(Report::Queue(order));
        loop {
            let queued = Instant::now();
            while !matches!(self.line.next().await?, News::Dispatched) {}
            current(progress).queued += queued.elapsed().as_secs_f64();

            let dispatched = Instant::now();
            let left = self.remaining(progress);
            let answer = self.answer(left).await;
            let took = dispatched.elapsed().as_secs_f64();
            current(progress).generation += took;
            progress.spent += took;
            if let Some(answer) = answer? {
                current(progress).context += context;
                return Ok(answer);
            }
        }
    }

    /// Waits for the running turn; `None` when its engine was lost and the turn is queued again.
    async fn answer(&mut self, left: Duration) -> Result<Option<(TurnResult, bool)>, Failure> {
        let limit = seconds(self.options.agent.turn_timeout);
        match timeout(left.min(limit), self.line.next()).await {
            Ok(news) => return Ok(ended(news?).map(|result| (result, false))),
            Err(_) => self.line.report(Report::Abort),
        }
        let aborted = timeout(self.grace(), self.line.next()).await;
        let silent = "check the engine, or raise agent.turn_timeout";
        match aborted {
            Err(_) => Err(Failure::Engine(format!("it did not answer an abort: {silent}"))),
            Ok(_) if left > limit => {
                Err(Failure::Engine(format!("no turn within {} s: {silent}", limit.as_secs_f64())))
            }
            Ok(news) => Ok(ended(news?).map(|result| (result, true))),
        }
    }

    fn sampling(&self, room: usize, drawn: usize) -> Sampling {
        let Who { trajectory, restart } = self.line.who;
        Sampling {
            max_tokens: room as u32,
            temperature: self.options.temperature,
            top_p: self.options.top_p,
            top_k: self.options.top_k,
            seed: draw_seed(self.options.seed, trajectory, restart, drawn),
            stop: self.protocol.stop().to_vec(),
        }
    }

    /// Runs a command and returns what the agent is told.
    async fn tool(&self, sandbox: &C::Sandbox, progress: &mut Progress, command: String) -> Result<String, Failure> {
        let options = &self.options.agent;
        let limit = seconds(options.tool_timeout).min(self.remaining(progress)).max(Duration::from_millis(1));
        let environment = &self.task.environment;
        let mut exec = shell(&options.shell, &command, &environment.workdir, environment.env.clone(), limit);
        // Room for 4-byte characters, so that what the sandbox leaves out would be left out anyway.
        exec.max_output = options.max_output_chars.saturating_mul(4);
        let max_output = exec.max_output;
        let started = Instant::now();
        let max_chars = options.max_output_chars as usize;
        let output = match timeout(limit + self.grace(), sandbox.exec(exec)).await {
            Ok(Ok(result)) => observation(&result, max_output, max_chars),
            // The agent's own doing: it removed its working directory, or filled the sandbox with processes.
            Ok(Err(e)) if matches!(e.kind, SandboxErrorKind::Invalid | SandboxErrorKind::Busy) => {
                format!("[not run: {}]", shorten(&e.message, max_chars))
            }
            Ok(Err(e)) => return Err(Failure::ToolLost(e.message)),
            Err(_) => return Err(Failure::ToolLost(format!("no answer within {:?}", limit + self.grace()))),
        };
        let took = started.elapsed().as_secs_f64();
        progress.spent += took;
        let turn = current(progress);
        turn.tool = took;
        turn.command = Some(command);
        turn.output = Some(output.clone());
        Ok(output)
    }

    fn remaining(&self, progress: &Progress) -> Duration {
        self.task.agent_timeout.saturating_sub(seconds(progress.spent))
    }

    fn grace(&self) -> Duration {
        seconds(self.options.agent.call_grace)
    }
}

fn ended(news: News) -> Option<TurnResult> {
    match news {
        News::Ended(result) => Some(result),
        News::Dispatched | News::Requeued => None,
    }
}

fn current(progress: &mut Progress) -> &mut Turn {
    if progress.turns.is_empty() {
        progress.turns.push(Turn::default());
    }
    let last = progress.turns.len() - 1;
    &mut progress.turns[last]
}
