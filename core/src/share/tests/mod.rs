//! Tests of the protocol in virtual time.

mod laws;
mod oracle;
mod world;
