//! The usage of a job that several processes fill, and the files of its cost limit: each process says in one
//! the most that it may spend.

use std::fs::File;

use super::SharedDirectory;
use crate::app::output::JobTotals;
use crate::app::output::error::{OutputError, io_error};
use crate::app::output::files::{LEASED, write_atomically};
use crate::app::output::processes::{process_names, process_totals, process_used, read_amount, used_at};
use crate::app::provider::cost::{AmountFile, Money};

impl SharedDirectory {
    /// Returns the usage of the job: of its earlier runs, of the other processes so far, and `own`, that of
    /// this one.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn job_totals(&self, own: &JobTotals) -> Result<JobTotals, OutputError> {
        let others = process_totals(&self.root, Some(&self.process))?;
        Ok(used_at(&self.root)?.plus(&others).plus(own))
    }

    /// Returns what earlier runs of the job have spent, and for each process by its name, also for this one,
    /// the most that it may have spent or may still spend before it asks for more.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn cost_bounds(&self) -> Result<(Money, Vec<(String, Money)>), OutputError> {
        let bound = |name: String| {
            let own = self.process_path(&name);
            let leased = read_amount(&own.join(LEASED))?;
            let used = process_used(&own)?.unwrap_or_default().spent;
            Ok((name, leased.max(used)))
        };
        let processes = process_names(&self.root)?.into_iter().map(bound).collect::<Result<_, _>>()?;
        Ok((used_at(&self.root)?.spent, processes))
    }

    /// Creates the file of [`write_leased`](Self::write_leased) with the amount 0. It is never seen without
    /// an amount.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn create_leased(&self) -> Result<(), OutputError> {
        let path = self.own.join(LEASED);
        write_atomically(&path, |file| AmountFile::write(Money::default(), file)).map_err(io_error(&path))
    }

    /// Writes the most that this process may spend before it asks for more to its file, which exists.
    ///
    /// The file is closed, so that a process on another machine that opens it then reads the amount. If the
    /// amount `rises`, the file is synced first: a server of files may report only then that its disk is
    /// full.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_leased(&self, amount: Money, rises: bool) -> Result<(), OutputError> {
        let path = self.own.join(LEASED);
        let write = || {
            let mut file = File::options().write(true).open(&path)?;
            AmountFile::write(amount, &mut file)?;
            if rises { file.sync_data() } else { Ok(()) }
        };
        write().map_err(io_error(&path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::app::output::files::SPENT;
    use crate::app::output::shared::tests::Process;
    use crate::app::output::tests::resume;
    use crate::app::output::{ModelTotals, RunState};

    #[test]
    fn a_process_may_spend_what_it_has_leased_and_has_spent_what_its_files_say() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| Process::join(root, number));
        let money = |amount| Money::new(amount).unwrap();
        let bounds = || {
            let (earlier, processes) = first.directory.cost_bounds().unwrap();
            (earlier, processes.into_iter().collect::<BTreeMap<_, _>>().into_values().collect::<Vec<_>>())
        };
        assert_eq!(bounds(), (money(0.0), vec![money(0.0); 2]));
        assert!(first.directory.write_leased(money(3.0), true).is_err(), "it would be empty at first");
        first.directory.create_leased().unwrap();
        first.directory.write_leased(money(3.0), true).unwrap();
        first.output.create_amount_file().unwrap().store(money(2.0)).unwrap();
        let model = ModelTotals { calls: 3, ..ModelTotals::default() };
        let used = JobTotals { runs: 1, spent: money(0.5), models: [("p/m".to_string(), model)].into() };
        second.output.close(RunState::Running, &used).unwrap();
        fs::write(root.join(SPENT), "0.250000000000").unwrap();
        assert_eq!(bounds(), (money(0.25), vec![money(3.0), money(0.5)]));
        first.directory.write_leased(money(1.0), false).unwrap();
        assert_eq!(bounds().1, [money(2.0), money(0.5)], "a call has cost more than was leased");
        let job = first.directory.job_totals(&used).unwrap();
        assert_eq!((job.runs, job.spent, job.models["p/m"].calls), (2, money(1.25), 6), "its own files do not count");
        drop(first);
        drop(second);
        assert_eq!(resume(root).used().spent, money(2.75), "no lease counts once a run has the directory for itself");
    }
}
