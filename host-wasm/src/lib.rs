//! # tidegate-wasm
//!
//! The JavaScript host of `tidegate-core`: everything a browser page, a worker or Node needs, and no decision of its
//! own. Two faces, both classes in JavaScript:
//!
//! - [`gate::RequestGate`] admits real calls on the event loop: `await gate.acquire(..)`, make the call, `permit.finish(..)`;
//! - [`playground::Playground`] runs a whole scenario against mock providers in virtual time, in slices short enough for
//!   a worker, and hands its measurements out as typed arrays.
//!
//! And a function: [`replay::replay_decisions`] tells new machines what a run elsewhere was told, and compares the digests.
//!
//! Below them sit the host seams of the drivers: a clock, a timer and a spawner over the event loop ([`host`]), and a
//! mutex for one thread ([`lock`]).

mod convert;
pub mod gate;
pub mod host;
pub mod lock;
pub mod playground;
pub mod replay;

use wasm_bindgen::prelude::*;

/// Types that describe the plain objects which cross the boundary.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &'static str = include_str!("types.d.ts");

#[wasm_bindgen]
unsafe extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(message: &str);
}

/// Runs by itself when the module is loaded. A panic is a defect of this module: its message and place go to the console,
/// where JavaScript alone would see a bare `unreachable`.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| console_error(&panic.to_string())));
}
