//! A file that always holds the amount that a job may have spent.
//!
//! The process may be killed at any moment, so the amount is written before a call is sent. Each amount
//! overwrites the one before in a single write of constant length, so a reader finds one or the other. The
//! file is not synced, since that may take longer than a call. A power failure loses about one second at
//! most, because the manifest holds the amount as well.

use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};

use super::Money;

/// The number of characters of the largest amount.
const WIDTH: usize = 40;

/// A file that holds one amount.
#[derive(Debug)]
pub struct AmountFile {
    path: PathBuf,
    file: File,
    stored: Option<Money>,
}

impl AmountFile {
    /// Opens the file at `path`, which must exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), file: File::options().write(true).open(path)?, stored: None })
    }

    /// Writes the content of a file that holds `amount`.
    pub fn write(amount: Money, to: &mut impl Write) -> io::Result<()> {
        to.write_all(format!("{:>WIDTH$}\n", amount.to_padded_string()).as_bytes())
    }

    /// Reads the amount in the file at `path`. Returns `None` if the file does not exist.
    pub fn read(path: &Path) -> io::Result<Option<Money>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Money::from_padded_str(text.trim()).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the amount in the file. Does nothing if it is the same amount.
    pub fn store(&mut self, amount: Money) -> io::Result<()> {
        if self.stored == Some(amount) {
            return Ok(());
        }
        self.file.rewind()?;
        Self::write(amount, &mut self.file)?;
        self.stored = Some(amount);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_the_latest_amount_and_has_a_constant_length() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("spent.txt");
        assert_eq!(AmountFile::read(&path).unwrap(), None);
        File::create(&path).unwrap();
        let mut file = AmountFile::open(&path).unwrap();
        for amount in [Money(u128::MAX), Money(0), Money(1_234_567_890_123)] {
            file.store(amount).unwrap();
            assert_eq!(AmountFile::read(&path).unwrap(), Some(amount));
            assert_eq!(std::fs::metadata(&path).unwrap().len(), WIDTH as u64 + 1);
        }
        std::fs::write(&path, "1.5").unwrap();
        let refused = AmountFile::read(&path).unwrap_err().to_string();
        assert_eq!(refused, "\"1.5\" is not an amount; expected a number such as \"1.500000000000\"");
    }
}
