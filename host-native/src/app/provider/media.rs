//! Images and audio in the messages of a conversation, and how each API has them.
//!
//! A value of the pipeline names an image or a recording by an address, a data URL, or the path of a file:
//!
//! | | OpenAI chat | Responses | Messages of Anthropic |
//! | --- | --- | --- | --- |
//! | address of an image | `image_url` | `input_image` | `image`, source `url` |
//! | image in a file or data URL | `image_url` with a data URL | `input_image` with a data URL | `image`, source `base64` |
//! | recording in a file or data URL | `input_audio` | | |
//!
//! The type of a file is found by its content, not by its name. So a path in a dataset cannot send another
//! kind of file to the provider, such as a key. Nor can it send an image from elsewhere on the machine: files
//! must be in the directory of the pipeline file or below it.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The maximum length of a file in bytes. Providers accept less, or little more.
pub const MAX_FILE_BYTES: u64 = 20 << 20;

/// The maximum number of images and recordings of a call. Anthropic's API takes this many, OpenAI's 500.
pub const MAX_CALL_MEDIA: usize = 100;

/// The maximum length in bytes of all files and data URLs of a call. In base64 they take a third more, which
/// is then a little less than the 50 MB of a request that OpenAI's API takes, and more than the 32 MB of
/// Anthropic's.
pub const MAX_CALL_BYTES: u64 = 32 << 20;

/// The kinds of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A recording.
    Audio,
}

impl MediaKind {
    /// Returns the types that providers accept, with the names that other programs have for them.
    fn types(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Image => {
                &[("image/png", &[]), ("image/jpeg", &["image/jpg"]), ("image/gif", &[]), ("image/webp", &[])]
            }
            Self::Audio => &[("audio/wav", &["audio/x-wav", "audio/wave"]), ("audio/mpeg", &["audio/mp3"])],
        }
    }

    /// Returns the name of the type that is called `found`, if providers accept it.
    fn type_named(self, found: &str) -> Option<&'static str> {
        let is_it = |(name, others): &&(&'static str, &[&str])| *name == found || others.contains(&found);
        self.types().iter().find(is_it).map(|(name, _)| *name)
    }

    /// Returns what is expected, for messages.
    fn expected(self) -> &'static str {
        match self {
            Self::Image => "an image in PNG, JPEG, GIF or WebP",
            Self::Audio => "a recording in WAV or MP3",
        }
    }
}

/// An image or a recording that a value names. A file has not been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaReference {
    kind: MediaKind,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Address(String),
    Encoded(Encoded),
    File(MediaFile),
}

/// A file that must be in a directory or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MediaFile {
    path: PathBuf,
    directory: PathBuf,
}

/// An image or a recording of a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Media {
    content: Content,
    name: String,
    /// The length of its content, if it has any.
    bytes: u64,
}

#[derive(Clone, PartialEq, Eq)]
enum Content {
    /// The provider reads the image from there.
    Address(String),
    Encoded(Encoded),
}

