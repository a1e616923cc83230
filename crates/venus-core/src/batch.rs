//! The batch machine: once an iteration it decides which turns run which tokens in which pages (paper section 2.4,
//! layer A, and 2.5).
//!
//! An iteration is [`Batch::plan`], the forward pass over [`Batch::work`], then [`Batch::commit`]. What happens in
//! between (turns submitted, aborts, class changes, new weights) waits in a queue and is applied whole at the start of
//! the next plan, so that admission, eviction and the forward pass see one and the same state. The order within a plan:
//!
//! 1. the queue is drained: submissions, aborts, ends and class changes, and with them every change of references;
//! 2. high trajectories are demoted or promoted, if the policy says so (see the module `demotion`);
//! 3. the prefill is formed, class by class (boundary, high, low), first come first served inside a class, within the
//!    budget of prefill tokens and of pages that can be evicted;
//! 4. pages for decoding are reserved; when short, cached pages are evicted, then running turns retracted: low class
//!    before high, never the last one, and inside a class the latest first, or with tiers the one that is the cheapest
//!    to compute again;
//! 5. the work is listed.
//!
//! **Admission implies allocation.** A turn is admitted only if pages for its whole context are there and one more for
//! each running turn; they are taken at once. So a turn never fails in the iteration that admits it, and a cache that is
//! just full doesn't admit and retract in turns.
//!
//! **What a turn may take is bounded by its class** where pages are tiered: the budget it is admitted by counts the same
//! pages as the eviction it causes, on one state. A low turn that finds only pages that high trajectories will come back
//! for waits, even if nothing runs ([`Batch::is_stalled`]).
//!
//! **Nothing is overtaken.** When the first waiting turn does not fit, none behind it is admitted, however small
//! (ThunderAgent#46: smallest-first starves long contexts); a retracted turn keeps its place (vllm#41951). A waiting turn
//! displaces running ones only of a strictly lower class (vllm#54530), for a slot (vllm#40004) as for pages, and only if
//! that makes enough room (vllm#39375). One exception: a turn whose next page is being computed by a running turn waits
//! for that page, so that the members of a group prefill their prompt once.
//!
//! **New weights** don't stop what runs: a running turn goes on with the KV it has, and what it computes from then on is
//! of mixed versions and is never shared. Turns admitted later, retracted ones too, match and make pages of the new version.

mod check;
mod demotion;
mod form;
mod trajectory;
mod turn;
mod victim;

use crate::ids::{AttemptId, TokenId, TrajectoryId, Version};
use crate::message::engine::Class;
use crate::residency::{FlushPolicy, PageId, Place, Residency, ResidencyPolicy};
use crate::units::{Pages, Tokens};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use trajectory::Trajectories;
use turn::Turn;

pub use turn::{EndReason, Ended, Rejection, Submission};

/// Sizes and limits. All counts must be at least 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// KV pages.
    pub pages: Pages,
    /// Tokens a page.
    pub page_size: u32,
    /// Turns that run at once.
    pub max_running: u32,
    /// Tokens of prefill an iteration, those of decoding not counted. Longer contexts are computed in chunks.
    pub prefill_budget: Tokens,
    /// Most tokens of context and output together; the model's positions.
    pub max_context: Tokens,
    /// What becomes of cached pages when the weights change.
    pub flush: FlushPolicy,
    /// How cached pages are kept between the turns of a trajectory.
    pub residency: ResidencyPolicy,
    /// The version of the first weights.
    pub version: Version,
}

/// Tokens of one turn to compute in this iteration: a chunk of its context, or the token drawn last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Whose.
    pub attempt: AttemptId,
    /// Position of the first token.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// Whether a token is to be drawn after the last.
    pub draws: bool,
    /// Whether the turn was admitted in this plan: KV before `start` was found in the cache.
    pub admitted: bool,
    turn: TurnKey,
}

