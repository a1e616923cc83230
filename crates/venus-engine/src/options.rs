//! Sizes and limits of an engine.

use std::io;
use venus_core::batch::BatchOptions;
use venus_core::ids::{Version, WorkerId};
use venus_core::residency::{FlushPolicy, ResidencyPolicy};
use venus_core::units::{Bytes, Pages, Tokens};
use venus_lm::{Config, Kv, ModelError};

/// How much KV an engine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSize {
    /// So many pages.
    Pages(Pages),
    /// As many pages as fit in this.
    Bytes(Bytes),
}

/// Sizes and limits of an engine. The defaults suit a small model on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Which worker it is; for its thread's name and its log.
    pub worker: WorkerId,
    /// Version of the first weights.
    pub version: Version,
    /// Memory for keys and values.
    pub kv: KvSize,
    /// Tokens a page. Prefixes are shared in whole pages; the kernels like multiples of 16.
    pub page_size: u32,
    /// Turns generated at once; more wait.
    pub max_running: u32,
    /// Context tokens computed an iteration. More finishes contexts sooner, and lets running turns wait longer for each token.
    pub prefill_budget: Tokens,
    /// Most tokens of context and output together; never more than the model's positions.
    pub max_context: Option<Tokens>,
    /// Threads of the forward pass.
    pub threads: usize,
    /// What becomes of cached pages when the weights change.
    pub flush: FlushPolicy,
    /// How cached pages are kept between the turns of a trajectory. What refers to pages needs
    /// [`EngineCommand::Release`](venus_core::message::engine::EngineCommand::Release) at the end of each trajectory.
    pub residency: ResidencyPolicy,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            worker: WorkerId(0),
            version: Version(0),
            kv: KvSize::Bytes(Bytes(256 << 20)),
            page_size: 16,
            max_running: 64,
            prefill_budget: Tokens(512),
            max_context: None,
            threads: 1,
            flush: FlushPolicy::Keep,
            residency: ResidencyPolicy::Lru,
        }
    }
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A limit is zero.
    #[error("engine option `{0}` must be at least 1")]
    Zero(&'static str),
    /// Not even one page.
    #[error(
        "{given} bytes of KV hold no page: a page of {page_size} tokens of this model takes {page} bytes; give more"
    )]
    KvTooSmall {
        /// Bytes given.
        given: u64,
        /// Tokens a page.
        page_size: u32,
        /// Bytes a page.
        page: u64,
    },
    /// The model cannot be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The system gives no thread.
    #[error("the engine's thread cannot be started: {0}; free some processes or memory")]
    Thread(#[from] io::Error),
}

impl EngineOptions {
    /// The batch's share of the options, for a model of this shape.
    pub(crate) fn batch(&self, config: &Config) -> Result<BatchOptions, EngineError> {
        let nonzero = |value: u64, name| if value == 0 { Err(EngineError::Zero(name)) } else { Ok(()) };
        nonzero(self.page_size.into(), "page_size")?;
        nonzero(self.max_running.into(), "max_running")?;
        nonzero(self.prefill_budget.0, "prefill_budget")?;
        nonzero(self.threads as u64, "threads")?;
        let positions = Tokens(config.max_position_embeddings as u64);
        Ok(BatchOptions {
            pages: self.pages(config)?,
            page_size: self.page_size,
            max_running: self.max_running,
            prefill_budget: self.prefill_budget,
            max_context: self.max_context.map_or(positions, |limit| limit.min(positions)),
            flush: self.flush,
            residency: self.residency,
            version: self.version,
        })
    }

    fn pages(&self, config: &Config) -> Result<Pages, EngineError> {
        match self.kv {
            KvSize::Pages(Pages(0)) => Err(EngineError::Zero("kv pages")),
            KvSize::Pages(pages) => Ok(pages),
            KvSize::Bytes(Bytes(given)) => {
                let page = Kv::new(config, 1, self.page_size as usize).bytes() as u64;
                let pages = u32::try_from(given / page).unwrap_or(u32::MAX);
                let too_small = EngineError::KvTooSmall { given, page_size: self.page_size, page };
                if pages == 0 { Err(too_small) } else { Ok(Pages(pages)) }
            }
        }
    }
}
