//! A stand-alone launcher, for programs that do not call `run_if_requested` in their own `main`, and for this crate's tests.

fn main() {
    venus_sandbox::launcher::run_if_requested();
    eprintln!("venus-sandbox-launcher is started by an env node, not by hand");
    std::process::exit(2);
}