/// What was drawn for a [`Work`] that draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// A token; the turn goes on unless it is full.
    Token(TokenId),
    /// A token that ends the turn.
    Stop(TokenId),
    /// Nothing could be drawn: the turn is rejected.
    Failed,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Context tokens of the turns admitted, each turn counted once.
    pub context: Tokens,
    /// Of these, found in the cache at first admission.
    pub cached: Tokens,
    /// Tokens computed again after a retraction: a hit rate is net of these (vllm#25780).
    pub recomputed: Tokens,
    /// Tokens drawn.
    pub generated: Tokens,
    /// Turns retracted because decoding was short of pages.
    pub retractions: u64,
    /// Turns retracted for a waiting turn of a higher class.
    pub preemptions: u64,
    /// High trajectories moved to the low class for a while.
    pub demotions: u64,
    /// Those that came back.
    pub promotions: u64,
}

impl Counters {
    /// Share of the context tokens that was not computed, net of what was computed again; below zero if that is more.
    /// 1 before the first context.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let net = self.cached.0 as f64 - self.recomputed.0 as f64;
        if self.context == Tokens::ZERO { 1.0 } else { net / self.context.0 as f64 }
    }
}

/// Index of a live turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TurnKey(u32);

/// Order of turns: class, then seniority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    class: Reverse<Class>,
    seniority: u64,
    turn: TurnKey,
}

#[derive(Debug)]
enum Mutation {
    Submit(Submission),
    Abort(AttemptId),
    SetClass(TrajectoryId, Class),
    Release(TrajectoryId),
    Activate(Version),
}

/// The page a running turn will publish next: where it hangs in the tree, and its tokens.
type Claim = (Place, Box<[TokenId]>);

/// The turns of one engine and the pages they hold. See the [module](self).
#[derive(Debug)]
pub struct Batch {
    options: BatchOptions,
    residency: Residency,
    queue: Vec<Mutation>,
    turns: Vec<Option<Turn>>,
    vacant: Vec<TurnKey>,
    attempts: BTreeMap<AttemptId, TurnKey>,
    trajectories: BTreeSet<(TrajectoryId, TurnKey)>,
    /// Empty where nothing is referred to.
    entered: Trajectories,
    waiting: BTreeSet<Rank>,
    running: BTreeSet<Rank>,
    /// Turns of demoted trajectories.
    paused: BTreeSet<Rank>,
    /// Pages being computed, by turns that will publish them.
    claims: BTreeMap<Claim, TurnKey>,
    seniority: u64,
    /// Demand and time of the tree when nobody could be promoted.
    unpromoted: Option<(u64, u64)>,
    /// Promoted because nothing else could run; not demoted before its turn ends.
    spared: Option<TrajectoryId>,
    /// The last plan found nothing to do.
    stalled: bool,
    work: Vec<Work>,
    /// Scratch for walks over the running turns that change them.
    ranks: Vec<Rank>,
    counters: Counters,
}

impl Batch {
    /// An empty batch; all pages are free.
    ///
    /// # Panics
    /// If a count in `options` is zero: nothing could ever run.
    #[must_use]
    pub fn new(options: BatchOptions) -> Self {
        let least = options.pages.0.min(options.page_size).min(options.max_running);
        assert!(least > 0 && options.prefill_budget.0 > 0, "sizes must be at least 1: {options:?}");
        Self {
            residency: Residency::new(options.pages, options.page_size, options.flush, options.version),
            options,
            queue: Vec::new(),
            turns: Vec::new(),
            vacant: Vec::new(),
            attempts: BTreeMap::new(),
            trajectories: BTreeSet::new(),
            entered: Trajectories::default(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            paused: BTreeSet::new(),
            claims: BTreeMap::new(),
            seniority: 0,
            unpromoted: None,
            spared: None,
            stalled: false,
            work: Vec::new(),
            ranks: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Queues a turn. An attempt that is known already is ignored.
    pub fn submit(&mut self, submission: Submission) {
        self.queue.push(Mutation::Submit(submission));
    }

    /// Ends an attempt in whatever state it is; ignored if it is not known (it has ended).
    pub fn abort(&mut self, attempt: AttemptId) {
        self.queue.push(Mutation::Abort(attempt));
    }

    /// Changes the class of a trajectory's turns, waiting and running. They keep their seniority.
    pub fn set_class(&mut self, trajectory: TrajectoryId, class: Class) {
        self.queue.push(Mutation::SetClass(trajectory, class));
    }

    /// A trajectory ended, however: it gives up the pages it would have come back for. Its turns should have ended or been
    /// aborted; one that has not goes on. Ignored for one that is not known (it has ended).
    pub fn release(&mut self, trajectory: TrajectoryId) {
        self.queue.push(Mutation::Release(trajectory));
    }

    /// From the next plan on, the weights are those of `version`.
    pub fn activate(&mut self, version: Version) {
        self.queue.push(Mutation::Activate(version));
    }

    /// Whether a plan would have something to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.attempts.is_empty()
    }

    /// Whether something is queued that [`drain`](Self::drain) would apply.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether nothing runs and what waits is of low class and too large for what the high class leaves: no plan has
    /// anything to do until something is queued.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled && self.queue.is_empty()
    }

    /// Turns that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Turns that wait, retracted and paused ones included.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.paused.len()
    }

