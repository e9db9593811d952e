//! Tests of datasets at an address: whole runs of the program against local servers.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
#[cfg(unix)]
use std::process::Stdio;
use std::sync::Arc;

use crate::support::authority::Authority;
use crate::support::{Scratch, dataset, serve};
#[cfg(unix)]
use crate::support::{interrupt, patience::wait_until};
use axum::Router;
use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use parking_lot::Mutex;

/// A file on a server, and the statuses of its answers.
#[derive(Debug, Default)]
struct Served {
    text: String,
    answers: Vec<u16>,
}

type Shared = Arc<Mutex<Served>>;

async fn file(State(served): State<Shared>, headers: HeaderMap) -> Response {
    let mut served = served.lock();
    let etag = format!("\"{}\"", served.text.len());
    let is_current = headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *etag);
    served.answers.push(if is_current { 304 } else { 200 });
    if is_current {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(ETAG, etag)], served.text.clone()).into_response()
    }
}

/// Serves a file of `rows` rows at `/data.csv`. Returns it with its address.
fn served(rows: usize) -> (Shared, String) {
    let served = Shared::new(Mutex::new(Served { text: dataset(rows), answers: Vec::new() }));
    let address = serve(Router::new().route("/data.csv", get(file)).with_state(Arc::clone(&served)));
    (served, address + "/data.csv")
}

/// Returns a directory for runs with a cache of its own.
fn scratch() -> Scratch {
    let mut scratch = Scratch::new(1);
    let cache = scratch.path("cache").display().to_string();
    scratch.env("TIDEGATE_CACHE_DIR", &cache);
    scratch
}

/// A pipeline over the dataset at `path` that makes no call.
fn pipeline(path: &str, keys: &str) -> String {
    format!(
        "[seed]\npath = \"{path}\"\n{keys}\n[run]\nrow_group_size = 2\n\
         [[columns]]\nname = \"text\"\nkind = \"expression\"\ntemplate = \"{{{{ note }}}}!\"\n"
    )
}

/// Returns the names of the files in the cache with this extension.
fn cached(scratch: &Scratch, extension: &str) -> usize {
    let entries = std::fs::read_dir(scratch.path("cache/datasets"));
    let names = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|found| found == extension)).count()
}

#[test]
fn a_dataset_is_downloaded_once_and_asked_for_again_by_a_new_job_only() {
    let (served, url) = served(5);
    let scratch = scratch();
    scratch.run_pipeline(&pipeline(&url, "")).assert(0, &[&format!("downloading {url} ("), "rows out         5"]);
    assert_eq!(scratch.rows("out")[4]["text"], "entry 4 of the breakwater log!");
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]).assert(0, &["5 rows are done already"]);
    assert_eq!(served.lock().answers, [200], "a resumed job makes no request");
    let again = scratch.run(&["run", "pipeline.toml", "--out", "again"]);
    again.assert(0, &["rows out         5"]);
    assert!(!again.all().contains("downloading"), "{}", again.all());
    assert_eq!((&served.lock().answers[..], cached(&scratch, "csv")), (&[200, 304][..], 1));
    scratch.run(&["run", "pipeline.toml", "--out", "new", "--dry-run"]).assert(0, &["5 rows"]);
}

#[test]
fn a_job_keeps_its_dataset_when_the_file_at_the_address_changes() {
    let (served, url) = served(6);
    let scratch = scratch();
    scratch.write("pipeline.toml", &pipeline(&url, ""));
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--limit", "2"]).assert(0, &["rows out         2"]);
    served.lock().text = dataset(9);
    scratch.run(&["run", "pipeline.toml", "--out", "new"]).assert(0, &["rows out         9"]);
    scratch
        .run(&["run", "pipeline.toml", "--out", "out", "--resume", "--limit", "4"])
        .assert(0, &["2 rows are done already"]);
    assert_eq!((scratch.rows("out").len(), cached(&scratch, "csv")), (4, 2));
    std::fs::remove_dir_all(scratch.path("cache")).unwrap();
    let ended = scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]);
    ended.assert(5, &["the dataset has changed since then"]);
}

