//! `conform FILE_OR_DIR...`: replays recorded traces and says, for each, whether the real machines agree.
//!
//! Exit code 0: every trace passed. 1: a trace differs. 2: a file could not be read or replayed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_tests::conform::replay;

fn main() -> ExitCode {
    let mut files = Vec::new();
    for argument in std::env::args_os().skip(1) {
        if let Err(error) = collect(Path::new(&argument), &mut files) {
            eprintln!("{}: {error}", argument.display());
            return ExitCode::from(2);
        }
    }
    if files.is_empty() {
        eprintln!("usage: conform FILE_OR_DIR...  (no trace was found)");
        return ExitCode::from(2);
    }
    let (mut passed, mut failed, mut broken, mut skipped) = (0, 0, 0, 0);
    for file in &files {
        let text = fs::read_to_string(file).map_err(anyhow::Error::from);
        match text.and_then(|text| replay(&text)) {
            Ok(outcome) => {
                skipped += outcome.skipped.len();
                let quirks: Vec<_> = outcome.skipped.iter().map(|(step, why)| format!("step {step}: {why}")).collect();
                let note = if quirks.is_empty() { String::new() } else { format!(", skipped {}", quirks.join(", ")) };
                if let Some(difference) = outcome.difference {
                    failed += 1;
                    println!("FAIL  {}: {difference}{note}", file.display());
                } else {
                    passed += 1;
                    println!("pass  {} ({} steps{note})", file.display(), outcome.compared);
                }
            }
            Err(error) => {
                broken += 1;
                println!("ERROR {}: {error:#}", file.display());
            }
        }
    }
    println!("{passed} passed, {failed} failed, {broken} not replayed; {skipped} steps skipped under a quirk");
    match (failed, broken) {
        (0, 0) => ExitCode::SUCCESS,
        (_, 0) => ExitCode::from(1),
        _ => ExitCode::from(2),
    }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> =
        fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?.iter().map(fs::DirEntry::path).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|kind| kind == "json") {
            collect(&entry, files)?;
        }
    }
    Ok(())
}