    /// Of the turns that wait, those of demoted trajectories.
    #[must_use]
    pub fn paused(&self) -> usize {
        self.paused.len()
    }

    /// The pages.
    #[must_use]
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The iteration planned last, empty once committed.
    #[must_use]
    pub fn work(&self) -> &[Work] {
        &self.work
    }

    /// The tokens of a work of the current plan.
    #[must_use]
    pub fn tokens(&self, work: &Work) -> &[TokenId] {
        &self.turn(work.turn).tokens[work.start..work.end]
    }

    /// The pages that hold positions `0..work.end` of its turn, in order.
    #[must_use]
    pub fn block_table(&self, work: &Work) -> &[PageId] {
        &self.turn(work.turn).table
    }

    /// Applies what was queued. [`plan`](Self::plan) does it first; alone it serves a paused engine. Turns that end by
    /// it are appended to `ended`.
    ///
    /// # Panics
    /// Between a plan and its commit.
    pub fn drain(&mut self, ended: &mut Vec<Ended>) {
        assert!(self.work.is_empty(), "the planned iteration must be committed first");
        for mutation in std::mem::take(&mut self.queue) {
            match mutation {
                Mutation::Submit(submission) => self.accept(submission, ended),
                Mutation::Abort(attempt) => {
                    if let Some(&turn) = self.attempts.get(&attempt) {
                        ended.push(self.finish(turn, EndReason::Aborted));
                    }
                }
                Mutation::SetClass(trajectory, class) => self.reclass(trajectory, class),
                Mutation::Release(trajectory) => self.release_trajectory(trajectory),
                Mutation::Activate(version) => {
                    self.residency.activate(version);
                    self.drop_stale_claims();
                }
            }
        }
    }

    /// Decides the next iteration. Turns that end without running (aborted, rejected) are appended to `ended`. No
    /// [`work`](Self::work) afterwards means that nothing waits or runs, or that the batch [stalls](Self::is_stalled).
    ///
    /// # Panics
    /// If the last plan was not committed.
    pub fn plan(&mut self, ended: &mut Vec<Ended>) {
        self.drain(ended);
        self.balance();
        self.form_prefill();
        self.reserve_growth();
        if self.end_standstill() {
            self.form_prefill();
        }
        self.list_work();
        self.stalled = self.work.is_empty() && !self.attempts.is_empty();
    }

    /// Takes what the iteration drew: one entry for each work that draws, in order. Turns that end are appended to `ended`.
    ///
    /// # Panics
    /// If `drawn` does not match the work.
    pub fn commit(&mut self, drawn: &[Drawn], ended: &mut Vec<Ended>) {
        let mut work = std::mem::take(&mut self.work);
        let mut drawn = drawn.iter();
        for item in &work {
            self.advance(item);
            if item.draws {
                let drawn = drawn.next().expect("one entry for each work that draws");
                ended.extend(self.draw(item.turn, *drawn));
            }
        }
        assert!(drawn.next().is_none(), "one entry for each work that draws");
        work.clear();
        self.work = work;
    }

    fn turn(&self, key: TurnKey) -> &Turn {
        self.turns[key.0 as usize].as_ref().expect("keys of ended turns are not kept")
    }

    fn turn_mut(&mut self, key: TurnKey) -> &mut Turn {
        self.turns[key.0 as usize].as_mut().expect("keys of ended turns are not kept")
    }
}
