//! Runs test binaries built for wasm, under Node or in a headless browser as each test file asks.
//!
//! This is `wasm-bindgen-test-runner`, built from the library in the lock file: its version matches the pinned
//! `wasm-bindgen` to the patch, which an installed tool may not. Cargo calls it for every test binary of the wasm
//! target (`.cargo/config.toml`). A browser test needs `CHROMEDRIVER`, the path of a chromedriver; without one it fails.

fn main() -> anyhow::Result<()> {
    // `cargo test --quiet` hands its flag on, and the runner knows none of that name.
    let arguments = std::env::args_os().filter(|argument| argument != "--quiet");
    wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(arguments)
}
