//! `venus convert`.

use crate::cli::say;
use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;
use venus_lm::gguf;

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
    let ConvertVerb::Gguf { file, dir } = verb;
    gguf::convert(file, dir).map_err(|error| {
        Failure::failed(error, "Llama and Qwen3 models in f32, f16, bf16 or the common quantizations can be converted")
    })?;
    say(&format!("model: {0}\nTrain it with `venus train --model {0}`\n", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
