//! Model directories: what is written reads back, and what does not fit is refused by name.

#![expect(clippy::unwrap_used, reason = "the tests' helpers fail like the tests")]

use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::fs;
use venus_lm::{Config, Model, ModelError};

fn small() -> Model {
    let config =
        Config { hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, head_dim: 8, ..Config::tiny(20) };
    Model::random(config, 3)
}

type Tensors = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn tensors(model: &Model) -> Tensors {
    let bytes = |range: &std::ops::Range<usize>| model.params()[range.clone()].iter().flat_map(|x| x.to_le_bytes());
    let tensors = model.layout().tensors().iter();
    tensors.map(|t| (t.name.clone(), (Dtype::F32, t.shape.clone(), bytes(&t.range).collect()))).collect()
}

fn write(dir: &std::path::Path, file: &str, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    fs::write(dir.join(file), safetensors::serialize(views, None).unwrap()).unwrap();
}

fn directory(model: &Model) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), model.config.to_json()).unwrap();
    dir
}

#[test]
fn a_saved_model_loads_the_same_and_leaves_no_other_file() {
    for tied in [true, false] {
        let model = Model::random(Config { tie_word_embeddings: tied, qk_norm: tied, ..small().config }, 3);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/model");
        model.save(&path).unwrap();
        model.save(&path).unwrap();
        assert_eq!(Model::load(&path).unwrap(), model);
        let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["config.json", "model.safetensors"]);
        // The reference library reads it too.
        let bytes = fs::read(path.join("model.safetensors")).unwrap();
        let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.len(), model.layout().tensors().len());
    }
}

#[test]
fn a_failed_save_leaves_the_earlier_one_whole() {
    let (old, dir) = (small(), tempfile::tempdir().unwrap());
    old.save(dir.path()).unwrap();
    // A directory in the temporary file's place makes the write fail.
    let temporary = format!("model.safetensors.{}.tmp", std::process::id());
    fs::create_dir(dir.path().join(temporary)).unwrap();
    let error = Model::random(old.config.clone(), 4).save(dir.path()).unwrap_err();
    assert!(error.to_string().contains("model.safetensors"), "{error}");
    assert_eq!(Model::load(dir.path()).unwrap(), old);
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    let model = small();
    let (dir, mut tensors) = (directory(&model), tensors(&model));
    tensors.remove("model.layers.1.mlp.up_proj.weight");
    write(dir.path(), "model.safetensors", &tensors);
    let error = Model::load(dir.path()).unwrap_err();
    assert!(matches!(error, ModelError::Missing { .. }));
    assert!(error.to_string().contains("`model.layers.1.mlp.up_proj.weight` [24, 16]"), "{error}");
}

#[test]
fn an_ill_shaped_tensor_is_named_with_both_shapes() {
    let model = small();
    let (dir, mut tensors) = (directory(&model), tensors(&model));
    tensors.get_mut("model.layers.0.self_attn.k_proj.weight").unwrap().1 = vec![8, 32];
    write(dir.path(), "model.safetensors", &tensors);
    let error = Model::load(dir.path()).unwrap_err().to_string();
    for part in ["model.layers.0.self_attn.k_proj.weight", "[16, 16]", "[8, 32]"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn half_precision_and_shards_are_read() {
    let mut model = small();
    for value in model.params_mut() {
        *value = half::bf16::from_f32(half::f16::from_f32(*value).to_f32()).to_f32();
    }
    let (dir, mut tensors) = (directory(&model), tensors(&model));
    for (index, (dtype, _, data)) in tensors.values_mut().enumerate() {
        let values = data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        (*dtype, *data) = match index % 2 {
            0 => (Dtype::BF16, values.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect()),
            _ => (Dtype::F16, values.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect()),
        };
    }
    let (mut first, mut second) = (Tensors::new(), Tensors::new());
    let mut map = serde_json::Map::new();
    for (index, (name, tensor)) in tensors.into_iter().enumerate() {
        let (shard, file) = if index % 3 == 0 { (&mut first, "a.safetensors") } else { (&mut second, "b.safetensors") };
        map.insert(name.clone(), file.into());
        shard.insert(name, tensor);
    }
    write(dir.path(), "a.safetensors", &first);
    write(dir.path(), "b.safetensors", &second);
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    let loaded = Model::load(dir.path()).unwrap();
    // f16 has no bits for the smallest bf16 numbers; the values were rounded through both, so they agree exactly or nearly.
    for (got, expected) in loaded.params().iter().zip(model.params()) {
        assert!((got - expected).abs() < 1e-7, "{got} for {expected}");
    }
    fs::remove_file(dir.path().join("b.safetensors")).unwrap();
    assert!(Model::load(dir.path()).unwrap_err().to_string().contains("b.safetensors"));
}

#[test]
fn a_truncated_file_and_a_wrong_number_type_are_refused() {
    let model = small();
    let (dir, mut tensors) = (directory(&model), tensors(&model));
    write(dir.path(), "model.safetensors", &tensors);
    let bytes = fs::read(dir.path().join("model.safetensors")).unwrap();
    fs::write(dir.path().join("model.safetensors"), &bytes[..bytes.len() - 10]).unwrap();
    assert!(matches!(Model::load(dir.path()).unwrap_err(), ModelError::Format { .. }));
    tensors.get_mut("model.norm.weight").unwrap().0 = Dtype::I32;
    write(dir.path(), "model.safetensors", &tensors);
    let error = Model::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("model.norm.weight") && error.contains("I32"), "{error}");
}

#[test]
fn a_directory_without_config_is_refused_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let error = Model::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("config.json"), "{error}");
}
