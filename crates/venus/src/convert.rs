//! `venus convert`.

use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// `venus convert`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConvertVerb {
    /// A GGUF file of a Llama- or Qwen3-like model, into config.json, tokenizer.json and model.safetensors
    Gguf {
        /// The GGUF file
        file: PathBuf,
        /// The directory to write, made if absent
        dir: PathBuf,
    },
}

/// Converts.
///
/// # Errors
/// The file is not what it should be, or the directory cannot be written.
pub fn run(verb: &ConvertVerb) -> anyhow::Result<ExitCode> {
    let ConvertVerb::Gguf { file, dir: _ } = verb;
    Err(Failure::failed(format!("cannot convert {}: not wired yet", file.display()), "use another verb").into())
}
