//! The embedded inference engine: continuous batching, paged KV and a radix prefix cache.
