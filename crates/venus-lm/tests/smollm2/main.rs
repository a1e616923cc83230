//! A real model: SmolLM2-135M-Instruct from GGUF, where `VENUS_SMOLLM2_DIR` names its converted directory
//! (`cargo run --release -p venus-lm --example convert -- FILE.gguf DIR`).

use std::io::Write as _;

mod golden;

#[test]
fn smollm2_agrees_with_transformers() {
    let Some(dir) = std::env::var_os("VENUS_SMOLLM2_DIR") else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED smollm2_agrees_with_transformers: set VENUS_SMOLLM2_DIR to the converted model to run it"
        );
        return;
    };
    let findings = golden::compare(dir.as_ref()).unwrap();
    assert!(findings.agree(), "{findings:?}");
}
