//! Converts a GGUF model into a Hugging Face directory: `cargo run --release -p venus-lm --example convert -- FILE.gguf DIR`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: convert FILE.gguf DIR".into());
    };
    venus_lm::gguf::convert(file.as_ref(), dir.as_ref())?;
    Ok(())
}
