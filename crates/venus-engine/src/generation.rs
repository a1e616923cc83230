//! The record of one turn while it is generated.

use crate::sampler::Draw;
use venus_core::batch::{Drawn, EndReason, Ended};
use venus_core::ids::Version;
use venus_core::message::engine::{FinishReason, Sampling, TurnResult, VersionSpan};

/// How a turn draws, and what is known of each token drawn. The tokens themselves are the batch's.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) sampling: Sampling,
    logprobs: Vec<f32>,
    spans: Vec<VersionSpan>,
}

impl Generation {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self { sampling, logprobs: Vec::new(), spans: Vec::new() }
    }

    /// Notes a token drawn from logits of `version`.
    pub(crate) fn record(&mut self, draw: Draw, version: Version) -> Drawn {
        let start = self.logprobs.len() as u32;
        self.logprobs.push(draw.logprob);
        match self.spans.last_mut() {
            Some(span) if span.version == version => span.end = start + 1,
            _ => self.spans.push(VersionSpan { version, start, end: start + 1 }),
        }
        if self.sampling.stop.contains(&draw.token) { Drawn::Stop(draw.token) } else { Drawn::Token(draw.token) }
    }

    /// The answer, once the batch says that the turn ended.
    pub(crate) fn finish(self, ended: Ended) -> TurnResult {
        let finish = match (ended.reason, ended.tokens.last()) {
            (EndReason::Stop, Some(&token)) => FinishReason::Stop { token },
            (EndReason::Stop | EndReason::Length, _) => FinishReason::Length,
            (EndReason::Aborted, _) => FinishReason::Aborted,
            (EndReason::Rejected(rejection), _) => FinishReason::Rejected { reason: rejection.to_string() },
        };
        TurnResult {
            attempt: ended.attempt,
            trajectory: ended.trajectory,
            tokens: ended.tokens,
            logprobs: self.logprobs,
            spans: self.spans,
            finish,
            cached_tokens: ended.cached,
            recomputed_tokens: ended.recomputed,
        }
    }
}
