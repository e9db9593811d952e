//! What a job may have spent by now, in a file that holds it at every moment.
//!
//! A process that is killed says nothing any more, so the amount is in the file before a call goes out. It is written over the one
//! before, in a single write of always the same length: a reader finds one or the other. It is not synced, which would take longer than
//! many a call: what a power failure may take with it is the last second, since the manifest has the amount, too.

use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};

use super::Money;

/// Characters of the largest amount.
const WIDTH: usize = 40;

/// A file that holds one amount.
#[derive(Debug)]
pub struct AmountFile {
    path: PathBuf,
    file: File,
    stored: Option<Money>,
}

impl AmountFile {
    /// The file at `path`, which is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), file: File::options().write(true).open(path)?, stored: None })
    }

    /// Writes what a file of `amount` holds.
    pub fn write(amount: Money, to: &mut impl Write) -> io::Result<()> {
        to.write_all(format!("{:>WIDTH$}\n", amount.to_last_unit()).as_bytes())
    }

    /// The amount in the file at `path`; `None` if there is no such file.
    pub fn read(path: &Path) -> io::Result<Option<Money>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Money::from_last_unit(text.trim()).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Holds `amount` from now on.
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
    fn a_file_holds_the_latest_amount_whatever_its_length() {
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
        assert_eq!(refused, "\"1.5\" is no amount; expected such as \"1.500000000000\"");
    }
}
