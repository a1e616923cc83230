use super::{Dice, IM_END};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use venus_core::ids::{AttemptId, TokenId, TrajectoryId, Version};
use venus_core::message::engine::{
    EngineCommand, EngineEvent, EngineStats, FinishReason, TurnRequest, TurnResult, VersionSpan,
};
use venus_core::units::Tokens;
use venus_plane::engine::EngineSocket;

type Says = dyn Fn(&TurnRequest, usize) -> Vec<TokenId> + Send + Sync;

/// An engine that draws one token a millisecond for each turn at once.
#[derive(Clone)]
pub struct EngineFake {
    /// What it says, given the request and the number of turns before.
    pub says: Arc<Says>,
    /// It is gone after this many turns.
    pub dies_after: Option<usize>,
    /// Every turn is answered a second time, a little later, and aborts are answered although the turn has ended.
    pub repeats: bool,
    /// Percent of the turns that it breaks off in their midst, as after a preemption.
    pub breaks_off: u64,
    /// It never answers a turn, not even an abort.
    pub silent: bool,
    /// Loading fails.
    pub refuses_weights: bool,
    /// What it saw.
    pub seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
pub struct Seen {
    pub requests: Vec<TurnRequest>,
    pub released: Vec<TrajectoryId>,
    pub aborted: Vec<AttemptId>,
    pub loaded: Vec<Version>,
}

pub fn text(text: &str) -> Vec<TokenId> {
    text.bytes().map(TokenId::from).chain([IM_END]).collect()
}

impl Default for EngineFake {
    /// Two commands, then `done`; their length depends on the seed.
    fn default() -> Self {
        Self::saying(|request, turn| match turn {
            0 | 1 => text(&format!("echo {}", "x".repeat(Dice(request.sampling.seed).roll(30) as usize))),
            _ => text("done"),
        })
    }
}

impl EngineFake {
    pub fn saying(says: impl Fn(&TurnRequest, usize) -> Vec<TokenId> + Send + Sync + 'static) -> Self {
        Self {
            says: Arc::new(says),
            dies_after: None,
            repeats: false,
            breaks_off: 0,
            silent: false,
            refuses_weights: false,
            seen: Arc::default(),
        }
    }

    pub async fn serve(self, mut socket: EngineSocket, version: Version) {
        let mut engine = Serving { fake: self, version, turns: BTreeMap::new(), answered: 0, again: Vec::new() };
        loop {
            let next = engine.next_due();
            tokio::select! {
                command = socket.commands.recv() => match command {
                    None => return,
                    Some(command) => {
                        for event in engine.command(command) {
                            let _ = socket.events.send(event);
                        }
                    }
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    for event in engine.due() {
                        let _ = socket.events.send(event);
                    }
                }
            }
            if engine.fake.dies_after.is_some_and(|limit| engine.answered >= limit) {
                return;
            }
        }
    }
}

struct Running {
    request: TurnRequest,
    tokens: Vec<TokenId>,
    since: Instant,
    broken_off: bool,
    /// Where new weights came in: index of the first token they draw.
    changes: Vec<(usize, Version)>,
}

struct Serving {
    fake: EngineFake,
    version: Version,
    turns: BTreeMap<AttemptId, Running>,
    answered: usize,
    again: Vec<(Instant, TurnResult)>,
}

impl Serving {
    fn next_due(&self) -> Option<Instant> {
        let ends = self.turns.values().filter(|_| !self.fake.silent).map(|t| t.since + millis(t.tokens.len()));
        ends.chain(self.again.iter().map(|(at, _)| *at)).min()
    }

    fn due(&mut self) -> Vec<EngineEvent> {
        let now = Instant::now();
        let ready = |t: &Running| t.since + millis(t.tokens.len()) <= now;
        let over: Vec<_> = self.turns.iter().filter(|(_, t)| ready(t)).map(|(&id, _)| id).collect();
        let mut events: Vec<_> = over.into_iter().filter_map(|id| self.end(id, None)).collect();
        let (late, later) = std::mem::take(&mut self.again).into_iter().partition(|(at, _)| *at <= now);
        self.again = later;
        let late: Vec<(Instant, TurnResult)> = late;
        events.extend(late.into_iter().map(|(_, result)| EngineEvent::Turn(result)));
        events
    }

