//! The playground's files, in memory: the page, the vendored chart library, and the generated bindings.
//!
//! The service worker that keeps the page for when there is no network needs to know all files and when one of them has
//! changed: its script has two gaps, which [`Site::assemble`] fills in.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::join;

/// The script of the service worker, and its gaps.
const SERVICE_WORKER: &str = "sw.js";
const VERSION_GAP: &str = "{{version}}";
const FILES_GAP: &str = "{{files}}";

/// Every file of the playground by its path below the root, with `/` as the separator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    files: BTreeMap<String, File>,
}

/// One file, as it is and compressed.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) plain: Bytes,
    /// Absent where it would not be smaller.
    pub(crate) gzip: Option<Bytes>,
    /// Differs when the content does: 16 hexadecimal digits.
    pub(crate) hash: String,
}

impl File {
    fn new(content: Vec<u8>) -> Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&content)?;
        let gzip = encoder.finish()?;
        let hash = format!("{:016x}", fnv([content.as_slice()]));
        let gzip = (gzip.len() < content.len()).then(|| gzip.into());
        Ok(Self { plain: content.into(), gzip, hash })
    }
}

/// FNV-1a of 64 bits: tells versions apart, nothing more.
fn fnv<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Site {
    /// Reads the page from this package's folder `home` and the bindings from the folders `modules`.
    pub(crate) fn assemble(home: &Path, modules: &[PathBuf]) -> Result<Self> {
        let mut contents = BTreeMap::new();
        let app = home.join("app");
        read_folder(&app.join("src"), "", &mut contents)?;
        read_folder(&app.join("public"), "", &mut contents)?;
        let page = fs::read(app.join("index.html")).context("could not read the page")?;
        contents.insert("index.html".to_owned(), page);
        let mut texts = contents
            .into_iter()
            .map(|(path, content)| Ok((path, String::from_utf8(content).context("a file of the page is no text")?)))
            .collect::<Result<join::Texts>>()?;
        join::style_sheets(&mut texts)?;
        join::modules(&mut texts)?;
        let mut contents = texts.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
        read_folder(&home.join("vendor"), "vendor/", &mut contents)?;
        for module in modules {
            read_folder(module, "pkg/", &mut contents)?;
        }
        let mut site = Self::default();
        for (path, content) in contents {
            let content = if is_code(&path) { without_comments(&content) } else { content };
            site.files.insert(path, File::new(content)?);
        }
        if !site.files.contains_key("index.html") {
            bail!("the page is incomplete: {} is missing", home.join("app/index.html").display());
        }
        site.fill_service_worker()?;
        Ok(site)
    }

    /// Tells the service worker which files there are, and a hash over them all. A file without a use in a browser is left
    /// out.
    fn fill_service_worker(&mut self) -> Result<()> {
        let Some(script) = self.files.get(SERVICE_WORKER) else { return Ok(()) };
        let script = std::str::from_utf8(&script.plain).context("the service worker is no text")?;
        if !(script.contains(VERSION_GAP) && script.contains(FILES_GAP)) {
            bail!("the service worker has no place for its version and files");
        }
        let kept = || self.files.iter().filter(|(path, _)| *path != SERVICE_WORKER && is_loaded(path));
        let version =
            fnv(kept().flat_map(|(path, file)| [path.as_bytes(), file.hash.as_bytes()]).chain([script.as_bytes()]));
        // The page is asked for by the folder's own address.
        let paths: Vec<_> = kept().map(|(path, _)| if path == "index.html" { "./" } else { path.as_str() }).collect();
        let list: Vec<_> = paths.iter().map(|path| format!("\"{path}\"")).collect();
        let filled = script
            .replace(VERSION_GAP, &format!("{version:016x}"))
            .replace(FILES_GAP, &format!("[{}]", list.join(",")));
        let filled = File::new(filled.into_bytes())?;
        self.files.insert(SERVICE_WORKER.to_owned(), filled);
        Ok(())
    }

    /// Writes every file below `folder`, which is made if need be. Other files there stay as they are.
    pub(crate) fn export(&self, folder: &Path) -> Result<()> {
        for (path, file) in &self.files {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).with_context(|| format!("could not make the folder {}", parent.display()))?;
            fs::write(&path, &file.plain).with_context(|| format!("could not write {}", path.display()))?;
        }
        Ok(())
    }

    /// The file at a request's path; the root is the page itself.
    pub(crate) fn get(&self, path: &str) -> Option<(&str, &File)> {
        let key = match path.trim_start_matches('/') {
            "" => "index.html",
            key => key,
        };
        self.files.get_key_value(key).map(|(key, file)| (key.as_str(), file))
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The size of all files that the browser loads, compressed where that is smaller.
    pub(crate) fn loaded_bytes(&self) -> usize {
        let loaded = self.files.iter().filter(|(path, _)| is_loaded(path));
        loaded.map(|(_, file)| file.gzip.as_ref().unwrap_or(&file.plain).len()).sum()
    }

    /// The size of the compiled module, compressed.
    pub(crate) fn wasm_bytes(&self) -> usize {
        let modules =
            self.files.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|kind| kind == "wasm"));
        modules.map(|(_, file)| file.gzip.as_ref().unwrap_or(&file.plain).len()).sum()
    }
}

