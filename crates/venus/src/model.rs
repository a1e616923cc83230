//! The model a run starts from: a directory, or the warm start that is built in.

use crate::failure::Failure;
use crate::run::RunDir;
use std::path::{Path, PathBuf};

/// The files of the built-in warm start, made by `venus warmup` (see `assets/warmstart/README.md`).
const BUILT_IN: [(&str, &[u8]); 3] = [
    ("config.json", include_bytes!("../../../assets/warmstart/config.json")),
    ("tokenizer.json", include_bytes!("../../../assets/warmstart/tokenizer.json")),
    ("model.safetensors", include_bytes!("../../../assets/warmstart/model.safetensors")),
];

/// What the configuration calls the built-in warm start.
pub const BUILT_IN_NAME: &str = "built-in";

/// The directory of the model called `name`; the built-in one is unpacked into the run's directory.
///
/// # Errors
/// It is no model directory, or cannot be unpacked.
pub fn locate(name: &str, run: &RunDir) -> Result<PathBuf, Failure> {
    if name == BUILT_IN_NAME {
        let dir = run.warm_start();
        return unpack(&dir, run).map(|()| dir);
    }
    check(name).map(|()| PathBuf::from(name))
}

/// Whether there is a model called `name`.
///
/// # Errors
/// A directory that lacks one of its files.
pub fn check(name: &str) -> Result<(), Failure> {
    if name == BUILT_IN_NAME {
        return Ok(());
    }
    let dir = Path::new(name);
    for (file, _) in BUILT_IN {
        let index = dir.join("model.safetensors.index.json");
        let there = dir.join(file).is_file() || (file == "model.safetensors" && index.is_file());
        if !there {
            return Err(Failure::usage(
                format!("{name} is no model directory: it has no {file}"),
                "give a directory with config.json, tokenizer.json and model.safetensors (`venus convert` makes one)",
            ));
        }
    }
    Ok(())
}

/// Whether every token the tokenizer can give is one the model knows.
///
/// # Errors
/// The tokenizer has more tokens than the model has rows.
pub fn check_tokenizer(dir: &Path, tokens: usize, rows: usize) -> Result<(), Failure> {
    if tokens <= rows {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "tokenizer.json in {} has {tokens} tokens, the model {rows}: they do not belong together",
            dir.display()
        ),
        "use the tokenizer.json that came with the model",
    ))
}

fn unpack(dir: &Path, run: &RunDir) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| {
        Failure::failed(format!("cannot make {}: {error}", dir.display()), "free some space or choose another --out")
    })?;
    BUILT_IN.iter().try_for_each(|(name, bytes)| run.write_whole(&dir.join(name), bytes))
}
