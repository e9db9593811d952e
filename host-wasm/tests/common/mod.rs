//! What the Node and the page tests have in common: the same behaviour is expected of every realm.

mod files;
mod gate;
mod host;
mod replay;
mod simulation;
