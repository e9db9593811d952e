//! Tests of the `tidegate mock` command: its output, its errors and its exit codes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use crate::support::Scratch;

/// A running mock server. It is killed when dropped.
struct RunningMock {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    /// The output up to the line with the address.
    printed: Vec<String>,
    base_url: String,
}

impl RunningMock {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let arguments = [&["mock", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = scratch.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Self { child, out, printed: Vec::new(), base_url: String::new() };
        while serving.base_url.is_empty() {
            let mut line = String::new();
            let read = serving.out.read_line(&mut line).unwrap();
            assert!(read > 0, "the mock ended before it listened: {:?}", serving.printed);
            match line.trim_end().strip_prefix("listening on ") {
                Some(base_url) => serving.base_url = base_url.to_string(),
                None => serving.printed.push(line),
            }
        }
        serving
    }

    async fn call(&self, model: &str) -> u16 {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let body = serde_json::json!({ "model": model, "messages": [{ "content": "the lamp failed" }] });
        http.post(format!("{}/chat/completions", self.base_url)).json(&body).send().await.unwrap().status().as_u16()
    }

    /// Sends a termination signal. Returns the exit code and the rest of both streams.
    #[cfg(unix)]
    fn stop(mut self) -> (Option<i32>, String, String) {
        let id = self.child.id().to_string();
        let killed = std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(killed.success());
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }
}

impl Drop for RunningMock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TWO: &str = "[[models]]\nname = \"a\"\nprovider = { capacity = { shape = \"constant\", slots = 0 } }\n\
                   [[models]]\nname = \"b\"\n";

#[cfg(unix)]
#[tokio::test]
async fn a_file_with_only_models_is_served_and_a_signal_prints_a_table_and_exits() {
    let scratch = Scratch::new(0);
    scratch.write("models.toml", TWO);
    let serving = RunningMock::start(&scratch, &["models.toml", "--verbose"]);
    assert_eq!(serving.printed, ["model a  0 calls at once of 100 ms\n", "model b  8 calls at once of 100 ms\n"]);
    assert_eq!((serving.call("a").await, serving.call("b").await, serving.call("c").await), (429, 200, 404));
    let (code, out, err) = serving.stop();
    assert_eq!(code, Some(0));
    assert!(out.contains("3 requests, 1 of them malformed"), "{out}");
    assert!(out.lines().any(|line| line.split_whitespace().take(3).eq(["b", "1", "0"])), "{out}");
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.contains("a  429: too many calls at once") && err.contains("-  404: the model `c`"), "{err}");
}

#[cfg(unix)]
#[tokio::test]
async fn the_quiet_option_prints_only_the_listen_address() {
    let scratch = Scratch::new(0);
    let serving = RunningMock::start(&scratch, &["--scenario", "two-harbours", "--quiet"]);
    assert_eq!(serving.call("narrow").await, 200);
    let (code, out, err) = serving.stop();
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "", ""));
}

#[test]
fn errors_are_reported_with_their_location_and_exit_2() {
    let scratch = Scratch::new(0);
    scratch.run(&["mock", "outagee"]).assert(2, &["did you mean `outage`?"]);
    scratch.run(&["mock", "none.toml"]).assert(2, &["none.toml: cannot read the file"]);
    scratch.run(&["mock", "--model", "m=slot=3"]).assert(2, &["unknown setting `slot`"]);
    for (from, to, expected) in [
        ("\"b\"", "\"a\"", "models.toml:5:8: there are two models called `a`"),
        ("slots = 0", "slots = 2000000", "models.toml:3:55: `capacity.slots` is 2000000"),
        ("slots = 0", "slot = 0", "did you mean `slots`?"),
        ("\"b\"", "3", "models.toml:5:8: `name` in [[models]] is 3"),
        ("name = \"b\"", "", "[[models]] has no `name`"),
    ] {
        scratch.write("models.toml", &TWO.replacen(from, to, 1));
        scratch.run(&["mock", "models.toml"]).assert(2, &[expected]);
    }
}

#[tokio::test]
async fn an_address_in_use_is_reported_and_exits_2() {
    let scratch = Scratch::new(0);
    let first = RunningMock::start(&scratch, &[]);
    let address = first.base_url.trim_start_matches("http://").trim_end_matches("/v1");
    let second = scratch.run(&["mock", "--listen", address]);
    second.assert(2, &[&format!("cannot listen on {address}: "), "port 0 takes any free port"]);
}
