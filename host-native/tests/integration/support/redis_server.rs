//! A Redis server of a test: `redis-server` of the system, on a free port of the loopback interface.
#![allow(dead_code, reason = "the unit tests of the host use their own part")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::patience::wait_until;

/// After this number of seconds, a server is killed even if its test was killed before it could stop it.
const MOST_SECONDS: &str = "600";

/// A running server without persistence. It is stopped on drop.
pub(crate) struct RedisServer {
    /// The program `timeout`, which ends with the server.
    child: Child,
    /// The process of the server. `None` while it is stopped.
    process: Option<String>,
    port: u16,
    /// The arguments besides those that each server has.
    arguments: Vec<String>,
    /// Where it runs. A replica writes its data there.
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server that requires the password `pass-word`.
    pub(crate) fn start_with_password() -> Self {
        Self::start_with(&["--requirepass", "pass-word"])
    }

    /// Starts a server with these arguments of `redis-server` besides those for its address.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        // Another process may take the port between its choice and its use.
        for _ in 0..10 {
            let (port, directory) = (free_port(), tempfile::tempdir().unwrap());
            let child = spawn(directory.path(), port, &arguments);
            let mut server = Self { child, process: None, port, arguments: arguments.clone(), directory };
            if server.find_process() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL with the password.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Returns the URL with the password for another port, which leads to the server.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let login = self.password().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis://{login}127.0.0.1:{port}")
    }

    fn password(&self) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == "--requirepass")?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// Sends a command and returns the answer. `None` if the server does not answer.
    pub(crate) fn send(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let login = self.password().map_or_else(String::new, |password| format!("AUTH {password}\r\n"));
        write!(stream, "{login}{command}\r\nQUIT\r\n").ok()?;
        // A sentinel knows no QUIT.
        stream.shutdown(Shutdown::Write).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Kills the server. Its data is lost.
    pub(crate) fn stop(&mut self) {
        self.signal("KILL");
        self.process = None;
        self.child.wait().unwrap();
    }

    /// Starts a stopped server again, at the same port.
    pub(crate) fn restart(&mut self) {
        // A server reads what it finds there.
        let _ = std::fs::remove_file(self.directory.path().join("dump.rdb"));
        self.child = spawn(self.directory.path(), self.port, &self.arguments);
        assert!(self.find_process(), "the port was taken");
    }

    /// Sends a signal to the server, such as `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        if let Some(process) = &self.process {
            assert!(Command::new("kill").args([&format!("-{signal}"), process]).status().unwrap().success());
        }
    }

    /// Waits until the server answers, and finds its process. Returns `false` if it has ended.
    fn find_process(&mut self) -> bool {
        let mut has_ended = false;
        wait_until(
            || {
                let info = self.send("INFO server").unwrap_or_default();
                let id = info.lines().find_map(|line| line.trim().strip_prefix("process_id:"));
                self.process = id.map(ToString::to_string);
                has_ended = self.child.try_wait().unwrap().is_some();
                has_ended || self.process.is_some()
            },
            |is_known| *is_known,
        );
        !has_ended
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            let _ = Command::new("kill").args(["-KILL", process]).status();
            let _ = self.child.wait();
        }
    }
}

/// Returns a port that no program uses now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(directory: &Path, port: u16, arguments: &[String]) -> Child {
    let mut command = Command::new("timeout");
    // A file of settings comes first.
    command.args(["--signal=KILL", MOST_SECONDS, "redis-server"]).args(arguments);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program `timeout` exists")
}
