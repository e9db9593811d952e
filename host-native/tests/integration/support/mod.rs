//! Shared support of the integration tests: a scratch directory to run the program in, and test servers.

pub(crate) mod authority;
#[cfg(unix)]
pub(crate) mod link;
pub(crate) mod patience;
pub(crate) mod provider;
pub(crate) mod redis_server;
#[cfg(unix)]
pub(crate) mod row_provider;
pub(crate) mod world;

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use axum::Router;
use serde_json::Value;
use tidegate_native::app::config::pipeline::{SourceText, document, schema};

/// Returns a CSV dataset of `rows` rows with the columns `id` and `note`.
pub(crate) fn dataset(rows: usize) -> String {
    let rows: Vec<String> = (0..rows).map(|row| format!("{row},entry {row} of the breakwater log\n")).collect();
    format!("id,note\n{}", rows.concat())
}

/// The exit code and output of a run of the program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Returns the exit code and both streams as one text.
    pub(crate) fn all(&self) -> String {
        format!("exit {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }

    /// Asserts that the exit code is `code` and that every part occurs in one of the streams.
    pub(crate) fn assert(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{}", self.all());
        for part in parts {
            assert!(self.all().contains(part), "{part:?} is missing:\n{}", self.all());
        }
    }
}

/// Sends `SIGINT` to a program.
#[cfg(unix)]
pub(crate) fn interrupt(program: &Child) {
    let sent = Command::new("kill").args(["-INT", &program.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    assert!(sent.success());
}

/// Interrupts a run that was started with `--json` at its first progress line, and again when it confirms the
/// first interrupt. Returns its exit code and its output.
#[cfg(unix)]
pub(crate) fn interrupt_twice(mut program: Child) -> (Option<i32>, String) {
    let mut output = String::new();
    for line in BufReader::new(program.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let is_first_progress = line.contains("\"kind\":\"progress\"") && !output.contains("\"kind\":\"progress\"");
        if is_first_progress || line.contains("again to stop at once") {
            interrupt(&program);
        }
        output.push_str(&line);
        output.push('\n');
    }
    (program.wait().unwrap().code(), output)
}

/// A temporary directory with a dataset, in which pipelines run.
pub(crate) struct Scratch {
    directory: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Scratch {
    /// Creates a directory with a dataset of `rows` rows in `data.csv`.
    pub(crate) fn new(rows: usize) -> Self {
        let scratch = Self { directory: tempfile::tempdir().unwrap(), environment: Vec::new() };
        scratch.write("data.csv", &dataset(rows));
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_string(), value.to_string()));
    }

    /// Returns a command that runs the program in this directory, without a proxy or a terminal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy).env_remove(proxy.to_uppercase());
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    /// Runs a shell command in this directory.
    pub(crate) fn shell(&self, line: &str) -> Ended {
        let mut command = self.command(&[]);
        let environment: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.directory.path()).stdin(Stdio::null());
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        ended(&mut command)
    }

    /// Runs `text` as a pipeline file, with output in `out`. Asserts that the JSON Schema accepts each file
    /// that the program accepts.
    pub(crate) fn run_pipeline(&self, text: &str) -> Ended {
        self.write("pipeline.toml", text);
        let ended = self.run(&["run", "pipeline.toml", "--out", "out"]);
        if matches!(ended.code, 0 | 6) {
            let document = document(&SourceText::new("pipeline.toml", text)).unwrap();
            let validator = jsonschema::validator_for(&serde_json::from_str(&schema()).unwrap()).unwrap();
            let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new(), "{text}");
        }
        ended
    }

    /// Returns all output rows, in file order.
    pub(crate) fn rows(&self, out: &str) -> Vec<Value> {
        lines(&self.path(out).join("rows"), |name| !name.contains(".dropped.") && !name.contains(".calls."))
    }

    /// Returns all dropped rows, in file order.
    pub(crate) fn dropped(&self, out: &str) -> Vec<Value> {
        let mut lines = self.lost(out);
        lines.retain(|line| line["reason"] != "unmade");
        lines
    }

    /// Returns the rows of partial row groups that were not made before a stop, in file order.
    #[cfg(unix)]
    pub(crate) fn unmade(&self, out: &str) -> Vec<Value> {
        let mut lines = self.lost(out);
        lines.retain(|line| line["reason"] == "unmade");
        lines
    }

    fn lost(&self, out: &str) -> Vec<Value> {
        lines(&self.path(out).join("rows"), |name| name.contains(".dropped."))
    }

    pub(crate) fn manifest(&self, out: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path(out).join("manifest.json")).unwrap()).unwrap()
    }
}

fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn lines(directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| wanted(name))
        .collect();
    names.sort();
    let text = names.iter().map(|name| std::fs::read_to_string(directory.join(name)).unwrap());
    text.flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()).collect()
}

/// Serves `router` on a loopback port until the test process ends, and returns the base address.
pub(crate) fn serve(router: Router) -> String {
    serve_on(TcpListener::bind("127.0.0.1:0").unwrap(), router)
}

/// Like [`serve`], on the address of `listener`.
pub(crate) fn serve_on(listener: TcpListener, router: Router) -> String {
    listener.set_nonblocking(true).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    address
}

/// Returns a pipeline with one model at `base_url` and one column that calls it.
pub(crate) fn remote_pipeline(base_url: &str, model_extra: &str, run: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n\
         [[models]]\nname = \"m\"\nprovider = \"remote\"\nbase_url = \"{base_url}\"\nmax_parallel = 4\n\
         cooldown = \"20ms\"\n{model_extra}\n\
         [[columns]]\nname = \"title\"\nmodel = \"m\"\nprompt = \"A title for: {{{{ note }}}}\"\n\
         [run]\nrow_group_size = 4\n{run}\n"
    )
}

/// Returns a pipeline with two columns and one mock model. `limit` holds the keys of its limit, one a line.
pub(crate) fn mock_pipeline(max_parallel: u32, limit: &str, mock: &str) -> String {
    format!(
        "[seed]\npath = \"data.csv\"\n\
         [[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = {max_parallel}\n{limit}\nmock = {{ {mock} }}\n\
         [[columns]]\nname = \"title\"\nmodel = \"m\"\nprompt = \"A title for: {{{{ note }}}}\"\n\
         [[columns]]\nname = \"loud\"\nkind = \"expression\"\ntemplate = \"{{{{ title | upper }}}}\"\n\
         [run]\nrow_group_size = 10\n"
    )
}
