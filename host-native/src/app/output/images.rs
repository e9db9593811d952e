//! `images/COLUMN/NNNNNN-DIGEST.EXT`: the images that columns make.
//!
//! A file is complete before a row names it. Its name has a digest of its content, so no later attempt
//! changes what a written row names. A crash, a dropped row or a later attempt leaves files that no row
//! names; they do no harm.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::OutputDirectory;
use super::error::{OutputError, io_error};
use super::files::{
    DIGEST_CHARS, IMAGES, image_name, is_image_name, remove_temporary, sync_directory, visit_all_names,
    write_atomically,
};
use crate::app::data::digest::FileDigest;
use crate::app::provider::image::GeneratedImage;

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
        let name = image_name(row, &digest(&image.bytes), image.extension);
        let path = directory.join(&name);
        write_atomically(&path, |file| file.write_all(&image.bytes)).map_err(io_error(&path))?;
        Ok(format!("{IMAGES}/{column}/{name}"))
    }
}

/// Returns the path, relative to `root`, of a file in the directory of images that no run has written.
pub(super) fn foreign_image(root: &Path) -> io::Result<Option<String>> {
    let images = root.join(IMAGES);
    let mut found = None;
    visit_all_names(&images, |column| {
        let directory = images.join(column);
        if !is_directory(&directory) {
            found = Some(format!("{IMAGES}/{column}"));
            return Ok(());
        }
        visit_all_names(&directory, |name| {
            if !is_image_name(name) || is_directory(&directory.join(name)) {
                found = Some(format!("{IMAGES}/{column}/{name}"));
            }
            Ok(())
        })
    })?;
    Ok(found)
}

/// Removes the images of earlier runs, and the directories that are empty then.
pub(super) fn remove_images(root: &Path) -> io::Result<()> {
    let images = root.join(IMAGES);
    if !is_directory(&images) {
        return Ok(());
    }
    visit_all_names(&images, |column| {
        let directory = images.join(column);
        visit_all_names(
            &directory,
            |name| {
                if is_image_name(name) { fs::remove_file(directory.join(name)) } else { Ok(()) }
            },
        )?;
        fs::remove_dir(directory)
    })?;
    fs::remove_dir(images)
}

/// Removes the images that earlier runs have not written completely.
pub(super) fn remove_incomplete_images(root: &Path) -> io::Result<()> {
    let images = root.join(IMAGES);
    if !is_directory(&images) {
        return Ok(());
    }
    visit_all_names(&images, |column| {
        let directory = images.join(column);
        if is_directory(&directory) { remove_temporary(&directory) } else { Ok(()) }
    })
}

/// Returns whether `path` is a directory. A link to one is not: what is in it may belong to other programs.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn digest(bytes: &[u8]) -> String {
    FileDigest::of_bytes(bytes).sha256.chars().take(DIGEST_CHARS).collect()
}

/// Returns the name of a directory for a column. Names of columns may have characters that paths must not
/// have.
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