    fn command(&mut self, command: EngineCommand) -> Vec<EngineEvent> {
        let mut seen = self.fake.seen.lock().unwrap();
        match command {
            EngineCommand::Submit(request) => {
                let before = request.context.iter().filter(|&&t| t == IM_END).count();
                let mut tokens = (self.fake.says)(&request, (before - 1) / 2);
                // A turn that goes on says the rest of what it has said the first part of.
                let said = request.context.iter().rev().take_while(|&&t| t != u32::from(b'\n')).count();
                tokens.drain(..said.min(tokens.len().saturating_sub(1)));
                let mut dice = Dice(request.attempt.0);
                let broken_off = dice.chance(self.fake.breaks_off);
                tokens.truncate(request.sampling.max_tokens as usize);
                if broken_off {
                    tokens.truncate(dice.roll(tokens.len() as u64) as usize);
                }
                seen.requests.push(request.clone());
                let changes = vec![(0, self.version)];
                let running = Running { since: Instant::now(), tokens, changes, broken_off, request };
                self.turns.insert(running.request.attempt, running);
            }
            EngineCommand::Abort(attempt) => {
                seen.aborted.push(attempt);
                drop(seen);
                if !self.fake.silent {
                    return self.end(attempt, Some(FinishReason::Aborted)).into_iter().collect();
                }
            }
            EngineCommand::Release(trajectory) => seen.released.push(trajectory),
            EngineCommand::LoadWeights { version, .. } if self.fake.refuses_weights => {
                return vec![EngineEvent::LoadFailed { version, reason: "shapes do not fit".to_owned() }];
            }
            EngineCommand::LoadWeights { version, .. } => {
                seen.loaded.push(version);
                self.version = version;
                for turn in self.turns.values_mut() {
                    turn.changes.push((drawn(turn), version));
                }
                return vec![EngineEvent::Loaded(version)];
            }
            EngineCommand::Stats => return vec![EngineEvent::Stats(EngineStats::default())],
            _ => {}
        }
        Vec::new()
    }

    fn end(&mut self, attempt: AttemptId, finish: Option<FinishReason>) -> Option<EngineEvent> {
        let mut turn = self.turns.remove(&attempt)?;
        if finish.is_some() {
            turn.tokens.truncate(drawn(&turn));
        }
        let length = turn.tokens.len();
        let ends = turn.changes.iter().skip(1).map(|c| c.0).chain([length]);
        let spans = turn.changes.iter().zip(ends).filter(|(c, end)| c.0 < *end);
        let spans = spans
            .map(|(&(start, version), end)| VersionSpan { version, start: start as u32, end: end as u32 })
            .collect();
        let finish = finish.unwrap_or(match turn.tokens.last() {
            _ if turn.broken_off => FinishReason::Aborted,
            Some(&IM_END) => FinishReason::Stop { token: IM_END },
            _ => FinishReason::Length,
        });
        let result = TurnResult {
            attempt,
            trajectory: turn.request.trajectory,
            logprobs: vec![-0.5; length],
            tokens: turn.tokens,
            spans,
            finish,
            cached_tokens: Tokens(0),
            recomputed_tokens: Tokens(0),
        };
        self.answered += 1;
        if self.fake.repeats {
            self.again.push((Instant::now() + millis(7), result.clone()));
        }
        Some(EngineEvent::Turn(result))
    }
}

fn drawn(turn: &Running) -> usize {
    (turn.since.elapsed().as_millis() as usize).min(turn.tokens.len().saturating_sub(1))
}

fn millis(n: usize) -> Duration {
    Duration::from_millis(n as u64)
}