#[test]
fn a_job_is_not_resumed_with_a_dataset_at_another_address() {
    let (served, url) = served(3);
    let scratch = scratch();
    scratch.run_pipeline(&pipeline(&format!("{url}?key=1"), "")).assert(0, &["rows out         3"]);
    let resume = ["run", "pipeline.toml", "--out", "out", "--resume"];
    scratch.write("pipeline.toml", &pipeline(&format!("{url}?key=2"), ""));
    scratch.run(&resume).assert(0, &["3 rows are done already"]);
    let moved = url.replace("127.0.0.1", "localhost");
    scratch.write("pipeline.toml", &pipeline(&format!("{moved}?key=secret"), ""));
    let ended = scratch.run(&resume);
    ended.assert(5, &[&format!("the address of the dataset was {url} and is now {moved}")]);
    assert!(!ended.all().contains("secret"), "{}", ended.all());
    assert_eq!(served.lock().answers, [200], "the job reads the file that it began with");
}

#[test]
fn a_damaged_file_in_the_cache_is_not_read_but_downloaded_again() {
    let (served, url) = served(3);
    let scratch = scratch();
    scratch.run_pipeline(&pipeline(&url, "")).assert(0, &["rows out         3"]);
    let damage = || {
        let entries = std::fs::read_dir(scratch.path("cache/datasets")).unwrap().map(|entry| entry.unwrap().path());
        let file = entries.into_iter().find(|path| path.extension().is_some_and(|found| found == "csv")).unwrap();
        std::fs::write(file, "id,note\n0,forged\n").unwrap();
    };
    damage();
    let again = scratch.run(&["run", "pipeline.toml", "--out", "again"]);
    again.assert(0, &[&format!("the file of {url} in the cache is damaged"), "rows out         3"]);
    assert_eq!(scratch.rows("again"), scratch.rows("out"));
    damage();
    scratch.run(&["run", "pipeline.toml", "--out", "out", "--resume"]).assert(0, &["3 rows are done already"]);
    assert_eq!(served.lock().answers, [200, 304, 200, 304, 200]);
}

#[cfg(unix)]
#[test]
fn what_an_interrupted_download_has_left_in_the_cache_is_removed_by_the_next_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stalled = format!("http://{}/data.csv", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\nid,note\n0,short\n");
        // Until the program has ended.
        let _ = stream.read(&mut [0; 4096]);
    });
    let incomplete = |scratch: &Scratch| {
        let entries = std::fs::read_dir(scratch.path("cache/datasets")).into_iter().flatten();
        entries
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.metadata().is_ok_and(|file| file.len() == 16)))
            .count()
    };
    let scratch = scratch();
    scratch.write("stalled.toml", &pipeline(&stalled, ""));
    let mut command = scratch.command(&["run", "stalled.toml", "--out", "out"]);
    let mut program = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| incomplete(&scratch), |files| *files == 1);
    let (_, url) = served(3);
    scratch.run_pipeline(&pipeline(&url, "")).assert(0, &["rows out         3"]);
    assert_eq!(incomplete(&scratch), 1, "a download in progress keeps its file");
    interrupt(&program);
    assert!(!program.wait().unwrap().success());
    scratch.run(&["run", "pipeline.toml", "--out", "again"]).assert(0, &["rows out         3"]);
    assert_eq!(incomplete(&scratch), 0);
}

#[test]
fn a_public_host_cannot_redirect_to_this_machine() {
    let (served, url) = served(3);
    let target = url.clone();
    // Clients ask a proxy for whole addresses, and the proxy resolves their names.
    let proxy = serve(Router::new().fallback(move || async move { Redirect::temporary(&target) }));
    let mut scratch = scratch();
    scratch.env("http_proxy", &proxy);
    let ended = scratch.run_pipeline(&pipeline("http://data.test/data.csv", "allow_plain_http = true"));
    ended.assert(3, &["it redirects to `127.0.0.1`, which is this machine or in its network"]);
    assert!(served.lock().answers.is_empty());
}

