//! Builds modules and writes their bindings into a folder: `tidegate-wasm-build DIR [MODULE ...]`. Those of the package,
//! if none is named.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use tidegate_wasm_build::{Module, build};

fn main() -> Result<()> {
    let target = env::args_os().nth(1).map(PathBuf::from).context("usage: tidegate-wasm-build DIR [MODULE ...]")?;
    fs::create_dir_all(&target).with_context(|| format!("could not make the folder {}", target.display()))?;
    let wanted: Vec<String> = env::args().skip(2).collect();
    for name in &wanted {
        ensure!(Module::ALL.iter().any(|module| module.short_name() == name), "there is no module called `{name}`");
    }
    let is_wanted = |module: &Module| match wanted.as_slice() {
        [] => Module::PACKAGE.contains(module),
        names => names.iter().any(|name| module.short_name() == name),
    };
    for module in Module::ALL.into_iter().filter(is_wanted) {
        let from = build(Path::new(env!("CARGO_MANIFEST_DIR")), module)?;
        for entry in fs::read_dir(&from).with_context(|| format!("could not read the folder {}", from.display()))? {
            let file = entry.with_context(|| format!("could not read the folder {}", from.display()))?;
            let to = target.join(file.file_name());
            fs::copy(file.path(), &to).with_context(|| format!("could not write {}", to.display()))?;
        }
    }
    Ok(())
}