/// Reads every file below `folder`, each under its path with `prefix` before it.
fn read_folder(folder: &Path, prefix: &str, contents: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("could not read the folder {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("could not read the folder {}", folder.display()))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let key = format!("{prefix}{name}");
        if path.is_dir() {
            read_folder(&path, &format!("{key}/"), contents)?;
        } else {
            contents.insert(key, fs::read(&path).with_context(|| format!("could not read {}", path.display()))?);
        }
    }
    Ok(())
}

/// Whether it is a script or a style sheet with comments for people. Vendored files are left as they are.
fn is_code(path: &str) -> bool {
    let kind = Path::new(path).extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    matches!(kind, "css" | "js") && !path.starts_with("vendor/")
}

/// The code without indentation and without comments that have whole lines to themselves: a quarter of what a browser
/// would load. Lines stay lines, so that nothing means anything else.
fn without_comments(code: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(code) else { return code.to_vec() };
    let mut kept = String::with_capacity(text.len());
    let mut is_in_comment = false;
    for line in text.lines().map(str::trim) {
        if is_in_comment {
            is_in_comment = !line.ends_with("*/");
            continue;
        }
        if line.starts_with("/*") && !line.contains("*/") {
            is_in_comment = true;
            continue;
        }
        // A cast stands before the code it belongs to, on the same line.
        let is_comment = line.starts_with("//") || (line.starts_with("/*") && line.find("*/") == Some(line.len() - 2));
        if !(is_comment || line.is_empty()) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.into_bytes()
}

/// Whether the page ever loads a file of this name: types and texts for people are not for the browser.
fn is_loaded(path: &str) -> bool {
    let kind = Path::new(path).extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    matches!(kind, "html" | "css" | "js" | "svg" | "wasm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_page_and_no_path_leads_out_of_the_site() {
        let mut site = Site::default();
        site.files.insert("index.html".into(), File::new(b"page".to_vec()).expect("it is compressed"));
        assert_eq!(site.get("/").map(|(path, _)| path), Some("index.html"));
        assert_eq!(site.get("/index.html").map(|(path, _)| path), Some("index.html"));
        for path in ["/../Cargo.toml", "/etc/passwd", "/page", "//"] {
            assert!(path == "//" || site.get(path).is_none(), "{path}");
        }
    }
    #[test]
    fn the_service_worker_knows_every_file_the_browser_loads_and_a_new_hash_for_new_content() {
        let script = |content: &str| {
            let mut site = Site::default();
            let sw = format!("{VERSION_GAP} {FILES_GAP}");
            let files = [("index.html", content), ("pkg/a.wasm", "w"), ("pkg/a.d.ts", "t"), ("sw.js", sw.as_str())];
            for (path, content) in files {
                site.files.insert(path.into(), File::new(content.into()).expect("it is compressed"));
            }
            site.fill_service_worker().expect("there are gaps");
            String::from_utf8(site.files["sw.js"].plain.to_vec()).expect("it is text")
        };
        let (one, other) = (script("one"), script("other"));
        assert!(one.ends_with(r#" ["./","pkg/a.wasm"]"#), "{one}");
        assert_ne!(one, other);
        assert_eq!(one, script("one"));
    }

    #[test]
    fn comments_on_lines_of_their_own_are_left_out_and_code_is_not() {
        let code = "// @ts-check\n/** One.\n * @type {A} */\n/** @type {B} */\nconst a = 1; // why\n\n  /** @type {C} */ (b).c();\n  /* x */\n}\n";
        let kept = String::from_utf8(without_comments(code.as_bytes())).expect("it is text");
        assert_eq!(kept, "const a = 1; // why\n/** @type {C} */ (b).c();\n}\n");
    }

    #[test]
    fn what_is_smaller_compressed_is_kept_compressed_too() {
        let long = File::new(vec![b'a'; 1000]).expect("it is compressed");
        assert!(long.gzip.is_some_and(|gzip| gzip.len() < 100));
        assert!(File::new(b"a".to_vec()).expect("it is compressed").gzip.is_none());
    }
}
