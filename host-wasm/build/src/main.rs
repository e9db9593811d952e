//! Builds the modules of the package and writes their bindings into a folder: `tidegate-wasm-build DIR`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};
use tidegate_wasm_build::{Module, build};

fn main() -> Result<()> {
    let target = env::args_os().nth(1).map(PathBuf::from).context("usage: tidegate-wasm-build DIR")?;
    fs::create_dir_all(&target).with_context(|| format!("could not make the folder {}", target.display()))?;
    for module in Module::PACKAGE {
        let from = build(Path::new(env!("CARGO_MANIFEST_DIR")), module)?;
        for entry in fs::read_dir(&from).with_context(|| format!("could not read the folder {}", from.display()))? {
            let file = entry.with_context(|| format!("could not read the folder {}", from.display()))?;
            let to = target.join(file.file_name());
            fs::copy(file.path(), &to).with_context(|| format!("could not write {}", to.display()))?;
        }
    }
    Ok(())
}
