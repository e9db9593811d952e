//! # tidegate-wasm
//!
//! The JavaScript host of `tidegate-core`: everything a browser page, a worker or Node needs, and no decision of its
//! own. It is compiled to several modules:
//!
//! | feature | module | contents |
//! | --- | --- | --- |
//! | `live` | `tidegate` | real calls on the event loop: [`gate`], over a clock, a timer and a spawner ([`host`]); rows that are filled through it: [`pipeline`] |
//! | `sim` | `tidegate_sim` | runs in virtual time: [`sim`]; decision logs that run again: [`replay`] |
//! | `playground` | `tidegate_playground` | runs, and all that a page shows of them: [`playground`] |
//! | `files` | `tidegate_files` | scenario files, traces and decision logs, for a page that asks for one: [`files`] |
//!
//! The first two are those of the TypeScript package beside this crate. The scenarios that have names are in no module: they
//! come as data, which `tidegate-wasm-build` writes.

#[cfg(feature = "engine")]
#[cfg_attr(not(feature = "playground"), allow(dead_code, reason = "each module uses a part of it"))]
mod convert;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "live")]
pub mod gate;
#[cfg(feature = "live")]
pub mod host;
#[cfg_attr(not(feature = "playground"), allow(dead_code, reason = "each module uses a part of it"))]
mod json;
#[cfg(feature = "live")]
pub mod pipeline;
#[cfg(feature = "playground")]
pub mod playground;
#[cfg(any(feature = "files", feature = "sim"))]
pub mod replay;
#[cfg(feature = "sim")]
pub mod sim;

/// In place of the standard library's allocator: as fast for what is done here, as sparing with memory, and 2 KiB less to load.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

/// Runs by itself when the module is loaded: a panic is a defect of this module, and its message and place go to the
/// console, where JavaScript alone would see a bare `unreachable`.
#[cfg(target_arch = "wasm32")]
#[wasm_bindgen::prelude::wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}
