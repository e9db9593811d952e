//! What the Node and the page tests have in common: the same behaviour is expected of every realm.

#[cfg(feature = "playground")]
mod built_in;
#[cfg(feature = "playground")]
mod files;
#[cfg(feature = "gate")]
mod gate;
#[cfg(feature = "gate")]
mod host;
#[cfg(feature = "replay")]
mod replay;
#[cfg(feature = "playground")]
mod simulation;
