//! Model files: `config.json` and safetensors, read whole and written atomically.

use crate::config::ConfigError;
use crate::{Config, Layout};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a model can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory's `config.json` is not usable.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// A weight file is damaged or not safetensors.
    #[error("{path} is not a whole safetensors file: {reason}; copy or convert the model again")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A tensor that the shape asks for is in none of the files.
    #[error("tensor `{name}` {expected:?} is missing from {path}")]
    Missing {
        /// Its name.
        name: String,
        /// Its shape by `config.json`.
        expected: Vec<usize>,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A tensor has another shape than `config.json` says.
    #[error("tensor `{name}`: config.json says shape {expected:?}, the file has {found:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Its shape by `config.json`.
        expected: Vec<usize>,
        /// Its shape in the file.
        found: Vec<usize>,
    },
    /// A tensor has a number type that is not read.
    #[error("tensor `{name}` is {found}; f32, f16 and bf16 are read")]
    Dtype {
        /// Its name.
        name: String,
        /// Its number type.
        found: String,
    },
    /// Another number of parameters than the shape has.
    #[error("the shape has {expected} parameters, {found} were given")]
    Length {
        /// By the shape.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// A GGUF file is damaged or holds what can't be converted.
    #[error("{path}: {reason}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

const WEIGHTS: &str = "model.safetensors";

pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ModelError {
    let path = path.to_path_buf();
    move |source| ModelError::Io { path, source }
}

pub(crate) fn read_config(dir: &Path) -> Result<Config, ModelError> {
    let path = dir.join("config.json");
    let text = fs::read_to_string(&path).map_err(io_error(&path))?;
    Config::from_json(&text).map_err(|source| ModelError::Config { path, source })
}

/// The flat parameters from the directory's safetensors.
pub(crate) fn read_weights(dir: &Path, layout: &Layout) -> Result<Vec<f32>, ModelError> {
    let mut params = vec![0.0; layout.len()];
    let mut missing: BTreeSet<usize> = (0..layout.tensors().len()).collect();
    for path in weight_files(dir)? {
        let file = File::open(&path).map_err(io_error(&path))?;
        // SAFETY: the map is read-only and lives in this scope. Nothing here writes the file in place (saves rename a new
        // file over it); another process that truncated it meanwhile would end this one with SIGBUS, as for any mapped file.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io_error(&path))?;
        let format = |reason: String| ModelError::Format { path: path.clone(), reason };
        let tensors = SafeTensors::deserialize(&map).map_err(|e| format(e.to_string()))?;
        let mut found = Vec::new();
        for &index in &missing {
            let tensor = &layout.tensors()[index];
            let Ok(view) = tensors.tensor(&tensor.name) else { continue };
            if view.shape() != tensor.shape {
                let (expected, found) = (tensor.shape.clone(), view.shape().to_vec());
                return Err(ModelError::Shape { name: tensor.name.clone(), expected, found });
            }
            widen(&tensor.name, &view, &mut params[tensor.range.clone()])?;
            found.push(index);
        }
        for index in found {
            missing.remove(&index);
        }
    }
    match missing.first() {
        None => Ok(params),
        Some(&index) => {
            let tensor = &layout.tensors()[index];
            let (name, expected) = (tensor.name.clone(), tensor.shape.clone());
            Err(ModelError::Missing { name, expected, path: dir.to_path_buf() })
        }
    }
}

/// The single file, or the shards the index lists.
fn weight_files(dir: &Path) -> Result<Vec<PathBuf>, ModelError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let path = dir.join("model.safetensors.index.json");
    if dir.join(WEIGHTS).exists() || !path.exists() {
        return Ok(vec![dir.join(WEIGHTS)]);
    }
    let text = fs::read_to_string(&path).map_err(io_error(&path))?;
    let index: Index =
        serde_json::from_str(&text).map_err(|e| ModelError::Format { path: path.clone(), reason: e.to_string() })?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    if let Some(name) = names.iter().find(|name| Path::new(name).components().count() != 1) {
        return Err(ModelError::Format { path, reason: format!("shard `{name}` is not a plain file name") });
    }
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn widen(name: &str, view: &TensorView, out: &mut [f32]) -> Result<(), ModelError> {
    // Safetensors promises no alignment, so numbers are read byte by byte.
    let data = view.data();
    match view.dtype() {
        Dtype::F32 => {
            for (value, bytes) in out.iter_mut().zip(data.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        Dtype::F16 => {
            for (value, bytes) in out.iter_mut().zip(data.as_chunks::<2>().0) {
                *value = half::f16::from_le_bytes(*bytes).to_f32();
            }
        }
        Dtype::BF16 => {
            for (value, bytes) in out.iter_mut().zip(data.as_chunks::<2>().0) {
                *value = half::bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        other => return Err(ModelError::Dtype { name: name.into(), found: format!("{other:?}") }),
    }
    Ok(())
}

pub(crate) fn write_model(dir: &Path, config: &Config, layout: &Layout, params: &[f32]) -> Result<(), ModelError> {
    fs::create_dir_all(dir).map_err(io_error(dir))?;
    write_whole(&dir.join("config.json"), |file| file.write_all(config.to_json().as_bytes()))?;
    write_whole(&dir.join(WEIGHTS), |file| write_safetensors(file, layout, params))
}

/// Writes a file under a temporary name, makes it durable, and only then gives it its name.
///
/// # Errors
/// Whatever went wrong; the temporary file is removed and a file that had the name before is unharmed.
pub(crate) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<File>) -> io::Result<()>,
) -> Result<(), ModelError> {
    let temporary = path.with_added_extension(format!("{}.tmp", std::process::id()));
    let attempt = || -> io::Result<()> {
        let mut file = io::BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The rename is durable once the directory is.
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    attempt().map_err(|source| {
        // Best effort: the disk that refused the file may refuse this too.
        let _ = fs::remove_file(&temporary);
        io_error(path)(source)
    })
}

/// The safetensors form: an 8-byte header length, a JSON header padded with spaces, the data. Written by hand since the
/// parameters are one slice already and the library would have every tensor copied to bytes first.
fn write_safetensors(file: &mut impl Write, layout: &Layout, params: &[f32]) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    for tensor in layout.tensors() {
        let offsets = [tensor.range.start * 4, tensor.range.end * 4];
        let entry = serde_json::json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": offsets});
        header.insert(tensor.name.clone(), entry);
    }
    let mut header = serde_json::to_string(&header)?;
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    if cfg!(target_endian = "little") {
        return file.write_all(bytemuck::cast_slice(params));
    }
    params.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))
}
