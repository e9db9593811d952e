//! # tidegate-wasm
//!
//! The JavaScript host of `tidegate-core`, for browser pages, workers and Node. It makes no scheduling
//! decisions of its own. It is compiled to several modules:
//!
//! | feature | module | contents |
//! | --- | --- | --- |
//! | `live` | `tidegate` | real calls on the event loop: [`gate`], over a clock, a timer and a spawner ([`host`]); pipelines: [`pipeline`] |
//! | `sim` | `tidegate_sim` | runs in virtual time: [`sim`]; replay of decision logs: [`replay`] |
//! | `playground` | `tidegate_playground` | runs, and the figures that a page shows of them: [`playground`] |
//! | `machines` | `tidegate_machines` | machines that share a limit, loaded on request: [`machines`] |
//! | `files` | `tidegate_files` | scenario files, traces and decision logs, loaded on request: [`files`] |
//!
//! The first two belong to the TypeScript package beside this crate. No module contains the built-in
//! scenarios: they are data files, which `tidegate-wasm-build` writes.

#[cfg(any(feature = "engine", feature = "machines"))]
mod convert;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "live")]
pub mod gate;
#[cfg(feature = "live")]
pub mod host;
#[cfg(feature = "live")]
mod js_settings;
mod json;
#[cfg(feature = "machines")]
pub mod machines;
#[cfg(feature = "live")]
pub mod pipeline;
#[cfg(feature = "playground")]
pub mod playground;
#[cfg(any(feature = "files", feature = "sim"))]
pub mod replay;
#[cfg(feature = "sim")]
pub mod sim;

/// Replaces the standard library's allocator: equally fast and economical here, and 2 KiB smaller.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

/// Runs when the module is loaded. A panic, which is a defect of this module, throws an `Error` with its message
/// and location, where JavaScript would only see that the module has trapped. As after a trap, nothing is
/// unwound: the module cannot be used any more.
#[cfg(target_arch = "wasm32")]
#[wasm_bindgen::prelude::wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| wasm_bindgen::throw_str(&format!("tidegate has a defect: {panic}"))));
}
