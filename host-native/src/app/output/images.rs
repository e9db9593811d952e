//! `images/COLUMN/NNNNNN-DIGEST.EXT`: the images that columns make.
//!
//! A file is complete before a row names it. Its name has a digest of its content, so no later attempt changes what a
//! written row names. A crash, a dropped row or a later attempt leaves files that no row names; they do no harm.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::OutputDirectory;
use super::error::{OutputError, io_error};
use super::files::{IMAGES, sync_directory, write_atomically};
use crate::app::data::digest::FileDigest;
use crate::app::provider::image::GeneratedImage;

/// The length of a digest in a name.
const DIGEST_CHARS: usize = 16;

impl OutputDirectory {
    /// Writes an image of `column` for `row`, and returns its path relative to the directory, with slashes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_image(&self, column: &str, row: u64, image: &GeneratedImage) -> Result<String, OutputError> {
        let column = directory_name(column);
        let images = self.root().join(IMAGES);
        let directory = images.join(&column);
        if !directory.is_dir() {
            fs::create_dir_all(&directory).map_err(io_error(&directory))?;
            for parent in [&images, self.root()] {
                sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
                    .map_err(io_error(parent))?;
            }
        }
        let name = format!("{row:06}-{}.{}", digest(&image.bytes), image.extension);
        let path = directory.join(&name);
        write_atomically(&path, |file| file.write_all(&image.bytes)).map_err(io_error(&path))?;
        Ok(format!("{IMAGES}/{column}/{name}"))
    }
}

fn digest(bytes: &[u8]) -> String {
    FileDigest::of_bytes(bytes).sha256.chars().take(DIGEST_CHARS).collect()
}

/// Returns the name of a directory for a column. Names of columns may have characters that paths must not have.
fn directory_name(column: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let plain: String = column.chars().map(|c| if is_plain(c) { c } else { '_' }).take(64).collect();
    if plain == column { plain } else { format!("{plain}-{}", digest(column.as_bytes())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_a_directory_of_its_own_whatever_its_name() {
        assert_eq!(directory_name("photo"), "photo");
        let names = ["../../etc", "a/b", "a.b", "", &"x".repeat(300)].map(directory_name);
        for name in &names {
            assert!(name.len() < 90 && !name.contains(['/', '.', '\\']), "{name}");
        }
        assert_ne!(names[1], names[2]);
    }
}
