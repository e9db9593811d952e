//! Compiles `tidegate-wasm` and generates its JavaScript bindings.
//!
//! No tool has to be installed: the compiler is the cargo that runs this program, and the bindings come from the
//! library behind `wasm-bindgen`, pinned to the version that the crate was compiled with. The types of the core's objects are
//! declared from its Rust types. Beside those that run scenarios by name lie the scenarios, as data, and beside that for
//! real calls the names of what crosses the boundary as numbers.
//!
//! The profile `wasm-release` of the workspace compiles all modules for speed, by the stable compiler.

mod names;
mod scenarios;
mod types;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";
const PACKAGE: &str = "tidegate-wasm";
const PROFILE: &str = "wasm-release";

/// A wasm module that the crate is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// Gates and pipelines, for real calls.
    Live,
    /// Runs in virtual time, and decision logs that run again.
    Sim,
    /// What the page of the playground loads.
    Playground,
    /// What it loads when a file is asked for.
    Files,
    /// What it loads when the machines that share a limit are.
    Machines,
}

impl Module {
    /// The modules of the package.
    pub const PACKAGE: [Self; 2] = [Self::Live, Self::Sim];

    /// The name of its files: `NAME.js`, `NAME.d.ts`, `NAME_bg.wasm` and `NAME_bg.wasm.d.ts`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "tidegate",
            Self::Sim => "tidegate_sim",
            Self::Playground => "tidegate_playground",
            Self::Files => "tidegate_files",
            Self::Machines => "tidegate_machines",
        }
    }

    /// The feature of the crate that it is made of.
    fn feature(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Sim => "sim",
            Self::Playground => "playground",
            Self::Files => "files",
            Self::Machines => "machines",
        }
    }

    /// Whether people start runs with it by the names of scenarios.
    fn wants_scenarios(self) -> bool {
        matches!(self, Self::Sim | Self::Playground)
    }
}

/// Compiles `module` and returns the folder with its bindings: an ES module, its types and the wasm, and the scenarios beside
/// [`Module::Sim`] and [`Module::Playground`]. `home` is any folder of the workspace.
pub fn build(home: &Path, module: Module) -> Result<PathBuf> {
    ensure_target(home)?;
    eprintln!("Building {} ...", module.name());
    let compiled = compile(home, module)?;
    let out = compiled.with_file_name("bindings").join(module.name());
    generate_bindings(&compiled, module, &out).context("generating the JavaScript bindings failed")?;
    declare_types(module, &out).context("declaring the types of the core failed")?;
    if module.wants_scenarios() {
        scenarios::write(&out)?;
    }
    if module == Module::Live {
        names::write(&out)?;
    }
    Ok(out)
}

/// Writes an ES module and its types into a folder.
fn write_script(folder: &Path, name: &str, script: &str, types: &str) -> Result<()> {
    for (extension, content) in [("js", script), ("d.ts", types)] {
        let path = folder.join(format!("{name}.{extension}"));
        fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

/// Where the toolchain keeps its libraries.
fn sysroot(home: &Path) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(&rustc).args(["--print", "sysroot"]).current_dir(home).output();
    let answer = answer.with_context(|| format!("could not run the compiler `{}`", rustc.display()))?;
    let sysroot = String::from_utf8_lossy(&answer.stdout);
    if !answer.status.success() {
        bail!("the compiler does not say where its libraries are: {}", String::from_utf8_lossy(&answer.stderr).trim());
    }
    Ok(PathBuf::from(sysroot.trim()))
}

/// Adds the wasm target to the toolchain, unless it is there.
fn ensure_target(home: &Path) -> Result<()> {
    if sysroot(home)?.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
        return Ok(());
    }
    eprintln!("Adding the target {TARGET} to the toolchain (rustup target add {TARGET}) ...");
    let added = Command::new("rustup").args(["target", "add", TARGET]).current_dir(home).status();
    let advice = format!("add the target {TARGET} to this Rust toolchain, then try again");
    match added {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => bail!("`rustup target add {TARGET}` failed (see above); {advice}"),
        Err(error) => {
            Err(error).context(format!("the target {TARGET} is missing and `rustup` could not be run; {advice}"))
        }
    }
}

/// Runs cargo and returns the path of the module, as cargo itself reports it.
fn compile(home: &Path, module: Module) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut child = Command::new(&cargo)
        .args(["build", "--package", PACKAGE, "--target", TARGET, "--profile", PROFILE, "--lib"])
        .args(["--no-default-features", "--features", module.feature()])
        // Without any flags of the surroundings: the modules are the same wherever they are built.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .arg("--message-format=json-render-diagnostics")
        .current_dir(home)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not run `{}`", cargo.display()))?;
    let messages = child.stdout.take().context("cargo has no output to read")?;
    let mut compiled = None;
    for line in BufReader::new(messages).lines() {
        compiled = wasm_of(&line.context("reading cargo's output failed")?).or(compiled);
    }
    if !child.wait().context("waiting for cargo failed")?.success() {
        bail!("building {PACKAGE} failed: see the compiler's messages above");
    }
    compiled.with_context(|| format!("cargo built {PACKAGE}, but reported no wasm file"))
}

/// The wasm file that this message of cargo's reports, if it is about our package.
fn wasm_of(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["target"]["name"] != PACKAGE.replace('-', "_") {
        return None;
    }
    let mut files = message["filenames"].as_array()?.iter().filter_map(serde_json::Value::as_str).map(PathBuf::from);
    files.find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
}

fn generate_bindings(compiled: &Path, module: Module, out: &Path) -> Result<()> {
    Bindgen::new()
        .input_path(compiled)
        .out_name(module.name())
        .web(true)?
        // The page finds the wasm beside the module. The package names its files itself: each of its entries does it
        // as its surroundings need it, and a bundler would copy a file that is named twice.
        .omit_default_module_path(module != Module::Playground)
        // The page replaces an instance that has panicked.
        .reset_state_function(module == Module::Machines)
        .typescript(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(out)
}

/// Puts the types of the core ahead of the generated declarations, which refer to them.
fn declare_types(module: Module, out: &Path) -> Result<()> {
    let path = out.join(module.name()).with_extension("d.ts");
    let generated = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let types = types::declarations(module)? + &generated;
    fs::write(&path, types).with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_read_from_the_message_about_our_package_only() {
        let ours = r#"{"reason":"compiler-artifact","target":{"name":"tidegate_wasm"},"filenames":["/t/libtidegate_wasm.rlib","/t/tidegate_wasm.wasm"]}"#;
        assert_eq!(wasm_of(ours), Some(PathBuf::from("/t/tidegate_wasm.wasm")));
        let other = r#"{"reason":"compiler-artifact","target":{"name":"serde"},"filenames":["/t/serde.wasm"]}"#;
        for message in [other, r#"{"reason":"build-finished","success":true}"#, "not json at all", ""] {
            assert_eq!(wasm_of(message), None);
        }
    }
}
