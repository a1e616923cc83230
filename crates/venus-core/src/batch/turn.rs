//! One turn in the engine: waiting, running, retracted, ended.

use super::trajectory::Trajectory;
use super::{Batch, Claim, Drawn, Rank, TurnKey, Work};
use crate::ids::{AttemptId, TokenId, TrajectoryId};
use crate::message::engine::Class;
use crate::residency::{Lock, PageId, ResidencyPolicy};
use crate::units::Tokens;
use std::cmp::Reverse;

/// A turn to generate, as the batch sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Names it.
    pub attempt: AttemptId,
    /// Whose turn.
    pub trajectory: TrajectoryId,
    /// Its class; [`Batch::set_class`] changes it.
    pub class: Class,
    /// The whole context.
    pub context: Vec<TokenId>,
    /// Most tokens to draw.
    pub max_tokens: u32,
}

/// A turn that ended; it holds nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub attempt: AttemptId,
    /// Whose.
    pub trajectory: TrajectoryId,
    /// The tokens drawn.
    pub tokens: Vec<TokenId>,
    /// Why it ended.
    pub reason: EndReason,
    /// Context tokens found in the cache at first admission.
    pub cached: Tokens,
    /// Tokens computed again after a retraction.
    pub recomputed: Tokens,
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// [`Drawn::Stop`] was committed: the last token is it.
    Stop,
    /// It has drawn its `max_tokens`, or is as long as the engine can hold.
    Length,
    /// [`Batch::abort`] was called.
    Aborted,
    /// It cannot be served.
    Rejected(Rejection),
}

/// Why a turn cannot be served, whatever is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Nothing to start from.
    #[error("the context is empty: send at least one token")]
    EmptyContext,
    /// Nothing to do.
    #[error("max_tokens is 0: ask for at least one token")]
    NoTokens,
    /// Longer than the model's positions.
    #[error("a context of {context} tokens leaves no room to generate: the limit is {limit} tokens; shorten it")]
    TooLong {
        /// Tokens sent.
        context: usize,
        /// Most tokens of context and output together.
        limit: usize,
    },
    /// Larger than all pages together.
    #[error(
        "a context of {context} tokens does not fit: all KV pages together hold {capacity}; shorten it or give the engine more pages"
    )]
    TooLarge {
        /// Tokens sent.
        context: usize,
        /// Tokens that all pages hold.
        capacity: usize,
    },
    /// [`Drawn::Failed`] was committed.
    #[error("the model's logits are not finite: its weights are broken; load others")]
    NotFinite,
}

/// What a running turn holds.
#[derive(Debug)]
pub(super) struct Held {
    /// On the pages it shares.
    pub(super) lock: Lock,
    /// How many pages of the table those are; the others are its own.
    pub(super) shared: usize,
    /// The activation it was admitted in. KV it computes in a later one is of mixed versions.
    pub(super) epoch: u64,
    /// The page others wait for.
    pub(super) claim: Option<Claim>,
    /// Tokens of its context to compute in the iteration being planned.
    pub(super) chunk: usize,
    /// Admitted in the iteration being planned.
    pub(super) fresh: bool,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) attempt: AttemptId,
    pub(super) trajectory: TrajectoryId,
    pub(super) class: Class,
    /// Kept through retractions.
    pub(super) seniority: u64,
    /// Context, then what was drawn.
    pub(super) tokens: Vec<TokenId>,
    pub(super) context: usize,
    /// Tokens at which it is full.
    pub(super) limit: usize,
    /// Leading tokens whose KV is in the table's pages.
    pub(super) computed: usize,
    /// The most that `computed` ever was: below it, computing is computing again.
    pub(super) covered: usize,
    pub(super) table: Vec<PageId>,
    /// `Some` while it runs.
    pub(super) held: Option<Held>,
    /// Context tokens found cached; `None` before the first admission.
    pub(super) cached: Option<usize>,
    pub(super) recomputed: usize,
}

impl Turn {
    /// Tokens to compute before the next can be drawn. One, while decoding.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    pub(super) fn held_mut(&mut self) -> &mut Held {
        self.held.as_mut().expect("a running turn holds its path")
    }

    pub(super) fn rank(&self, turn: TurnKey) -> Rank {
        Rank { class: Reverse(self.class), seniority: self.seniority, turn }
    }
}