/// Content in base64.
#[derive(Clone, PartialEq, Eq)]
struct Encoded {
    media_type: &'static str,
    base64: Arc<str>,
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} characters", self.media_type, self.base64.len())
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl MediaReference {
    /// Returns what `text` names: an address, a data URL, or a path relative to `directory`.
    ///
    /// # Errors
    /// If it is an address of another scheme, a data URL of another type, the address of a recording, which
    /// no API accepts, or a path to another machine.
    pub fn of(kind: MediaKind, text: &str, directory: &Path) -> Result<Self, String> {
        let text = text.trim();
        let source = if let Some(data) = text.strip_prefix("data:") {
            Source::Encoded(data_url(kind, data)?)
        } else if text.starts_with("https://") || text.starts_with("http://") {
            if kind == MediaKind::Audio {
                let expected =
                    format!("the API takes no addresses of recordings; expected the path of {}", kind.expected());
                return Err(format!("{} is an address, and {expected}", shown(text)));
            }
            Source::Address(text.to_string())
        } else if text.contains("://") {
            let expected = "expected an address with https or http, a data URL, or the path of a file";
            return Err(format!("{} is an address with another scheme; {expected}", shown(text)));
        } else if text.starts_with(r"\\") || text.starts_with("//") {
            // Windows would connect to the machine when it looks for the file.
            return Err(format!("{} is a path to another machine; expected one to a file here", shown(text)));
        } else {
            Source::File(MediaFile { path: directory.join(text), directory: directory.to_path_buf() })
        };
        Ok(Self { kind, source })
    }

    /// Returns an error if it is a file that does not exist, is elsewhere, or is too long. Reads no content.
    pub fn check(&self) -> Result<(), String> {
        let Source::File(file) = &self.source else { return Ok(()) };
        let path = file.find()?;
        check_length(&path, std::fs::metadata(&path))
    }

    /// Reads it, if it is a file. Subtracts its length from `bytes_left`, the maximum.
    ///
    /// # Errors
    /// If the file cannot be read, is elsewhere, is too long, or has another type. The message has its path.
    pub async fn load(&self, bytes_left: &mut u64) -> Result<Media, String> {
        let media = match &self.source {
            Source::Address(address) => {
                Media { name: shown(address), content: Content::Address(address.clone()), bytes: 0 }
            }
            Source::Encoded(encoded) => {
                let bytes = encoded.base64.len() as u64 / 4 * 3;
                let name = format!("data URL of {encoded:?}");
                Media { name, content: Content::Encoded(encoded.clone()), bytes }
            }
            Source::File(file) => {
                let (kind, file) = (self.kind, file.clone());
                let read = tokio::task::spawn_blocking(move || read_file(kind, &file.find()?)).await;
                read.map_err(|error| format!("reading a file failed: {error}"))??
            }
        };
        *bytes_left = bytes_left.checked_sub(media.bytes).ok_or_else(|| {
            format!("with {}, the images and recordings of the call have more than {MAX_CALL_BYTES} bytes", media.name)
        })?;
        Ok(media)
    }
}

impl MediaFile {
    /// Returns the path of the file without links.
    fn find(&self) -> Result<PathBuf, String> {
        // The directory of a pipeline file that is named without one.
        let directory = if self.directory.as_os_str().is_empty() { Path::new(".") } else { &self.directory };
        let cannot_read = |error| cannot_read(&self.path, &error);
        let (path, directory) =
            (self.path.canonicalize().map_err(cannot_read)?, directory.canonicalize().map_err(cannot_read)?);
        if !path.starts_with(&directory) {
            let (path, directory) = (self.path.display(), directory.display());
            return Err(format!("the file {path} is elsewhere; expected one in the directory {directory} or below it"));
        }
        Ok(path)
    }
}

fn read_file(kind: MediaKind, path: &Path) -> Result<Media, String> {
    // Checked before it is opened, because a device or a pipe can block.
    check_length(path, std::fs::metadata(path))?;
    let file = std::fs::File::open(path).map_err(|error| cannot_read(path, &error))?;
    let mut bytes = Vec::new();
    // The length of a file can be wrong: it grows, or is one of the kernel's, which have a length of 0.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("the file {} is longer than {MAX_FILE_BYTES} bytes", path.display()));
    }
    let found = infer::get(&bytes).map(|found| found.mime_type());
    let Some(media_type) = found.and_then(|found| kind.type_named(found)) else {
        let found = found.unwrap_or("of an unknown type");
        return Err(format!("the file {} is {found}; expected {}", path.display(), kind.expected()));
    };
    let encoded = Encoded { media_type, base64: STANDARD.encode(&bytes).into() };
    let (name, bytes) = (path.display().to_string(), bytes.len() as u64);
    Ok(Media { name, content: Content::Encoded(encoded), bytes })
}

/// Parses a data URL without its scheme.
fn data_url(kind: MediaKind, data: &str) -> Result<Encoded, String> {
    let parsed = data.split_once(";base64,").and_then(|(media_type, base64)| {
        Some(Encoded { media_type: kind.type_named(&media_type.to_ascii_lowercase())?, base64: base64.into() })
    });
    let invalid = || format!("{} is a data URL without {} in base64", shown(&format!("data:{data}")), kind.expected());
    parsed.filter(|encoded| STANDARD.decode(&*encoded.base64).is_ok()).ok_or_else(invalid)
}

/// Returns the extension of an image in a format that models read; `None` for other content.
pub(super) fn image_extension(bytes: &[u8]) -> Option<&'static str> {
    match MediaKind::Image.type_named(infer::get(bytes)?.mime_type())? {
        "image/jpeg" => Some("jpg"),
        media_type => media_type.strip_prefix("image/"),
    }
}

