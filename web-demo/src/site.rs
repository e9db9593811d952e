//! The playground's files, in memory: the page, the vendored chart library, and the generated bindings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use axum::body::Bytes;

/// Every file of the playground by its path below the root, with `/` as the separator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    files: BTreeMap<String, Bytes>,
}

impl Site {
    /// Reads the page from this package's folder `home` and the bindings from the folder `module`.
    pub(crate) fn assemble(home: &Path, module: &Path) -> Result<Self> {
        let mut site = Self::default();
        site.add_folder(&home.join("page"), "")?;
        site.add_folder(&home.join("vendor"), "vendor/")?;
        site.add_folder(module, "pkg/")?;
        if !site.files.contains_key("index.html") {
            bail!("the page is incomplete: {} is missing", home.join("page/index.html").display());
        }
        Ok(site)
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("could not read the folder {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("could not read the folder {}", folder.display()))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let key = format!("{prefix}{name}");
            if path.is_dir() {
                self.add_folder(&path, &format!("{key}/"))?;
            } else {
                let content = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
                self.files.insert(key, content.into());
            }
        }
        Ok(())
    }

    /// Writes every file below `folder`, which is made if need be. Other files there stay as they are.
    pub(crate) fn export(&self, folder: &Path) -> Result<()> {
        for (path, content) in &self.files {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).with_context(|| format!("could not make the folder {}", parent.display()))?;
            fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))?;
        }
        Ok(())
    }

    /// The file at a request's path; the root is the page itself.
    pub(crate) fn get(&self, path: &str) -> Option<(&str, Bytes)> {
        let key = match path.trim_start_matches('/') {
            "" => "index.html",
            key => key,
        };
        self.files.get_key_value(key).map(|(key, content)| (key.as_str(), content.clone()))
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The size of all files together.
    pub(crate) fn total_bytes(&self) -> usize {
        self.files.values().map(Bytes::len).sum()
    }

    /// The size of the compiled module.
    pub(crate) fn wasm_bytes(&self) -> usize {
        let modules =
            self.files.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|kind| kind == "wasm"));
        modules.map(|(_, content)| content.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_page_and_no_path_leads_out_of_the_site() {
        let mut site = Site::default();
        site.files.insert("index.html".into(), Bytes::from_static(b"page"));
        assert_eq!(site.get("/").map(|(path, _)| path), Some("index.html"));
        assert_eq!(site.get("/index.html").map(|(path, _)| path), Some("index.html"));
        for path in ["/../Cargo.toml", "/etc/passwd", "/page", "//"] {
            assert!(path == "//" || site.get(path).is_none(), "{path}");
        }
    }
}