impl Batch {
    /// A turn enters, or is rejected.
    pub(super) fn accept(&mut self, submission: Submission, ended: &mut Vec<Ended>) {
        let Submission { attempt, trajectory, class, context, max_tokens } = submission;
        if self.attempts.contains_key(&attempt) {
            return;
        }
        let length = context.len();
        let limit = match self.limit(length, max_tokens as usize) {
            Ok(limit) => limit,
            Err(rejection) => {
                let reason = EndReason::Rejected(rejection);
                let (cached, recomputed) = (Tokens::ZERO, Tokens::ZERO);
                return ended.push(Ended { attempt, trajectory, tokens: Vec::new(), reason, cached, recomputed });
            }
        };
        self.enter_trajectory(trajectory, class, &context);
        self.seniority += 1;
        let turn = Turn {
            attempt,
            trajectory,
            class,
            seniority: self.seniority,
            tokens: context,
            context: length,
            limit,
            computed: 0,
            covered: 0,
            table: Vec::new(),
            held: None,
            cached: None,
            recomputed: 0,
        };
        let key = self.vacant.pop().unwrap_or(TurnKey(self.turns.len() as u32));
        self.turns.resize_with(self.turns.len().max(key.0 as usize + 1), || None);
        self.waiting.insert(turn.rank(key));
        self.turns[key.0 as usize] = Some(turn);
        self.attempts.insert(attempt, key);
        self.trajectories.insert((trajectory, key));
        if self.entered.get(trajectory).is_some_and(Trajectory::is_paused) {
            self.pause_turn(key);
        }
    }

    /// Length at which a turn is full: what it asks for, cut to what the model and the pages can hold. The last token
    /// drawn needs a position and no KV; counting it as if it did costs one token and spares a special case.
    fn limit(&self, context: usize, max_tokens: usize) -> Result<usize, Rejection> {
        let capacity = self.options.pages.0 as usize * self.options.page_size as usize;
        let limit = self.options.max_context.0 as usize;
        match () {
            () if context == 0 => Err(Rejection::EmptyContext),
            () if max_tokens == 0 => Err(Rejection::NoTokens),
            () if context >= limit => Err(Rejection::TooLong { context, limit }),
            () if context >= capacity => Err(Rejection::TooLarge { context, capacity }),
            () => Ok((context + max_tokens).min(limit).min(capacity)),
        }
    }

    /// A trajectory changes class, and all its turns with it. They keep their seniority.
    pub(super) fn reclass(&mut self, trajectory: TrajectoryId, class: Class) {
        self.reclass_trajectory(trajectory, class);
        self.reclass_turns(trajectory, class);
    }

    pub(super) fn reclass_turns(&mut self, trajectory: TrajectoryId, class: Class) {
        for key in self.turns_of(trajectory) {
            let old = self.turn(key).rank(key);
            self.turn_mut(key).class = class;
            let new = self.turn(key).rank(key);
            for set in [&mut self.running, &mut self.waiting, &mut self.paused] {
                if set.remove(&old) {
                    set.insert(new);
                }
            }
        }
    }

    /// The turn runs: `held` and the table cover its tokens.
    pub(super) fn admit(&mut self, key: TurnKey, lock: Lock, table: Vec<PageId>, shared: usize) {
        let epoch = self.residency.epoch();
        let computed = shared * self.options.page_size as usize;
        let turn = self.turn_mut(key);
        turn.table = table;
        turn.computed = computed;
        turn.held = Some(Held { lock, shared, epoch, claim: None, chunk: 0, fresh: true });
        turn.covered = turn.covered.max(computed);
        let (rank, length, first) = (turn.rank(key), turn.context, turn.cached.is_none());
        let trajectory = turn.trajectory;
        if first {
            turn.cached = Some(computed);
            self.counters.context += Tokens(length as u64);
            self.counters.cached += Tokens(computed as u64);
        }
        self.waiting.remove(&rank);
        self.running.insert(rank);
        self.begin_trajectory(trajectory);
        if self.is_tiered() {
            self.refer(key);
        }
        self.claim_next(key);
    }

    /// A running turn waits again, in its old place. What it computed stays as cache while there is room.
    pub(super) fn retract(&mut self, key: TurnKey) {
        self.give_back(key);
        let turn = self.turn_mut(key);
        turn.computed = 0;
        let rank = turn.rank(key);
        self.running.remove(&rank);
        self.waiting.insert(rank);
    }

    /// A turn leaves, in whatever state it is.
    pub(super) fn finish(&mut self, key: TurnKey, reason: EndReason) -> Ended {
        self.publish(key);
        if self.options.residency == ResidencyPolicy::SessionReferenced {
            self.refer(key);
        }
        self.give_back(key);
        let mut turn = self.turns[key.0 as usize].take().expect("keys of ended turns are not kept");
        let rank = turn.rank(key);
        self.vacant.push(key);
        self.running.remove(&rank);
        self.waiting.remove(&rank);
        self.paused.remove(&rank);
        self.attempts.remove(&turn.attempt);
        self.trajectories.remove(&(turn.trajectory, key));
        self.end_trajectory_turn(turn.trajectory, turn.tokens.len());
        Ended {
            attempt: turn.attempt,
            trajectory: turn.trajectory,
            tokens: turn.tokens.split_off(turn.context),
            reason,
            cached: Tokens(turn.cached.unwrap_or(0) as u64),
            recomputed: Tokens(turn.recomputed as u64),
        }
    }

