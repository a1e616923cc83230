//! A model whose KV says what it was made from: each position holds a digest of all tokens before it and of the weight
//! version that computed each. So a page in a block table that holds anything but the right prefix is found at once.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use venus_core::batch::{Batch, BatchOptions, Drawn, EndReason, Ended, Submission, Work};
use venus_core::ids::{AttemptId, TokenId, TrajectoryId, Version};
use venus_core::message::engine::Class;
use venus_core::residency::FlushPolicy;
use venus_core::units::{Pages, Tokens};

pub fn options(pages: u32, page_size: u32) -> BatchOptions {
    BatchOptions {
        pages: Pages(pages),
        page_size,
        max_running: 8,
        prefill_budget: Tokens(1000),
        max_context: Tokens(1000),
        flush: FlushPolicy::Keep,
        version: Version(0),
    }
}

/// What a turn is known to contain.
struct Shadow {
    tokens: Vec<TokenId>,
    context: usize,
    /// What its positions must hold.
    digests: Vec<u64>,
}

pub struct Engine {
    pub batch: Batch,
    pub version: Version,
    pub ended: BTreeMap<AttemptId, Ended>,
    /// Positions computed, in all iterations.
    pub computed: usize,
    page_size: usize,
    kv: Vec<u64>,
    shadows: BTreeMap<AttemptId, Shadow>,
}

fn digest(before: u64, token: TokenId, version: Version) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, token, version).hash(&mut hasher);
    hasher.finish()
}

impl Engine {
    pub fn new(options: BatchOptions) -> Self {
        Self {
            version: options.version,
            page_size: options.page_size as usize,
            kv: vec![0; (options.pages.0 * options.page_size) as usize],
            batch: Batch::new(options),
            ended: BTreeMap::new(),
            computed: 0,
            shadows: BTreeMap::new(),
        }
    }

    pub fn submit(&mut self, attempt: u64, class: Class, context: &[TokenId], max_tokens: u32) {
        let attempt = AttemptId(attempt);
        let shadow = Shadow { tokens: context.to_vec(), context: context.len(), digests: Vec::new() };
        self.shadows.insert(attempt, shadow);
        let trajectory = TrajectoryId(attempt.0);
        self.batch.submit(Submission { attempt, trajectory, class, context: context.to_vec(), max_tokens });
    }

    pub fn activate(&mut self, version: u64) {
        self.version = Version(version);
        self.batch.activate(self.version);
    }

    /// Plans, "computes", commits. `draw` says what each turn draws at a length. Returns the work done.
    pub fn step(&mut self, mut draw: impl FnMut(AttemptId, usize) -> Drawn) -> Vec<Work> {
        let retractions = self.batch.counters().retractions;
        let mut ended = Vec::new();
        self.batch.plan(&mut ended);
        self.batch.check().expect("the invariants hold");
        self.collect(ended);
        let work = self.batch.work().to_vec();
        assert_eq!(work.is_empty(), self.batch.is_idle(), "something is always done while something is to do");
        let retracted = self.batch.counters().retractions > retractions;
        assert!(!(retracted && work.iter().any(|w| w.admitted)), "no one is admitted while others are retracted");
        self.compute(&work);
        let drawn: Vec<_> = work.iter().filter(|w| w.draws).map(|w| draw(w.attempt, w.end)).collect();
        for (work, drawn) in work.iter().filter(|w| w.draws).zip(&drawn) {
            if let Drawn::Token(token) | Drawn::Stop(token) = drawn {
                self.shadows.get_mut(&work.attempt).expect("only live turns are worked on").tokens.push(*token);
            }
        }
        let mut ended = Vec::new();
        self.batch.commit(&drawn, &mut ended);
        self.batch.check().expect("the invariants hold");
        self.collect(ended);
        work
    }

    /// Runs until nothing is left; every turn draws tokens 100, 101, ... until it is full.
    pub fn run(&mut self) {
        for _ in 0..10_000 {
            if self.batch.is_idle() {
                return self.assert_empty();
            }
            self.step(|_, length| Drawn::Token(100 + length as u32));
        }
        panic!("not idle after 10,000 iterations: livelock");
    }

    /// Promise 3: once everything ended, nothing is locked.
    pub fn assert_empty(&self) {
        let pages = self.batch.residency();
        assert_eq!(pages.locked(), Pages(0));
        assert_eq!(pages.free() + pages.cached(), pages.capacity());
        assert!(self.shadows.is_empty(), "every turn is answered");
    }

    pub fn reason(&self, attempt: u64) -> Option<&EndReason> {
        self.ended.get(&AttemptId(attempt)).map(|ended| &ended.reason)
    }

    fn compute(&mut self, work: &[Work]) {
        for item in work {
            let shadow = self.shadows.get_mut(&item.attempt).expect("only live turns are worked on");
            assert_eq!(self.batch.tokens(item), &shadow.tokens[item.start..item.end]);
            if item.admitted {
                // What was found in the cache must be as if computed under the weights that run now.
                shadow.digests.clear();
                extend(&mut shadow.digests, &shadow.tokens[..item.start], self.version);
            }
            assert_eq!(shadow.digests.len(), item.start, "no position is left out or computed again");
            self.assert_held(item, item.start);
        }
        for item in work {
            let shadow = self.shadows.get_mut(&item.attempt).expect("only live turns are worked on");
            extend(&mut shadow.digests, &shadow.tokens[item.start..item.end], self.version);
            for position in item.start..item.end {
                self.kv[slot(self.batch.block_table(item), self.page_size, position)] = shadow.digests[position];
            }
            self.computed += item.end - item.start;
        }
        for item in work {
            self.assert_held(item, item.end);
        }
    }

    fn assert_held(&self, work: &Work, positions: usize) {
        let (table, digests) = (self.batch.block_table(work), &self.shadows[&work.attempt].digests);
        for (position, expected) in digests.iter().enumerate().take(positions) {
            let held = self.kv[slot(table, self.page_size, position)];
            assert_eq!(held, *expected, "position {position} of {} holds another prefix", work.attempt);
        }
    }

    fn collect(&mut self, ended: Vec<Ended>) {
        for end in ended {
            let shadow = self.shadows.remove(&end.attempt).expect("a turn ends once");
            assert_eq!(end.tokens, shadow.tokens[shadow.context..], "what was drawn is returned");
            self.ended.insert(end.attempt, end);
        }
    }
}

fn extend(digests: &mut Vec<u64>, tokens: &[TokenId], version: Version) {
    for token in tokens {
        digests.push(digest(digests.last().copied().unwrap_or(0), *token, version));
    }
}

fn slot(table: &[u32], page_size: usize, position: usize) -> usize {
    table[position / page_size] as usize * page_size + position % page_size
}
