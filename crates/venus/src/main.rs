//! The `venus` command line.

fn main() {
    println!("venus {}", env!("CARGO_PKG_VERSION"));
}