#[test]
fn a_download_that_ends_early_is_an_error_and_leaves_nothing_in_the_cache() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/data.csv", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\nid,note\n0,short\n");
        }
    });
    let scratch = scratch();
    scratch.run_pipeline(&pipeline(&url, "")).assert(3, &[&format!("{url}: ended after 16 of 90 bytes")]);
    assert_eq!((cached(&scratch, "csv"), cached(&scratch, "json")), (0, 0));
    assert_eq!(std::fs::read_dir(scratch.path("cache/datasets")).unwrap().count(), 0, "no temporary file is left");
}

#[test]
fn a_file_that_is_too_large_missing_or_malformed_is_an_error_at_its_address() {
    let (served, url) = served(5);
    let scratch = scratch();
    let large = scratch.run_pipeline(&pipeline(&url, "max_bytes = 20"));
    large.assert(3, &[&format!("{url}: is larger than 20 bytes"), "expected at most `max_bytes` in [seed]"]);
    let missing = url.replace("data.csv", "none.csv?token=secret");
    let ended = scratch.run_pipeline(&pipeline(&missing, ""));
    ended.assert(3, &["/none.csv: cannot be downloaded: the server answered HTTP 404"]);
    assert!(!ended.all().contains("secret"), "{}", ended.all());
    served.lock().text = "id,note\n1\n".to_string();
    scratch.run_pipeline(&pipeline(&url, "")).assert(3, &[&format!("{url}:2: ")]);
    scratch
        .run_pipeline(&pipeline("http://127.0.0.1:9/data.csv", ""))
        .assert(3, &["/data.csv: cannot be downloaded: "]);
}

#[test]
fn redirects_are_followed_but_not_to_another_machine_without_encryption() {
    let (_, url) = served(3);
    let far = "http://data.invalid/data.csv";
    let router = Router::new()
        .route("/data.csv", get(move || async move { Redirect::temporary(&url) }))
        .route("/far.csv", get(move || async move { Redirect::temporary(far) }))
        .route("/loop.csv", get(|| async { Redirect::temporary("/loop.csv") }));
    let address = serve(router);
    let scratch = scratch();
    let run = |name: &str| scratch.run_pipeline(&pipeline(&format!("{address}/{name}"), ""));
    run("far.csv").assert(3, &["it redirects to `data.invalid` without encryption"]);
    run("loop.csv").assert(3, &["more than 10 redirects"]);
    run("data.csv").assert(0, &["rows out         3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_with_a_certificate_of_the_configured_authority() {
    let (own, other) = (Authority::new(), Authority::new());
    let port = own.serve("localhost", "id,note\n1,secure\n").await;
    let scratch = scratch();
    scratch.write("own.pem", &own.pem());
    scratch.write("other.pem", &other.pem());
    let run = |ca_file: &str| {
        let keys = format!("ca_file = \"{ca_file}\"");
        scratch.run_pipeline(&pipeline(&format!("https://localhost:{port}/data.csv"), &keys))
    };
    let (trusted, untrusted) = tokio::task::block_in_place(|| (run("own.pem"), run("other.pem")));
    trusted.assert(0, &["rows out         1"]);
    untrusted.assert(3, &["cannot be downloaded: ", "its authority is not trusted here", "`ca_file`"]);
}

#[test]
fn an_address_that_is_not_encrypted_or_a_key_without_an_address_is_an_error() {
    let scratch = scratch();
    for (path, keys, error) in [
        ("http://data.invalid/data.csv", "", "the dataset would come from `data.invalid` unencrypted"),
        ("https://data.invalid/data", "", "names no dataset format"),
        ("https://data.invalid/data.csv", "max_bytes = 0", "`max_bytes` in [seed] is 0"),
        ("https://me:key@data.invalid/data.csv", "", "holds a user name or password"),
        ("http://127.0.0.1/data.csv", "ca_file = \"x\"", "`ca_file` is given for an address without https"),
        ("data.csv", "ca_file = \"x\"", "`ca_file` in [seed] is given for a dataset on this machine"),
        ("data.csv", "max_bytes = 9", "`max_bytes` in [seed] is given for a dataset on this machine"),
        ("data.csv", "allow_plain_http = true", "`allow_plain_http` in [seed] is given for a dataset on this machine"),
    ] {
        scratch.run_pipeline(&pipeline(path, keys)).assert(2, &[error]);
    }
}
