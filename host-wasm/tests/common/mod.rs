//! What the Node and the page tests have in common: the same behaviour is expected of every realm.

#[cfg(feature = "playground")]
mod built_in;
#[cfg(feature = "playground")]
mod files;
#[cfg(feature = "live")]
mod gate;
#[cfg(feature = "live")]
mod host;
#[cfg(feature = "sim")]
mod replay;
#[cfg(feature = "playground")]
mod simulation;