fn check_length(path: &Path, found: std::io::Result<std::fs::Metadata>) -> Result<(), String> {
    let found = found.map_err(|error| cannot_read(path, &error))?;
    let path = path.display();
    match found.len() {
        _ if !found.is_file() => Err(format!("{path} is no file")),
        length if length > MAX_FILE_BYTES => {
            Err(format!("the file {path} has {length} bytes; expected at most {MAX_FILE_BYTES}"))
        }
        _ => Ok(()),
    }
}

fn cannot_read(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read the file {}: {error}", path.display())
}

/// Returns the beginning of an address.
fn shown(address: &str) -> String {
    match address.char_indices().nth(100) {
        Some((at, _)) => format!("{}…", &address[..at]),
        None => address.to_string(),
    }
}

impl Media {
    /// Returns its path or address, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the part of a message of OpenAI's chat completions.
    pub(super) fn chat_part(&self) -> Value {
        match &self.content {
            Content::Encoded(Encoded { media_type, base64 }) if media_type.starts_with("audio/") => {
                let format = if *media_type == "audio/wav" { "wav" } else { "mp3" };
                json!({ "type": "input_audio", "input_audio": { "data": &**base64, "format": format } })
            }
            content => json!({ "type": "image_url", "image_url": { "url": content.url() } }),
        }
    }

    /// Returns the part of a message of OpenAI's Responses API.
    pub(super) fn responses_part(&self) -> Value {
        json!({ "type": "input_image", "image_url": self.content.url() })
    }

    /// Returns the block of a message of Anthropic's Messages API.
    pub(super) fn messages_block(&self) -> Value {
        let source = match &self.content {
            Content::Address(address) => json!({ "type": "url", "url": address }),
            Content::Encoded(Encoded { media_type, base64 }) => {
                json!({ "type": "base64", "media_type": media_type, "data": &**base64 })
            }
        };
        json!({ "type": "image", "source": source })
    }
}

impl Content {
    fn url(&self) -> String {
        match self {
            Self::Address(address) => address.clone(),
            Self::Encoded(Encoded { media_type, base64 }) => format!("data:{media_type};base64,{base64}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
    const WAV: &[u8] = b"RIFF\x04\0\0\0WAVEfmt ";

    async fn load(kind: MediaKind, text: &str, directory: &Path) -> Result<Media, String> {
        MediaReference::of(kind, text, directory)?.load(&mut MAX_CALL_BYTES.clone()).await
    }

    #[tokio::test]
    async fn a_file_outside_of_the_directory_is_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("pipeline");
        std::fs::create_dir_all(directory.join("photos")).unwrap();
        std::fs::write(directory.join("photos/boat.png"), PNG).unwrap();
        std::fs::write(scratch.path().join("other.png"), PNG).unwrap();
        let absolute = |name: &str| scratch.path().join(name).display().to_string();
        let (inside, outside) = (absolute("pipeline/photos/boat.png"), absolute("other.png"));
        for name in ["photos/boat.png", "photos/../photos/boat.png", &inside] {
            assert!(load(MediaKind::Image, name, &directory).await.is_ok(), "{name}");
        }
        let mut names = vec!["../other.png", "photos/../../other.png", &outside];
        if cfg!(unix) {
            #[cfg(unix)]
            std::os::unix::fs::symlink(scratch.path().join("other.png"), directory.join("link.png")).unwrap();
            names.push("link.png");
        }
        for name in names {
            let reference = MediaReference::of(MediaKind::Image, name, &directory).unwrap();
            for error in
                [reference.load(&mut MAX_CALL_BYTES.clone()).await.unwrap_err(), reference.check().unwrap_err()]
            {
                assert!(error.contains("other.png is elsewhere") || error.contains("link.png is elsewhere"), "{error}");
            }
        }
        for name in [r"\\host\share\boat.png", "//host/share/boat.png"] {
            let error = load(MediaKind::Image, name, &directory).await.unwrap_err();
            assert!(error.contains("is a path to another machine"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_files_and_data_urls_of_a_call_have_a_maximum_length_together() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("boat.png"), PNG).unwrap();
        let mut left = 8 + 6;
        for name in ["boat.png", "https://h.test/a.png", "data:image/png;base64,iVBORw0K"] {
            let reference = MediaReference::of(MediaKind::Image, name, directory.path()).unwrap();
            assert!(reference.load(&mut left).await.is_ok(), "{name}");
        }
        let reference = MediaReference::of(MediaKind::Image, "boat.png", directory.path()).unwrap();
        let error = reference.load(&mut left).await.unwrap_err();
        assert!(error.contains("boat.png, the images and recordings of the call have more than"), "{error}");
    }

    #[tokio::test]
    async fn each_api_has_its_own_form_of_an_address_and_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("boat.jpg"), PNG).unwrap();
        let file = load(MediaKind::Image, " boat.jpg\n", directory.path()).await.unwrap();
        let data = "iVBORw0KGgo=";
        let url = format!("data:image/png;base64,{data}");
        assert_eq!(file.chat_part(), json!({ "type": "image_url", "image_url": { "url": url } }));
        assert_eq!(file.responses_part(), json!({ "type": "input_image", "image_url": url }));
        let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
        assert_eq!(file.messages_block(), json!({ "type": "image", "source": source }));
        let of_url = load(MediaKind::Image, &url, directory.path()).await.unwrap();
        assert_eq!(of_url.messages_block(), file.messages_block());
        let address = load(MediaKind::Image, "https://h.test/a.png", directory.path()).await.unwrap();
        assert_eq!(address.chat_part()["image_url"]["url"], "https://h.test/a.png");
        assert_eq!(address.messages_block()["source"], json!({ "type": "url", "url": "https://h.test/a.png" }));
    }

    #[tokio::test]
    async fn a_recording_is_sent_with_its_format() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("horn"), WAV).unwrap();
        std::fs::write(directory.path().join("song"), b"ID3\x04\0\0\0\0\0\0").unwrap();
        for (name, format) in [("horn", "wav"), ("song", "mp3"), ("data:audio/x-wav;base64,AAAA", "wav")] {
            let part = load(MediaKind::Audio, name, directory.path()).await.unwrap().chat_part();
            assert_eq!(part["input_audio"]["format"], format, "{name}");
        }
    }

