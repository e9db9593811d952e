//! placeholder
use crate::cli::RegressArgs;
use crate::error::{Error, Exit};
/// x
pub fn regress(_args: &RegressArgs) -> Result<(String, Exit), Error> {
    Ok((String::new(), Exit::Done))
}
