//! Tests of the `tidegate proxy` command: its output, signals and errors.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::Scratch;
use crate::support::patience::{PATIENCE, wait_until};
use crate::support::provider::provider;

/// A running proxy and its first line of output.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Running {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let mut command = scratch.command(&[&["proxy"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let line = line(&mut stdout);
        let address = line
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.strip_suffix("/v1"))
            .expect(&line)
            .to_string();
        Self { child, stdout, address }
    }

    /// Sends a request and returns the connection.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let len = body.len();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}{kind}");
        stream.write_all(format!("{head}content-length: {len}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        read(self.send("GET", path, "", ""))
    }

    fn until(&self, expected: &str) {
        wait_until(|| self.get("/healthz"), |page| page.contains(expected));
    }

    fn interrupt(&self) {
        self.signal("-INT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end. Returns the exit code and everything written to standard error.
    fn end(mut self) -> (i32, String) {
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code().unwrap(), stderr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has already ended unless the test failed.
        let _ = self.child.kill();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim().to_string()
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn keys_appear_in_no_output_page_or_error() {
    let (base_url, _) = provider();
    let mut scratch = Scratch::new(0);
    scratch.env("PROVIDER_KEY", "sk-provider-secret");
    scratch.env("PEOPLE_KEY", "sk-people-secret");
    let file = format!(
        "listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\napi_key_env = \"PROVIDER_KEY\"\n\
         [tenants]\nby = \"api_key\"\n[[tenants.known]]\nname = \"people\"\nkey_env = \"PEOPLE_KEY\"\n"
    );
    scratch.write("proxy.toml", &file);
    let checked = scratch.run(&["proxy", "proxy.toml", "--check"]);
    checked.assert(0, &["p at http://", "with its own key", "people (1)"]);

    let proxy = Running::start(&scratch, &["proxy.toml", "--verbose"]);
    let mut seen = checked.all();
    // The last call but one makes the provider unavailable.
    for model in ["slow-1", "nobody", "key", "quota"] {
        for key in ["sk-people-secret", "sk-stranger-secret"] {
            let body = format!("{{\"model\":\"{model}\",\"messages\":[\"sk-body-secret\"]}}");
            let answer = read(proxy.send("POST", CHAT, &format!("authorization: Bearer {key}\r\n"), &body));
            if model != "nobody" {
                seen.push_str(&answer);
            }
        }
    }
    for page in ["/healthz", "/metrics", "/why", "/nowhere"] {
        seen.push_str(&proxy.get(page));
    }
    proxy.interrupt();
    let (code, stderr) = proxy.end();
    seen.push_str(&stderr);
    assert_eq!(code, 0, "{stderr}");
    assert!(!seen.contains("secret"), "{seen}");
    let line = "POST /v1/chat/completions tenant=\"people\" priority=normal to=\"p/slow-1/chat\" status=200";
    assert!(stderr.contains(line) && stderr.contains("tenant=\"key-"), "{stderr}");
    assert!(seen.contains("\"tenant\":\"people\"") && seen.contains("tenant=\"people\",code=\"200\"} 2"), "{seen}");
}

#[test]
fn an_interrupt_lets_calls_finish_and_a_second_interrupt_aborts_them() {
    let (base_url, provider) = provider();
    let scratch = Scratch::new(0);
    let start = || Running::start(&scratch, &["--upstream", &base_url, "--listen", "127.0.0.1:0"]);
    for cut in [false, true] {
        let proxy = start();
        let out = proxy.send("POST", CHAT, "", "{\"model\":\"held\"}");
        proxy.until("\"in_flight\":1");
        proxy.interrupt();
        wait_until(|| TcpStream::connect(&proxy.address).is_ok(), |accepts| !accepts);
        if cut {
            proxy.interrupt();
            assert_eq!(proxy.end().0, 130);
        } else {
            provider.go.add_permits(1);
            assert!(read(out).contains("held"));
            assert_eq!(proxy.end().0, 0);
        }
    }
}

/// Reads from a stream until `text` has arrived.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    let mut byte = [0; 1];
    while !seen.contains(text) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "the end: {seen}");
        seen.push(char::from(byte[0]));
    }
    seen
}

#[test]
fn a_restart_loses_no_stream_and_the_next_proxy_can_bind_the_same_address_meanwhile() {
    let (base_url, provider) = provider();
    let scratch = Scratch::new(0);
    let proxy = Running::start(&scratch, &["--upstream", &base_url, "--listen", "127.0.0.1:0"]);
    let mut stream = proxy.send("POST", CHAT, "", "{\"model\":\"stream-4\",\"stream\":true}");
    let mut seen = read_until(&mut stream, "\"0\"");
    proxy.signal("-TERM");
    wait_until(|| TcpStream::connect(&proxy.address).is_ok(), |accepts| !accepts);
    let next = Running::start(&scratch, &["--upstream", &base_url, "--listen", &proxy.address]);
    assert_eq!(next.address, proxy.address);
    assert!(read(next.send("POST", CHAT, "", "{\"model\":\"slow-1\"}")).contains("200 OK"));
    provider.go.add_permits(3);
    seen.push_str(&read(stream));
    for piece in ["\"0\"", "\"1\"", "\"2\"", "\"3\"", "data: [DONE]"] {
        assert!(seen.contains(piece), "{piece} is lost: {seen}");
    }
    assert!(seen.ends_with("\r\n0\r\n\r\n"), "the stream ends whole: {seen}");
    assert_eq!(proxy.end().0, 0);
    next.signal("-TERM");
    assert_eq!(next.end().0, 0);
}

#[test]
fn a_killed_client_leaves_no_waiter_and_no_call() {
    let (base_url, provider) = provider();
    let scratch = Scratch::new(0);
    scratch.write(
        "proxy.toml",
        &format!(
            "listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\nmax_parallel = 2\n"
        ),
    );
    let proxy = Running::start(&scratch, &["proxy.toml"]);
    let script = format!(
        "for n in 1 2 3 4 5; do (exec 3<>/dev/tcp/{}; printf 'POST {CHAT} HTTP/1.1\\r\\nhost: localhost\\r\\n\
         content-type: application/json\\r\\ncontent-length: 16\\r\\n\\r\\n{{\"model\":\"held\"}}' >&3; exec sleep 60 <&3) & done; wait",
        proxy.address.replace(':', "/")
    );
    // The clients are in one process group, so that all can be killed at once.
    let mut clients = Command::new("setsid").args(["bash", "-c", &script]).spawn().unwrap();
    proxy.until("\"in_flight\":2");
    proxy.until("\"waiting\":3");
    let killed = Command::new("kill").args(["-KILL", "--", &format!("-{}", clients.id())]).status().unwrap();
    assert!(killed.success());
    clients.wait().unwrap();
    proxy.until("\"in_flight\":0,\"status\":\"ok\",\"waiting\":0");
    wait_until(|| provider.in_flight(), |calls| *calls == 0);
    proxy.interrupt();
    assert_eq!(proxy.end().0, 0);
}

#[test]
fn errors_are_reported_before_anything_is_served() {
    let scratch = Scratch::new(0);
    scratch.run(&["proxy"]).assert(2, &["CONFIG.toml"]);
    scratch.run(&["proxy", "--upstream", "ftp://host"]).assert(2, &["--upstream is neither http nor https"]);
    scratch
        .run(&["proxy", "--upstream", "http://host/v1"])
        .assert(2, &["the clients' keys unencrypted", "allow_plain_http"]);
    scratch
        .write("proxy.toml", "[[providers]]\nname = \"p\"\nbase_url = \"http://h/v1\"\napi_key_env = \"UNSET_KEY\"\n");
    let ended = scratch.run(&["proxy", "proxy.toml", "--check"]);
    ended.assert(2, &["proxy.toml:4:15: the environment variable `UNSET_KEY` is not set"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = scratch.run(&["proxy", "--upstream", "http://127.0.0.1:1/v1", "--listen", &address]);
    ended.assert(2, &[&format!("cannot listen on {address}")]);
}

#[test]
fn admin_pages_can_have_their_own_address() {
    let (base_url, _) = provider();
    let scratch = Scratch::new(0);
    scratch.write(
        "proxy.toml",
        &format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\n"
        ),
    );
    let mut proxy = Running::start(&scratch, &["proxy.toml"]);
    assert!(proxy.get("/healthz").starts_with("HTTP/1.1 404"));
    let line = line(&mut proxy.stdout);
    let admin = line.strip_prefix("admin pages on http://").expect(&line);
    proxy.address = admin.to_string();
    assert!(proxy.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(proxy.get("/v1/models").starts_with("HTTP/1.1 404"));
    proxy.interrupt();
    assert_eq!(proxy.end().0, 0);
}
