//! Builds the page in `app/` by Vite, with the packages that its lock file names.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The versions of Node.js that all packages of the page run on, as in `engines` of `app/package.json`: from a minor
/// version of 20 on, from one of 22 on, and from a major version on.
const NODE_20: u32 = 19;
const NODE_22: u32 = 13;
const NODE: u32 = 24;

/// Builds the page into the folder `out`, from the sources in `app` and the bindings in the folders `modules`. Other files in `out`
/// stay as they are.
pub(crate) fn build(app: &Path, modules: &[PathBuf], out: &Path) -> Result<()> {
    install_packages(app)?;
    copy_bindings(modules, &app.join("src/pkg"))?;
    eprintln!("Building the page ...");
    // Absolute, because Vite takes the path as relative to `app`.
    let out = std::path::absolute(out).with_context(|| format!("{} is no path", out.display()))?;
    let mut vite = Command::new("node");
    vite.arg("node_modules/vite/bin/vite.js").args(["build", "--logLevel", "warn", "--outDir"]).arg(&out);
    run(vite.current_dir(app), "vite build")
}

/// Fails with advice unless there is a Node.js that is new enough.
pub(crate) fn check_node() -> Result<()> {
    let advice =
        format!("the page is built with Node.js 20.{NODE_20}, 22.{NODE_22}, {NODE} or newer (https://nodejs.org)");
    let answer = match Command::new("node").arg("--version").output() {
        Ok(answer) => answer,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("there is no `node` on the PATH: {advice}"),
        Err(error) => return Err(error).context(format!("could not run `node`: {advice}")),
    };
    let version = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    match is_supported(&version) {
        Some(true) => Ok(()),
        Some(false) => bail!("this is Node.js {version}, which packages of the page do not run on: {advice}"),
        None => bail!("`node --version` printed {version:?} and no version: {advice}"),
    }
}

/// Whether the page can be built with a version as `node --version` prints it; `None` if it is no version.
fn is_supported(version: &str) -> Option<bool> {
    let mut numbers = version.strip_prefix('v')?.split('.').map(|number| number.parse().ok());
    let (major, minor): (u32, u32) = (numbers.next()??, numbers.next()??);
    Some(match major {
        20 => minor >= NODE_20,
        22 => minor >= NODE_22,
        _ => major >= NODE,
    })
}

/// Installs the packages with `npm ci`, unless those of this lock file are there.
fn install_packages(app: &Path) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("could not read {}", path.display()));
    let lock = read(&app.join("package-lock.json"))?;
    // A copy of the lock file beside the packages that were installed from it.
    let installed = app.join("node_modules/.installed-lock.json");
    if fs::read(&installed).is_ok_and(|of| of == lock) {
        return Ok(());
    }
    eprintln!("Installing the packages of the page (npm ci) ...");
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    // Strict about the version of Node.js, so that a package that does not run on it is named here and not by what it breaks.
    let options = ["ci", "--engine-strict", "--no-audit", "--no-fund"];
    run(Command::new(npm).args(options).current_dir(app), "npm ci")?;
    fs::write(&installed, lock).with_context(|| format!("could not write {}", installed.display()))
}

/// Copies the bindings to where the page imports them from. Equal files are not written, so that a development server sees no change.
fn copy_bindings(modules: &[PathBuf], to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not create the folder {}", to.display()))?;
    for folder in modules {
        let entries =
            fs::read_dir(folder).with_context(|| format!("could not read the folder {}", folder.display()))?;
        for entry in entries {
            let from = entry.with_context(|| format!("could not read the folder {}", folder.display()))?.path();
            let Some(name) = from.file_name() else { continue };
            let content = fs::read(&from).with_context(|| format!("could not read {}", from.display()))?;
            let target = to.join(name);
            if fs::read(&target).is_ok_and(|present| present == content) {
                continue;
            }
            fs::write(&target, content).with_context(|| format!("could not write {}", target.display()))?;
        }
    }
    Ok(())
}

/// Runs a command to its end. Its output is shown only if it fails.
fn run(command: &mut Command, name: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("could not run `{name}`"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    bail!("`{name}` failed with {}:\n{}", output.status, printed.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_node_are_those_that_the_packages_of_the_page_run_on() {
        for version in ["v20.19.0", "v22.13.0", "v24.0.1", "v26.0.0"] {
            assert_eq!(is_supported(version), Some(true), "{version}");
        }
        for version in ["v20.18.9", "v21.7.0", "v22.12.0", "v23.11.0", "v18.20.0", "v9.0.0"] {
            assert_eq!(is_supported(version), Some(false), "{version}");
        }
        for version in ["", "20.19.0", "v", "v20", "vNaN.1"] {
            assert_eq!(is_supported(version), None, "{version}");
        }
    }

    #[test]
    fn a_command_that_fails_is_named_and_its_output_is_shown() {
        let error = run(Command::new("cargo").arg("no-such-command"), "a build").unwrap_err().to_string();
        assert!(error.starts_with("`a build` failed with "), "{error}");
        assert!(error.contains("no-such-command"), "{error}");
        let error = run(&mut Command::new("no-such-program-here"), "a build").unwrap_err().to_string();
        assert_eq!(error, "could not run `a build`");
    }

    #[test]
    fn bindings_that_are_equal_are_not_written_again() {
        let scratch = std::env::temp_dir().join(format!("tidegate-bindings-{}", std::process::id()));
        let (from, to) = (scratch.join("from"), scratch.join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("a.js"), "one").unwrap();
        let copy = || copy_bindings(std::slice::from_ref(&from), &to).unwrap();
        copy();
        let read_only = |is: bool| {
            let mut permissions = fs::metadata(to.join("a.js")).unwrap().permissions();
            permissions.set_readonly(is);
            fs::set_permissions(to.join("a.js"), permissions).unwrap();
        };
        let written = || fs::metadata(to.join("a.js")).unwrap().modified().unwrap();
        let first = written();
        read_only(true);
        copy();
        assert_eq!(written(), first);
        read_only(false);
        fs::write(from.join("a.js"), "another").unwrap();
        copy();
        assert_eq!(fs::read_to_string(to.join("a.js")).unwrap(), "another");
        fs::remove_dir_all(&scratch).unwrap();
    }
}