    #[tokio::test]
    async fn what_is_no_such_file_is_an_error_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key.png"), "-----BEGIN PRIVATE KEY-----").unwrap();
        std::fs::write(directory.path().join("notes.png"), "fog at dawn").unwrap();
        std::fs::write(directory.path().join("horn.png"), WAV).unwrap();
        let long = std::fs::File::create(directory.path().join("long.png")).unwrap();
        long.set_len(MAX_FILE_BYTES + 1).unwrap();
        for (kind, name, part) in [
            (MediaKind::Image, "key.png", "key.png is application/x-x509-ca-cert; expected an image in PNG"),
            (MediaKind::Image, "notes.png", "notes.png is of an unknown type; expected an image in PNG"),
            (MediaKind::Image, "horn.png", "horn.png is audio/x-wav; expected an image"),
            (MediaKind::Image, "none.png", "none.png: No such file"),
            (MediaKind::Image, ".", "is no file"),
            (MediaKind::Image, "long.png", "long.png has 20971521 bytes; expected at most 20971520"),
            (MediaKind::Image, "s3://bucket/a.png", "another scheme; expected an address with https"),
            (MediaKind::Image, "data:text/plain;base64,AAAA", "a data URL without an image"),
            (MediaKind::Image, "data:image/png;base64,A", "a data URL without an image"),
            (
                MediaKind::Audio,
                "https://h.test/a.wav",
                "the API takes no addresses of recordings; expected the path of a recording",
            ),
        ] {
            let error = load(kind, name, directory.path()).await.unwrap_err();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_never_ends_is_not_read_to_its_end() {
        // Its stated length is 0. A kernel can reject the last read, which is shorter than an entry.
        let error = read_file(MediaKind::Image, Path::new("/proc/self/pagemap")).unwrap_err();
        assert!(error.contains("/proc/self/pagemap"), "{error}");
    }

    #[test]
    fn a_missing_file_is_found_without_reading_one() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.png"), "no image").unwrap();
        let check = |name: &str| MediaReference::of(MediaKind::Image, name, directory.path()).unwrap().check();
        assert_eq!(check("a.png"), Ok(()));
        assert_eq!(check("https://h.test/a.png"), Ok(()));
        assert!(check("b.png").unwrap_err().contains("b.png"));
    }
}
