//! Compares a converted SmolLM2-135M-Instruct with Hugging Face transformers:
//! `cargo run --release -p venus-lm --example golden -- DIR`

#[path = "../tests/smollm2/golden.rs"]
mod golden;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: golden DIR (made by the example `convert`)")?;
    let findings = golden::compare(dir.as_ref())?;
    println!("{findings:#?}\ntolerance of a logit: {}", golden::TOLERANCE);
    if findings.agree() { Ok(()) } else { Err("the model does not agree with the reference".into()) }
}