    /// Ends what a turn holds, if it runs. Whole pages of the current version become cache.
    fn give_back(&mut self, key: TurnKey) {
        if self.turn(key).held.is_none() {
            return;
        }
        self.publish(key);
        self.unclaim(key);
        let turn = self.turns[key.0 as usize].as_mut().expect("keys of ended turns are not kept");
        let held = turn.held.take().expect("checked above");
        self.residency.release(held.lock, &turn.table[held.shared..]);
        turn.table.clear();
    }

    /// Shares the whole pages a running turn has computed, unless the weights changed since it was admitted: then what
    /// it computed is not of the version it would be found under.
    pub(super) fn publish(&mut self, key: TurnKey) {
        let page_size = self.options.page_size as usize;
        let epoch = self.residency.epoch();
        let turn = self.turns[key.0 as usize].as_mut().expect("keys of ended turns are not kept");
        let whole = turn.computed / page_size;
        let Some(held) = turn.held.take_if(|held| held.epoch == epoch && whole > held.shared) else { return };
        let tokens = &turn.tokens[..whole * page_size];
        let lock = self.residency.publish(turn.trajectory, held.lock, held.shared, tokens, &mut turn.table[..whole]);
        turn.held = Some(Held { lock, shared: whole, ..held });
    }

    /// The trajectory of a running turn refers to the pages that the turn shares.
    fn refer(&mut self, key: TurnKey) {
        let turn = self.turns[key.0 as usize].as_ref().expect("keys of ended turns are not kept");
        let (Some(held), Some(trajectory)) = (&turn.held, self.entered.get(turn.trajectory)) else { return };
        // One tier for all, where classes make no difference.
        let high = self.is_tiered() && trajectory.is_high();
        self.residency.refer(turn.trajectory, high, &held.lock);
    }

    /// The work of an iteration is done: its positions are computed.
    pub(super) fn advance(&mut self, work: &Work) {
        let turn = self.turn_mut(work.turn);
        let again = turn.covered.min(work.end).saturating_sub(work.start);
        turn.recomputed += again;
        turn.computed = work.end;
        turn.covered = turn.covered.max(work.end);
        let held = turn.held_mut();
        held.chunk = 0;
        held.fresh = false;
        // What is drawn is shared when the turn ends; the context at once, for the siblings that wait for it.
        if work.start < turn.context {
            self.publish(work.turn);
            self.unclaim(work.turn);
            self.claim_next(work.turn);
        }
        self.counters.recomputed += Tokens(again as u64);
    }

    pub(super) fn draw(&mut self, key: TurnKey, drawn: Drawn) -> Option<Ended> {
        let turn = self.turn_mut(key);
        let stop = match drawn {
            Drawn::Token(token) | Drawn::Stop(token) => {
                turn.tokens.push(token);
                matches!(drawn, Drawn::Stop(_))
            }
            Drawn::Failed => return Some(self.finish(key, EndReason::Rejected(Rejection::NotFinite))),
        };
        let (trajectory, length) = (turn.trajectory, turn.tokens.len());
        let full = length >= turn.limit;
        self.measure_growth(trajectory, length);
        self.counters.generated += Tokens(1);
        match (stop, full) {
            (true, _) => Some(self.finish(key, EndReason::Stop)),
            (false, true) => Some(self.finish(key, EndReason::Length)),
            (false, false) => None,
        }
    }

    /// Says which page this turn publishes next, unless it is said already or it publishes none.
    fn claim_next(&mut self, key: TurnKey) {
        let page_size = self.options.page_size as usize;
        let epoch = self.residency.epoch();
        let turn = self.turns[key.0 as usize].as_mut().expect("keys of ended turns are not kept");
        let Some(held) = turn.held.as_mut().filter(|held| held.epoch == epoch) else { return };
        let next = held.shared * page_size;
        if turn.computed >= turn.context || next + page_size > turn.context {
            return;
        }
        let claim: Claim = (held.lock.place(), turn.tokens[next..next + page_size].into());
        if let std::collections::btree_map::Entry::Vacant(entry) = self.claims.entry(claim) {
            held.claim = Some(entry.key().clone());
            entry.insert(key);
        }
    }

    fn unclaim(&mut self, key: TurnKey) {
        if let Some(claim) = self.turn_mut(key).held_mut().claim.take() {
            self.claims.remove(&claim);
        }
    }

    /// New weights: what the running turns compute will not be shared, so nobody waits for it.
    pub(super) fn drop_stale_claims(&mut self) {
        for (_, key) in std::mem::take(&mut self.claims) {
            self.turn_mut(key).held_mut().claim = None;
        }
    }
}
