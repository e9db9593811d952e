//! # tidegate-wasm
//!
//! The JavaScript host of `tidegate-core`: everything a browser page, a worker or Node needs, and no decision of its
//! own. It is compiled to several modules, so that nobody loads what he does not use:
//!
//! | feature | what is in it |
//! | --- | --- |
//! | `gate` | real calls on the event loop: [`gate`], over a clock, a timer and a spawner ([`host`]) and the mutex of `tidegate-local-lock` |
//! | `pipeline` | the same, and rows that are filled through it: [`pipeline`] |
//! | `sim` | runs in virtual time: [`sim`] |
//! | `replay` | what was decided elsewhere, told again: [`replay`] |
//! | `playground` | runs, and all that a page shows of them: [`playground`] |
//! | `files` | scenario files, traces and decision logs, for a page that asks for one: [`files`] |
//!
//! People use them through the TypeScript package beside this crate. The scenarios that have names are in no module: they come
//! as data, which `tidegate-wasm-build` writes.

#[cfg(feature = "engine")]
#[cfg_attr(not(feature = "playground"), allow(dead_code, reason = "each module uses a part of it"))]
mod convert;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "gate")]
pub mod gate;
#[cfg(feature = "gate")]
pub mod host;
#[cfg(feature = "plain")]
#[cfg_attr(not(feature = "playground"), allow(dead_code, reason = "each module uses a part of it"))]
mod json;
#[cfg(feature = "pipeline")]
pub mod pipeline;
#[cfg(feature = "playground")]
pub mod playground;
#[cfg(feature = "replay")]
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
